"""The server of `local/silkline_local/postgres/server.py`: started, killed and restarted."""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import psycopg
import pytest

from silkline_local.errors import PostgresError
from silkline_local.postgres.migrations import bootstrap
from silkline_local.postgres.programs import wheel_binaries
from silkline_local.postgres.server import SUPERUSER, Postgres, is_alive
from tests.support.servers import FAST, ROOT, VERSIONS, Missing, make_server
from tests.support.waiting import wait_until

as_root = pytest.mark.skipif(os.geteuid() != 0, reason='root has two ways to run a server')


def new_server(directory: Path) -> Postgres:
    return Postgres(directory, settings=FAST)


def execute(postgres: Postgres, statement: str) -> None:
    with psycopg.connect(postgres.url(role=SUPERUSER), autocommit=True) as connection:
        connection.execute(statement.encode())


def count(postgres: Postgres) -> int:
    with psycopg.connect(postgres.url(role=SUPERUSER)) as connection:
        row = connection.execute('select count(*) from things').fetchone()
    assert row is not None
    return row[0]


def kill(postgres: Postgres) -> None:
    pid = postgres.pid
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def process_titles() -> list[str]:
    titles: list[str] = []
    for path in Path('/proc').glob('[0-9]*/cmdline'):
        with suppress(OSError):
            titles.append(path.read_bytes().replace(b'\0', b' ').decode(errors='replace'))
    return titles


@contextmanager
def namespaces_work() -> Generator[None]:
    try:
        yield
    except PostgresError as error:
        if 'no user namespace' in str(error):
            pytest.skip(f'this kernel refuses user namespaces to root: {error}')
        raise


@pytest.mark.parametrize('version', VERSIONS, ids='pg{}'.format)
def test_a_server_is_ready_within_seconds(directory: Path, version: int) -> None:
    try:
        postgres = make_server(version, directory)
    except Missing as missing:
        pytest.skip(str(missing))
    started_at = time.monotonic()
    with postgres:
        assert time.monotonic() - started_at < 30
        assert postgres.version == version
        assert postgres.has_extension('plpgsql')
        assert not postgres.has_extension('no_such_extension')


def test_a_restart_after_a_clean_stop_keeps_data_and_password(directory: Path) -> None:
    postgres = new_server(directory)
    with postgres:
        execute(postgres, 'create table things as select 1')
        password, port, pid = postgres.password, postgres.port, postgres.pid
    assert not is_alive(pid)
    assert not (directory / 'data/postmaster.pid').exists()
    with postgres:
        assert count(postgres) == 1
        assert (postgres.password, postgres.port) == (password, port)


def test_a_restart_after_kill_9_keeps_committed_data(directory: Path) -> None:
    with new_server(directory) as postgres:
        execute(postgres, 'create table things as select 1')
        lingering = psycopg.connect(postgres.url(role=SUPERUSER))
        kill(postgres)
        assert (directory / 'data/postmaster.pid').exists()
        postgres.start()
        assert count(postgres) == 1
        lingering.close()


def test_a_stale_pid_file_with_the_id_of_a_running_process_does_not_prevent_a_start(
    directory: Path,
) -> None:
    with new_server(directory) as postgres:
        kill(postgres)
        pid_file = directory / 'data/postmaster.pid'
        lines = pid_file.read_text().split('\n')
        pid_file.write_text('\n'.join([str(os.getppid()), *lines[1:]]))
        postgres.start()


def test_two_servers_run_side_by_side(directory: Path) -> None:
    with new_server(directory / 'one') as one, new_server(directory / 'two') as two:
        execute(one, 'create table things as select 1')
        execute(two, 'create table things as select 1 union all select 2')
        assert (count(one), count(two)) == (1, 2)
        assert one.password != two.password


def test_a_second_server_in_the_same_directory_is_refused_at_once(directory: Path) -> None:
    with new_server(directory) as postgres:
        with pytest.raises(PostgresError, match=f'already running in {directory}'):
            new_server(directory).start()
        with pytest.raises(PostgresError, match=f'already running .process {postgres.pid}'):
            postgres.start()
        execute(postgres, 'select 1')


