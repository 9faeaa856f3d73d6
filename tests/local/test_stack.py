"""`silkline up`, `down`, `reset` and `token`, as a user runs them."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import psycopg
import pytest

from silkline_local.postgres.server import is_alive
from tests.support.http import http
from tests.support.stack import StackProcess, own_stack, run_silkline
from tests.support.waiting import wait_until


@pytest.fixture(scope='module')
def stack() -> Iterator[StackProcess]:
    """For tests that do not change it."""
    with own_stack() as stack:
        yield stack


def postgres_pid(stack: StackProcess) -> int:
    path = stack.directory / 'postgres/data/postmaster.pid'
    return int(path.read_text().splitlines()[0])


def enqueue(stack: StackProcess, host: str = 'site.example') -> str:
    jobs = stack.rpc('enqueue_crawl_job', p_payload={'url': f'https://{host}/'})
    return jobs[0]['id']


def jobs(stack: StackProcess) -> list[str]:
    answer = http.get(
        f'{stack.url}/rest/v1/crawl_jobs?select=id',
        headers={'apikey': stack.variables['SUPABASE_SECRET_KEY']},
    )
    return [job['id'] for job in answer.raise_for_status().json()]


def answers(stack: StackProcess) -> bool:
    try:
        stack.rpc('pending_crawl_work')
    except httpx.HTTPError:
        return False
    return True


def test_up_prints_where_everything_is_and_ctrl_c_stops_it(directory: Path) -> None:
    stack = StackProcess(directory / 'stack')
    with stack:
        server = postgres_pid(stack)
        assert re.search(
            r'database +PostgreSQL \S+ on port \d+, migrations applied: \d+', stack.output
        )
        assert re.search(rf'API +{re.escape(stack.url)}\n', stack.output)
        assert stack.rpc('pending_crawl_work')

        assert stack.end(signal.SIGINT) == 0
        assert stack.output.endswith('silkline: stopped\n')
    wait_until(lambda: not is_alive(server), what='Postgres to end')
    with pytest.raises(httpx.ConnectError):
        http.get(stack.url)


def test_jobs_keys_and_ports_survive_a_restart(directory: Path) -> None:
    with StackProcess(directory / 'stack') as stack:
        job = enqueue(stack)
        before = stack.variables
        stack.end(signal.SIGTERM)
        stack.start()

        assert jobs(stack) == [job]
        assert stack.variables == before


def test_kill_9_of_the_stack_loses_nothing(directory: Path) -> None:
    with StackProcess(directory / 'stack') as stack:
        job = enqueue(stack)
        before = stack.variables
        assert stack.end(signal.SIGKILL) == -signal.SIGKILL
        stack.start()

        assert jobs(stack) == [job]
        assert stack.variables == before


def test_a_killed_postgres_is_restarted_while_the_gateway_keeps_running(directory: Path) -> None:
    with StackProcess(directory / 'stack') as stack:
        job = enqueue(stack)
        gateway, server = stack.pid, postgres_pid(stack)
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: 'Postgres is running again' in stack.output)
        wait_until(lambda: answers(stack), what='the API to answer again')

        assert jobs(stack) == [job]
        assert is_alive(gateway)
        assert postgres_pid(stack) != server


def test_calls_fail_with_503_while_postgres_is_down(directory: Path) -> None:
    with StackProcess(directory / 'stack') as stack:

        def refusal() -> httpx.Response | None:
            # A session may still answer, or Postgres may be running again already: then retry.
            with suppress(OSError, ValueError):
                os.kill(postgres_pid(stack), signal.SIGKILL)
            try:
                stack.rpc('pending_crawl_work')
            except httpx.HTTPStatusError as error:
                return error.response

        refused = wait_until(refusal, what='an error')
        assert refused.status_code == 503
        assert refused.json()['code'].startswith('PGRST00')


def test_queue_maintenance_runs_without_pg_cron(stack: StackProcess) -> None:
    def cron_check() -> str:
        return next(
            check['status'] for check in stack.rpc('crawl_doctor') if check['check_name'] == 'cron'
        )

    wait_until(lambda: cron_check() == 'ok', what='the doctor to report that maintenance ran')


def test_a_second_up_says_that_it_is_already_running(stack: StackProcess) -> None:
    for words in ([], ['--detach']):
        message = run_silkline('up', '--directory', str(stack.directory), *words).stderr
        assert f'already running (process {stack.pid})' in message
        assert stack.url in message
    assert stack.rpc('pending_crawl_work')


def test_down_stops_a_running_stack_and_says_if_there_is_none(directory: Path) -> None:
    with StackProcess(directory / 'stack') as stack:
        message = run_silkline('down', '--directory', str(stack.directory)).stderr
        assert f'stopped the stack in {stack.directory} (process {stack.pid})' in message
        wait_until(lambda: stack.output.endswith('silkline: stopped\n'))

    message = run_silkline('down', '--directory', str(stack.directory)).stderr
    assert 'no stack is running' in message


def test_reset_removes_the_data_and_keeps_the_keys(directory: Path) -> None:
    with StackProcess(directory / 'stack') as stack:
        enqueue(stack)
        keys = (stack.directory / 'keys.json').read_text()
        message = run_silkline('reset', '--yes', '--directory', str(stack.directory)).stderr
        assert 'removed the database' in message
        stack.start()

        assert jobs(stack) == []
        assert (stack.directory / 'keys.json').read_text() == keys


def test_reset_without_confirmation_removes_nothing(directory: Path) -> None:
    (directory / 'stack/postgres').mkdir(parents=True)
    for name in ('lock', 'postgres/password'):
        (directory / 'stack' / name).touch()
    run_silkline('reset', '--directory', str(directory / 'stack'), code=1)

    assert (directory / 'stack/postgres/password').exists()


def test_a_directory_with_other_files_is_neither_used_nor_emptied(directory: Path) -> None:
    (directory / 'postgres').mkdir()
    (directory / 'postgres/init.sql').write_text('precious')
    path = str(directory)

    assert 'other files' in run_silkline('up', '--directory', path, code=1).stderr
    assert 'nothing was removed' in run_silkline('reset', '--yes', '--directory', path).stderr
    assert [path.name for path in directory.rglob('*')] == ['postgres', 'init.sql']


@pytest.mark.skipif(os.geteuid() != 0, reason='only root can give files away')
def test_a_directory_of_another_user_is_refused(directory: Path) -> None:
    path = directory / 'stack'
    path.mkdir()
    os.chown(path, 12345, 12345)
    for words in (['up'], ['up', '--env'], ['down'], ['reset', '--yes'], ['token', 'a@b.example']):
        message = run_silkline(*words, '--directory', str(path), code=1).stderr
        assert f'{path} belongs to user 12345' in message


def test_modules_of_the_project_do_not_shadow_those_of_the_stack(directory: Path) -> None:
    for name in ('silkline_local', 'silkline', 'queue', 'jwt', 'logging', 'typing'):
        (directory / f'{name}.py').write_text('raise SystemExit("the project\'s own module")')
    command = str(Path(sys.executable).with_name('silkline'))
    try:
        done = subprocess.run(
            [command, 'up', '--detach'], cwd=directory, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert 'in the background; silkline down stops it' in done.stderr
    finally:
        subprocess.run([command, 'down'], cwd=directory, capture_output=True, check=True)


def test_a_stack_stops_when_its_directory_is_removed(directory: Path) -> None:
    stack = StackProcess(directory / 'stack')
    with stack:
        stack.directory.rename(directory / 'moved')
        wait_until(lambda: 'was removed' in stack.output)


def test_a_database_that_disappears_is_not_replaced_by_an_empty_one(directory: Path) -> None:
    with StackProcess(directory / 'stack') as stack:
        server = postgres_pid(stack)
        (stack.directory / 'postgres/data').rename(directory / 'lost')
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: 'silkline up creates a new' in stack.output)

        assert not (stack.directory / 'postgres/data').exists()


def test_options_for_a_running_stack_are_refused(stack: StackProcess) -> None:
    path = str(stack.directory)
    for words in (['--host', '127.0.0.2'], ['--detach', '--port', '6000']):
        message = run_silkline('up', '--directory', path, *words, code=1).stderr
        assert 'run silkline down, then silkline up again' in message


def test_env_starts_the_stack_if_necessary_and_prints_the_variables(directory: Path) -> None:
    path = str(directory / 'stack')
    printed = run_silkline('up', '--env', '--directory', path).stdout
    try:
        variables = dict(line.split('=', 1) for line in printed.splitlines())
        assert set(variables) == {
            'SUPABASE_URL',
            'SUPABASE_PUBLISHABLE_KEY',
            'SUPABASE_SECRET_KEY',
            'SUPABASE_ANON_KEY',
            'SUPABASE_SERVICE_ROLE_KEY',
            'SUPABASE_WORKER_TOKEN',
            'SUPABASE_JWT_SECRET',
            'SUPABASE_DB_URL',
        }
        with psycopg.connect(variables['SUPABASE_DB_URL']) as connection:
            assert connection.execute('select current_user').fetchone() == ('postgres',)
        assert run_silkline('up', '--env', '--directory', path).stdout == printed
    finally:
        run_silkline('down', '--directory', path)


def test_concurrent_starts_of_one_stack_all_succeed(directory: Path) -> None:
    path = str(directory / 'stack')

    def start(_: int) -> str:
        return run_silkline('up', '--env', '--directory', path).stdout

    try:
        with ThreadPoolExecutor(3) as threads:
            printed = set(threads.map(start, range(3)))
        assert len(printed) == 1
        assert 'SUPABASE_URL=' in printed.pop()
    finally:
        run_silkline('down', '--directory', path)


def test_two_stacks_are_independent(directory: Path) -> None:
    with StackProcess(directory / 'one') as one, StackProcess(directory / 'two') as two:
        job = enqueue(one)

        assert one.url != two.url
        assert one.variables['SUPABASE_DB_URL'] != two.variables['SUPABASE_DB_URL']
        assert jobs(one) == [job]
        assert jobs(two) == []
        with pytest.raises(httpx.HTTPStatusError, match='401'):
            two.rpc('pending_crawl_work', key=one.variables['SUPABASE_SECRET_KEY'])


def test_a_requested_port_that_is_taken_is_an_error(directory: Path) -> None:
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port = taken.getsockname()[1]
        message = run_silkline(
            'up', '--port', str(port), '--directory', str(directory / 'stack'), code=1
        ).stderr

    assert f'cannot listen on port {port} (address already in use)' in message
    assert '--port' in message


def test_a_taken_port_of_the_last_run_is_replaced_by_a_free_one(directory: Path) -> None:
    with StackProcess(directory / 'stack') as stack:
        port = httpx.URL(stack.url).port
        assert port is not None
        stack.end(signal.SIGTERM)
        with socket.create_server(('127.0.0.1', port)):
            stack.start()
            assert httpx.URL(stack.url).port != port
            assert f'port {port} is taken: using' in stack.output
            assert stack.rpc('pending_crawl_work')


def test_only_the_owner_can_read_the_keys_and_git_ignores_them(stack: StackProcess) -> None:
    for name in ('keys.json', 'env', 'ports.json', 'lock', 'postgres/password'):
        assert stat.S_IMODE((stack.directory / name).stat().st_mode) == 0o600, name
    assert (stack.directory / '.gitignore').read_text() == '*\n'


def test_no_secret_is_printed_or_shown_in_a_process_title(stack: StackProcess) -> None:
    shown = {'the log': stack.output}
    for process in (stack.pid, postgres_pid(stack)):
        shown[f'process {process}'] = Path(f'/proc/{process}/cmdline').read_text()
    variables = stack.variables
    password = httpx.URL(variables['SUPABASE_DB_URL']).password
    secrets = [variables[name] for name in variables if name != 'SUPABASE_URL']
    for where, text in shown.items():
        assert not any(secret in text for secret in [*secrets, password]), where


def test_the_stack_listens_on_loopback_only(stack: StackProcess) -> None:
    ports = {httpx.URL(stack.variables[name]).port for name in ('SUPABASE_URL', 'SUPABASE_DB_URL')}
    listening = [
        line.split()[1].split(':')
        for table in ('tcp', 'tcp6')
        for line in Path(f'/proc/net/{table}').read_text().splitlines()[1:]
        if line.split()[3] == '0A'
    ]
    addresses = {address for address, port in listening if int(port, 16) in ports}

    assert addresses == {'0100007F'}


def test_a_user_with_a_token_sees_only_their_own_jobs(stack: StackProcess) -> None:
    path = str(stack.directory)
    enqueue(stack, 'of-nobody.example')
    alice, again, bob = (
        run_silkline('token', email, '--directory', path).stdout.strip()
        for email in ('alice@example.com', 'alice@example.com', 'bob@example.com')
    )

    def as_user(token: str) -> dict[str, str]:
        key = stack.variables['SUPABASE_PUBLISHABLE_KEY']
        return {'apikey': key, 'Authorization': f'Bearer {token}'}

    http.post(
        f'{stack.url}/rest/v1/rpc/enqueue_crawl_job',
        headers=as_user(alice),
        json={'p_payload': {'url': 'https://of-alice.example/'}},
    ).raise_for_status()
    seen = {
        name: [
            job['host']
            for job in http.get(
                f'{stack.url}/rest/v1/crawl_jobs?select=host', headers=as_user(token)
            )
            .raise_for_status()
            .json()
        ]
        for name, token in (('alice', again), ('bob', bob))
    }

    assert seen == {'alice': ['of-alice.example'], 'bob': []}


def test_a_token_is_valid_although_the_keys_file_is_gone(directory: Path) -> None:
    with StackProcess(directory / 'stack') as stack:
        (stack.directory / 'keys.json').unlink()
        token = run_silkline('token', ' Ann@Example.com ', '--directory', str(stack.directory))
        answer = http.get(
            f'{stack.url}/rest/v1/crawl_jobs',
            headers={
                'apikey': stack.variables['SUPABASE_PUBLISHABLE_KEY'],
                'Authorization': f'Bearer {token.stdout.strip()}',
            },
        )

        assert answer.status_code == 200
        assert not (stack.directory / 'keys.json').exists()
        (stack.directory / 'env').write_text('garbage')
        message = run_silkline('token', 'a@b.example', '--directory', str(stack.directory), code=1)
        assert 'is damaged' in message.stderr


@pytest.mark.parametrize('email', ['', 'ann', '@example.com', 'ann@'])
def test_a_token_needs_an_e_mail_address(directory: Path, email: str) -> None:
    message = run_silkline('token', email, '--directory', str(directory), code=1).stderr

    assert 'is not an e-mail address' in message


def test_a_token_needs_a_running_stack(directory: Path) -> None:
    message = run_silkline('token', 'a@example.com', '--directory', str(directory), code=1).stderr

    assert 'silkline up' in message


def test_a_failed_migration_is_named_and_nothing_keeps_running(directory: Path) -> None:
    migrations = directory / 'migrations'
    migrations.mkdir()
    (migrations / '20260101000000_bad.sql').write_text('select 1 / 0;')
    path = str(directory / 'stack')
    message = run_silkline(
        'up', '--directory', path, '--migrations', str(migrations), code=1
    ).stderr

    assert '20260101000000_bad' in message
    assert 'division by zero' in message
    assert 'no stack is running' in run_silkline('down', '--directory', path).stderr


def test_a_directory_without_migrations_is_refused(directory: Path) -> None:
    (directory / 'readme.txt').touch()
    message = run_silkline(
        'up', '--directory', str(directory / 'stack'), '--migrations', str(directory), code=1
    ).stderr

    assert 'has no migrations' in message
    assert not (directory / 'stack').exists()


def test_an_address_that_is_not_of_this_machine_is_refused(directory: Path) -> None:
    for host in ('nonsense.invalid', '192.0.2.1'):
        message = run_silkline(
            'up', '--directory', str(directory / 'stack'), '--host', host, code=1
        ).stderr
        assert f'cannot listen on {host!r}' in message


def test_invalid_ports_in_ports_json_are_ignored(directory: Path) -> None:
    path = directory / 'stack'
    path.mkdir()
    (path / 'lock').touch()
    (path / 'ports.json').write_text('{"api": -5, "database": true}')
    with StackProcess(path) as stack:
        assert stack.rpc('pending_crawl_work')
