"""The project under test, its users and its clients.

Locally, one gateway with its own server and port serves the whole run. Each test uses its own jobs
and topics, as it must on a real project.
"""

import asyncio
import inspect
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.javascript import JavaScript
from tests.support.live_clients import LIVE_CLIENTS, Live
from tests.support.project import (
    Project,
    User,
    functions,
    hosted_project,
    is_hosted,
    local_project,
)
from tests.support.rest_clients import REST_CLIENTS, Rest
from tests.support.servers import Missing, Server, make_server

# The version that `silkline up` runs. Others: --postgres 17
DEFAULT_VERSIONS = (18,)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if 'project' in metafunc.fixturenames and not is_hosted():
        versions: list[int] = metafunc.config.getoption('--postgres') or list(DEFAULT_VERSIONS)
        metafunc.parametrize('project', versions, indirect=True, scope='session', ids='pg{}'.format)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine on its own event loop."""
    test = pyfuncitem.function
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    asyncio.run(test(**arguments))
    return True


@pytest.fixture(scope='session')
def project(request: pytest.FixtureRequest) -> Iterator[Project]:
    if is_hosted():
        with hosted_project() as project:
            yield project
        return
    with tempfile.TemporaryDirectory(prefix='silkline-') as name:
        Path(name).chmod(0o711)
        try:
            postgres = make_server(request.param, Path(name))
        except Missing as missing:
            pytest.skip(str(missing))
        with postgres:
            server = Server(postgres)
            with (
                server.template() as template,
                server.database(template) as database,
                local_project(database) as project,
            ):
                yield project


@pytest.fixture(scope='session')
def javascript() -> Iterator[Callable[[], JavaScript]]:
    """Node with supabase-js, started at its first use."""
    with ExitStack() as closing:

        @cache
        def start() -> JavaScript:
            try:
                return closing.enter_context(JavaScript())
            except Missing as missing:
                pytest.skip(str(missing))

        yield start


@pytest.fixture(params=REST_CLIENTS)
def rest(
    request: pytest.FixtureRequest, project: Project, javascript: Callable[[], JavaScript]
) -> Iterator[Rest]:
    with Rest(request.param, project, javascript) as rest:
        yield rest


@pytest.fixture(params=LIVE_CLIENTS)
def live(
    request: pytest.FixtureRequest, project: Project, javascript: Callable[[], JavaScript]
) -> Live:
    return Live(request.param, project, javascript)


@pytest.fixture(scope='session')
def function(project: Project) -> Iterator[Callable[[str], str]]:
    """Returns the full name of a function of functions.sql."""
    with functions(project) as name:
        yield name


# Few users for the whole run: a hosted project allows 30 sign-ins in five minutes.


@pytest.fixture(scope='session')
def owner(project: Project) -> User:
    return project.sign_up()


@pytest.fixture(scope='session')
def stranger(project: Project) -> User:
    return project.sign_up()


@pytest.fixture
def worker_id(project: Project) -> Iterator[str]:
    """A worker that is removed from the registry after the test."""
    session = project.own_session()
    worker_id = str(uuid4())
    yield worker_id
    session.execute('delete from public.crawl_workers where id = %s', [worker_id])
