"""What the hot calls cost on a large queue, according to the plans that the server ran.

The backlog is inserted without triggers: only its size matters here.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg.errors import Diagnostic

from tests.support.database import Database, Session, call
from tests.support.queue import claim, claim_one, enqueue, found, silence
from tests.support.servers import Server

# A claim reads at most 200 jobs in line per round; the backlog has thousands.
FEW = 250
SINGLE_ROWS = ('crawl_settings', 'time_floors')

BACKLOG = """
set session_replication_role = replica;

insert into auth.users (id) select md5('user ' || n)::uuid from generate_series(0, 99) as n;

insert into silkline.jobs (
  user_id, owner_id, kind, payload, source_id, host, place, status, waits_for, run_after,
  completed_at, created_at, retry_count, event_seq
)
select
  md5('user ' || n % 100)::uuid,
  md5('user ' || n % 100)::uuid,
  'crawl',
  '{"url": "https://site.example/", "max_pages": 1000}',
  'source',
  'h' || n || '.example',
  silkline.band_start(0) + n / 100,
  case when n < 50000 or n >= 100000 then 'pending' else 'completed' end
    ::public.crawl_job_status,
  case when n >= 106250 then 'host' when n >= 100000 then 'time' end::public.crawl_job_wait,
  case when n between 100000 and 106249 then now() + interval '1 hour' else now() end,
  case when n between 50000 and 99999 then now() - n * interval '1 second' end,
  now() - n * interval '1 second',
  0,
  1
from generate_series(0, 107499) as n;

insert into silkline.states (job_id)
select id from silkline.jobs where status = 'pending';

insert into silkline.events (job_id, seq, to_status, actor, reason, attempt)
select id, 1, 'pending', 'operator', 'enqueue', 0 from silkline.jobs where status = 'pending';

insert into silkline.tasks (job_id, url_key, url, depth)
select id, md5(n::text)::uuid, 'https://site.example/' || n, 1
from silkline.jobs
cross join generate_series(1, 3) as n
where status = 'completed';

insert into public.crawl_pages (user_id, source_id, url_key, url, version, job_id, content_hash)
select user_id, 'source', id, 'https://site.example/', 1, id, 'hash'
from silkline.jobs
where status = 'completed';

insert into public.crawl_audits (
  job_id, owner_id, score, grade, categories, findings, ruleset_version
)
select id, owner_id, 90, 'A', '{}', '[]', '1'
from silkline.jobs
where status = 'completed';

select silkline.lower_floors();

reset session_replication_role;
analyze silkline.jobs;
analyze silkline.states;
analyze silkline.events;
analyze silkline.tasks;
analyze public.crawl_pages;
analyze public.crawl_audits;
"""


@dataclass(frozen=True, slots=True)
class Scan:
    """One node of a plan that read a table of the queue."""

    node: str
    table: str
    rows: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call did: its scans, and the rows of its largest sort."""

    scans: list[Scan]
    sorted_rows: float
    statements: int

    def rows_of(self, table: str) -> float:
        return max((scan.rows for scan in self.scans if scan.table == table), default=0)

    def sequential(self) -> list[Scan]:
        return [
            scan for scan in self.scans if scan.node == 'Seq Scan' and scan.table not in SINGLE_ROWS
        ]


@pytest.fixture(scope='module')
def backlog(server: Server, template: str) -> Iterator[Database]:
    with server.database(template) as database:
        connection = database.connect('supabase_admin')
        connection.execute(BACKLOG.encode())
        connection.execute('vacuum silkline.jobs')
        connection.close()
        yield database


@pytest.fixture(scope='module')
def explained(backlog: Database) -> 'Explain':
    return explainer(backlog)


