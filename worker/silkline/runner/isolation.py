"""The walls around a runner, put up by the runner itself before it looks at its job.

Limits of the kernel, no fork unless the job's fetcher needs one, no capability, and death with
the supervisor. A runner that may have children forks once: the parent becomes their warden, who
outlives the supervisor just long enough to kill them all. Also finds the processes that belong
to a runner, for `process.py` and the warden. What is Linux's is left out elsewhere.
"""

import contextlib
import ctypes
import os
import resource
import signal
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from silkline.protocol import Limits

MARK = 'SILKLINE_RUNNER'
# Exit codes of a runner: its supervisor is gone; it is out of memory.
LOST = 70
OUT_OF_MEMORY = 79

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
CAP_DAC_OVERRIDE = 1
CLONE_THREAD = 0x00010000


class Machine(NamedTuple):
    """The numbers of one processor family's system calls."""

    audit: int
    clone: int
    clone3: int
    # Older calls that only make processes.
    forks: tuple[int, ...]


MACHINES = {
    'x86_64': Machine(0xC000003E, 56, 435, (57, 58)),
    'aarch64': Machine(0xC00000B7, 220, 435, ()),
}


def isolate(limits: Limits, *, supervisor_pid: int) -> bool:
    """Put up the walls; answer whether this process can still fork.

    With `limits.processes` this returns in a child: see `leave_a_warden`.
    """
    limit_resources(limits)
    if sys.platform != 'linux':
        return limits.processes > 0
    # The kernel shall take a runner, not the supervisor, when the machine is out of memory.
    with contextlib.suppress(OSError), open('/proc/self/oom_score_adj', 'w') as file:
        file.write('500')
    drop_capabilities()
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if limits.processes:
        leave_a_warden(supervisor_pid)
        return True
    die_with(supervisor_pid, signal.SIGKILL)
    return not forbid_forks()


def limit_resources(limits: Limits) -> None:
    # DATA, not AS: address space that is only reserved is no memory. At 512 MB of AS the 13th
    # thread fails to start (each reserves an arena of malloc); at 512 MB of DATA all 32 do.
    lower(resource.RLIMIT_DATA, limits.memory_bytes)
    lower(resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 5)
    lower(resource.RLIMIT_NOFILE, limits.open_files)
    lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    # One byte, not none: where cores go to a program, the kernel takes only 1 for "no core".
    lower(resource.RLIMIT_CORE, 1)
    if sys.platform != 'linux' and not limits.processes:
        # On Linux this limit counts threads too, over all runners of the account, and it does
        # not hold root.
        lower(resource.RLIMIT_NPROC, 0)


def lower(kind: int, soft: int, hard: int | None = None) -> None:
    """Set a limit, or leave the stricter one that is there already."""
    _, ceiling = resource.getrlimit(kind)
    if ceiling == resource.RLIM_INFINITY:
        ceiling = sys.maxsize
    hard = min(soft if hard is None else hard, ceiling)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (min(soft, hard), hard))


def prctl(option: int, argument: int, second: int = 0) -> bool:
    words = [ctypes.c_ulong(word) for word in (argument, second, 0, 0)]
    return ctypes.CDLL(None).prctl(option, *words) == 0


def drop_capabilities() -> None:
    """Leave root nothing of root but its files, which the package may be among."""
    header = struct.pack('Ii', 0x20080522, 0)
    _, permitted, _ = effective_capabilities()
    kept = permitted & (1 << CAP_DAC_OVERRIDE)
    ctypes.CDLL(None).capset(header, struct.pack('6I', kept, kept, 0, 0, 0, 0))


def effective_capabilities() -> tuple[int, int, int]:
    """Effective, permitted and inheritable; the first 32 of each."""
    header = struct.pack('Ii', 0x20080522, 0)
    data = ctypes.create_string_buffer(24)
    ctypes.CDLL(None).capget(header, data)
    effective, permitted, inheritable, *_ = struct.unpack('6I', data.raw)
    return effective, permitted, inheritable


def die_with(parent_pid: int, number: signal.Signals) -> None:
    """Have the kernel send a signal when the parent ends, or end now if it has.

    The kernel means the thread that started this process: supervisors start runners from
    a thread that stays.
    """
    prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent_pid:
        os._exit(LOST)


def forbid_forks() -> bool:
    """Have the kernel refuse every new process, not new threads; answer whether it will."""
    machine = MACHINES.get(os.uname().machine)
    if machine is None or sys.maxsize < 2**32:
        return False
    program = b''.join(fork_filter(machine))
    filters = ctypes.create_string_buffer(program, len(program))
    header = struct.pack('HxxxxxxP', len(program) // 8, ctypes.addressof(filters))
    buffer = ctypes.create_string_buffer(header, len(header))
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(buffer))


