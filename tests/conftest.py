"""Servers and databases for the tests.

Each test that asks for `server` or `database` runs once per PostgreSQL version at hand. A server
lives for the run, in a directory and on a port of its own, so that two runs never meet.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from silkline_local.postgres.migrations import bootstrap, migrate

from tests.support.database import Database
from tests.support.gateway import GatewayThread
from tests.support.plugins import VARIABLE, install_generated_site
from tests.support.servers import MIGRATIONS, VERSIONS, Missing, Server, make_server

# Databases of tests are made by the hundred: in memory, where there is plenty of it.
MEMORY = Path('/dev/shm')  # noqa: S108 - directories in it have names of their own
PLENTY_BYTES = 12 * 1024**3

# The gateway stands in front of the Postgres of the wheel; --postgres 15 tries it on another.
GATEWAY_VERSIONS = (18,)

# `make test` says the same each time; `make soak` tries what nobody tried before.
EXAMPLES = hypothesis.settings(database=None, deadline=None, print_blob=True)
hypothesis.settings.register_profile('default', EXAMPLES, derandomize=True, max_examples=200)
hypothesis.settings.register_profile('soak', EXAMPLES, max_examples=5000)


# What takes a minute or more. When it comes first, the processes of `make test` end together.
LONG_FILES = (
    'repository/test_benchmarks.py',
    'supervisor/test_worker.py',
    'supabase/test_model.py',
    'cli/test_crawl.py',
    'supervisor/test_killed_crawls.py',
    'cli/test_jobs.py',
)


def is_about_the_gateway(path: Path) -> bool:
    return 'gateway' in path.parts or path.parts[-2:] == ('queue', 'test_realtime.py')


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        '--postgres',
        action='append',
        type=int,
        choices=VERSIONS,
        help='run only on this PostgreSQL version (may be repeated)',
    )


def pytest_configure(config: pytest.Config) -> None:
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > PLENTY_BYTES:
        # Of the programs that tests start, too.
        tempfile.tempdir = os.environ.setdefault('TMPDIR', str(MEMORY))
    if VARIABLE not in os.environ:
        made = tempfile.TemporaryDirectory(prefix='silkline-')
        config.add_cleanup(made.cleanup)
        install_generated_site(Path(made.name))
    if hasattr(config.option, 'loadscopereorder'):
        # Else xdist begins with the files of the most tests.
        config.option.loadscopereorder = False


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.path.as_posix().endswith(LONG_FILES))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if 'server' in metafunc.fixturenames:
        usual = GATEWAY_VERSIONS if is_about_the_gateway(metafunc.definition.path) else VERSIONS
        versions: list[int] = metafunc.config.getoption('--postgres') or list(usual)
        metafunc.parametrize('server', versions, indirect=True, scope='session', ids='pg{}'.format)


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that other accounts may pass through, as the server's may have to."""
    with tempfile.TemporaryDirectory(prefix='silkline-') as name:
        path = Path(name)
        path.chmod(0o711)
        yield path


@pytest.fixture(scope='session')
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A running server; databases on it are made by the fixtures below."""
    with tempfile.TemporaryDirectory(prefix='silkline-') as name:
        Path(name).chmod(0o711)
        try:
            postgres = make_server(request.param, Path(name))
        except Missing as missing:
            pytest.skip(str(missing))
        with postgres:
            yield Server(postgres)


@pytest.fixture(scope='session')
def template(server: Server) -> Iterator[str]:
    with server.template() as name:
        yield name


@pytest.fixture
def database(server: Server, template: str) -> Iterator[Database]:
    """A database with all migrations applied, for one test."""
    with server.database(template) as database:
        yield database


@pytest.fixture
def gateway(database: Database) -> Iterator[GatewayThread]:
    """A gateway in front of `database`, with keys of its own."""
    with GatewayThread(database) as gateway:
        yield gateway


@pytest.fixture
def bare_database(server: Server) -> Iterator[Database]:
    """A database as Supabase hands it over: no migration applied."""
    with server.database() as database:
        yield database


@pytest.fixture(scope='session')
def cron_database(server: Server) -> Iterator[Database]:
    """The one database of a server that has pg_cron, migrated; shared by the whole run."""
    if not server.postgres.has_extension('pg_cron'):
        pytest.skip(f'PostgreSQL {server.version} here has no pg_cron: Debian has it for 15')
    bootstrap(server.postgres, 'postgres')
    with Database(server.postgres, 'postgres') as database:
        migrate(database.url(), MIGRATIONS)
        yield database
