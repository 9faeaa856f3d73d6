"""The sandbox of a runner, set up by the runner itself before it looks at its job.

Resource limits, no fork unless the job's fetcher needs one, no capabilities, and death with the
supervisor. A runner that may have children forks once: the parent becomes their warden, which
outlives the supervisor just long enough to kill them all. On other systems the Linux-only parts are
skipped.
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

from silkline.linux import adopt_orphans, descendants, prctl
from silkline.protocol import EXIT_LOST, Limits

PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
CAP_DAC_OVERRIDE = 1
CLONE_THREAD = 0x00010000


class Machine(NamedTuple):
    """System call numbers of one processor family."""

    audit: int
    clone: int
    clone3: int
    # Older calls that can only create processes.
    forks: tuple[int, ...]


MACHINES = {
    'x86_64': Machine(0xC000003E, 56, 435, (57, 58)),
    'aarch64': Machine(0xC00000B7, 220, 435, ()),
}


def isolate(limits: Limits, *, supervisor_pid: int) -> bool:
    """Set up the sandbox; return whether this process can still fork.

    With `limits.processes` this returns in a child: see `start_warden`.
    """
    limit_resources(limits)
    if sys.platform != 'linux':
        return limits.processes > 0
    # When the machine runs out of memory, the kernel should kill a runner, not the supervisor.
    with contextlib.suppress(OSError), open('/proc/self/oom_score_adj', 'w') as file:
        file.write('500')
    drop_capabilities()
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if limits.processes:
        start_warden(supervisor_pid)
        return True
    die_with(supervisor_pid, signal.SIGKILL)
    return not forbid_forks()


def limit_resources(limits: Limits) -> None:
    # DATA, not AS: reserved address space is not memory. At 512 MB of AS the 13th thread fails to
    # start, because each reserves a malloc arena; at 512 MB of DATA all 32 start.
    lower(resource.RLIMIT_DATA, limits.memory_bytes)
    lower(resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 5)
    lower(resource.RLIMIT_NOFILE, limits.open_files)
    lower(resource.RLIMIT_FSIZE, limits.file_bytes)
    # One byte, not zero: where cores are piped to a program, only 1 means "no core" to the kernel.
    lower(resource.RLIMIT_CORE, 1)
    if sys.platform != 'linux' and not limits.processes:
        # On Linux this limit also counts threads, over all runners of the account, and does not
        # apply to root.
        lower(resource.RLIMIT_NPROC, 0)


def lower(kind: int, soft: int, hard: int | None = None) -> None:
    """Set a limit, unless a stricter one is already set."""
    _, ceiling = resource.getrlimit(kind)
    if ceiling == resource.RLIM_INFINITY:
        ceiling = sys.maxsize
    hard = min(soft if hard is None else hard, ceiling)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (min(soft, hard), hard))


def drop_capabilities() -> None:
    """Drop everything but access to root's files, which may include this package."""
    header = struct.pack('Ii', 0x20080522, 0)
    _, permitted, _ = effective_capabilities()
    kept = permitted & (1 << CAP_DAC_OVERRIDE)
    ctypes.CDLL(None).capset(header, struct.pack('6I', kept, kept, 0, 0, 0, 0))


def effective_capabilities() -> tuple[int, int, int]:
    """Effective, permitted and inheritable: the first 32 bits of each."""
    header = struct.pack('Ii', 0x20080522, 0)
    data = ctypes.create_string_buffer(24)
    ctypes.CDLL(None).capget(header, data)
    effective, permitted, inheritable, *_ = struct.unpack('6I', data.raw)
    return effective, permitted, inheritable


def die_with(parent_pid: int, number: signal.Signals) -> None:
    """Have the kernel send a signal when the parent dies; exit now if it is already dead.

    For the kernel the parent is the thread that started this process: supervisors start runners
    from a thread that lives as long as they do.
    """
    prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent_pid:
        os._exit(EXIT_LOST)


def forbid_forks() -> bool:
    """Have the kernel refuse new processes, but not threads; return whether it will."""
    machine = MACHINES.get(os.uname().machine)
    if machine is None or sys.maxsize < 2**32:
        return False
    program = b''.join(fork_filter(machine))
    filters = ctypes.create_string_buffer(program, len(program))
    header = struct.pack('HxxxxxxP', len(program) // 8, ctypes.addressof(filters))
    buffer = ctypes.create_string_buffer(header, len(header))
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(buffer))


def fork_filter(machine: Machine) -> Iterator[bytes]:
    """Classic BPF instructions over `struct seccomp_data`: nr, arch, ip, args."""
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
    # The x32 numbering of x86, which would bypass the rest.
    yield step(at_least, 0x40000000, 0, 1)
    yield step(answer, refuse)
    # clone3 passes its flags by pointer; if it is missing, the C library falls back to clone.
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


def start_warden(supervisor_pid: int) -> None:
    """Fork: the child goes on as the crawl; the parent kills all descendants when it ends."""
    waited = {signal.SIGTERM, signal.SIGCHLD}
    adopt_orphans()
    signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    warden = os.getpid()
    crawl = os.fork()
    if crawl == 0:
        die_with(warden, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, waited)
        return
    guard(crawl, supervisor_pid)


def guard(crawl: int, supervisor_pid: int) -> NoReturn:
    """Wait until the crawl ends or the supervisor dies, then kill whatever is left."""
    # Kept open here, they would hide the exit of either side from the other.
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
    """Exit as the crawl did, so that the supervisor sees the same status with or without warden."""
    if status is None:
        os._exit(EXIT_LOST)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        # Python ignores some signals by default.
        with contextlib.suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
        signal.pause()
    os._exit(code)
