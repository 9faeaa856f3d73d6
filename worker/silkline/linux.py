"""The Linux calls that supervisor and runner share: the process table, and prctl.

Finds the processes that belong to a runner, hides the supervisor's environment, and adopts what a
dead runner leaves behind. The sandbox that a runner builds for itself is in `runner/isolation.py`.
"""

import contextlib
import ctypes
import os
import sys
from typing import NamedTuple

# A variable in the environment of a runner and of all its children; its value names the runner.
MARK = 'SILKLINE_RUNNER'

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36


def prctl(option: int, argument: int, second: int = 0) -> bool:
    words = [ctypes.c_ulong(word) for word in (argument, second, 0, 0)]
    return ctypes.CDLL(None).prctl(option, *words) == 0


class Process(NamedTuple):
    pid: int
    parent: int
    session: int
    is_zombie: bool


def processes() -> list[Process]:
    """All processes of this machine, from one pass over /proc; empty if it cannot be read."""
    found: list[Process] = []
    try:
        names = os.listdir('/proc')
    except OSError:
        # Not Linux, or no file descriptor left: neither is a reason to stop.
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
    """The living processes below `root`, in its session, or with its mark; without `root` itself.

    The session and the mark find processes whose parent died before anyone could adopt them. A
    process that changes its session, empties its environment and loses all its parents is missed;
    where a warden adopts them, there is no such gap.
    """
    everyone = processes()
    children: dict[int, list[int]] = {}
    for process in everyone:
        children.setdefault(process.parent, []).append(process.pid)
    family, unvisited = {root}, [root]
    while unvisited:
        for pid in children.get(unvisited.pop(), ()):
            if pid not in family:
                family.add(pid)
                unvisited.append(pid)
    found = {
        process.pid
        for process in everyone
        if not process.is_zombie
        and (
            process.pid in family
            or (session and process.session == session)
            or (mark and is_marked(process.pid, mark))
        )
    }
    return found - {root, os.getpid()}


def is_marked(pid: int, mark: str) -> bool:
    try:
        with open(f'/proc/{pid}/environ', 'rb') as file:
            return f'{MARK}={mark}'.encode() in file.read().split(b'\0')
    except OSError:
        return False


def hide_environment() -> None:
    """Make this process's memory and environment, which hold the key, unreadable for its runners.

    Called once, when a supervisor starts. Runners have the same account, but not the capability
    that would let them read it.
    """
    if sys.platform == 'linux':
        prctl(PR_SET_DUMPABLE, 0)


def adopt_orphans() -> None:
    """Become the parent of the processes that a dead runner leaves behind, to reap them."""
    if sys.platform == 'linux':
        prctl(PR_SET_CHILD_SUBREAPER, 1)
