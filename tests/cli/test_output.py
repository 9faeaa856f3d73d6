"""What is printed, and what is not."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from silkline.cli.output import (
    amount,
    counted,
    duration,
    pages,
    print_shown,
    print_stats,
    with_advice,
)
from silkline.queue.rows import Event, Progress, QueueStats, Reason, ShownJob

JOB = UUID(int=1)
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ('seconds', 'text'),
    [(0, '0 s'), (119, '119 s'), (120, '2 min'), (7200, '2 h'), (172800, '2 d')],
)
def test_times_are_told_in_one_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ('size', 'text'), [(0, '0 B'), (999, '999 B'), (4400, '4.4 KB'), (1234567, '1.23 MB')]
)
def test_amounts_are_told_in_three_digits(size: int, text: str) -> None:
    assert amount(size) == text


@pytest.mark.parametrize(('count', 'text'), [(0, '0 URLs'), (1, '1 URL'), (2, '2 URLs')])
def test_one_is_no_plural(count: int, text: str) -> None:
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


def test_the_speed_is_told_of_a_job_that_runs_only() -> None:
    assert pages(Progress(**progress())) == '3 done, 1.5/s'
    assert pages(Progress(**progress(status='completed'))) == '3 done'


def test_a_job_is_shown_with_its_url_and_history(capsys: pytest.CaptureFixture[str]) -> None:
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
    facts = progress(url='https://a.example/docs/', retry_count=1, attempt=2)
    print_shown(ShownJob(**facts, history=[event]))

    assert capsys.readouterr().out.splitlines() == [
        f'job       {JOB} (crawl of https://a.example/docs/)',
        'status    processing',
        'pages     3 done, 1.5/s',
        'read      1 KB',
        'attempt   2, with 1 of 3 retries spent',
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


def test_a_quiet_queue_is_told_in_few_words(capsys: pytest.CaptureFixture[str]) -> None:
    print_stats(stats())

    assert capsys.readouterr().out.splitlines() == [
        'pending     0',
        'processing  0',
        'paused      0',
        'ended       none in the last 24 hours',
        'workers     none: silkline worker starts one',
    ]


def test_a_busy_queue_is_told_with_what_its_jobs_wait_for(
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
        'pending     100 or more (100 or more in line, 2 behind another of the same host)',
        'processing  1',
        'paused      1',
        'ended       7 completed, 1 failed in the last 24 hours',
        'workers     1 live, 2 late; 1 of 1 slot busy',
        'waiting     2 min, the first in line',
    ]


@pytest.mark.parametrize(
    ('code', 'text', 'told'),
    [
        ('no_worker', 'No worker is alive.', 'No worker is alive: silkline worker'),
        ('paused', 'A user paused it.', f'A user paused it: silkline resume {JOB}'),
        ('stopped', 'It was stopped at 9.', f'It was stopped at 9: silkline resume {JOB}'),
        ('in_line', 'It is next in line.', 'It is next in line.'),
    ],
)
def test_why_a_job_waits_is_told_with_what_helps(code: str, text: str, told: str) -> None:
    assert with_advice(Reason(code=code, text=text), JOB) == told
