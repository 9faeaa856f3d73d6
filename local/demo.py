"""The queue at work on this machine, told line by line: `make demo`.

Starts an embedded Postgres in a temporary directory, installs the migrations, and plays one job
from the first click to the last page: two users, a worker that dies, another that goes on where it
was. It calls only the functions that apps and workers call, with their rights. No network is used:
the "site" is made up here.
"""

import json
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import psycopg
from psycopg import sql
from psycopg.rows import DictRow, dict_row

from local.database import bootstrap, migrate
from local.postgres import SUPERUSER, Postgres
from worker.paths import migrations_directory

MIGRATIONS = migrations_directory()
DATABASE = 'demo'
START_URL = 'https://docs.example.com/'
# Page -> the pages that it links to.
SITE = {
    '': ['install', 'guide', 'api'],
    'install': ['guide'],
    'guide': ['guide/crawl', 'guide/pause', 'api'],
    'guide/crawl': [],
    'guide/pause': ['guide/crawl'],
    'api': ['api/jobs', 'missing'],
    'api/jobs': [],
    'missing': [],
}

Session = psycopg.Connection[DictRow]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix='silkline-demo-') as directory:
        say('Starting Postgres from the wheel: no Docker, no account.')
        with Postgres(Path(directory) / 'postgres', settings={'fsync': 'off'}) as postgres:
            bootstrap(postgres, DATABASE)
            versions = migrate(postgres.url(DATABASE), MIGRATIONS)
            say(f'PostgreSQL {postgres.version} is ready, {len(versions)} migrations installed.')
            play(postgres)


def play(postgres: Postgres) -> None:
    admin = Session.connect(
        postgres.url(DATABASE, SUPERUSER), autocommit=True, row_factory=dict_row
    )
    alice, bob = (sign_in(postgres, admin, name) for name in ('alice', 'bob'))
    service = connect(postgres, 'crawl_worker')

    head('Two users enqueue')
    job = one(alice, 'enqueue_crawl_job', {'url': START_URL, 'max_pages': 50})
    say(f'alice: crawl {START_URL} -> job {job["id"]}')
    one(bob, 'enqueue_crawl_job', {'url': 'https://docs.example.com/blog'})
    say('bob:   crawl the same host -> waits for alice: one job per host at a time')
    seen = bob.execute('select count(*) as count from public.crawl_jobs').fetchone()
    say(f'bob sees {seen["count"] if seen else 0} job: his own (row level security)')
    refuse(bob, {'url': 'javascript:alert(1)'})
    refuse(bob, {'url': START_URL, 'max_page': 10})

    head('A worker claims, crawls a little, and is killed')
    first = Worker(service)
    first.claim()
    first.crawl(checkpoints=2)
    say('kill -9: no goodbye; its lease runs out (aged here, so that you need not wait)')
    admin.execute(
        "update public.crawl_jobs set last_heartbeat = now() - interval '3 minutes', "
        "lease_check_at = now() where status = 'processing'"
    )

    head('Another worker goes on where it was')
    second = Worker(service)
    second.claim()
    late = first.checkpoint(finished=[])
    say(f'the first worker wakes up and reports: the database answers {late["command"]!r}')
    second.crawl(checkpoints=1)

    head('The user has the last word')
    run(alice, 'pause_crawl_job', job['id'])
    say(f'alice pauses; the worker hears {second.checkpoint(finished=[])["command"]!r}, hands in')
    second.call('release_crawl_job')
    run(alice, 'resume_crawl_job', job['id'])
    say("alice resumes, but the host is free now: first it is bob's turn, then hers again")
    for _ in range(2):
        worker = Worker(service)
        worker.claim()
        worker.crawl(checkpoints=50)
        worker.call('complete_crawl_job')

    head('What alice has now')
    progress = alice.execute('select public.crawl_progress(%s) as p', [job['id']]).fetchone()
    shown = progress['p'] if progress else {}
    say(
        f'{shown["status"]}: {shown["pages_done"]} pages, {shown["pages_failed"]} failed, '
        f'{shown["attempt"]} attempts, no finished page was fetched again'
    )
    for event in alice.execute(
        'select seq, from_status, to_status, actor, reason from public.crawl_events '
        'where job_id = %s order by seq',
        [job['id']],
    ):
        say(
            f'  {event["seq"]:>2}  {event["from_status"] or "":>10} -> {event["to_status"]:<10} '
            f'{event["reason"]} by {event["actor"]}'
        )
    messages = admin.execute('select count(*) as count from realtime.messages').fetchone()
    say(f'{messages["count"] if messages else 0} private Realtime messages told the browsers')
    print(
        '\nNext: make up, and README.md, "Try it on this machine". On Supabase: supabase db push.'
    )


