"""Runners as real processes: they finish, crash, hang, fork, flood their pipe and are killed."""

import asyncio
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from silkline import protocol
from silkline.linux import descendants
from silkline.protocol import EXIT_OUT_OF_MEMORY
from silkline.supervisor.outcome import ERROR_CODES, Outcome, code_of
from silkline.supervisor.process import STDERR_TAIL_BYTES, CannotStart, Runner
from silkline.supervisor.spawn import INHERITED, Spare, end_process, start_process
from tests.support.runner import (
    Frontier,
    children_of,
    crawl,
    is_running,
    open_descriptors,
    run_job,
    runner_of,
    start_of,
    supervise,
)
from tests.support.site import Site, page
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
MEGABYTE = 1024 * 1024

pytestmark = pytest.mark.skipif(
    sys.platform != 'linux', reason='runners are isolated on Linux only'
)


def limits_of(**changed: Any) -> protocol.Limits:
    return protocol.Limits(**{'memory_bytes': 256 * MEGABYTE, 'stall_seconds': 30, **changed})


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No test leaves a child process or an open descriptor."""
    asyncio.run(asyncio.sleep(0))
    children, descriptors = children_of(os.getpid()), open_descriptors()
    yield
    assert children_of(os.getpid()) == children
    # Fewer are fine: garbage of an earlier test was collected.
    assert open_descriptors() <= descriptors


# A crawl


def test_a_site_is_crawled_to_the_end_with_every_page_exactly_once() -> None:
    frontier = Frontier()
    outcome = crawl(start_of(pages=300, links=7), frontier)
    assert outcome.done is not None
    assert outcome.done.reason == 'drained'
    assert outcome.error_code is None
    assert len(frontier.ended) == 300
    assert set(frontier.handed_out.values()) == {1}
    assert all(finished.page is not None for finished in frontier.ended.values())


def test_pages_that_fail_or_are_retried_end_once() -> None:
    frontier = Frontier()
    outcome = crawl(start_of(pages=60, links=59, fail=10, retry=7), frontier)
    assert outcome.done is not None
    assert Counter(ended.status for ended in frontier.ended.values()) == {'done': 55, 'error': 5}
    assert sum(frontier.handed_out.values()) == 68


def test_the_queue_enforces_the_page_budget() -> None:
    frontier = Frontier(max_pages=17)
    outcome = crawl(start_of(pages=500, links=20), frontier)
    assert outcome.done is not None
    assert outcome.done.reason == 'drained'
    assert len(frontier.ended) == 17


def test_urls_beyond_the_maximum_depth_are_reported_but_not_fetched() -> None:
    frontier = Frontier()
    crawl(start_of(pages=100, links=4, payload={'max_depth': 2}), frontier)
    assert len(frontier.ended) == 1 + 4 + 16
    deep = [found for found in frontier.urls.values() if found.depth == 3]
    assert len(deep) == 64
    assert {found.skip_reason for found in deep} == {'too_deep'}


@pytest.mark.parametrize('command', ['pause', 'stop'])
def test_a_crawl_that_is_paused_or_stopped_saves_its_open_pages_and_can_continue(
    command: protocol.Command,
) -> None:
    frontier = Frontier()

    def leave(_: Runner, message: protocol.FromRunner) -> None:
        if isinstance(message, protocol.Finished):
            frontier.command = command

    first = crawl(start_of(pages=100, delay_ms=2), frontier, watch=leave)
    assert first.done is not None
    assert first.done.reason == command
    before = dict(frontier.ended)
    assert 0 < len(before) < 100
    frontier.command = 'continue'
    second = crawl(start_of(pages=100, delay_ms=2), frontier)
    assert second.done is not None
    assert second.done.reason == 'drained'
    assert len(frontier.ended) == 100
    assert all(frontier.handed_out[key] == 1 for key in before)


def test_a_command_reaches_a_runner_between_two_checkpoints() -> None:
    async def pause_when_open() -> None:
        async with runner_of(start_of(pages=50, slow=1, slow_ms=300)) as runner:
            frontier = Frontier()

            def watch(runner: Runner, message: protocol.FromRunner) -> None:
                if isinstance(message, protocol.Begun):
                    runner.send_command('pause')
                    frontier.command = 'pause'

            outcome = await supervise(runner, frontier, watch=watch)
            assert outcome.done is not None
            assert outcome.done.reason == 'pause'
            assert len(frontier.ended) == 1

    asyncio.run(pause_when_open())


def test_a_runner_resumed_while_it_saves_continues_with_its_leased_urls() -> None:
    frontier = Frontier()
    ended = 0

    def pause_once(runner: Runner, message: protocol.FromRunner) -> None:
        nonlocal ended
        ended += isinstance(message, protocol.Finished)
        if ended == 20 and isinstance(message, protocol.Finished):
            # Overruled by the next answer of the frontier, which says continue.
            runner.send_command('pause')

    outcome = crawl(start_of(pages=100, delay_ms=2), frontier, watch=pause_once)

    assert outcome.done is not None, outcome
    assert outcome.done.reason == 'drained'
    assert len(frontier.ended) == 100
    assert set(frontier.handed_out.values()) == {1}


def test_a_cancelled_runner_exits_without_a_last_message() -> None:
    frontier = Frontier()

    def cancel(_: Runner, message: protocol.FromRunner) -> None:
        if isinstance(message, protocol.Finished):
            frontier.command = 'cancel'

    outcome = crawl(start_of(pages=1000, delay_ms=1), frontier, watch=cancel)
    assert outcome.done is None
    assert outcome.error_code == 'exited:0'


@pytest.mark.parametrize('name', ['no_such', 'null'])
def test_a_fetcher_that_is_not_installed_fails_the_job_for_good(name: str) -> None:
    outcome = crawl(start_of(payload={'fetcher': name}))
    assert (outcome.error_code, outcome.is_retryable) == ('payload', False)
    assert outcome.error_message is not None
    assert outcome.error_message.startswith(f'no fetcher {name!r}')


# Unexpected ends


# What page 6 does, the limits, the error code, whether the job is retried, a part of the message.
ENDS = [
    ('memory', {}, 'oom', True, ''),
    ('SIGSEGV', {}, 'crashed:SIGSEGV', True, 'in misbehave'),
    ('SIGABRT', {}, 'crashed:SIGABRT', True, ''),
    ('SIGKILL', {}, 'crashed:SIGKILL', True, ''),
    ('SIGABRT', {'processes': 5}, 'crashed:SIGABRT', True, ''),
    ('exit:3', {'processes': 5}, 'exited:3', True, ''),
    ('memory', {'processes': 5}, 'oom', True, ''),
    ('hang', {'stall_seconds': 2}, 'stalled', True, 'in hang'),
    ('busy', {'stall_seconds': 2}, 'stalled', True, ''),
    ('busy', {'cpu_seconds': 1}, 'cpu', True, 'in be_busy'),
    ('busy', {'wall_seconds': 2}, 'timeout', False, 'in be_busy'),
    ('wait', {'wall_seconds': 2, 'stall_seconds': 30}, 'timeout', False, ''),
    ('exit:0', {}, 'exited:0', True, ''),
    ('exit:3', {}, 'exited:3', True, ''),
    ('raise:so it is', {}, 'failed', True, 'RuntimeError: so it is'),
    ('fork', {}, 'failed', True, ''),
    ('fork', {'processes': 20}, 'processes', True, ''),
    ('flood', {}, 'protocol', True, ''),
    ('garbage', {}, 'protocol', True, ''),
    ('huge', {}, 'protocol', True, ''),
    ('stderr', {}, 'exited:1', True, ''),
    ('silent', {'exit_seconds': 0.5}, 'protocol', True, ''),
]


@pytest.mark.parametrize(('crash', 'changed', 'code', 'is_retryable', 'line'), ENDS)
def test_a_page_that_breaks_its_runner_gives_the_job_a_code_and_says_where(
    crash: str, changed: dict[str, Any], code: str, is_retryable: bool, line: str
) -> None:
    frontier = Frontier()
    start = start_of(pages=40, crash=crash, crash_at=6, limits=limits_of(**changed))
    outcome = crawl(start, frontier)
    assert outcome.error_code == code, outcome
    assert outcome.is_retryable is is_retryable
    assert line in (outcome.error_message or '')
    assert outcome.done is None
    # Pages finished before are saved: only those in flight are lost.
    assert 1 <= len(frontier.ended) < 40
    assert len(frontier.pending) >= 1


def test_every_error_code_is_listed_and_fits_the_database() -> None:
    codes = {code for _, _, code, _, _ in ENDS} | set(ERROR_CODES)
    assert {code.partition(':')[0] for code in codes} <= set(ERROR_CODES)
    assert all(re.fullmatch('[A-Za-z0-9_:.-]{1,100}', code) for code in codes)


def test_only_the_end_of_stderr_is_kept() -> None:
    outcome = crawl(start_of(crash='stderr:5'))
    assert outcome.error_message is not None
    assert outcome.error_message.endswith('the last line')
    assert STDERR_TAIL_BYTES * 0.9 < len(outcome.error_message) < STDERR_TAIL_BYTES + 200


def test_a_stray_print_does_not_break_the_protocol() -> None:
    frontier = Frontier()
    outcome = crawl(start_of(pages=30, crash='print', crash_at=3), frontier)
    assert outcome.done is not None
    assert len(frontier.ended) == 30


@pytest.mark.parametrize('seed', range(12))
def test_a_runner_killed_at_any_moment_loses_only_what_was_in_flight(seed: int) -> None:
    frontier = Frontier()
    left = random.Random(seed).randrange(120)

    def kill(runner: Runner, message: protocol.FromRunner) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(runner.pid, signal.SIGKILL)

    first = crawl(start_of(pages=60), frontier, watch=kill)
    assert first.done is not None or first.error_code == 'crashed:SIGKILL'
    finished = set(frontier.ended)
    second = crawl(start_of(pages=60), frontier)
    assert second.done is not None
    assert len(frontier.ended) == 60
    assert all(frontier.handed_out[key] == 1 for key in finished)


def test_a_program_that_is_not_a_runner_fails_the_job() -> None:
    async def run(*command: str) -> str | None:
        async with Runner(start_of(), command=command) as runner:
            return (await supervise(runner, Frontier())).error_code

    assert asyncio.run(run('/bin/false')) == 'exited:1'
    assert asyncio.run(run('/bin/cat')) == 'protocol'
    with pytest.raises(CannotStart):
        asyncio.run(run('/no/such/program'))


# Reports that it is alive, but reads nothing after its job.
DEAF = """
import os, time
from silkline import framing, protocol
os.write(1, framing.encode(protocol.WantTasks(count=1)))
while True:
    os.write(1, framing.encode(protocol.Alive()))
    time.sleep(0.1)