def explainer(database: Database, *, user: UUID | None = None) -> 'Explain':
    """Call a function, as a user if there is one, and read the plans of all its statements."""
    session = database.connect('supabase_admin')
    messages: list[str] = []

    def keep(notice: Diagnostic) -> None:
        messages.append(notice.message_primary or '')

    session.add_notice_handler(keep)
    for setting in (
        "load 'auto_explain'",
        'set auto_explain.log_min_duration = 0',
        'set auto_explain.log_nested_statements = on',
        'set auto_explain.log_analyze = on',
        "set auto_explain.log_format = 'json'",
        'set client_min_messages = log',
    ):
        session.execute(setting.encode())
    if user is not None:
        claims = json.dumps({'role': 'authenticated', 'sub': str(user)})
        session.execute("select set_config('request.jwt.claims', %s, false)", [claims])
        session.execute('set role authenticated')

    def run(function: str, **params: Any) -> tuple[list[dict[str, Any]], Cost]:
        messages.clear()
        rows = call(session, function, **params)
        plans = [
            json.loads(message.partition('plan:\n')[2])['Plan']
            for message in messages
            if 'plan:\n' in message
        ]
        return rows, cost_of(plans)

    return run


def cost_of(plans: list[dict[str, Any]]) -> Cost:
    scans: list[Scan] = []
    sorted_rows = 0.0
    for node in nodes_of(plans):
        loops = node['Actual Loops']
        rows = loops * (
            node['Actual Rows']
            + node.get('Rows Removed by Filter', 0)
            + node.get('Rows Removed by Index Recheck', 0)
        )
        if 'Relation Name' in node and node['Node Type'] != 'ModifyTable':
            scans.append(Scan(node['Node Type'], node['Relation Name'], rows))
        if 'Sort' in node['Node Type']:
            sorted_rows = max(sorted_rows, rows)
    return Cost(scans, sorted_rows, len(plans))