class Worker:
    """What worker.py will do, by hand: one job, no fetching."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.worker_id = uuid.uuid4()
        self.token = uuid.uuid4()
        self.seq = 0
        self.tasks: list[dict[str, Any]] = []

    def claim(self) -> None:
        row = self.session.execute(
            'select id, attempt, host from public.claim_crawl_jobs(%s, %s)',
            [self.worker_id, [self.token]],
        ).fetchone()
        if row is None:
            fail('the queue has no job for this worker')
        say(f'worker {str(self.worker_id)[:8]} claims job {row["id"]}, attempt {row["attempt"]}')
        self.tasks = self.checkpoint(discovered=[task(START_URL, 0)])['tasks']

    def crawl(self, *, checkpoints: int) -> None:
        """Fetch what was handed out, hand in, get more; until drained or told otherwise."""
        for _ in range(checkpoints):
            answer = self.checkpoint(
                finished=[fetched(held) for held in self.tasks],
                discovered=[
                    task(START_URL + path, held['depth'] + 1)
                    for held in self.tasks
                    for path in SITE[held['url'].removeprefix(START_URL)]
                ],
            )
            self.tasks = answer['tasks']
            say(f'checkpoint {answer["seq"]}: {len(self.tasks)} URLs next')
            if answer['drained'] or answer['command'] != 'continue':
                return

    def checkpoint(self, **batch: Sequence[dict[str, Any]]) -> dict[str, Any]:
        self.seq += 1
        row = self.session.execute(
            'select public.checkpoint_crawl_job(%s, %s, 2) as answer',
            [self.token, json.dumps({'seq': self.seq, **batch})],
        ).fetchone()
        return row['answer'] if row else {}

    def call(self, function: str) -> None:
        run(self.session, function, self.token)


def task(url: str, depth: int) -> dict[str, Any]:
    return {'url_key': str(uuid.uuid5(uuid.NAMESPACE_URL, url)), 'url': url, 'depth': depth}


def fetched(held: dict[str, Any]) -> dict[str, Any]:
    if held['url'].endswith('missing'):
        return {
            'url_key': held['url_key'],
            'status': 'error',
            'error': '404 Not Found',
            'http_status': 404,
        }
    markdown = f'# {held["url"]}\n'
    page = {'url': held['url'], 'content_hash': str(hash(markdown)), 'markdown': markdown}
    return {'url_key': held['url_key'], 'status': 'done', 'http_status': 200, 'page': page}


def connect(postgres: Postgres, role: str, claims: dict[str, str] | None = None) -> Session:
    """A session as PostgREST opens it."""
    session = Session.connect(
        postgres.url(DATABASE, 'authenticator'), autocommit=True, row_factory=dict_row
    )
    session.execute(
        "select set_config('role', %s, false), set_config('request.jwt.claims', %s, false)",
        [role, json.dumps(claims or {'role': role})],
    )
    return session


def sign_in(postgres: Postgres, admin: Session, name: str) -> Session:
    user_id = uuid.uuid4()
    admin.execute(
        'insert into auth.users (id, email) values (%s, %s)', [user_id, f'{name}@example.com']
    )
    return connect(postgres, 'authenticated', {'role': 'authenticated', 'sub': str(user_id)})


def one(session: Session, function: str, payload: dict[str, Any]) -> DictRow:
    row = run(session, function, json.dumps(payload)).fetchone()
    if row is None:
        fail(f'{function} answered nothing')
    return row


def run(session: Session, function: str, argument: uuid.UUID | str) -> psycopg.Cursor[DictRow]:
    call = sql.SQL('select * from public.{}(%s)').format(sql.Identifier(function))
    return session.execute(call, [argument])


def refuse(session: Session, payload: dict[str, Any]) -> None:
    try:
        one(session, 'enqueue_crawl_job', payload)
    except psycopg.Error as error:
        say(f'bob:   {json.dumps(payload)} -> {error.diag.sqlstate}: {error.diag.message_primary}')
    else:
        fail(f'{payload} was taken')


def head(text: str) -> None:
    print(f'\n{text}')


def say(text: str) -> None:
    print(f'  {text}')


def fail(text: str) -> NoReturn:
    raise SystemExit(f'make demo: {text}')


if __name__ == '__main__':
    main()
