"""How the process of a runner begins, and how what dead ones left behind is ended.

Owns the command, the environment, the list of those that live, and the one that is started ahead.
What a runner is told and how it is held to its limits is `process.py`'s; the walls it puts up
around itself are `isolation.py`'s.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from silkline.runner import isolation

ROOT = Path(__file__).parents[2]

# What a runner may know of its worker's environment: where its tools are.
PASSED_ON = (
    'SILKLINE_CHROMIUM',
    'SILKLINE_CHROMIUM_SANDBOX',
    'SSL_CERT_FILE',
    'SSL_CERT_DIR',
)
PATHS = frozenset(('SILKLINE_CHROMIUM', 'SSL_CERT_FILE', 'SSL_CERT_DIR'))

# Finds the package where the supervisor's own is, installed or not: its directory goes behind
# the standard library, which nothing beside it may stand in for, and before other versions.
PROGRAM = (
    'import sys; path = sys.path; names = [*path, "-packages"]; '
    'place = next(n for n, name in enumerate(names) if name.endswith("-packages")); '
    'path.insert(place, sys.argv[1]); import silkline.runner.main as runner; runner.main()'
)

# The processes of this supervisor that are runners.
living: set[int] = set()


def default_command() -> list[str]:
    """The runner under this Python, isolated: no user site, no variable, no current directory.

    faulthandler writes to stderr where a crawl was when a signal ended it.
    """
    return [sys.executable, '-I', '-X', 'faulthandler', '-c', PROGRAM, str(ROOT)]


def make_scratch() -> str:
    """A directory of its own for a runner with children: a killed browser leaves its profile."""
    return tempfile.mkdtemp(prefix='silkline-runner-')


class Started(NamedTuple):
    process: subprocess.Popen[bytes]
    # In the environment of the process and of all its children.
    mark: str


def start_process(command: Sequence[str], *, scratch: str | None = None) -> Started:
    """Everything that must be so before the runner's first instruction."""
    mark = uuid4().hex
    process = subprocess.Popen(  # noqa: S603 - our own program, no shell
        command,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        close_fds=True,
        start_new_session=True,
        cwd='/',
        umask=0o077,
        env={
            'PATH': '/usr/local/bin:/usr/bin:/bin',
            'LANG': 'C.UTF-8',
            'TMPDIR': scratch or tempfile.gettempdir(),
            isolation.MARK: mark,
            **passed_on(),
        },
    )
    living.add(process.pid)
    return Started(process, mark)


def passed_on() -> dict[str, str]:
    """As the worker means it: paths are from its directory, and a runner is in another."""
    known = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    for name in PATHS & known.keys():
        # The one that may be a list, by OpenSSL.
        paths = known[name].split(os.pathsep) if name == 'SSL_CERT_DIR' else [known[name]]
        known[name] = os.pathsep.join(path and os.path.abspath(path) for path in paths)
    return known


class Spare:
    """A runner that was started ahead of its job, or none.

    It is one like all others, for one job, and knows nothing but its program: while nothing is
    said to it, it loads what most crawls need, which is most of what a start takes. It ends when
    this process does, since its pipe does.
    """

    def __init__(self) -> None:
        self._started: Started | None = None

    def keep(self) -> None:
        """See that there is one; a machine that has no process left does without."""
        self._drop_dead()
        if self._started is None:
            with contextlib.suppress(OSError):
                self._started = start_process(default_command())

    def take(self) -> Started | None:
        """For a job, which has it from now on."""
        self._drop_dead()
        taken, self._started = self._started, None
        return taken

    def drop(self) -> None:
        if self._started is not None:
            end_process(self._started.process)
            self._started = None

    def _drop_dead(self) -> None:
        if self._started is not None and self._started.process.poll() is not None:
            self.drop()


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that has begun no job, close its pipes and reap it; blocks for a moment."""
    process.kill()
    process.__exit__(None, None, None)
    living.discard(process.pid)


def end_orphans() -> set[int]:
    """Kill and reap what dead runners left to this process; answer what was found.

    Only for a supervisor that called `isolation.adopt_orphans` and has no children but runners.
    Needed where a warden itself was killed; a few seconds late is early enough.
    """
    mine = os.getpid()
    orphans = {found.pid for found in isolation.processes() if found.parent == mine} - living
    for pid in orphans:
        os.kill(pid, signal.SIGKILL)
    reap(orphans)
    return orphans


def reap(pids: set[int]) -> None:
    """Take the status of dead processes that this one has adopted; the others are not its own."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