def nodes_of(plans: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for plan in plans:
        yield plan
        yield from nodes_of(plan.get('Plans', []))


Explain = Callable[..., tuple[list[dict[str, Any]], Cost]]


@pytest.mark.parametrize('tokens', [1, 10])
def test_a_claim_reads_the_head_of_the_line_and_sorts_no_backlog(
    explained: Explain, tokens: int
) -> None:
    # More than five times: from then on the server may use a generic plan.
    for _ in range(7):
        rows, cost = explained(
            'claim_crawl_jobs',
            p_worker_id=uuid4(),
            p_lease_tokens=[uuid4() for _ in range(tokens)],
        )

        assert len(rows) == tokens
        assert cost.rows_of('jobs') > 0
        assert cost.sequential() == []
        assert cost.rows_of('jobs') <= FEW
        assert cost.sorted_rows <= FEW


def test_a_claim_that_finds_a_blocked_job_at_the_head_reads_few_rows(
    backlog: Database, explained: Explain
) -> None:
    [lease] = claim(backlog)
    [head] = backlog.query(
        """
        update silkline.jobs as job
        set host = (select holder.host from silkline.jobs as holder where holder.id = %s)
        where job.id = (
          select first.id
          from silkline.jobs as first
          where first.status = 'pending'
            and first.waits_for is null
            and first.lane = 'crawl'
          order by first.place
          limit 1
        )
        returning job.id
        """,
        [lease.job_id],
    )

    rows, cost = explained('claim_crawl_jobs', p_worker_id=uuid4(), p_lease_tokens=[uuid4()])

    assert [row['id'] for row in rows] != [head['id']]
    assert len(rows) == 1
    assert cost.sequential() == []
    assert cost.rows_of('jobs') <= FEW


def test_the_calls_of_a_lease_read_few_rows_of_a_large_queue(
    backlog: Database, explained: Explain
) -> None:
    for end in ('complete_crawl_job', 'release_crawl_job', 'fail_crawl_job'):
        lease = claim_one(backlog)
        calls: list[tuple[str, dict[str, Any]]] = [
            (
                'heartbeat_crawl_jobs',
                {'p_worker_id': lease.worker_id, 'p_lease_tokens': [lease.token]},
            ),
            (
                'checkpoint_crawl_job',
                {
                    'p_lease_token': lease.token,
                    'p_batch': {'seq': 1, 'discovered': [found(1)]},
                    'p_want': 1,
                },
            ),
            (
                'checkpoint_crawl_job',
                {
                    'p_lease_token': lease.token,
                    'p_batch': {
                        'seq': 2,
                        'finished': [{'url_key': str(UUID(int=1)), 'status': 'done'}],
                    },
                },
            ),
            (
                end,
                {'p_lease_token': lease.token}
                | ({'p_error_code': 'oom'} if end == 'fail_crawl_job' else {}),
            ),
        ]
        for function, params in calls:
            rows, cost = explained(function, **params)
            assert len(rows) == 1
            assert cost.statements > 0
            assert [scan for scan in cost.sequential() if scan.table == 'jobs'] == []
            assert cost.rows_of('jobs') <= FEW, function
            assert cost.sorted_rows <= FEW


def test_a_reap_reads_only_leases(backlog: Database, explained: Explain) -> None:
    leases = claim(backlog, 5)
    silence(backlog, *(lease.token for lease in leases))

    rows, cost = explained('reap_crawl_jobs')

    assert {row['job_id'] for row in rows} == {lease.job_id for lease in leases}
    assert [scan for scan in cost.sequential() if scan.table == 'jobs'] == []
    assert cost.rows_of('jobs') <= FEW
    assert cost.sorted_rows <= FEW


def test_an_enqueue_reads_no_backlog(explained: Explain) -> None:
    rows, cost = explained('enqueue_crawl_job', p_payload={'url': 'https://new.example/'})

    assert len(rows) == 1
    assert [scan for scan in cost.sequential() if scan.table == 'jobs'] == []
    assert cost.rows_of('jobs') <= FEW
    assert cost.sorted_rows <= FEW


NEWEST = 'order by created_at desc limit 20'


@pytest.mark.parametrize('has_jobs', [True, False])
@pytest.mark.parametrize(
    'query',
    [
        'crawl_jobs limit 10',
        'crawl_states limit 10',
        'crawl_tasks limit 10',
        'crawl_events limit 10',
        'crawl_pages limit 10',
        'crawl_audits limit 10',
        f'crawl_jobs {NEWEST}',
        f'crawl_audits {NEWEST}',
        f"crawl_jobs where status = 'failed' {NEWEST}",
        f"crawl_jobs where status = 'processing' {NEWEST}",
    ],
)
def test_a_user_of_few_jobs_reads_few_rows_among_those_of_others(
    backlog: Database, query: str, *, has_jobs: bool
) -> None:
    user = backlog.user()
    if has_jobs:
        enqueue(backlog, f'{user}.example', user=user)
    session = backlog.connect('authenticated', user)
    explain = f'explain (analyze, format json) select * from public.{query}'  # noqa: S608 - from the list above

    [row] = session.execute(explain.encode()).fetchall()

    cost = cost_of([row['QUERY PLAN'][0]['Plan']])
    assert sum(scan.rows for scan in cost.scans) <= FEW


@pytest.mark.parametrize('function', ['crawl_queue_stats', 'pending_crawl_work'])
@pytest.mark.parametrize('is_user', [True, False])
def test_the_numbers_of_the_queue_cost_no_more_than_their_limit(
    backlog: Database, function: str, *, is_user: bool
) -> None:
    [row] = backlog.query("select md5('user 1')::uuid as id")
    explained = explainer(backlog, user=row['id'] if is_user else None)

    _, cost = explained(function)

    assert [scan for scan in cost.sequential() if scan.table == 'jobs'] == []
    # A count for each of three waits.
    assert cost.rows_of('jobs') <= 3 * 5000
    assert cost.sorted_rows <= 5000


FRONTIER = """
set session_replication_role = replica;

insert into public.crawl_pages (
  user_id, source_id, url_key, url, version, job_id, content_hash, markdown
)
select
  job.user_id, job.source_id, md5('page ' || n)::uuid, 'https://site.example/' || n, 1, job.id, n,
  repeat('text ', 100)
from silkline.jobs as job
cross join generate_series(0, 9999) as n
where job.id = %(job_id)s;

insert into silkline.tasks (
  job_id, url_key, url, depth, status, skip_reason, attempts, last_error, page_id, next_run_at
)
select
  %(job_id)s,
  md5('page ' || n)::uuid,
  'https://site.example/' || n,
  1,
  case
    when n < 10000 then 'done'
    when n < 10010 then 'error'
    when n < 20000 then 'skipped'
    else 'pending'
  end::public.crawl_task_status,
  case when n between 10010 and 19999 then 'robots' end,
  (n < 10010)::integer,
  case when n between 10000 and 10009 then 'http 500' end,
  page.id,
  now() - interval '1 hour'
from generate_series(0, 99999) as n
left join public.crawl_pages as page
  on page.url_key = md5('page ' || n)::uuid;

update silkline.states
set
  total_pending = 80000,
  total_done = 10000,
  total_error = 10,
  total_skipped = 9990,
  pages_spent = 10010
where job_id = %(job_id)s;

reset session_replication_role;
"""


def test_a_checkpoint_reads_few_rows_of_a_large_frontier_when_the_budget_is_spent(
    database: Database,
) -> None:
    job_id = enqueue(database, payload={'max_pages': 10_012})
    lease = claim_one(database)
    expect_empty_tables(database)
    explained = explainer(database)
    # A session plans while the tables are small, and keeps its plans when they have grown.
    explained('checkpoint_crawl_job', p_lease_token=lease.token, p_batch={'seq': 1}, p_want=100)
    fill_frontier(database, job_id)
    batches: list[dict[str, Any]] = [
        {},
        {'retried': [0]},
        {},
        {'retried': [1], 'discovered': [found(number) for number in range(100)]},
    ]
    held: list[str] = []
    leased: list[int] = []
    pending = 0

    for seq, batch in enumerate(batches, start=2):
        retried = [{'url_key': held.pop(), 'error': 'timeout'} for _ in batch.get('retried', [])]
        [row], cost = explained(
            'checkpoint_crawl_job',
            p_lease_token=lease.token,
            p_batch={'seq': seq, **batch, 'retried': retried},
            p_want=100,
        )
        answer = row['checkpoint_crawl_job']
        held += [task['url_key'] for task in answer['tasks']]
        leased.append(len(answer['tasks']))
        pending = answer['pending']
        assert cost.rows_of('tasks') <= FEW
        assert cost.sorted_rows <= FEW

    assert leased == [2, 1, 0, 1]
    assert pending == 80_000 - 2 + 100


def test_a_frontier_beyond_the_budget_is_skipped_in_bounded_steps(
    database: Database,
) -> None:
    job_id = enqueue(database, payload={'max_pages': 10_010})
    lease = claim_one(database)
    expect_empty_tables(database)
    explained = explainer(database)
    fill_frontier(database, job_id)
    steps = 0
    drained = False

    while not drained:
        steps += 1
        [row], cost = explained(
            'checkpoint_crawl_job', p_lease_token=lease.token, p_batch={'seq': steps}, p_want=100
        )
        answer = row['checkpoint_crawl_job']
        drained = answer['drained']
        assert drained or answer['next_in_seconds'] == 0
        assert cost.rows_of('tasks') <= 5000
        assert cost.sorted_rows <= FEW

    assert steps == 16


def test_stored_links_cost_one_probe_per_page(database: Database) -> None:
    job_id = enqueue(database, payload={'max_pages': 100_000})
    lease = claim_one(database)
    expect_empty_tables(database)
    explained = explainer(database)
    keys = [page_key(database, number) for number in range(500)]
    params = {'p_lease_token': lease.token, 'p_want': 0}
    explained('checkpoint_crawl_job', p_batch={'seq': 1, 'want_links': keys}, **params)
    fill_frontier(database, job_id)

    [row], cost = explained(
        'checkpoint_crawl_job', p_batch={'seq': 2, 'want_links': keys}, **params
    )

    assert len(row['checkpoint_crawl_job']['links']) == 500
    assert cost.sequential() == []
    assert cost.rows_of('crawl_pages') == 500
    assert cost.rows_of('tasks') <= FEW
    assert cost.sorted_rows <= 500


def test_shorter_paths_to_urls_that_were_too_deep_cost_one_probe_per_link(
    database: Database,
) -> None:
    job_id = enqueue(database, payload={'max_pages': 100_000})
    lease = claim_one(database)
    expect_empty_tables(database)
    explained = explainer(database)
    params = {'p_lease_token': lease.token, 'p_want': 0}
    # With one of them in the tables, so that each statement is planned now.
    deep = found(1, skip_reason='too_deep')
    explained('checkpoint_crawl_job', p_batch={'seq': 1, 'discovered': [deep]}, **params)
    explained('checkpoint_crawl_job', p_batch={'seq': 2, 'discovered': [found(1)]}, **params)
    fill_frontier(database, job_id)
    database.query("update silkline.tasks set skip_reason = 'too_deep' where status = 'skipped'")
    # The first 50 are done, the others were too deep.
    links = [
        found(0, url_key=page_key(database, number))
        for number in [*range(50), *range(10_010, 10_060)]
    ]

    [row], cost = explained(
        'checkpoint_crawl_job', p_batch={'seq': 3, 'discovered': links}, **params
    )

    assert row['checkpoint_crawl_job']['pending'] == 80_000 + 50
    assert cost.rows_of('tasks') <= FEW
    assert cost.sorted_rows <= FEW
    counted = database.query("select from silkline.tasks where skip_reason = 'too_deep'")
    assert len(counted) == 9990 - 50


def test_copies_of_pages_cost_one_probe_per_finished_url(database: Database) -> None:
    job_id = enqueue(database, payload={'max_pages': 100_000})
    lease = claim_one(database)
    expect_empty_tables(database)
    explained = explainer(database)
    page = {'url': 'https://site.example/', 'content_hash': 'h'}

    def send(seq: int, want: int, **batch: Any) -> tuple[list[str], Cost]:
        [row], cost = explained(
            'checkpoint_crawl_job',
            p_lease_token=lease.token,
            p_batch={'seq': seq, **batch},
            p_want=want,
        )
        return [task['url_key'] for task in row['checkpoint_crawl_job']['tasks']], cost

    def named(key: str, original: str) -> dict[str, Any]:
        return {'url_key': key, 'status': 'done', 'page': page, 'canonical_key': original}

    # With one of them in the tables, so that each statement is planned now.
    [copy], _ = send(1, 1, discovered=[found(1)])
    [original], _ = send(2, 1, discovered=[found(2)], finished=[named(copy, found(2)['url_key'])])
    again, _ = send(3, 1, finished=[{'url_key': original, 'status': 'error'}])
    assert again == [copy]
    send(4, 0, finished=[named(copy, original)])
    fill_frontier(database, job_id)
    database.query(
        "update silkline.tasks set skip_reason = 'canonical',"
        " copy_of = md5('original of ' || url)::uuid where skip_reason = 'robots'"
    )
    held, _ = send(5, 20)
    _, cost = send(6, 20, finished=[named(key, page_key(database, 90_000)) for key in held])

    assert cost.rows_of('tasks') <= FEW
    assert cost.sorted_rows <= FEW
    copies = database.query(
        'select from silkline.tasks where copy_of = %s', [page_key(database, 90_000)]
    )
    assert len(copies) == 20


def test_pages_cost_one_probe_each_even_if_planned_while_their_table_was_empty(
    database: Database,
) -> None:
    job_id = enqueue(database, payload={'max_pages': 100_000})
    lease = claim_one(database)
    expect_empty_tables(database)
    explained = explainer(database)

    def send(seq: int, want: int, **batch: Any) -> tuple[list[str], Cost]:
        [row], cost = explained(
            'checkpoint_crawl_job',
            p_lease_token=lease.token,
            p_batch={'seq': seq, **batch},
            p_want=want,
        )
        return [task['url_key'] for task in row['checkpoint_crawl_job']['tasks']], cost

    def fetched(key: str, content_hash: str) -> dict[str, Any]:
        page = {'url': 'https://site.example/', 'content_hash': content_hash}
        return {'url_key': key, 'status': 'done', 'page': page}

    first, _ = send(1, 1, discovered=[found(1)])
    send(2, 0, finished=[fetched(first[0], 'h')])
    fill_frontier(database, job_id)
    keys = [page_key(database, number) for number in range(60)]
    database.query(
        """
        update silkline.tasks
        set status = 'pending', next_run_at = now() - interval '1 day'
        where url_key = any (%s::uuid[])
        """,
        [keys],
    )
    database.query('update silkline.states set total_done = 9941, total_pending = 80060')
    held, _ = send(3, 60)
    assert set(held) == set(keys)
    _, cost = send(
        4,
        60,
        finished=[
            *(fetched(keys[number], str(number)) for number in range(20)),
            *(fetched(keys[number], 'changed') for number in range(20, 40)),
            *(
                {'url_key': keys[number], 'status': 'done', 'not_modified': True}
                for number in range(40, 60)
            ),
        ],
    )

    assert cost.sequential() == []
    assert cost.rows_of('crawl_pages') <= FEW
    assert cost.rows_of('tasks') <= FEW
    assert cost.sorted_rows <= FEW
    [state] = database.query('select pages_new, pages_changed, pages_unchanged from crawl_states')
    assert list(state.values()) == [1, 20, 40]


@pytest.mark.parametrize('end', ['release_crawl_job', 'fail_crawl_job'])
def test_a_lease_without_urls_in_flight_ends_without_reading_urls(
    database: Database, end: str
) -> None:
    job_id = enqueue(database)
    lease = claim_one(database)
    expect_empty_tables(database)
    explained = explainer(database)
    fill_frontier(database, job_id)
    error = {'p_error_code': 'oom'} if end == 'fail_crawl_job' else {}

    _, cost = explained(end, p_lease_token=lease.token, **error)

    assert [scan for scan in cost.scans if scan.table == 'tasks'] == []


def expect_empty_tables(database: Database) -> None:
    """As after a vacuum of an empty queue: plans expect one row in each of these tables."""
    session = database.connect('supabase_admin')
    session.execute('vacuum (analyze) silkline.tasks, public.crawl_pages, public.crawl_hosts')
    session.close()


def page_key(database: Database, number: int) -> str:
    [row] = database.query("select md5('page ' || %s)::uuid::text as key", [str(number)])
    return row['key']


@pytest.mark.parametrize('is_owner', [True, False])
@pytest.mark.parametrize(
    ('status', 'count'),
    [(None, 100), ('done', 100), ('error', 10), ('skipped', 100), ('pending', 100)],
)
def test_paging_through_the_pages_of_a_job_reads_few_rows_at_every_point(
    database: Database, status: str | None, count: int, *, is_owner: bool
) -> None:
    owner = database.user()
    job_id = enqueue(database, user=owner)
    explained = explainer(database, user=owner if is_owner else None)
    params = {'p_job_id': job_id, 'p_status': status, 'p_with_content': True}
    explained('crawl_job_pages', **params)
    fill_frontier(database, job_id)

    for start in ('00000000', '80000000', 'f0000000'):
        after = UUID(f'{start}-0000-0000-0000-000000000000')
        rows, cost = explained('crawl_job_pages', p_after=after, **params)

        assert 0 < len(rows) <= count or (status == 'error' and start == 'f0000000')
        assert cost.sequential() == []
        assert cost.rows_of('tasks') <= count + 1
        assert cost.rows_of('crawl_pages') <= count
        assert cost.rows_of('jobs') <= 2
        assert cost.sorted_rows <= count


def fill_frontier(database: Database, job_id: UUID) -> None:
    """10,000 pages, 10 errors, 9,990 skipped and 80,000 pending URLs."""
    session = database.connect('supabase_admin')
    for statement in FRONTIER.split(';\n'):
        if statement.strip():
            session.execute(statement.encode(), {'job_id': job_id})
    session.close()


def updates_of(session: Session) -> tuple[int, int]:
    """Rows of crawl_jobs that this session has updated, and how many without touching an index."""
    [row] = session.execute(
        """
        select
          pg_stat_get_xact_tuples_updated('silkline.jobs'::regclass) as updated,
          pg_stat_get_xact_tuples_hot_updated('silkline.jobs'::regclass) as hot
        """
    ).fetchall()
    return row['updated'], row['hot']


def test_a_heartbeat_of_100_leases_is_one_call_that_touches_no_index(database: Database) -> None:
    for number in range(100):
        enqueue(database, f'h{number}.example')
    worker_id = uuid4()
    tokens = [lease.token for lease in claim(database, 100, worker_id=worker_id)]
    session = database.connect('service_role')

    for _ in range(5):
        with session.transaction():
            updated, hot = updates_of(session)
            answers = call(
                session, 'heartbeat_crawl_jobs', p_worker_id=worker_id, p_lease_tokens=tokens
            )
            assert updates_of(session) == (updated + 100, hot + 100)
        assert [answer['command'] for answer in answers] == ['continue'] * 100
