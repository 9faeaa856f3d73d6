"""The Supabase project that the fidelity tests talk to: a local gateway, or a real one.

Owns its URL, its keys, its users, and SQL as its owner where available. A real project is left as
it was: all jobs belong to users created here and are deleted with them; functions and tables
created here begin with `silkline_test_` and an id of the run.
"""

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
from psycopg import sql
from psycopg.rows import DictRow, dict_row

from tests.support.database import Database, Session
from tests.support.gateway import GatewayThread
from tests.support.http import http
from tests.support.servers import ROOT
from tests.support.waiting import wait_until

SHAPES = ROOT / 'tests/fidelity/functions.sql'
NO_SQL = 'needs SQL as the owner of the project: set SUPABASE_DB_URL'


@dataclass(frozen=True, slots=True)
class User:
    id: UUID
    token: str
    email: str
    password: str = ''


@dataclass(frozen=True, slots=True)
class Project:
    """What a client of the project knows, and what its owner can do.

    Only a local project has `gateway` and `database`: the gateway can be restarted and signs any
    token, the database has a superuser.
    """

    url: str
    publishable_key: str
    secret_key: str
    worker_token: str | None
    sign_up: Callable[[], User]
    sign_in: Callable[[User], str]
    gateway: GatewayThread | None = None
    database: Database | None = None
    session: Session | None = None
    prefix: str = field(default_factory=lambda: f'silkline_test_{uuid4().hex[:12]}')
    # How long an event may take. Hosted Realtime answers a refused join after 5 s.
    patience_seconds: float = 40.0

    @property
    def is_hosted(self) -> bool:
        return self.gateway is None

    def own_gateway(self, reason: str) -> GatewayThread:
        """The gateway of a local project; skips the test on a hosted one."""
        if self.gateway is None:
            pytest.skip(f'not possible with a hosted project: {reason}')
        return self.gateway

    def own_session(self) -> Session:
        """A session as role postgres; skips the test if there is none."""
        if self.session is None:
            pytest.skip(NO_SQL)
        return self.session

    def own_worker_token(self) -> str:
        if self.worker_token is None:
            pytest.skip('needs a token of the role crawl_worker: set SUPABASE_WORKER_TOKEN')
        return self.worker_token

    def call(self, function: str, *, token: str | None = None, **params: Any) -> Any:
        """Call a function to prepare a test: as the user of `token`, else as the service."""
        return post_rpc(self, function, token=token, params=params).raise_for_status().json()

    def enqueue(self, user: User, **params: Any) -> dict[str, Any]:
        """A job that is due tomorrow, so that no worker of a real project takes it."""
        arguments = {
            'p_payload': {'url': f'https://{uuid4().hex}.example/'},
            'p_run_after': tomorrow(),
            **params,
        }
        [job] = self.call('enqueue_crawl_job', token=user.token, **arguments)
        return job


def tomorrow() -> str:
    return (datetime.now(UTC) + timedelta(days=1)).isoformat()