"""


def test_a_runner_that_sends_but_does_not_read_is_stalled() -> None:
    async def answer_at_length() -> Outcome:
        start = start_of(limits=limits_of(stall_seconds=1))
        answer = protocol.Tasks(redirected_starts=['x' * 1000] * 1000)
        async with Runner(start, command=[sys.executable, '-c', DEAF]) as runner:
            async for message in runner.messages():
                if isinstance(message, protocol.WantTasks):
                    await runner.send_tasks(msgspec.to_builtins(answer))
            return await runner.wait()

    outcome = asyncio.run(asyncio.wait_for(answer_at_length(), 60))
    assert outcome.error_code == 'stalled'


def scratches() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob('silkline-runner-*'))


def test_a_runner_that_cannot_start_leaves_no_directory() -> None:
    async def run() -> None:
        async with Runner(start_of(limits=limits_of(processes=5)), command=['/no/such/program']):
            pass

    before = scratches()
    with pytest.raises(CannotStart):
        asyncio.run(run())
    assert scratches() <= before


def test_a_runner_that_is_cancelled_twice_leaves_no_directory() -> None:
    async def run() -> None:
        begun = asyncio.Event()

        def watch(_: Runner, message: protocol.FromRunner) -> None:
            begun.set()

        start = start_of(pages=1000, delay_ms=1, limits=limits_of(processes=5))
        job = asyncio.ensure_future(run_job(start, watch=watch))
        await begun.wait()
        job.cancel()
        # By now the first cancellation is killing the runner.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job

    before = scratches()
    asyncio.run(run())
    assert scratches() <= before


def test_a_runner_cancelled_at_its_start_does_not_delay_the_next_one() -> None:
    async def run(steps: int) -> Outcome:
        job = asyncio.ensure_future(run_job(start_of(pages=3)))
        for _ in range(steps):
            await asyncio.sleep(0)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        return await run_job(start_of(pages=3))

    for steps in range(1, 6):
        assert asyncio.run(run(steps)).done is not None


def test_without_a_free_descriptor_a_runner_is_not_started_and_nothing_leaks() -> None:
    async def start_with_spare(spare: int) -> bool:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = os.open(os.devnull, os.O_RDONLY)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + spare, hard))
        try:
            async with runner_of(start_of()):
                return True
        except CannotStart:
            return False
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    started = [asyncio.run(start_with_spare(spare)) for spare in range(12)]
    assert not any(started[:6])
    assert started[-1]


@pytest.mark.parametrize(
    ('status', 'is_oom', 'code'),
    [
        (-signal.SIGKILL, True, 'oom'),
        (-signal.SIGKILL, False, 'crashed:SIGKILL'),
        (-signal.SIGSEGV, True, 'crashed:SIGSEGV'),
        (-63, False, 'crashed:SIG63'),
        (EXIT_OUT_OF_MEMORY, False, 'oom'),
    ],
)
def test_a_kill_by_the_kernel_for_memory_has_its_own_code(
    status: int, is_oom: bool, code: str
) -> None:
    assert code_of(status, is_oom=is_oom)[0] == code


# Child processes


def test_a_runner_cannot_fork_unless_its_limits_say_so() -> None:
    outcome = crawl(start_of(crash='children'))
    assert outcome.error_code == 'failed'
    assert outcome.error_message is not None
    assert 'Operation not permitted' in outcome.error_message


def test_children_in_other_groups_and_sessions_end_with_their_runner() -> None:
    seen: set[int] = set()

    def watch(runner: Runner, message: protocol.FromRunner) -> None:
        if isinstance(message, protocol.Finished):
            seen.update(descendants(runner.pid))

    limits = limits_of(processes=30)
    start = start_of(pages=30, crash='children:8', crash_at=2, delay_ms=5, limits=limits)
    outcome = crawl(start, watch=watch)
    assert outcome.done is not None
    assert len(seen) > 8
    assert not any(map(is_running, seen))


def test_killing_a_runner_kills_children_in_other_groups_and_sessions() -> None:
    async def kill_when_they_are_there() -> set[int]:
        limits = limits_of(processes=30)
        start = start_of(pages=3000, crash='children:8', delay_ms=5, limits=limits)
        async with runner_of(start) as runner:
            seen: set[int] = set()

            def watch(_: Runner, message: protocol.FromRunner) -> None:
                if isinstance(message, protocol.Begun):
                    seen.update(descendants(runner.pid))
                    if len(seen) > 8:
                        raise InterruptedError

            with pytest.raises(InterruptedError):
                await supervise(runner, Frontier(), watch=watch)
            outcome = await runner.kill()
            assert outcome.error_code == 'killed'
            assert not any(map(is_running, seen))
            return seen

    assert asyncio.run(kill_when_they_are_there())


ADOPTER = """
import os, signal
from tests.support.runner import children_of, crawl, is_running, start_of
from silkline import protocol
from silkline.linux import adopt_orphans, descendants
from silkline.supervisor.spawn import kill_orphans

