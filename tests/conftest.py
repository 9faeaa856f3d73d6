"""Servers and databases for the tests.

Each test that uses `server` or `database` runs once per installed PostgreSQL version. A server
lives for the whole run, in its own directory and on its own port, so runs do not interfere.
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

TESTS = Path(__file__).parent

# Tests create hundreds of databases: in memory, if there is enough of it.
MEMORY = Path('/dev/shm')  # noqa: S108 - directories in it have unique names
ENOUGH_BYTES = 12 * 1024**3

# The gateway runs on the Postgres of the wheel; --postgres 15 tests it on another.
GATEWAY_VERSIONS = (18,)

# `make test` runs the same examples each time; `make soak` runs new ones.
EXAMPLES = hypothesis.settings(database=None, deadline=None, print_blob=True)
hypothesis.settings.register_profile('default', EXAMPLES, derandomize=True, max_examples=200)
hypothesis.settings.register_profile('soak', EXAMPLES, max_examples=5000)


# The longest files, longest first. They start early, so that the processes of `make test` end
# together.
LONG_FILES = (
    'repository/test_benchmarks.py',
    'supervisor/test_worker.py',
    'crawl/fetchers/test_browser.py',
    'cli/test_crawl.py',
    'local/test_stack.py',
    'supervisor/test_process.py',
    'supabase/test_model.py',
    'supabase/test_plans.py',
    'supabase/test_pgtap.py',
    'cli/test_jobs.py',
)


def runs_on_one_version(path: Path) -> bool:
    files = (('queue', 'test_realtime.py'), ('repository', 'test_schema.py'))
    return 'gateway' in path.parts or path.parts[-2:] in files


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        '--postgres',
        action='append',
        type=int,
        choices=VERSIONS,
        help='run only on this PostgreSQL version (may be repeated)',
    )


def pytest_configure(config: pytest.Config) -> None:
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ENOUGH_BYTES:
        # The variable is for the programs that tests start.
        tempfile.tempdir = os.environ.setdefault('TMPDIR', str(MEMORY))
    if VARIABLE not in os.environ:
        made = tempfile.TemporaryDirectory(prefix='silkline-')
        config.add_cleanup(made.cleanup)
        install_generated_site(Path(made.name))
    if hasattr(config.option, 'loadscopereorder'):
        # Otherwise xdist starts with the files that have the most tests.
        config.option.loadscopereorder = False


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        name = item.path.as_posix().removeprefix(f'{TESTS.as_posix()}/')
        return LONG_FILES.index(name) if name in LONG_FILES else len(LONG_FILES)

    items.sort(key=place)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if 'server' in metafunc.fixturenames:
        usual = GATEWAY_VERSIONS if runs_on_one_version(metafunc.definition.path) else VERSIONS
        versions: list[int] = metafunc.config.getoption('--postgres') or list(usual)
        metafunc.parametrize('server', versions, indirect=True, scope='session', ids='pg{}'.format)


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that the account of a Postgres server may enter."""
    with tempfile.TemporaryDirectory(prefix='silkline-') as name:
        path = Path(name)
        path.chmod(0o711)
        yield path


@pytest.fixture(scope='session')
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A running server; the fixtures below create databases on it."""
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
    """A gateway in front of `database`, with its own keys."""
    with GatewayThread(database) as gateway:
        yield gateway


@pytest.fixture
def bare_database(server: Server) -> Iterator[Database]:
    """A database as Supabase provides it, without migrations."""
    with server.database() as database:
        yield database


@pytest.fixture(scope='session')
def cron_database(server: Server) -> Iterator[Database]:
    """The migrated database of a server with pg_cron, which has only one; shared by the run."""
    if not server.postgres.has_extension('pg_cron'):
        pytest.skip(f'PostgreSQL {server.version} has no pg_cron here; Debian packages it for 15')
    bootstrap(server.postgres, 'postgres', privileges=server.privileges)
    with Database(server.postgres, 'postgres') as database:
        migrate(database.url(), MIGRATIONS)
        yield database