def test_the_server_stops_with_its_parent_and_another_can_start(directory: Path) -> None:
    program = (
        'import sys; from pathlib import Path\n'
        'from silkline_local.postgres.server import Postgres\n'
        "server = Postgres(Path(sys.argv[1]), settings={'fsync': 'off'})\n"
        'server.start(); print(server.pid, flush=True); sys.stdin.read()'
    )
    with subprocess.Popen(
        [sys.executable, '-c', program, directory],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()
    with new_server(directory):
        wait_until(lambda: not is_alive(pid), what='the end of the orphaned server')


def test_the_server_listens_on_loopback_only(directory: Path) -> None:
    with (
        new_server(directory) as postgres,
        psycopg.connect(postgres.url(role=SUPERUSER)) as session,
    ):
        rows = session.execute(
            'select name, setting from pg_settings where name in'
            " ('listen_addresses', 'unix_socket_directories')"
        ).fetchall()
    assert dict(rows) == {'listen_addresses': '127.0.0.1', 'unix_socket_directories': ''}


def test_the_password_is_only_in_its_file(directory: Path) -> None:
    with new_server(directory) as postgres:
        bootstrap(postgres)
        password = postgres.password
        shown = process_titles()
        assert any(str(directory) in title for title in shown)
        assert not any(password in title for title in shown)
        with pytest.raises(psycopg.OperationalError, match='password authentication failed'):
            psycopg.connect(postgres.url().replace(password, 'wrong'))
    holders = [
        path.name
        for path in directory.rglob('*')
        if path.is_file() and password.encode() in path.read_bytes()
    ]
    assert holders == ['password']
    assert stat.S_IMODE((directory / 'password').stat().st_mode) == 0o600


def test_an_error_names_the_directory_that_has_no_programs(tmp_path: Path) -> None:
    with pytest.raises(PostgresError, match=f'no initdb and no postgres in {tmp_path}'):
        Postgres(tmp_path / 'server', binaries=tmp_path)


def test_the_error_of_a_failed_start_contains_the_log(directory: Path) -> None:
    postgres = Postgres(directory, settings={**FAST, 'shared_preload_libraries': 'nonsense'})
    with pytest.raises(PostgresError, match='could not access file "nonsense"'):
        postgres.start()
    with new_server(directory):
        pass


@as_root
@pytest.mark.parametrize('leave_root', ['namespace', 'account'])
def test_root_can_start_a_server(
    directory: Path, leave_root: Literal['namespace', 'account']
) -> None:
    parents = [directory, *directory.parents, wheel_binaries(), *wheel_binaries().parents]
    before = [path.stat().st_mode for path in parents]
    owners = [path.stat().st_uid for path in parents]
    postgres = Postgres(directory / 'server', settings=FAST, leave_root=leave_root)
    with namespaces_work(), postgres:
        execute(postgres, 'create table things as select 1')
        kill(postgres)
        postgres.start()
        assert count(postgres) == 1
        # The launcher has become the server: no process of it runs with root's rights.
        status = Path(f'/proc/{postgres.pid}/status').read_text()
        assert 'CapEff:\t0000000000000000' in status
    assert [path.stat().st_mode for path in parents] == before
    assert [path.stat().st_uid for path in parents] == owners
    assert (directory / 'server/password').stat().st_uid == 0


@as_root
def test_root_can_switch_between_namespace_and_account(directory: Path) -> None:
    ways: tuple[Literal['namespace', 'account'], ...] = ('account', 'namespace', 'account')
    with namespaces_work():
        for number, way in enumerate(ways):
            with Postgres(directory / 'server', settings=FAST, leave_root=way) as postgres:
                execute(postgres, 'create table if not exists things (id int)')
                execute(postgres, 'insert into things values (1)')
                assert count(postgres) == number + 1


@as_root
def test_programs_that_the_account_cannot_read_are_copied(directory: Path) -> None:
    hidden = directory / 'hidden'
    hidden.mkdir(mode=0o700)
    (hidden / 'pginstall').symlink_to(wheel_binaries().parent)
    postgres = Postgres(
        directory / 'server',
        binaries=hidden / 'pginstall/bin',
        settings=FAST,
        leave_root='account',
    )
    with postgres:
        execute(postgres, 'select 1')
    copies = list((directory / 'server').glob('programs-*/**/bin/postgres'))
    assert len(copies) == 1
    assert stat.S_IMODE(hidden.stat().st_mode) == 0o700


@as_root
def test_a_directory_that_the_account_cannot_reach_is_an_error(directory: Path) -> None:
    directory.chmod(0o700)
    postgres = Postgres(directory / 'server', settings=FAST, leave_root='account')
    with pytest.raises(PostgresError, match=r'cannot reach .*chmod o\+x'):
        postgres.start()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