def fork_filter(machine: Machine) -> Iterator[bytes]:
    """Instructions of classic BPF over `struct seccomp_data`: nr, arch, ip, args."""
    load, equal, at_least, any_bit, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, refuse, unknown = 0x7FFF0000, 0x00050000 | 1, 0x00050000 | 38
    number, arch, first_argument = 0, 4, 16
    forks = machine.forks

    def step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack('HBBI', code, yes, no, value)

    yield step(load, arch)
    yield step(equal, machine.audit, 1, 0)
    yield step(answer, refuse)
    yield step(load, number)
    # The other numbering of x86, which would lead around the rest.
    yield step(at_least, 0x40000000, 0, 1)
    yield step(answer, refuse)
    # Its flags lie behind a pointer; without it the C library falls back to clone.
    yield step(equal, machine.clone3, 0, 1)
    yield step(answer, unknown)
    for fork in forks:
        yield step(equal, fork, 0, 1)
        yield step(answer, refuse)
    yield step(equal, machine.clone, 1, 0)
    yield step(answer, allow)
    yield step(load, first_argument)
    yield step(any_bit, CLONE_THREAD, 1, 0)
    yield step(answer, refuse)
    yield step(answer, allow)


# Runners that may have children


def leave_a_warden(supervisor_pid: int) -> None:
    """Fork: the child goes on as the crawl, the parent ends all its descendants after it."""
    waited = {signal.SIGTERM, signal.SIGCHLD}
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    warden = os.getpid()
    crawl = os.fork()
    if crawl == 0:
        die_with(warden, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, waited)
        return
    guard(crawl, supervisor_pid)


def guard(crawl: int, supervisor_pid: int) -> NoReturn:
    """Wait for the crawl to end or the supervisor to die; then leave nothing behind."""
    # Held open here, they would hide the end of either side from the other.
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    status: int | None = None
    while status is None and os.getppid() == supervisor_pid:
        if signal.sigwait({signal.SIGTERM, signal.SIGCHLD}) == signal.SIGTERM:
            break
        with contextlib.suppress(ChildProcessError):
            while status is None and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                status = ended[1] if ended[0] == crawl else None
    with contextlib.suppress(ChildProcessError):
        while True:
            for pid in descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    end_like(status)


def end_like(status: int | None) -> NoReturn:
    """End as the crawl did, so that the supervisor reads one status in either case."""
    if status is None:
        os._exit(LOST)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        # Python ignores some signals from its start.
        with contextlib.suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
        signal.pause()
    os._exit(code)


class Process(NamedTuple):
    pid: int
    parent: int
    session: int
    is_zombie: bool


def processes() -> list[Process]:
    """All of this machine (Linux), in one pass over /proc; none where that cannot be read."""
    found: list[Process] = []
    try:
        names = os.listdir('/proc')
    except OSError:
        # Also without a descriptor left: nobody shall stop over it.
        return found
    for name in names:
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError), open(f'/proc/{name}/stat', 'rb') as file:
            # The program's name, in brackets, may hold anything.
            state, parent, _, session = file.read().rpartition(b')')[2].split()[:4]
            found.append(Process(int(name), int(parent), int(session), state in b'ZX'))
    return found


def descendants(root: int, *, session: int = 0, mark: str = '') -> set[int]:
    """The living processes below `root`, in its session, or with its mark; not `root` itself.

    The session and the mark (a variable of the environment) find those whose parent died while
    nobody was there to adopt them. Who changes the session, empties the environment and loses
    every parent is missed; a warden, who adopts them, leaves no such gap.
    """
    everyone = processes()
    children: dict[int, list[int]] = {}
    for process in everyone:
        children.setdefault(process.parent, []).append(process.pid)
    family, next_ones = {root}, [root]
    while next_ones:
        for pid in children.get(next_ones.pop(), ()):
            if pid not in family:
                family.add(pid)
                next_ones.append(pid)
    ours = {
        process.pid
        for process in everyone
        if not process.is_zombie
        and (
            process.pid in family
            or (session and process.session == session)
            or (mark and is_marked(process.pid, mark))
        )
    }
    return ours - {root, os.getpid()}


def is_marked(pid: int, mark: str) -> bool:
    try:
        with open(f'/proc/{pid}/environ', 'rb') as file:
            return f'{MARK}={mark}'.encode() in file.read().split(b'\0')
    except OSError:
        return False


# For the supervisor


def hide_environment() -> None:
    """Close this process's memory and environment, where the key is, to its own runners.

    For the supervisor, once, at its start. Runners have the same account, but not the
    capability that opens them again.
    """
    if sys.platform == 'linux':
        prctl(PR_SET_DUMPABLE, 0)


def adopt_orphans() -> None:
    """Become the parent of whatever a runner leaves behind, so that it can be reaped."""
    if sys.platform == 'linux':
        prctl(PR_SET_CHILD_SUBREAPER, 1)
