"""Whether claim, heartbeat and checkpoint take the same time as the tables grow.

The same call is timed on a small and on a large database (or frontier), in turn. Also fairness:
a single job of one user next to very many of another.
"""

import hashlib
import itertools
import json
import random
import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID, uuid4

from benchmarks.queue import fill
from benchmarks.queue.drain import Silkline
from benchmarks.queue.throughput import median_ratio, wal_position
from benchmarks.shared.report import Report
from benchmarks.shared.server import (
    Session,
    administer,
    connect,
    keep_leases,
    lift_quotas,
    make_database,
    role_url,
    sign_up,
    tidy,
)
from silkline_local.postgres.migrations import bootstrap, migrate
from silkline_local.postgres.server import Postgres

USERS = 20
FEW = 1_000
BLOCK = 20
LEASES = 100
HEARTBEATS = 40
PAGES = 100
LINKS = 2_000
PAGE_BYTES = 8_000

HEARTBEAT = 'select command from public.heartbeat_crawl_jobs(%s, %s, %s::jsonb)'
CHECKPOINT = 'select public.checkpoint_crawl_job(%s, %s::jsonb, %s)'
CLAIM_IDS = 'select id, user_id, lease_token from public.claim_crawl_jobs(%s, %s)'


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def measure_claim(postgres: Postgres, report: Report, *, scale: int, blocks: int) -> None:
    """Time single claims on 1,000 jobs and on a full table, in turn."""
    for name in ('small', 'large'):
        make_database(postgres, name)
        with administer(postgres, name) as admin:
            lift_quotas(admin)
            full = scale if name == 'large' else 0
            fill.fill_jobs(
                admin,
                sign_up(admin, USERS),
                pending=full or FEW,
                finished=full,
                waiting=full // 10,
            )
    taken: dict[str, list[float]] = {'small': [], 'large': []}
    queue = Silkline()
    with (
        connect(role_url(postgres, 'small', 'service_role')) as small,
        connect(role_url(postgres, 'large', 'service_role')) as large,
    ):
        # The first block is a warm-up.
        for block in range(blocks + 1):
            for name, session in (('small', small), ('large', large)):
                handles, seconds = _claim_block(queue, session)
                if block:
                    taken[name] += seconds
                queue.complete(session, handles)
                fill.enqueue(session, None, BLOCK)
    small_ms, large_ms = ([1000 * second for second in taken[name]] for name in taken)
    report.figure(f'claim, {FEW:,} pending', small_ms, 'ms')
    report.figure(
        f'claim, {scale:,} pending + {scale:,} finished + {scale // 10:,} in backoff',
        large_ms,
        'ms',
    )
    ratio = statistics.median(large_ms) / statistics.median(small_ms)
    report.at_most(f'claim at {scale:,} pending, of {FEW:,}', ratio, 1.2, 'x')
    report.at_most(f'claim at {scale:,} pending, p99', percentile(large_ms, 0.99), 10, 'ms')


def _claim_block(queue: Silkline, session: Session) -> tuple[list[UUID], list[float]]:
    worker = uuid4()
    handles: list[UUID] = []
    seconds: list[float] = []
    for _ in range(BLOCK):
        began_at = time.perf_counter()
        handles += queue.claim(session, worker, 1)
        seconds.append(time.perf_counter() - began_at)
    assert len(handles) == BLOCK
    return handles, seconds


def measure_heartbeat(postgres: Postgres, report: Report) -> None:
    """Renew 100 leases of one worker in database `large`; count updates that were not HOT."""
    worker = uuid4()
    about = json.dumps({'hostname': 'bench', 'version': '1', 'slots': LEASES, 'kinds': ['crawl']})
    taken: list[float] = []
    with (
        administer(postgres, 'large') as admin,
        connect(role_url(postgres, 'large', 'service_role')) as service,
    ):
        tokens = Silkline().claim(service, worker, LEASES)
        assert len(tokens) == LEASES
        service.execute(HEARTBEAT, [uuid4(), [], about])
        before = _updates(admin, service)
        for _ in range(HEARTBEATS):
            began_at = time.perf_counter()
            rows = service.execute(HEARTBEAT, [worker, tokens, about]).fetchall()
            taken.append(1000 * (time.perf_counter() - began_at))
            assert rows == [('continue',)] * LEASES
            time.sleep(0.02)
        updates, hot = (
            now - then for now, then in zip(_updates(admin, service), before, strict=True)
        )
        Silkline().complete(service, tokens)
    assert updates == HEARTBEATS * LEASES, updates
    report.figure(f'heartbeat of {LEASES} leases', taken, 'ms')
    report.at_most(
        f'heartbeat of {LEASES} leases, one statement', statistics.median(taken), 5, 'ms'
    )
    report.at_least('heartbeat: updates that touch no index', 100 * hot / updates, 100, '%')