adopt_orphans()
seen = set()
def watch(runner, message):
    if isinstance(message, protocol.Begun) and len(seen) < 9:
        seen.update(descendants(runner.pid))
        if len(seen) >= 9:
            os.kill(runner.pid, signal.SIGKILL)
limits = protocol.Limits(processes=30)
outcome = crawl(start_of(pages=9999, delay_ms=1, crash='children:8', limits=limits), watch=watch)
while kill_orphans():
    pass
print(outcome.error_code, [pid for pid in seen if is_running(pid)], children_of(os.getpid()))
"""


def test_a_supervisor_kills_and_reaps_the_children_of_a_killed_runner() -> None:
    done = subprocess.run(
        [sys.executable, '-c', ADOPTER], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == 'crashed:SIGKILL [] set()\n'


PARENT = """
import asyncio, sys
from tests.support.runner import Frontier, runner_of, start_of, supervise
from silkline import protocol
from silkline.linux import descendants

async def main():
    limits = protocol.Limits(processes=int(sys.argv[1]))
    start = start_of(pages=100000, delay_ms=1, crash=sys.argv[2], crash_at=3, limits=limits)
    async with runner_of(start) as runner:
        count = 0
        def watch(runner, message):
            nonlocal count
            count += isinstance(message, protocol.Finished)
            if count == 30:
                count += 1
                print(runner.pid, *descendants(runner.pid), flush=True)
        await supervise(runner, Frontier(), watch=watch)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ('processes', 'crash', 'at_least'), [(0, 'print', 1), (30, 'children:8', 9)]
)
def test_a_runner_and_its_children_end_when_their_supervisor_is_killed(
    processes: int, crash: str, at_least: int
) -> None:
    with subprocess.Popen(
        [sys.executable, '-c', PARENT, str(processes), crash],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) >= at_least
        parent.kill()
        killed_at = time.monotonic()
        wait_until(lambda: not any(map(is_running, pids)), what='the runners to end')
        print(f'ended {1000 * (time.monotonic() - killed_at):.0f} ms after the supervisor')


