"""`silkline why JOB URL`: why a job did not crawl a URL."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from silkline.cli.why_url import verdict_of_rules
from silkline.crawl.urls import key_of
from silkline.queue.rows import Job
from tests.support.stack import StackProcess, own_stack
from tests.support.user import User

START = 'https://www.example.com/docs/'
NOW = datetime.now(UTC)


# Without a row: the rules of the job


def verdict(
    url: str, *, status: str = 'completed', redirected: tuple[str, ...] = (), **payload: Any
) -> tuple[str, str]:
    job = Job.model_validate(
        {
            'id': uuid4(),
            'kind': 'crawl',
            'payload': {'url': START, **payload},
            'status': status,
            'priority': 0,
            'attempt': 1,
            'retry_count': 0,
            'max_retries': 3,
            'progress_percentage': 0,
            'created_at': NOW,
            'run_after': NOW,
            **dict.fromkeys(
                (
                    'user_id',
                    'source_id',
                    'host',
                    'waits_for',
                    'worker_id',
                    'error_code',
                    'error_message',
                    'result',
                    'started_at',
                    'completed_at',
                )
            ),
        }
    )
    return verdict_of_rules(job, redirected, url)


SCOPES: list[tuple[str, dict[str, Any], str]] = [
    ('https://other.example/', {}, 'the crawl stays on host example.com'),
    ('https://other.example/', {'scope': 'domain'}, 'the crawl stays on domain example.com'),
    ('https://example.com/b', {'scope': 'prefix'}, 'the crawl stays below example.com/docs/'),
    (
        'https://a.example.com/',
        {'scope': 'domain', 'policy': {'deny_hosts': ['a.example.com']}},
        'the operator of this queue denies crawls of a.example.com',
    ),
    (
        'https://other.example/',
        {'policy': {'allow_hosts': ['example.com']}},
        'other.example is not one of the hosts that the operator of this queue allows',
    ),
]


@pytest.mark.parametrize(('url', 'payload', 'text'), SCOPES)
def test_a_url_out_of_scope_is_answered_with_the_scope(
    url: str, payload: dict[str, Any], text: str
) -> None:
    assert verdict(url, **payload) == ('out_of_scope', text)


def test_the_scope_includes_where_the_start_redirected_to() -> None:
    moved = 'https://new.example/'
    assert verdict(f'{moved}a', redirected=(moved,))[0] == 'not_found'
    assert verdict('https://x.example/', redirected=(moved,)) == (
        'out_of_scope',
        'the crawl stays on host example.com, new.example',
    )


def test_an_excluded_url_is_answered_with_the_pattern() -> None:
    url = 'https://example.com/a.pdf'
    assert verdict(url, exclude=['/x/', r'\.pdf$']) == (
        'excluded',
        r'it matches the exclude pattern \.pdf$',
    )
    assert verdict(url, include=['/docs/', '/blog/']) == (
        'excluded',
        'it matches no include pattern: /blog/, /docs/',
    )


def test_a_url_that_looks_like_a_trap_is_answered_as_one() -> None:
    assert verdict('https://example.com/up/up/up/')[0] == 'trap'


ALLOWED = [
    ('site', 'completed', 'the rules allow it, but no page that was read links to it'),
    ('site', 'processing', 'the rules allow it, but no page that was read so far links to it'),
    ('sitemap', 'stopped', 'the rules allow it, but no sitemap that was read names it'),
    ('page', 'completed', 'with strategy page, the job fetches only the URLs it was given'),
]


@pytest.mark.parametrize(('strategy', 'status', 'text'), ALLOWED)
def test_a_url_that_the_rules_allow_was_not_found(strategy: str, status: str, text: str) -> None:
    code, said = verdict('https://example.com/a', strategy=strategy, status=status)
    assert code == 'not_found'
    assert said.startswith(text)


def test_a_start_that_was_not_fetched_yet_is_answered_as_a_start() -> None:
    assert verdict(START, status='pending') == ('start', 'the job starts with it, and is pending')


def test_of_many_hosts_only_some_are_named() -> None:
    starts = tuple(f'https://{number}.example/' for number in range(1, 9))
    code, text = verdict('https://other.example/', redirected=starts)
    assert code == 'out_of_scope'
    assert text == (
        'the crawl stays on host 1.example, 2.example, 3.example, 4.example, 5.example and 4 more'
    )


# With a row, and as a user types it


@pytest.fixture(scope='module')
def stack() -> Iterator[StackProcess]:
    with own_stack() as stack:
        yield stack


@pytest.fixture(scope='module')
def user(stack: StackProcess) -> User:
    return User(stack.directory.parent)


@pytest.fixture(scope='module')
def job(stack: StackProcess, user: User) -> str:
    """A job with one page of each kind."""
    job = user.run('enqueue', 'https://bücher.example/').stdout.strip()
    front = 'https://xn--bcher-kva.example/'
    token = str(uuid4())
    stack.rpc('claim_crawl_jobs', p_worker_id=str(uuid4()), p_lease_tokens=[token])
    found = {'': None, 'deep': 'too_deep', 'gone': None, 'closed': None, 'later': None}
    keys = {path: str(key_of(front + path)) for path in found}
    discovered = [
        {
            'url_key': keys[path],
            'url': front + path,
            'depth': 1 if path else 0,
            **({'found_on': keys['']} if path else {}),
            **({'skip_reason': reason} if reason else {}),
        }
        for path, reason in found.items()
    ]
    stack.rpc(
        'checkpoint_crawl_job',
        p_lease_token=token,
        p_batch={'seq': 1, 'discovered': discovered},
        p_want=10,
    )
    stack.rpc(
        'checkpoint_crawl_job',
        p_lease_token=token,
        p_batch={
            'seq': 2,
            'finished': [
                {'url_key': keys[''], 'status': 'done', 'http_status': 200},
                {
                    'url_key': keys['gone'],
                    'status': 'error',
                    'http_status': 404,
                    'error': 'HTTP 404 Not Found',
                },
                {'url_key': keys['closed'], 'status': 'skipped', 'skip_reason': 'robots'},
            ],
        },
        p_want=0,
    )
    return job


ROWS = [
    ('', 'done: it was fetched (HTTP 200)\n'),
    ('deep', 'too_deep: more than max_depth links from the start\nfound on {front}\n'),
    ('gone', 'error: HTTP 404 Not Found\nfound on {front}\n'),
    ('closed', 'robots: disallowed by robots.txt\nfound on {front}\n'),
    ('later', 'in_progress: it is being fetched\nfound on {front}\n'),
]


@pytest.mark.parametrize(('path', 'answer'), ROWS)
def test_a_url_with_a_row_is_answered_with_it(user: User, job: str, path: str, answer: str) -> None:
    said = user.run('why', job, f'bücher.example/{path}').stdout
    assert said == answer.format(front='https://xn--bcher-kva.example/')


def test_a_url_without_a_row_is_answered_by_the_rules(user: User, job: str) -> None:
    assert user.run('why', job, 'https://other.example/').stdout == (
        'out_of_scope: the crawl stays on host xn--bcher-kva.example\n'
    )
    assert user.run('why', 'last', 'mailto:a@b.example').stdout.startswith('invalid_url: ')


def test_the_answer_as_json_has_the_row(user: User, job: str) -> None:
    [answer] = user.lines('why', job, 'https://bücher.example/closed', '--json')
    assert (answer['code'], answer['row']['status']) == ('robots', 'skipped')
    assert answer['found_on'] == 'https://xn--bcher-kva.example/'
    [answer] = user.lines('why', job, 'https://other.example/', '--json')
    assert (answer['code'], answer['row'], answer['job_id']) == ('out_of_scope', None, job)


def test_a_job_that_does_not_exist_is_reported(user: User, job: str) -> None:
    absent = str(uuid4())
    message = user.run('why', absent, 'https://other.example/', code=1).stderr
    assert message == f'silkline: there is no job {absent}\n'