def _updates(admin: Session, service: Session) -> tuple[int, int]:
    """Updates of crawl_jobs so far, and how many of them were HOT."""
    service.execute('select pg_stat_force_next_flush()')
    service.execute('select 1')
    row = admin.execute(
        'select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables'
        " where relid = 'silkline.jobs'::regclass"
    ).fetchone()
    assert row is not None
    return int(str(row[0])), int(str(row[1]))


def measure_fairness(postgres: Postgres, report: Report, *, jobs: int, trials: int) -> None:
    """Enqueue one job each for new users in `large`, behind very many jobs of one user."""
    worker = uuid4()
    positions: list[float] = []
    with (
        administer(postgres, 'large') as admin,
        connect(role_url(postgres, 'large', 'service_role')) as service,
    ):
        busy, *others = sign_up(admin, 1 + trials)
        fill.enqueue(service, busy, jobs, priority=5)
        for other in others:
            for _ in range(random.randint(1, 30)):
                _claim_owner(service, worker)
            fill.enqueue(service, other, 1, priority=5)
            owners = (_claim_owner(service, worker) for _ in range(1000))
            positions.append(1 + next(nth for nth, owner in enumerate(owners) if owner == other))
    report.figure(f'turn of a single job beside {jobs:,} of another user', positions)
    report.at_most(f'turn of a new job beside {jobs:,} of another user', max(positions), 2)


def _claim_owner(service: Session, worker: UUID) -> UUID:
    [(_, owner, token)] = service.execute(CLAIM_IDS, [worker, [uuid4()]]).fetchall()
    Silkline().complete(service, [UUID(str(token))])
    return UUID(str(owner))


def measure_checkpoint(postgres: Postgres, report: Report, *, scale: int, rounds: int) -> None:
    """Time the same checkpoint of a job with 1,000 URLs and of one with very many, in turn.

    Half of the links are already known. Each small frontier is used once, so that it stays small.
    """
    warm_up = 3
    make_database(postgres, 'checkpoint')
    with (
        administer(postgres, 'checkpoint') as admin,
        connect(role_url(postgres, 'checkpoint', 'service_role')) as service,
    ):
        lift_quotas(admin)
        [user] = sign_up(admin)
        keep_leases(admin)
        fill.enqueue(service, user, rounds + warm_up + 1, max_pages=1_000_000)
        claimed = service.execute(
            CLAIM_IDS, [uuid4(), [uuid4() for _ in range(rounds + warm_up + 1)]]
        )
        large, *small = [
            Crawl(service, UUID(str(job)), UUID(str(token)), size)
            for (job, _, token), size in zip(
                claimed.fetchall(), itertools.chain([scale], itertools.repeat(FEW)), strict=False
            )
        ]
        for crawl in (large, *small):
            fill.fill_frontier(admin, crawl.job_id, crawl.size)
        tidy(admin, 'silkline.tasks', 'silkline.states', 'silkline.jobs')
        large.begin()
        large_ms: list[float] = []
        small_ms: list[float] = []
        for crawl in small:
            crawl.begin()
            small_ms.append(1000 * crawl.checkpoint())
            large_ms.append(1000 * large.checkpoint())
    small_ms, large_ms = small_ms[warm_up:], large_ms[warm_up:]
    what = f'checkpoint of {PAGES} pages and {LINKS:,} links'
    report.figure(f'{what}, frontier of {FEW:,}', small_ms, 'ms')
    report.figure(f'{what}, frontier of {scale:,}', large_ms, 'ms')
    report.at_most(
        f'{what} at {scale:,} URLs, of {FEW:,}', median_ratio(large_ms, small_ms), 1.2, 'x'
    )


