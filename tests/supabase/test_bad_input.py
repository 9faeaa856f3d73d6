"""Every function of the API with every kind of bad input.

Each bad call is refused with a code and a sentence, and changes no row. What the functions do with
good input is tested in supabase/tests.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb
from psycopg.types.numeric import Float4

from tests.support.database import Database
from tests.support.queue import (
    checkpoint,
    claim_one,
    digest,
    enqueue,
    fetched,
    found,
    sqlstate,
)
from tests.support.servers import Server


class Known(Enum):
    """Placeholders in the arguments of a call, for values that only the test database has."""

    OWN_JOB = auto()
    STRANGE_JOB = auto()
    UNKNOWN_JOB = auto()
    LEASE = auto()
    UNKNOWN = auto()


HUGE = 'x' * 10_000_000
URL = 'https://site.example/'

# JSON: a number of 62 KB, one with as many decimals as Postgres takes, and numbers of a few bytes
# that are 131,072 digits long when they are written out.
DIGITS = '9' * 62_000
DECIMALS = '0.' + '9' * 16_383
MANY_DIGITS = f'[{"1e131071," * 3000}1]'

# The seq of a batch that has not been sent yet.
NEW = 2

USER, WORKER, SERVICE = 'authenticated', 'crawl_worker', 'service_role'


@dataclass(frozen=True, slots=True)
class Function:
    """One function of the API: who may call it, and arguments that it accepts."""

    caller: str
    good: dict[str, Any] = field(default_factory=dict[str, Any])


FUNCTIONS = {
    'enqueue_crawl_job': Function(USER, {'p_payload': {'url': URL}}),
    'enqueue_crawl_jobs': Function(USER, {'p_jobs': [{'payload': {'url': URL}}]}),
    'pause_crawl_job': Function(USER, {'p_job_id': Known.OWN_JOB}),
    'resume_crawl_job': Function(USER, {'p_job_id': Known.OWN_JOB}),
    'stop_crawl_job': Function(USER, {'p_job_id': Known.OWN_JOB}),
    'cancel_crawl_job': Function(USER, {'p_job_id': Known.OWN_JOB}),
    'retry_crawl_job': Function(USER, {'p_job_id': Known.OWN_JOB}),
    'pause_crawl_jobs': Function(USER, {'p_filter': {'host': 'none.example'}}),
    'resume_crawl_jobs': Function(USER, {'p_filter': {'host': 'none.example'}}),
    'stop_crawl_jobs': Function(USER, {'p_filter': {'host': 'none.example'}}),
    'cancel_crawl_jobs': Function(USER, {'p_filter': {'host': 'none.example'}}),
    'retry_crawl_jobs': Function(USER, {'p_filter': {'host': 'none.example'}}),
    'crawl_progress': Function(USER, {'p_job_id': Known.OWN_JOB}),
    'explain_crawl_job': Function(USER, {'p_job_id': Known.OWN_JOB}),
    'crawl_job_pages': Function(USER, {'p_job_id': Known.OWN_JOB}),
    'pending_crawl_work': Function(USER),
    'crawl_queue_stats': Function(USER),
    'claim_crawl_jobs': Function(WORKER, {'p_worker_id': Known.UNKNOWN, 'p_lease_tokens': []}),
    'heartbeat_crawl_jobs': Function(WORKER, {'p_worker_id': Known.UNKNOWN, 'p_lease_tokens': []}),
    'checkpoint_crawl_job': Function(WORKER, {'p_lease_token': Known.LEASE, 'p_batch': {'seq': 2}}),
    'complete_crawl_job': Function(WORKER, {'p_lease_token': Known.LEASE}),
    'complete_crawl_jobs': Function(WORKER, {'p_lease_tokens': []}),
    'fail_crawl_job': Function(WORKER, {'p_lease_token': Known.LEASE, 'p_error_code': 'oom'}),
    'release_crawl_job': Function(WORKER, {'p_lease_token': Known.LEASE}),
    'reap_crawl_jobs': Function(WORKER),
    'maintain_crawl_queue': Function(SERVICE),
    'list_crawl_workers': Function(SERVICE),
    'crawl_doctor': Function(SERVICE),
}
OF_A_JOB = [name for name, function in FUNCTIONS.items() if 'p_job_id' in function.good]
OF_A_FILTER = [name for name, function in FUNCTIONS.items() if 'p_filter' in function.good]
OF_A_LEASE = [name for name, function in FUNCTIONS.items() if 'p_lease_token' in function.good]


@dataclass(frozen=True, slots=True)
class World:
    """A queue with two users, a crawl in flight, and an ended job."""

    database: Database
    user: UUID
    values: dict[Known, UUID]

    def fill_in(self, params: dict[str, Any]) -> dict[str, Any]:
        return {
            name: self.values[value] if isinstance(value, Known) else value
            for name, value in params.items()
        }

    def call(self, name: str, caller: str | None = None, **bad: Any) -> Any:
        function = FUNCTIONS[name]
        caller = caller or function.caller
        return self.database.call(
            name,
            role=caller,
            user=self.user if caller == USER else None,
            **self.fill_in(function.good | bad),
        )


@pytest.fixture(scope='module')
def world(server: Server, template: str) -> Iterator[World]:
    with server.database(template) as database:
        user, stranger = database.user(), database.user()
        own_job = enqueue(database, user=user)
        lease = claim_one(database)
        checkpoint(
            database, lease.token, 1, want=2, discovered=[found(number) for number in range(1, 5)]
        )
        ended = enqueue(database, 'ended.example', user=user)
        database.call('cancel_crawl_job', user=user, p_job_id=ended)
        strange_job = enqueue(database, 'strange.example', user=stranger)
        values = {
            Known.OWN_JOB: own_job,
            Known.STRANGE_JOB: strange_job,
            Known.UNKNOWN_JOB: uuid4(),
            Known.LEASE: lease.token,
            Known.UNKNOWN: uuid4(),
        }
        yield World(database, user, values)


@dataclass(frozen=True, slots=True)
class Bad:
    """One bad call, and the start of the SQLSTATE that refuses it."""

    function: str
    what: str
    params: dict[str, Any]
    code: str = 'PT4'
    caller: str | None = None

    def __str__(self) -> str:
        return f'{self.function}-{self.what}'.replace(' ', '_')


def raw(text: str) -> Jsonb:
    """A parameter that is this JSON, digit by digit."""
    return Jsonb(text, dumps=str)


def payloads() -> Iterator[Bad]:
    """Bad payloads, for both enqueue functions."""
    bad = {
        'no url': {},
        'a javascript url': {'url': 'javascript:alert(1)'},
        'a file url': {'url': 'file:///etc/passwd'},
        'a url with a password': {'url': 'https://user:secret@site.example/'},
        'a url with a space': {'url': 'https://site.example/a b'},
        'a url without a host': {'url': 'https:///path'},
        'a url with a line break': {'url': 'https://site.example/\r\nX: y'},
        'a url with a backslash': {'url': 'https://site.example\\@evil.example/'},
        'a url with a bad port': {'url': 'https://site.example:port/'},
        'a long url': {'url': URL + 'x' * 2048},
        'a long host': {'url': f'https://{"x" * 400}.example/'},
        'an international host': {'url': 'https://b\u00fccher.example/'},
        'a percent-encoded host': {'url': 'https://s%69te.example/'},
        'a full-width host': {'url': 'https://\uff53ite.example/'},
        'a host with a soft hyphen': {'url': 'https://si\u00adte.example/'},
        'a host with an empty label': {'url': 'https://site..example/'},
        'a host that is a number': {'url': 'https://2130706433/'},
        'a host that is half an address': {'url': 'https://[::1/'},
        'a port above 65535': {'url': 'https://site.example:65536/'},
        'a port of 2,000 digits': {'url': f'https://site.example:{"1" * 2000}/'},
        'a number for a url': {'url': 5},
        'null for a url': {'url': None},
        'an unknown key': {'url': URL, 'max_pagse': 5},
        'negative max_pages': {'url': URL, 'max_pages': -1},
        'a fraction for max_pages': {'url': URL, 'max_pages': 1.5},
        'a decimal point in max_pages': {'url': URL, 'max_pages': 3.0},
        'a decimal point in max_retries': {'url': URL, 'max_retries': 3.0},
        'text for max_pages': {'url': URL, 'max_pages': '5'},
        'null for max_pages': {'url': URL, 'max_pages': None},
        'huge max_pages': {'url': URL, 'max_pages': 10**30},
        'negative delay': {'url': URL, 'delay_seconds': -0.1},
        'no tries': {'url': URL, 'tries': 0},
        'too many tries': {'url': URL, 'tries': 11},
        'a pause of hours': {'url': URL, 'retry_seconds': 3601},
        'negative max_retries': {'url': URL, 'max_retries': -1},
        'an unknown strategy': {'url': URL, 'strategy': 'everything'},
        'text for a boolean': {'url': URL, 'obey_robots': 'no'},
        'the fetcher null': {'url': URL, 'fetcher': 'null'},
        'a policy': {'url': URL, 'policy': {'deny_hosts': []}},
        'text for a list': {'url': URL, 'include': '.*'},
        'a list with an empty string': {'url': URL, 'include': ['']},
        'a list of null': {'url': URL, 'include': [None]},
        'a long list': {'url': URL, 'include': ['x'] * 101},
        'urls without strategy list': {'url': URL, 'urls': [URL]},
        'strategy list without urls': {'strategy': 'list'},
        'strategy list with no urls': {'strategy': 'list', 'urls': []},
        'an international host in urls': {
            'strategy': 'list',
            'urls': ['https://b\u00fccher.example'],
        },
        'a javascript url in urls': {'strategy': 'list', 'urls': [URL, 'javascript:alert(1)']},
        'null in urls': {'strategy': 'list', 'urls': [None]},
        'ten megabytes': {'url': URL, 'user_agent': HUGE},
        'ten megabytes of keys': {'url': URL, HUGE: 1},
    }
    for what, payload in bad.items():
        yield Bad('enqueue_crawl_job', what, {'p_payload': payload})
        yield Bad(
            'enqueue_crawl_jobs',
            what,
            {'p_jobs': [{'payload': {'url': URL}}, {'payload': payload}]},
        )
    for what, payload in {
        'many digits in max_pages': f'{{"url": "{URL}", "max_pages": {DIGITS}}}',
        'many decimals in max_pages': f'{{"url": "{URL}", "max_pages": {DECIMALS}}}',
        'many decimals in delay_seconds': f'{{"url": "{URL}", "delay_seconds": {DECIMALS}}}',
        'many digits in obey_robots': f'{{"url": "{URL}", "obey_robots": {DIGITS}}}',
        'many digits for a string': f'{{"url": "{URL}", "scope": {MANY_DIGITS}}}',
        'many digits in include': f'{{"url": "{URL}", "include": [{DIGITS}]}}',
        'a long list of digits in include': f'{{"url": "{URL}", "include": {MANY_DIGITS}}}',
        'many digits for a url': f'{{"url": {MANY_DIGITS}}}',
        'many digits in urls': f'{{"strategy": "list", "urls": {MANY_DIGITS}}}',
        'many digits for a strategy': f'{{"url": "{URL}", "strategy": {MANY_DIGITS}}}',
        'many digits in an unknown key': f'{{"url": "{URL}", "{DIGITS}": {MANY_DIGITS}}}',
    }.items():
        yield Bad('enqueue_crawl_job', what, {'p_payload': raw(payload)})
        yield Bad('enqueue_crawl_jobs', what, {'p_jobs': raw(f'[{{"payload": {payload}}}]')})


def jobs() -> Iterator[Bad]:
    """Other bad arguments of the enqueue functions."""
    for what, params in {
        'null payload': {'p_payload': None},
        'a list for a payload': {'p_payload': Jsonb([])},
        'a string for a payload': {'p_payload': Jsonb('x')},
        'an unknown kind': {'p_kind': 'mining'},
        'the kind audit': {'p_kind': 'audit'},
        'an empty kind': {'p_kind': ''},
        'a low priority': {'p_priority': -101},
        'a high priority': {'p_priority': 101},
        'a huge priority': {'p_priority': 2_000_000_000},
        'an empty source': {'p_source_id': ''},
        'a long source': {'p_source_id': 'x' * 501},
        'ten megabytes of source': {'p_source_id': HUGE},
        'an empty idempotency key': {'p_idempotency_key': ''},
        'a long idempotency key': {'p_idempotency_key': 'x' * 201},
        'a run_after too far ahead': {'p_run_after': '2999-01-01'},
        'a run_after at infinity': {'p_run_after': 'infinity'},
        'a run_after before Christ': {'p_run_after': '0044-03-15 BC'},
        'a run_after in a year of five digits': {'p_run_after': '12026-01-01'},
        'another user as owner': {'p_user_id': str(uuid4())},
    }.items():
        yield Bad('enqueue_crawl_job', what, params)
    good = {'payload': {'url': URL}}
    for what, entries in {
        'null': None,
        'an object': Jsonb({}),
        'no jobs': Jsonb([]),
        'a string for a job': Jsonb(['x']),
        'null for a job': Jsonb([None]),
        'a job without a payload': Jsonb([{}]),
        'an unknown key in a job': Jsonb([{**good, 'user_id': str(uuid4())}]),
        'text for a priority': Jsonb([{**good, 'priority': 'high'}]),
        'a fraction for a priority': Jsonb([{**good, 'priority': 1.5}]),
        'a huge priority': Jsonb([{**good, 'priority': 10**30}]),
        'an object for a kind': Jsonb([{**good, 'kind': {}}]),
        'an audit after a crawl': Jsonb([good, {**good, 'kind': 'audit'}]),
        'one bad job after good ones': Jsonb([good, good, {'payload': {}}]),
        'too many jobs': Jsonb([good] * 10_001),
    }.items():
        yield Bad('enqueue_crawl_jobs', what, {'p_jobs': entries})
    for time_of_day in (
        'soon',
        '2026-02-31',
        '2027-02-29',
        '0000-01-01',
        '2026-12-31T24:00:00Z',
        '2026-12-31T08:00:60Z',
        '2026-12-31T08:00:00+24:00',
        '2026-12-31T08:00:00+16:00',
        '2026-12-31T08:00:00.' + '0' * 200,
        '2026-12-31T08:00:00 Mars/Olympus',
        HUGE,
    ):
        yield Bad(
            'enqueue_crawl_jobs',
            f'run_after {time_of_day[:40]}',
            {'p_jobs': Jsonb([{**good, 'run_after': time_of_day}])},
            'PT422',
        )
    for key in ('kind', 'priority', 'source_id', 'idempotency_key', 'run_after', 'colour'):
        for what, value in {
            'many digits': DIGITS,
            'many decimals': DECIMALS,
            'a list of many digits': MANY_DIGITS,
        }.items():
            job = f'[{{"payload": {{"url": "{URL}"}}, "{key}": {value}}}]'
            yield Bad('enqueue_crawl_jobs', f'{what} for {key}', {'p_jobs': raw(job)}, 'PT422')
    large = {'payload': {'url': URL, 'include': ['x' * 500] * 100}}
    yield Bad('enqueue_crawl_jobs', 'twenty megabytes', {'p_jobs': Jsonb([large] * 400)}, 'PT413')


def ids() -> Iterator[Bad]:
    for name in OF_A_JOB:
        yield Bad(name, 'null id', {'p_job_id': None})
        yield Bad(name, 'an unknown job', {'p_job_id': Known.UNKNOWN_JOB}, 'PT404')
        yield Bad(name, "another user's job", {'p_job_id': Known.STRANGE_JOB}, 'PT404')
    yield Bad('retry_crawl_job', 'null urls', {'p_urls': None})
    yield Bad('retry_crawl_job', 'unknown urls', {'p_urls': 'some'})
    yield Bad('retry_crawl_job', 'ten megabytes', {'p_urls': HUGE})
    yield Bad('retry_crawl_job', 'a running job', {'p_urls': 'all'}, 'PT409')
    for name in OF_A_FILTER:
        for what, chosen in {
            'null filter': None,
            'a list for a filter': Jsonb([]),
            'an empty filter': {},
            'an unknown key in a filter': {'color': 'red'},
            'all jobs denied': {'all': False},
            'a number for a host': {'host': 5},
            'an unknown status': {'status': 'eaten'},
            'null for a status': {'status': [None]},
            'text for a job': {'job_ids': ['x']},
            'too many jobs': {'job_ids': [str(UUID(int=1))] * 1001},
            'text for a time': {'created_before': 'soon'},
            'an impossible date': {'created_after': '2026-02-31'},
            'ten megabytes': {'host': HUGE},
        }.items():
            yield Bad(name, what, {'p_filter': chosen})
        for limit in (None, -1, 1001):
            yield Bad(name, f'limit {limit}', {'p_limit': limit})
        yield Bad(name, 'the jobs of another user', {'p_user_id': uuid4()}, 'PT403')
    yield Bad('retry_crawl_jobs', 'unknown urls', {'p_urls': 'some'})
    yield Bad('crawl_job_pages', 'an unknown status', {'p_status': 'eaten'})
    yield Bad('crawl_job_pages', 'ten megabytes', {'p_status': HUGE})
    for limit in (None, -1, 0, 1001, 2_000_000_000):
        yield Bad('crawl_job_pages', f'limit {limit}', {'p_limit': limit})


def lease_arguments() -> Iterator[Bad]:
    for name in OF_A_LEASE:
        yield Bad(name, 'null token', {'p_lease_token': None})
    for name in ('claim_crawl_jobs', 'heartbeat_crawl_jobs'):
        yield Bad(name, 'null worker', {'p_worker_id': None})
    for name in ('claim_crawl_jobs', 'heartbeat_crawl_jobs', 'complete_crawl_jobs'):
        yield Bad(name, 'null tokens', {'p_lease_tokens': None})
        yield Bad(name, 'a null token', {'p_lease_tokens': [uuid4(), None]})
        yield Bad(name, 'a token twice', {'p_lease_tokens': [UUID(int=1), UUID(int=1)]})
        yield Bad(name, 'lists of tokens', {'p_lease_tokens': [[uuid4()], [uuid4()]]})
        yield Bad(name, 'too many tokens', {'p_lease_tokens': [uuid4() for _ in range(1001)]})
    for what, worker in {
        'null worker description': None,
        'a list for a worker': Jsonb([]),
        'an unknown key in a worker': {'color': 'red'},
        'text for slots': {'slots': 'many'},
        'negative slots': {'slots': -1},
        'huge slots': {'slots': 10**30},
        'text for kinds': {'kinds': 'crawl'},
        'text for has_ended': {'has_ended': 'perhaps'},
        'ten megabytes of kinds': {'kinds': [HUGE]},
    }.items():
        yield Bad('heartbeat_crawl_jobs', what, {'p_worker': worker})
    yield Bad('complete_crawl_job', 'null result', {'p_result': None})
    yield Bad('complete_crawl_job', 'a list for a result', {'p_result': Jsonb([])})
    yield Bad('complete_crawl_job', 'ten megabytes', {'p_result': {'x': HUGE}})
    yield Bad('complete_crawl_job', 'urls left', {}, 'PT409')
    one = [UUID(int=1)]
    for what, results in {
        'an object for the results': Jsonb({}),
        'too many results': Jsonb([{}, {}]),
        'no results': Jsonb([]),
        'null for a result': Jsonb([None]),
        'a list for a result': Jsonb([[]]),
        'ten megabytes': Jsonb([{'x': HUGE}]),
    }.items():
        yield Bad('complete_crawl_jobs', what, {'p_lease_tokens': one, 'p_results': results})
    for seconds in ([], [1, 2], [None], [-0.1], [604_801], [float('inf')], [float('nan')]):
        times = [None if each is None else Float4(each) for each in seconds]
        yield Bad(
            'complete_crawl_jobs',
            f'running for {seconds}',
            {'p_lease_tokens': one, 'p_running_seconds': times},
        )
    yield Bad('fail_crawl_job', 'null code', {'p_error_code': None})
    yield Bad('fail_crawl_job', 'empty code', {'p_error_code': ''})
    yield Bad('fail_crawl_job', 'a sentence for a code', {'p_error_code': 'it broke'})
    yield Bad('fail_crawl_job', 'ten megabytes', {'p_error_code': HUGE})
    yield Bad('fail_crawl_job', 'a negative wait', {'p_retry_after_seconds': -1})
    yield Bad('fail_crawl_job', 'a wait of years', {'p_retry_after_seconds': 10**9})
    yield Bad('fail_crawl_job', 'a null suspect', {'p_suspects': [uuid4(), None]})
    yield Bad('fail_crawl_job', 'lists of suspects', {'p_suspects': [[uuid4()], [uuid4()]]})
    yield Bad('fail_crawl_job', 'many suspects', {'p_suspects': [UUID(int=1)] * 10_001})
    for seconds in (None, -1, 0, 86_401):
        later = {'p_reason': 'later', 'p_after_seconds': seconds}
        yield Bad('release_crawl_job', f'later in {seconds}', later)
    yield Bad('release_crawl_job', 'a shutdown with a wait', {'p_after_seconds': 5})
    yield Bad('release_crawl_job', 'null reason', {'p_reason': None})
    yield Bad('release_crawl_job', 'unknown reason', {'p_reason': 'tired'})
    yield Bad('release_crawl_job', 'ten megabytes', {'p_reason': HUGE})
    lost = {'p_reason': 'worker_restarted', 'p_running_seconds': 5}
    yield Bad('release_crawl_job', 'running time of a lost worker', lost)
    for name in ('complete_crawl_job', 'fail_crawl_job', 'release_crawl_job'):
        for seconds in (None, -0.1, 604_801, float('inf'), float('nan')):
            yield Bad(name, f'running for {seconds}', {'p_running_seconds': seconds})
    for limit in (None, -1, 0, 1001, 2_000_000_000):
        yield Bad('reap_crawl_jobs', f'limit {limit}', {'p_limit': limit})


def batches() -> Iterator[Bad]:
    for want in (None, -1, 1001):
        yield Bad('checkpoint_crawl_job', f'want {want}', {'p_want': want})
    one = str(UUID(int=1))
    for nth, (what, batch, code) in enumerate(
        (
            ('null', None, 'PT4'),
            ('a list', Jsonb([]), 'PT4'),
            ('no seq', {}, 'PT4'),
            ('seq null', {'seq': None}, 'PT4'),
            ('seq zero', {'seq': 0}, 'PT4'),
            ('negative seq', {'seq': -1}, 'PT4'),
            ('a fraction for seq', {'seq': 1.5}, 'PT4'),
            ('huge seq', {'seq': 10**30}, 'PT4'),
            ('text for seq', {'seq': 'two'}, 'PT4'),
            ('an unknown key', {'seq': NEW, 'pages': []}, 'PT4'),
            ('ten megabytes of key', {'seq': NEW, HUGE: []}, 'PT4'),
            ('an object for finished', {'seq': NEW, 'finished': {}}, 'PT4'),
            ('null for discovered', {'seq': NEW, 'discovered': None}, 'PT4'),
            ('a number for current_url', {'seq': NEW, 'current_url': 5}, 'PT4'),
            ('text for redirected_starts', {'seq': NEW, 'redirected_starts': URL}, 'PT4'),
            ('a number for a start', {'seq': NEW, 'redirected_starts': [5]}, 'PT4'),
            ('a file for a start', {'seq': NEW, 'redirected_starts': ['file:///x']}, 'PT4'),
            ('a long start', {'seq': NEW, 'redirected_starts': [URL + 'x' * 4096]}, 'PT4'),
            ('too many starts', {'seq': NEW, 'redirected_starts': [URL] * 101}, 'PT4'),
            ('text for want_links', {'seq': NEW, 'want_links': one}, 'PT4'),
            ('null in want_links', {'seq': NEW, 'want_links': [None]}, 'PT4'),
            ('text for a key in want_links', {'seq': NEW, 'want_links': ['x']}, 'PT4|22'),
            ('too many want_links', {'seq': NEW, 'want_links': [one] * 501}, 'PT4'),
            ('text for unfetched', {'seq': NEW, 'finished': [fetched(1, unfetched='x')]}, 'PT4|22'),
            ('too many finished', {'seq': NEW, 'finished': [{}] * 5001}, 'PT4'),
            ('too many discovered', {'seq': NEW, 'discovered': [{}] * 50001}, 'PT4'),
            (
                'an unfinished status',
                {'seq': NEW, 'finished': [fetched(1, status='pending')]},
                'PT4',
            ),
            ('strings in finished', {'seq': NEW, 'finished': ['x']}, 'PT4|22'),
            ('an unknown status', {'seq': NEW, 'finished': [fetched(1, status='eaten')]}, 'PT4|22'),
            ('text for a key', {'seq': NEW, 'finished': [fetched(1, url_key='x')]}, 'PT4|22'),
            ('text for bytes', {'seq': NEW, 'finished': [fetched(1, bytes='many')]}, 'PT4|22'),
            (
                'an unknown skip reason',
                {
                    'seq': NEW,
                    'finished': [{'url_key': one, 'status': 'skipped', 'skip_reason': 'x'}],
                },
                'PT4|23514',
            ),
            (
                'skipped without a reason',
                {'seq': NEW, 'finished': [{'url_key': one, 'status': 'skipped'}]},
                'PT4|23514',
            ),
            (
                'a page without a hash',
                {
                    'seq': NEW,
                    'finished': [{'url_key': one, 'status': 'done', 'page': {'url': URL}}],
                },
                'PT4|23502',
            ),
            *(
                (
                    f'a quality that is {what}',
                    {
                        'seq': NEW,
                        'finished': [
                            fetched(1, page={'url': URL, 'content_hash': 'h', 'quality': quality})
                        ],
                    },
                    'PT4',
                )
                for what, quality in {
                    'text': 'good',
                    'a list': [{'warnings': []}],
                    'huge': {'kept': 'x' * 3000},
                    'text for warnings': {'warnings': 'cut'},
                    'an object for warnings': {'warnings': {'cut': 1}},
                    'an unknown warning': {'warnings': ['cut', 'eaten']},
                    'a list in warnings': {'warnings': [['cut']]},
                    'null in warnings': {'warnings': [None]},
                }.items()
            ),
            ('a link without a url', {'seq': NEW, 'discovered': [found(9, url=None)]}, 'PT4|23502'),
            ('a link without a key', {'seq': NEW, 'discovered': [{'url': URL}]}, 'PT4|23502'),
            ('negative depth', {'seq': NEW, 'discovered': [found(9, depth=-1)]}, 'PT4|23514'),
            ('huge depth', {'seq': NEW, 'discovered': [found(9, depth=10**6)]}, 'PT4|22'),
            ('a long link', {'seq': NEW, 'discovered': [found(9, url=URL + HUGE)]}, 'PT4|23514'),
            ('a host without a name', {'seq': NEW, 'hosts': [{'error_streak': 1}]}, 'PT4|23502'),
            (
                'a negative delay',
                {'seq': NEW, 'hosts': [{'host': 'x', 'crawl_delay_seconds': -1}]},
                'PT4|23514',
            ),
            (
                'text for a delay',
                {'seq': NEW, 'hosts': [{'host': 'x', 'crawl_delay_seconds': 'long'}]},
                'PT4|22',
            ),
            (
                'text for a wait',
                {'seq': NEW, 'retried': [{'url_key': one, 'after_seconds': 'long'}]},
                'PT4|22',
            ),
        )
    ):
        # Each has its own seq: after one that was accepted, the next must not count as a repeat.
        if isinstance(batch, dict) and batch.get('seq') == NEW:
            batch = batch | {'seq': NEW + nth}
        yield Bad('checkpoint_crawl_job', what, {'p_batch': batch}, code)


WRONG_TYPES = {
    'p_payload': '{',
    'p_jobs': '{',
    'p_priority': 'high',
    'p_run_after': 'soon',
    'p_user_id': 'me',
    'p_job_id': '1',
    'p_worker_id': '1',
    'p_lease_tokens': 'x',
    'p_kinds': 'crawl',
    'p_worker': '{',
    'p_lease_token': '1',
    'p_batch': '{',
    'p_want': 'many',
    'p_result': '{',
    'p_audit': '{',
    'p_is_retryable': 'perhaps',
    'p_retry_after_seconds': 'soon',
    'p_running_seconds': 'long',
    'p_filter': '{',
    'p_results': '{',
    'p_limit': 'all',
}
OPTIONAL = {
    'enqueue_crawl_job': ('p_priority', 'p_run_after', 'p_user_id'),
    'enqueue_crawl_jobs': ('p_user_id',),
    'claim_crawl_jobs': ('p_kinds',),
    'heartbeat_crawl_jobs': ('p_worker',),
    'checkpoint_crawl_job': ('p_want',),
    'complete_crawl_job': ('p_result', 'p_audit', 'p_running_seconds'),
    'complete_crawl_jobs': ('p_results', 'p_running_seconds'),
    **{name: ('p_limit', 'p_user_id') for name in OF_A_FILTER},
    'fail_crawl_job': ('p_is_retryable', 'p_retry_after_seconds', 'p_running_seconds'),
    'release_crawl_job': ('p_running_seconds',),
    'reap_crawl_jobs': ('p_limit',),
}


def wrong_types() -> Iterator[Bad]:
    for name, function in FUNCTIONS.items():
        for parameter in (*function.good, *OPTIONAL.get(name, ())):
            if parameter in WRONG_TYPES:
                yield Bad(
                    name, f'wrong type of {parameter}', {parameter: WRONG_TYPES[parameter]}, '22'
                )


def callers() -> Iterator[Bad]:
    for name, function in FUNCTIONS.items():
        for caller in ('anon', USER, WORKER):
            if caller != function.caller:
                yield Bad(name, f'called by {caller}', {}, '42501', caller)


BAD_CALLS = [
    *payloads(),
    *jobs(),
    *ids(),
    *lease_arguments(),
    *batches(),
    *wrong_types(),
    *callers(),
]


@pytest.mark.parametrize('bad', BAD_CALLS, ids=str)
def test_a_bad_call_is_refused_with_a_sentence_and_changes_no_row(world: World, bad: Bad) -> None:
    before = digest(world.database)

    with pytest.raises(psycopg.Error) as refused:
        world.call(bad.function, bad.caller, **bad.params)

    assert refused.value.sqlstate is not None
    assert refused.value.sqlstate.startswith(tuple(bad.code.split('|'))), refused.value
    message = refused.value.diag.message_primary or ''
    assert len(message.split()) >= 3
    assert len(message) < 500
    if refused.value.sqlstate.startswith('PT'):
        assert len(message) <= 300
        assert refused.value.diag.message_hint
    assert digest(world.database) == before


@pytest.mark.parametrize(
    'job',
    [
        f'{{"payload": {{"url": "{URL}", "max_pages": {DIGITS}}}}}',
        f'{{"payload": {{"url": "{URL}", "max_pages": {DECIMALS}}}}}',
        f'{{"payload": {{"url": "{URL}", "include": [{DIGITS}]}}}}',
        f'{{"payload": {{"url": "{URL}", "include": {MANY_DIGITS}}}}}',
        f'{{"payload": {{"url": "{URL}", "markdown": {MANY_DIGITS}}}}}',
        f'{{"payload": {{"url": {MANY_DIGITS}}}}}',
        f'{{"payload": {{"strategy": "list", "urls": {MANY_DIGITS}}}}}',
        f'{{"payload": {{"url": "{URL}"}}, "priority": {DIGITS}}}',
        f'{{"payload": {{"url": "{URL}"}}, "source_id": {MANY_DIGITS}}}',
        f'{{"payload": {{"sizes": [{DIGITS}]}}, "kind": "mine"}}',
        f'{{"payload": {{"sizes": {MANY_DIGITS}}}, "kind": "mine"}}',
    ],
    ids=lambda job: job[:60],
)
def test_a_number_of_62_kilobytes_is_refused_within_50_milliseconds(
    database: Database, job: str
) -> None:
    database.query("update crawl_settings set plugin_kinds = '{mine}' where id")
    user = database.user()
    call = partial(database.call, 'enqueue_crawl_jobs', user=user, p_jobs=raw(f'[{job}]'))

    # Other tests share the processors: the best of some calls is what the call costs.
    def seconds() -> float:
        began_at = time.monotonic()
        assert sqlstate(call) == 'PT422'
        return time.monotonic() - began_at

    assert min(seconds() for _ in range(5)) < 0.05


def test_the_hint_for_a_mistyped_option_lists_the_options(world: World) -> None:
    with pytest.raises(psycopg.Error) as refused:
        world.call('enqueue_crawl_job', p_payload={'url': URL, 'max_pagse': 5})

    hint = refused.value.diag.message_hint or ''
    assert hint.startswith('Options are ')
    assert 'max_pages' in hint


@pytest.mark.parametrize('name', OF_A_LEASE)
def test_an_unknown_token_gets_lost_and_changes_no_row(world: World, name: str) -> None:
    before = digest(world.database)

    [answer] = world.call(name, p_lease_token=Known.UNKNOWN)

    assert answer.get('checkpoint_crawl_job', answer)['command'] == 'lost'
    assert digest(world.database) == before


@pytest.mark.parametrize('kinds', [[], ['mining'], [None]], ids=str)
def test_a_claim_of_kinds_without_jobs_takes_nothing(world: World, kinds: list[str | None]) -> None:
    before = digest(world.database)

    assert world.call('claim_crawl_jobs', p_lease_tokens=[uuid4()], p_kinds=kinds) == []

    # A claim may note where the lines begin.
    after = digest(world.database)
    noted = {'silkline.lines', 'silkline.time_floors'}
    assert {name for name in before if after[name] != before[name]} <= noted


def test_a_caller_who_is_not_signed_in_gets_pt401(world: World) -> None:
    before = digest(world.database)

    for name in ('enqueue_crawl_job', 'pause_crawl_job', 'cancel_crawl_job', 'retry_crawl_job'):
        params = world.fill_in(FUNCTIONS[name].good)
        call = partial(world.database.call, name, role=USER, **params)
        assert sqlstate(call) == 'PT401'

    assert digest(world.database) == before


def test_bad_calls_cover_every_function_of_the_api(world: World) -> None:
    rows = world.database.query(
        """
        select function.proname as name
        from pg_proc as function
        where function.pronamespace = 'public'::regnamespace
          and function.prokind = 'f'
          and function.proname like '%crawl%'
        """
    )
    assert {row['name'] for row in rows} == set(FUNCTIONS)


# Input that looks bad but is accepted


def test_the_options_of_a_plugin_do_not_break_its_checkpoints(database: Database) -> None:
    database.query("update crawl_settings set plugin_kinds = '{mine}' where id")
    enqueue(database, p_kind='mine', payload={'delay_seconds': 'slow', 'fetcher': None})
    lease = claim_one(database)

    assert len(checkpoint(database, lease.token, 1, want=1, discovered=[found(1)])['tasks']) == 1


def test_a_host_named_twice_in_one_batch_is_stored_once(database: Database) -> None:
    enqueue(database)
    lease = claim_one(database)

    checkpoint(
        database,
        lease.token,
        1,
        hosts=[
            {'host': 'site.example', 'error_streak': 1},
            {'host': 'Site.Example', 'error_streak': 2},
        ],
    )

    [host] = database.query('select host, error_streak from crawl_hosts')
    assert (host['host'], host['error_streak']) == ('site.example', 2)


def test_a_url_finished_twice_in_one_batch_counts_once(database: Database) -> None:
    enqueue(database)
    lease = claim_one(database)
    checkpoint(database, lease.token, 1, want=1, discovered=[found(1)])

    answer = checkpoint(database, lease.token, 2, finished=[fetched(1), fetched(1)])

    assert answer['drained']
    [state] = database.query('select total_done, pages_new from silkline.states')
    assert (state['total_done'], state['pages_new']) == (1, 1)


def test_a_url_that_is_not_finished_stores_no_page(database: Database) -> None:
    enqueue(database)
    lease = claim_one(database)
    checkpoint(database, lease.token, 1, want=1, discovered=[found(1)])

    sqlstate(partial(checkpoint, database, lease.token, 2, finished=[fetched(1, status='pending')]))

    assert database.query('select from crawl_pages') == []


@pytest.mark.parametrize('url', ['javascript:alert(1)', 'file:///etc/passwd', 'data:text/html,x'])
def test_a_link_that_is_not_http_is_counted_and_never_leased(database: Database, url: str) -> None:
    enqueue(database)
    lease = claim_one(database)

    answer = checkpoint(database, lease.token, 1, want=5, discovered=[found(1, url=url)])

    assert (answer['tasks'], answer['drained']) == ([], True)
    assert database.query('select from silkline.tasks') == []
    [state] = database.query('select links_refused from silkline.states')
    assert state['links_refused'] == {'invalid_url': 1}