def test_a_runner_stuck_in_a_page_ends_when_its_supervisor_is_killed() -> None:
    program = (
        PARENT.replace('crash_at=3', 'crash_at=0')
        .replace('count += isinstance(message, protocol.Finished)', 'count += 1')
        .replace('count == 30', 'count == 1')
    )
    with subprocess.Popen(
        [sys.executable, '-c', program, '0', 'busy'], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        (pid,) = [int(word) for word in parent.stdout.readline().split()]
        # Far more than a start takes: it is in the page, and no longer reads its pipe.
        wait_until(lambda: cpu_seconds(pid) > 0.6, what='the runner to be stuck')
        parent.kill()
        wait_until(lambda: not is_running(pid), what='the runner to end')


def cpu_seconds(pid: int) -> float:
    fields = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


# What a runner can see


# What uvloop opens as well; not every kernel has the last one.
LOOP = {'anon_inode:[eventpoll]', 'anon_inode:[eventfd]', 'anon_inode:[io_uring]'}
SECRETS = (
    'SUPABASE_SECRET_KEY',
    'SUPABASE_SERVICE_ROLE_KEY',
    'SUPABASE_URL',
    'HTTPS_PROXY',
    'PGPASSWORD',
)


def test_a_runner_has_no_key_and_only_its_own_pipes(
    monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, 'sb_secret_of_the_test')
    secret_file = directory / 'secret'
    secret_file.write_text('sb_secret_of_the_test')
    seen: list[tuple[str, dict[str, str], dict[str, str]]] = []

    def look(runner: Runner, message: protocol.FromRunner) -> None:
        if isinstance(message, protocol.Finished) and not seen:
            proc = Path(f'/proc/{runner.pid}')
            environment = dict(
                line.split('=', 1) for line in (proc / 'environ').read_text().split('\0') if line
            )
            descriptors = {path.name: os.readlink(path) for path in (proc / 'fd').iterdir()}
            seen.append(((proc / 'cmdline').read_text(), environment, descriptors))

    with secret_file.open() as file:
        os.set_inheritable(file.fileno(), True)
        crawl(start_of(pages=50, delay_ms=5), watch=look)
    ((command, environment, descriptors),) = seen
    assert set(environment) - set(INHERITED) == {'PATH', 'LANG', 'TMPDIR', 'SILKLINE_RUNNER'}
    assert not any('KEY' in name or 'TOKEN' in name for name in INHERITED)
    assert 'sb_secret' not in command
    assert descriptors['0'] == '/dev/null'
    assert descriptors['1'] == descriptors['2']
    # The event loop has its own pipes and sockets, with both of their ends in this process.
    opened = Counter(target for number, target in descriptors.items() if int(number) > 2)
    kinds = Counter(re.sub(r'\d+', '', target) for target in opened.elements())
    assert kinds.keys() <= {*LOOP, 'pipe:[]', 'socket:[]', '/dev/null'}
    assert kinds['socket:[]'] == 2
    pipes = [target for target in opened if target.startswith('pipe:')]
    assert len([pipe for pipe in pipes if opened[pipe] == 1]) == 2


def test_a_runner_has_its_limits_and_no_capability_but_to_read_files_of_root() -> None:
    seen: list[tuple[str, str, str, int]] = []

    def look(runner: Runner, message: protocol.FromRunner) -> None:
        if isinstance(message, protocol.Finished) and not seen:
            proc = Path(f'/proc/{runner.pid}')
            limits, status = (proc / 'limits').read_text(), (proc / 'status').read_text()
            seen.append((limits, status, os.readlink(proc / 'cwd'), os.getsid(runner.pid)))
            assert os.getsid(runner.pid) == os.getpgid(runner.pid) == runner.pid

    changed = limits_of(memory_bytes=99 * MEGABYTE, open_files=77, file_bytes=5555, cpu_seconds=66)
    crawl(start_of(pages=50, delay_ms=5, limits=changed), watch=look)
    ((limits, status, directory, _),) = seen
    rows = {line[:26].strip(): line[26:].split()[:2] for line in limits.splitlines()}
    assert rows['Max data size'] == [str(99 * MEGABYTE)] * 2
    assert rows['Max open files'] == ['77', '77']
    assert rows['Max file size'] == ['5555', '5555']
    assert rows['Max cpu time'] == ['66', '71']
    assert rows['Max core file size'][0] in ('0', '1')
    words = {
        name: rest.strip() for name, _, rest in (s.partition(':') for s in status.splitlines())
    }
    assert int(words['CapEff'], 16) in (0, 2)
    assert words['Umask'] == '0077'
    assert words['NoNewPrivs'] == '1'
    assert words['Seccomp'] == '2'
    assert directory == '/'


# Runners started ahead of their job


def test_a_runner_started_ahead_is_isolated_like_the_others() -> None:
    spare = Spare()
    seen: list[tuple[int, list[str], str]] = []

    def look(runner: Runner, message: protocol.FromRunner) -> None:
        if isinstance(message, protocol.Finished) and not seen:
            proc = Path(f'/proc/{runner.pid}')
            threads = [path.read_text() for path in proc.glob('task/*/status')]
            seen.append((runner.pid, threads, (proc / 'limits').read_text()))

    async def run(site: Site) -> Outcome:
        limits = limits_of(memory_bytes=99 * MEGABYTE, open_files=77)
        async with Runner(http_start(site, limits), spare=spare) as runner:
            return await supervise(runner, Frontier(), watch=look)

    before = children_of(os.getpid())
    spare.keep()
    spare.keep()
    (ahead,) = children_of(os.getpid()) - before
    wait_until(lambda: is_loaded(ahead), what='a runner that waits for a job')
    with Site({'/': page('/a'), '/a': page()}) as site:
        outcome = asyncio.run(run(site))

    assert outcome.done is not None
    ((pid, threads, limits),) = seen
    assert pid == ahead
    # A thread from before the job would have neither.
    assert all('NoNewPrivs:\t1' in status for status in threads)
    assert all('Seccomp:\t2' in status for status in threads)
    assert re.search(rf'Max data size +{99 * MEGABYTE} +{99 * MEGABYTE}', limits)
    assert re.search(r'Max open files +77 +77', limits)
    assert spare.take() is None


def http_start(site: Site, limits: protocol.Limits) -> protocol.Start:
    """A job for the fetcher `http`: a runner started ahead has no plugins."""
    return protocol.Start(
        job_id=uuid4(),
        kind='crawl',
        payload={'url': f'{site.url}/', 'obey_robots': False},
        limits=limits,
        allow_networks=['127.0.0.1/32'],
    )


def is_loaded(pid: int) -> bool:
    return 'aiohttp' in Path(f'/proc/{pid}/maps').read_text()


def test_a_runner_started_ahead_that_died_is_replaced() -> None:
    before = children_of(os.getpid())
    spare = Spare()
    spare.keep()
    (first,) = children_of(os.getpid()) - before
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not is_running(first), what='the runner to end')
    assert spare.take() is None
    assert children_of(os.getpid()) == before

    spare.keep()
    (second,) = children_of(os.getpid()) - before
    assert second != first
    spare.drop()