def compare_checkpoints(postgres: Postgres, report: Report, *, against: Path, rounds: int) -> None:
    """Time the same checkpoint with the migrations of `against` and with ours, in turn."""
    warm_up = 3
    bootstrap(postgres, 'before')
    migrate(postgres.url('before'), against)
    make_database(postgres, 'after')
    taken: dict[str, list[float]] = {'before': [], 'after': []}
    wal: dict[str, list[float]] = {'before': [], 'after': []}
    with ExitStack() as stack:
        admin = stack.enter_context(administer(postgres, 'after'))
        crawls = {name: _prepare_crawls(stack, postgres, name, rounds + warm_up) for name in taken}
        for nth in range(rounds + warm_up):
            for name, some in crawls.items():
                some[nth].fill()
                some[nth].begin()
                before = wal_position(admin)
                taken[name].append(1000 * some[nth].checkpoint())
                wal[name].append((wal_position(admin) - before) / PAGES)
    before_ms, after_ms = taken['before'][warm_up:], taken['after'][warm_up:]
    what = f'checkpoint of {PAGES} pages and {LINKS:,} links'
    report.figure(f'{what}, before', before_ms, 'ms')
    report.figure(f'{what}, after', after_ms, 'ms')
    for name, some in wal.items():
        report.figure(f'WAL per page and {LINKS // PAGES} links, {name}', some[warm_up:], 'bytes')
    report.at_most(f'{what}, of before', median_ratio(after_ms, before_ms), 0.55, 'x')


def _prepare_crawls(
    stack: ExitStack, postgres: Postgres, database: str, count: int
) -> 'list[Crawl]':
    with administer(postgres, database) as admin:
        lift_quotas(admin)
        keep_leases(admin)
        [user] = sign_up(admin)
    service = stack.enter_context(connect(role_url(postgres, database, 'service_role')))
    fill.enqueue(service, user, count, max_pages=1_000_000)
    claimed = service.execute(CLAIM_IDS, [uuid4(), [uuid4() for _ in range(count)]])
    return [
        Crawl(service, UUID(str(job)), UUID(str(token)), FEW)
        for job, _, token in claimed.fetchall()
    ]


class Crawl:
    """A crawl that always has a hundred leased URLs."""

    def __init__(self, service: Session, job_id: UUID, token: UUID, size: int) -> None:
        self.service = service
        self.job_id = job_id
        self.token = token
        self.size = size
        self.seq = 0
        self.leased: list[str] = []

    def fill(self) -> None:
        """Put as many URLs into the frontier as the size says."""
        links = [self._link(number) for number in range(1, self.size + 1)]
        self._send({'discovered': links}, want=0)

    def begin(self) -> None:
        self._send({})

    def checkpoint(self) -> float:
        """Finish the leased URLs, with new links; return how many seconds it took."""
        finished = [self._finish(url_key) for url_key in self.leased]
        known = random.sample(range(1, self.size + 1), min(LINKS // 2, self.size))
        links = [self._link(number) for number in known]
        new = itertools.count(self.size * 1000 + self.seq * LINKS)
        links += [self._link(next(new)) for _ in range(LINKS - len(links))]
        random.shuffle(links)
        return self._send({'finished': finished, 'discovered': links})

    def _send(self, batch: dict[str, object], *, want: int = PAGES) -> float:
        self.seq += 1
        text = json.dumps({'seq': self.seq, **batch})
        began_at = time.perf_counter()
        row = self.service.execute(CHECKPOINT, [self.token, text, want]).fetchone()
        seconds = time.perf_counter() - began_at
        assert row is not None
        answer = row[0]
        assert isinstance(answer, dict)
        self.leased = [task['url_key'] for task in answer['tasks']]
        assert len(self.leased) == want, f'got {len(self.leased)} URLs, not {want}'
        return seconds

    def _finish(self, url_key: str) -> dict[str, object]:
        words = fill.words(int(url_key[:8], 16))
        markdown = ''
        while len(markdown) < PAGE_BYTES:
            markdown += '## ' + ' '.join(itertools.islice(words, 5)) + '\n\n'
            markdown += ' '.join(itertools.islice(words, 120)) + '.\n\n'
        return {
            'url_key': url_key,
            'status': 'done',
            'http_status': 200,
            'bytes': 40_000,
            'page': {
                'url': f'https://example.com/docs/{url_key}',
                'http_status': 200,
                'content_hash': hashlib.sha256(markdown.encode()).hexdigest(),
                'title': ' '.join(itertools.islice(words, 6)),
                'markdown': markdown[:PAGE_BYTES],
                'links': [f'https://example.com/docs/page-{number}' for number in range(20)],
                'metadata': {'description': ' '.join(itertools.islice(words, 20)), 'lang': 'en'},
                'etag': f'"{url_key[:12]}"',
                'extractor': 'default',
                'extractor_version': '1',
            },
        }

    def _link(self, number: int) -> dict[str, object]:
        key = hashlib.md5(f'{self.job_id} {number}'.encode(), usedforsecurity=False).hexdigest()
        return {
            'url_key': str(UUID(key)),
            'url': f'https://example.com/docs/section-{number % 100}/page-{number}',
            'depth': 4,
            'found_on': self.leased[number % PAGES] if self.leased else None,
        }