def is_hosted(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the tests run against a real project: its URL and both keys are set."""
    return bool(
        environment.get('SUPABASE_URL')
        and (environment.get('SUPABASE_SECRET_KEY') or environment.get('SUPABASE_SERVICE_ROLE_KEY'))
        and (environment.get('SUPABASE_PUBLISHABLE_KEY') or environment.get('SUPABASE_ANON_KEY'))
    )


@contextmanager
def local_project(database: Database) -> Generator[Project]:
    """A gateway over `database`, which has all migrations."""
    with GatewayThread(database) as gateway:

        def sign_up() -> User:
            user_id = database.user()
            email = f'{user_id}@example.com'
            return User(user_id, gateway.keys.user_token(str(user_id), email=email), email)

        def sign_in(user: User) -> str:
            # An hour longer than the last one: two tokens differ only in their times.
            return gateway.keys.user_token(str(user.id), email=user.email, seconds=25 * 3600)

        yield Project(
            url=gateway.url,
            publishable_key=gateway.keys.publishable,
            secret_key=gateway.keys.secret,
            worker_token=gateway.keys.crawl_worker,
            sign_up=sign_up,
            sign_in=sign_in,
            gateway=gateway,
            database=database,
            session=database.connect('postgres'),
        )


@contextmanager
def hosted_project(environment: Mapping[str, str] = os.environ) -> Generator[Project]:
    """A real project. Users of the run are deleted at its end, and their jobs with them."""
    url = environment['SUPABASE_URL'].rstrip('/')
    secret = environment.get('SUPABASE_SECRET_KEY') or environment['SUPABASE_SERVICE_ROLE_KEY']
    publishable = environment.get('SUPABASE_PUBLISHABLE_KEY') or environment['SUPABASE_ANON_KEY']
    database_url = environment.get('SUPABASE_DB_URL')
    with ExitStack() as closing:
        auth = closing.enter_context(httpx.Client(base_url=f'{url}/auth/v1', timeout=30))
        session = None
        if database_url:
            # No prepared statements: the URL may be that of a pooler.
            session = closing.enter_context(
                Session.connect(
                    database_url, autocommit=True, row_factory=dict_row, prepare_threshold=None
                )
            )
        service = {'apikey': secret, 'Authorization': f'Bearer {secret}'}

        def sign_up() -> User:
            email, password = f'silkline-test-{uuid4().hex}@example.com', uuid4().hex
            created = auth.post(
                '/admin/users',
                headers=service,
                json={'email': email, 'password': password, 'email_confirm': True},
            )
            user_id = created.raise_for_status().json()['id']
            closing.callback(delete, user_id)
            user = User(UUID(user_id), '', email, password)
            return User(user.id, sign_in(user), email, password)

        def delete(user_id: str) -> None:
            auth.delete(f'/admin/users/{user_id}', headers=service).raise_for_status()

        def sign_in(user: User) -> str:
            signed_in = auth.post(
                '/token',
                params={'grant_type': 'password'},
                headers={'apikey': publishable},
                json={'email': user.email, 'password': user.password},
            )
            return signed_in.raise_for_status().json()['access_token']

        project = Project(
            url=url,
            publishable_key=publishable,
            secret_key=secret,
            worker_token=environment.get('SUPABASE_WORKER_TOKEN'),
            sign_up=sign_up,
            sign_in=sign_in,
            session=session,
        )
        if post_rpc(project, 'crawl_queue_stats', token=None, params={}).status_code == 404:
            pytest.fail(f'{url} has no crawl queue: run supabase db push', pytrace=False)
        yield project


def post_rpc(
    project: Project, function: str, *, token: str | None, params: dict[str, Any]
) -> httpx.Response:
    key = project.secret_key if token is None else project.publishable_key
    return http.post(
        f'{project.url}/rest/v1/rpc/{function}',
        headers={'apikey': key, 'Authorization': f'Bearer {token or key}'},
        json=params,
    )


@contextmanager
def functions(project: Project) -> Generator[Callable[[str], str]]:
    """Create functions of every shape and error class; yields a function that returns full names.

    They write to no table but their own. Skips the test if there is no SQL session.
    """
    session = project.own_session()
    try:
        session.execute(SHAPES.read_text().replace('silkline_test', project.prefix).encode())
        wait_until(
            lambda: (
                post_rpc(
                    project, f'{project.prefix}_add', token=None, params={'a': 1, 'b': 1}
                ).status_code
                == 200
            ),
            seconds=project.patience_seconds,
            what='the API to know the functions',
        )
        yield lambda name: f'{project.prefix}_{name}'
    finally:
        drop(session, project.prefix)


def drop(session: psycopg.Connection[DictRow], prefix: str) -> None:
    """Drop what `functions` has created; no other run has the prefix."""
    created = session.execute(
        """
        select format('function %%s', pg_proc.oid::regprocedure) as name
        from pg_catalog.pg_proc
        where pg_proc.pronamespace = 'public'::regnamespace
          and starts_with(pg_proc.proname, %(prefix)s)
        union all
        select format('table %%s', pg_class.oid::regclass)
        from pg_catalog.pg_class
        where pg_class.relnamespace = 'public'::regnamespace
          and pg_class.relkind = 'r'
          and starts_with(pg_class.relname, %(prefix)s)
        order by name
        """,
        {'prefix': prefix},
    ).fetchall()
    for row in created:
        # Postgres has quoted the name.
        session.execute(sql.SQL('drop {}').format(sql.SQL(row['name'])))
    session.execute("notify pgrst, 'reload schema'")


@contextmanager
def own_kind(project: Project) -> Generator[str]:
    """A kind of job that no worker of the project claims, so that claims return no other job."""
    session = project.own_session()
    kind = f'{project.prefix}_{uuid4().hex[:8]}'
    session.execute(
        'update public.crawl_settings set plugin_kinds = array_append(plugin_kinds, %s) where id',
        [kind],
    )
    try:
        yield kind
    finally:
        session.execute(
            'update public.crawl_settings set plugin_kinds = array_remove(plugin_kinds, %s)'
            ' where id',
            [kind],
        )