def test_a_runner_with_children_is_not_the_one_started_ahead() -> None:
    spare = Spare()
    spare.keep()

    environments: list[str] = []

    def look(runner: Runner, message: protocol.FromRunner) -> None:
        # After its first message it waits for an answer; after its last it may have ended.
        if not environments:
            environments.append(Path(f'/proc/{runner.pid}/environ').read_text())

    async def run(site: Site) -> None:
        start = http_start(site, limits_of(processes=5))
        async with Runner(start, spare=spare) as runner:
            await supervise(runner, Frontier(), watch=look)

    with Site({'/': page()}) as site:
        asyncio.run(run(site))
    # It has had its own directory since it started.
    assert 'silkline-runner-' in environments[0]
    taken = spare.take()
    assert taken is not None
    end_process(taken.process)


WAITING_PARENT = """
import sys
from silkline.supervisor.spawn import Spare

spare = Spare()
spare.keep()
print(spare.take().process.pid, flush=True)
sys.stdin.read()
"""


def test_a_runner_started_ahead_ends_when_its_supervisor_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, '-c', WAITING_PARENT],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()
        wait_until(lambda: not is_running(pid), what='the runner to end')


def test_relative_paths_in_the_environment_are_made_absolute_for_a_runner(
    monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    monkeypatch.chdir(directory)
    monkeypatch.setenv('SSL_CERT_FILE', 'own:1.pem')
    monkeypatch.setenv('SSL_CERT_DIR', 'own:/etc/ssl/certs')
    monkeypatch.setenv('SILKLINE_CHROMIUM', '')

    process, _ = start_process(['/usr/bin/env', '--null'])
    assert process.stdout is not None
    environment = process.stdout.read().decode().split('\0')
    end_process(process)
    assert f'SSL_CERT_FILE={directory}/own:1.pem' in environment
    assert f'SSL_CERT_DIR={directory}/own:/etc/ssl/certs' in environment
    assert 'SILKLINE_CHROMIUM=' in environment


def test_a_runner_cannot_read_the_environment_of_its_supervisor() -> None:
    program = (
        'from silkline.linux import hide_environment\n'
        'from tests.support.runner import crawl, start_of\n'
        'hide_environment(); outcome = crawl(start_of(crash="snoop"))\n'
        'print(outcome.error_message)'
    )
    environment = {**os.environ, 'SUPABASE_SECRET_KEY': 'sb_secret_of_the_test'}
    done = subprocess.run(
        [sys.executable, '-c', program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert 'Permission denied' in done.stdout
    assert 'sb_secret' not in done.stdout


def test_a_runner_imports_nothing_from_the_directory_or_from_pythonpath(
    monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    for name in ('json', 'msgspec', 'asyncio', 'silkline', 'hashlib'):
        (directory / f'{name}.py').write_text('raise SystemExit(99)')
    monkeypatch.setenv('PYTHONPATH', str(directory))
    monkeypatch.setenv('PYTHONSTARTUP', str(directory / 'json.py'))
    monkeypatch.chdir(directory)
    outcome = crawl(start_of(pages=5))
    assert outcome.done is not None


def test_a_runner_runs_the_same_copy_of_the_package_as_its_supervisor(directory: Path) -> None:
    shutil.copytree(ROOT / 'worker/silkline', directory / 'silkline')
    with (directory / 'silkline/__init__.py').open('a') as module:
        module.write("import sys; sys.stderr.write('a copy\\n')\n")
    program = (
        'from tests.support.runner import crawl, start_of\n'
        'print(crawl(start_of(crash="exit:1")).error_message)'
    )
    done = subprocess.run(
        [sys.executable, '-c', program],
        cwd=directory,
        env={**os.environ, 'PYTHONPATH': f'{directory}:{ROOT}'},
        capture_output=True,
        text=True,
        check=True,
    )
    assert 'a copy' in done.stdout


# Timeouts, cancellation, many runners


def test_a_runner_waits_for_a_busy_supervisor_and_is_not_taken_for_stalled() -> None:
    async def be_busy_for_a_while() -> None:
        limits = limits_of(stall_seconds=2)
        start = start_of(pages=40, links=39, bytes=2 * MEGABYTE, limits=limits)
        frontier = Frontier()
        async with runner_of(start) as runner:
            status = Path(f'/proc/{runner.pid}/status')
            peak = 0

            def watch(_: Runner, message: protocol.FromRunner) -> None:
                nonlocal peak
                if (
                    isinstance(message, protocol.Finished)
                    and len(frontier.handed_out) > 4
                    and not peak
                ):
                    # Blocks this event loop: nothing is read for longer than stall_seconds.
                    busy_until = time.monotonic() + 2.5
                    wait_until(lambda: time.monotonic() > busy_until)
                    peak = int(re.findall(r'VmHWM:\s+(\d+)', status.read_text())[0])

            outcome = await supervise(runner, frontier, watch=watch)
        assert outcome.done is not None, outcome
        assert len(frontier.ended) == 40
        assert 0 < peak < 120_000

    asyncio.run(be_busy_for_a_while())


def test_cancelling_kills_a_runner_at_once() -> None:
    taken: list[float] = []

    async def cancel_once(crash: str) -> None:
        begun = asyncio.Event()
        pids: list[int] = []

        def watch(runner: Runner, message: protocol.FromRunner) -> None:
            if isinstance(message, protocol.Begun):
                pids.append(runner.pid)
                begun.set()

        start = start_of(pages=100_000, delay_ms=1, crash=crash, crash_at=0)
        job = asyncio.ensure_future(run_job(start, watch=watch))
        await begun.wait()
        cancelled_at = time.monotonic()
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        taken.append(time.monotonic() - cancelled_at)
        assert not is_running(pids[0])

    for number in range(10):
        asyncio.run(cancel_once('hang' if number % 2 else 'print'))
    taken.sort()
    print(f'cancel to end: p50 {1000 * taken[5]:.1f} ms, worst {1000 * taken[-1]:.1f} ms')
    assert taken[-1] < 2


def test_an_error_in_the_supervisor_is_raised_unchanged_and_kills_the_runner() -> None:
    def fail(runner: Runner, message: protocol.FromRunner) -> None:
        raise ZeroDivisionError(runner.pid)

    with pytest.raises(ZeroDivisionError) as caught:
        crawl(start_of(pages=1000), watch=fail)
    assert not is_running(caught.value.args[0])


def test_runners_that_crash_do_not_disturb_others() -> None:
    crashes = ['', 'memory', '', 'SIGSEGV', '', 'fork', '', 'flood', '', 'exit:9']

    async def run_all() -> None:
        limits = limits_of(processes=25)
        async with asyncio.TaskGroup() as group:
            bomb = group.create_task(run_job(start_of(crash='fork', limits=limits)))
            jobs = [
                group.create_task(run_job(start_of(pages=60, delay_ms=2, crash=crash, crash_at=5)))
                for crash in crashes
            ]
        assert bomb.result().error_code == 'processes'
        for crash, job in zip(crashes, jobs, strict=True):
            assert (job.result().done is not None) == (crash == ''), job.result()

    asyncio.run(run_all())


def test_many_jobs_leave_no_zombie_and_no_open_descriptor() -> None:
    crashes = ['', '', '', 'SIGKILL', 'exit:1', 'garbage', 'raise']

    async def run_all() -> None:
        async def slot(number: int) -> None:
            for job in range(number, 35, 5):
                await run_job(start_of(pages=10, crash=crashes[job % len(crashes)], crash_at=4))

        before = open_descriptors()
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(slot(number))
        assert open_descriptors() <= before
        assert not [pid for pid in children_of(os.getpid()) if not is_running(pid)]

    asyncio.run(run_all())


def test_a_runner_sends_its_first_message_within_a_second() -> None:
    taken: list[float] = []
    sizes: list[int] = []

    async def until_first_message() -> None:
        started_at = time.monotonic()
        async with runner_of(start_of(pages=10, delay_ms=5)) as runner:

            def watch(_: Runner, message: protocol.FromRunner) -> None:
                if isinstance(message, protocol.Discovered) and len(taken) == len(sizes):
                    taken.append(time.monotonic() - started_at)
                    status = Path(f'/proc/{runner.pid}/status').read_text()
                    sizes.append(int(re.findall(r'VmRSS:\s+(\d+)', status)[0]))

            await supervise(runner, Frontier(), watch=watch)

    for _ in range(7):
        asyncio.run(until_first_message())
        del taken[len(sizes) :]
    taken.sort()
    print(f'spawn to first message: p50 {1000 * taken[3]:.0f} ms; {max(sizes) / 1024:.0f} MB')
    assert taken[3] < 1
    assert max(sizes) < 60_000
