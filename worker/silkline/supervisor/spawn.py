"""Start the process of a runner, and kill what dead runners left behind.

Owns the command line, the environment, the set of live runners, and the one that is started ahead
of its job. Talking to a runner and enforcing its limits is in `process.py`; the sandbox that a
runner builds for itself is in `runner/isolation.py`.
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

from silkline import linux

ROOT = Path(__file__).parents[2]

# The variables that a runner inherits: where its tools are.
INHERITED = (
    'SILKLINE_CHROMIUM',
    'SILKLINE_CHROMIUM_SANDBOX',
    'SSL_CERT_FILE',
    'SSL_CERT_DIR',
)
PATHS = frozenset(('SILKLINE_CHROMIUM', 'SSL_CERT_FILE', 'SSL_CERT_DIR'))

# Imports the supervisor's own copy of the package, installed or not: its directory goes after the
# standard library, so that no module next to it can shadow that, and before site-packages.
PROGRAM = (
    'import sys; path = sys.path; names = [*path, "-packages"]; '
    'place = next(n for n, name in enumerate(names) if name.endswith("-packages")); '
    'path.insert(place, sys.argv[1]); import silkline.runner.main as runner; runner.main()'
)

# The pids of the live runners of this supervisor.
living: set[int] = set()


def default_command() -> list[str]:
    """This Python, isolated: no user site, no Python variables, no current directory.

    When a signal kills a crawl, faulthandler writes to stderr where it was.
    """
    return [sys.executable, '-I', '-X', 'faulthandler', '-c', PROGRAM, str(ROOT)]


def make_scratch() -> str:
    """A directory for one runner with children: a killed browser leaves its profile behind."""
    return tempfile.mkdtemp(prefix='silkline-runner-')


class Started(NamedTuple):
    process: subprocess.Popen[bytes]
    # The value of `linux.MARK` in the environment of the process and of all its children.
    mark: str


def start_process(command: Sequence[str], *, scratch: str | None = None) -> Started:
    """Set up everything that must hold before the runner's first instruction."""
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
            linux.MARK: mark,
            **inherited_variables(),
        },
    )
    living.add(process.pid)
    return Started(process, mark)


def inherited_variables() -> dict[str, str]:
    """Relative paths are the worker's: a runner has another working directory."""
    known = {name: os.environ[name] for name in INHERITED if name in os.environ}
    for name in PATHS & known.keys():
        # OpenSSL allows a list only for this one.
        paths = known[name].split(os.pathsep) if name == 'SSL_CERT_DIR' else [known[name]]
        known[name] = os.pathsep.join(path and os.path.abspath(path) for path in paths)
    return known


class Spare:
    """At most one runner that was started ahead of its job.

    While it waits, it loads what most crawls need, which is most of the start-up time. Like every
    runner it serves one job, knows nothing but its program, and exits when its pipe closes.
    """

    def __init__(self) -> None:
        self._started: Started | None = None

    def keep(self) -> None:
        """Start one if there is none; on a machine without free processes, go without."""
        self._drop_dead()
        if self._started is None:
            with contextlib.suppress(OSError):
                self._started = start_process(default_command())

    def take(self) -> Started | None:
        """Hand it over to a job."""
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
    """Kill a process that has no job yet, close its pipes and reap it; blocks for a moment."""
    process.kill()
    process.__exit__(None, None, None)
    living.discard(process.pid)


def kill_orphans() -> set[int]:
    """Kill and reap what dead runners left to this process; return the pids.

    Only for a supervisor that called `linux.adopt_orphans` and has no children but runners.
    Needed only where the warden itself was killed, so a delay of some seconds does no harm.
    """
    mine = os.getpid()
    orphans = {found.pid for found in linux.processes() if found.parent == mine} - living
    for pid in orphans:
        os.kill(pid, signal.SIGKILL)
    reap(orphans)
    return orphans


def reap(pids: set[int]) -> None:
    """Reap dead processes that this one has adopted; others are not its children."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
