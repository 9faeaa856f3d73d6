"""Jobs, times, sizes and the state of the queue in words."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from silkline.cli.output import print_job_details, print_jobs, print_stats
from silkline.cli.wording import (
    byte_size,
    counted,
    describe_no_match,
    duration,
    page_counts,
    with_advice,
)
from silkline.queue.rows import Event, JobStatus, Progress, QueueStats, Reason, ShownJob
from tests.support.screen import screen_after

JOB = UUID(int=1)
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)

# Prints three lists of jobs.
LIST_JOBS = """
from datetime import UTC, datetime, timedelta
from uuid import UUID
from silkline.cli import output
from silkline.queue.rows import Job

now = datetime.now(UTC)


def job(number, url, **facts):
    row = {name: None for name in Job.model_fields}
    numbers = [name for name, field in Job.model_fields.items() if field.annotation in (int, float)]
    counts = dict.fromkeys(numbers, 0)
    given = {'id': UUID(int=number), 'kind': 'crawl', 'payload': {'url': url}, 'status': 'failed'}
    times = {'run_after': now, 'created_at': now - timedelta(days=3, hours=1)}
    return Job(**{**row, **counts, **given, **times, 'progress_percentage': 100, **facts})


one = job(0xA, 'https://a.example/')
output.print_jobs([one, job(0xB, f'https://{"b" * 60}.example/')])
output.print_jobs([one, job(0xC, 'https://c.example/', kind='audit')])
later = datetime(2999, 1, 2, 3, 4, 5).astimezone()
output.print_jobs([job(0xD, 'https://d.example/', status='pending', run_after=later)])
"""


@pytest.mark.parametrize(
    ('seconds', 'text'),
    [(0, '0 s'), (119, '119 s'), (120, '2 min'), (7200, '2 h'), (172800, '2 d')],
)
def test_durations_have_one_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ('size', 'text'), [(0, '0 B'), (999, '999 B'), (4400, '4.4 KB'), (1234567, '1.23 MB')]
)
def test_sizes_have_three_digits(size: int, text: str) -> None:
    assert byte_size(size) == text


@pytest.mark.parametrize(('count', 'text'), [(0, '0 URLs'), (1, '1 URL'), (2, '2 URLs')])
def test_one_is_singular(count: int, text: str) -> None:
    assert counted(count, 'URL') == text


def progress(**facts: Any) -> dict[str, Any]:
    """A job that has stored 3 pages."""
    counts = ('failed', 'skipped', 'pending', 'in_progress', 'changed', 'unchanged')
    return {
        'job_id': JOB,
        'kind': 'crawl',
        'host': 'a.example',
        'status': 'processing',
        'is_saving': False,
        'seq': 1,
        'event_seq': 1,
        'attempt': 1,
        'retry_count': 0,
        'max_retries': 3,
        'running_seconds': 4.2,
        'progress_percentage': 10,
        **{f'pages_{name}': 0 for name in counts},
        'pages_done': 3,
        'pages_new': 3,
        'pages_per_second': 1.5,
        'bytes': 1000,
        'eta_seconds': None,
        'current_url': None,
        'error_code': None,
        'error_message': None,
        'created_at': NOON,
        'started_at': NOON,
        'completed_at': None,
        'run_after': NOON,
        'now': NOON,
        **facts,
    }


def test_only_a_running_job_has_a_speed() -> None:
    assert page_counts(Progress(**progress())) == '3 done, 1.5/s'
    assert page_counts(Progress(**progress(status='completed'))) == '3 done'


def test_details_of_a_job_include_its_url_and_history(capsys: pytest.CaptureFixture[str]) -> None:
    event = Event(
        seq=1,
        at=NOON,
        from_status=None,
        to_status='pending',
        actor='user',
        reason='enqueue',
        attempt=0,
        error_code=None,
    )
    refused = {'out_of_scope': 12, 'excluded': 1}
    facts = progress(
        url='https://a.example/docs/',
        retry_count=1,
        attempt=2,
        links_refused=refused,
        pages_with_warnings=2,
        page_warnings={'code_lost': 1, 'cut': 2},
    )
    print_job_details(ShownJob(**facts, history=[event]))

    assert capsys.readouterr().out.splitlines() == [
        f'job       {JOB} (crawl of https://a.example/docs/)',
        'status    processing',
        'pages     3 done, 1.5/s',
        'read      1 KB',
        'refused   12 links outside the scope of the job, 1 link ruled out by include or exclude',
        'warnings  2 pages: 2 cut, 1 code_lost',
        'attempt   2, 1 of 3 retries used',
        '2026-11-16 12:00:00             -> pending    enqueue by user',
    ]


def stats(**facts: Any) -> QueueStats:
    nobody = {'live': 0, 'late': 0, 'slots': 0, 'busy_slots': 0}
    quiet: dict[str, Any] = {
        'open': {'paused': 0, 'pending': 0, 'processing': 0},
        'pending': {'host': 0, 'time': 0, 'owner': 0, 'in_line': 0},
        'ended_in_24_hours': {},
        'workers': nobody,
        'oldest_in_line_seconds': None,
        'count_limit': 100,
    }
    return QueueStats(**{**quiet, **facts})


def test_stats_of_an_idle_queue_are_short(capsys: pytest.CaptureFixture[str]) -> None:
    print_stats(stats())

    assert capsys.readouterr().out.splitlines() == [
        'pending     0',
        'processing  0',
        'paused      0',
        'ended       none in the last 24 hours',
        'workers     none: start one with silkline worker',
    ]


def test_stats_of_a_busy_queue_say_what_its_jobs_wait_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    busy = stats(
        open={'paused': 1, 'pending': 100, 'processing': 1},
        pending={'host': 2, 'time': 0, 'owner': 0, 'in_line': 100},
        ended_in_24_hours={'failed': 1, 'completed': 7},
        workers={'live': 1, 'late': 2, 'slots': 1, 'busy_slots': 1},
        oldest_in_line_seconds=130.0,
    )
    print_stats(busy)

    assert capsys.readouterr().out.splitlines() == [
        'pending     100 or more (100 or more ready to run,'
        ' 2 waiting for another job of the same host)',
        'processing  1',
        'paused      1',
        'ended       7 completed, 1 failed in the last 24 hours',
        'workers     1 live, 2 late; 1 of 1 slot busy',
        'waiting     2 min, the oldest job that is ready to run',
    ]


@pytest.mark.parametrize(
    ('code', 'text', 'printed'),
    [
        ('no_worker', 'No worker is alive.', 'No worker is alive: silkline worker'),
        ('paused', 'A user paused it.', f'A user paused it: silkline resume {JOB}'),
        ('stopped', 'It was stopped at 9.', f'It was stopped at 9: silkline resume {JOB}'),
        ('in_line', 'It is next in line.', 'It is next in line.'),
    ],
)
def test_a_reason_is_followed_by_the_command_that_helps(code: str, text: str, printed: str) -> None:
    assert with_advice(Reason(code=code, text=text), JOB) == printed


def test_an_empty_list_of_jobs_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    print_jobs([])

    assert capsys.readouterr() == ('', 'no jobs yet: silkline crawl URL starts one\n')


@pytest.mark.parametrize(
    ('statuses', 'host', 'message'),
    [
        (['stopped', 'failed'], None, 'no stopped or failed jobs'),
        ([], 'a.example', 'no jobs for host a.example; include the port if its URLs have one'),
        (
            ['failed'],
            'a.example',
            'no failed jobs for host a.example; include the port if its URLs have one',
        ),
    ],
)
def test_filters_that_match_no_job_are_named(
    statuses: list[JobStatus], host: str | None, message: str
) -> None:
    assert describe_no_match(statuses, host) == message


def test_on_a_terminal_a_job_takes_one_line_unless_its_url_is_long() -> None:
    lines = screen_after(LIST_JOBS)

    assert lines[0].split() == ['job', 'status', 'done', 'enqueued', 'url']
    assert lines[1] == '00000000000a  failed  100 %  3 d ago   https://a.example/'
    assert lines[2] == '00000000000b  failed  100 %  3 d ago'
    assert lines[3] == f'  https://{"b" * 60}.example/'


def test_the_kinds_of_jobs_are_listed_only_if_they_differ() -> None:
    lines = screen_after(LIST_JOBS)

    assert lines[4].split() == ['job', 'status', 'done', 'enqueued', 'kind', 'url']
    assert lines[6].split()[-2:] == ['audit', 'https://c.example/']


def test_a_job_that_is_not_due_is_listed_with_its_time() -> None:
    assert 'pending (not before 2999-01-02 03:04:05)' in screen_after(LIST_JOBS)[-2]
