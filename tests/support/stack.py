"""`silkline up` as a user runs it: in its own process and its own directory."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import psycopg

from silkline_local.directory import StackDirectory
from tests.support.http import http
from tests.support.ports import unused_port
from tests.support.servers import ROOT
from tests.support.waiting import wait_until

SILKLINE = [sys.executable, '-m', 'silkline']


@contextmanager
def own_stack() -> 'Generator[StackProcess]':
    """A running stack in its own directory."""
    with TemporaryDirectory(prefix='silkline-') as name:
        # As root, Postgres may run as another account.
        Path(name).chmod(0o711)
        with StackProcess(Path(name) / '.silkline') as stack:
            yield stack


class StackProcess:
    """A foreground `silkline up`; `output` is what it has printed so far."""

    def __init__(self, directory: Path, *words: str) -> None:
        self.directory = directory
        self.output = ''
        self._words = words
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None and not self._has_ended():
            self.end(signal.SIGTERM)
        self._wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self._wait()
        self.output = ''
        if not self.directory.exists():
            directory = StackDirectory(self.directory)
            directory.create()
            directory.write_ports({'api': unused_port(), 'database': unused_port()})
        self._process = subprocess.Popen(
            [*SILKLINE, 'up', '--directory', str(self.directory), *self._words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, args=[self._process])
        self._reader.start()
        wait_until(
            lambda: 'ready in' in self.output or self._has_ended(),
            seconds=60,
            what='the ready line',
        )
        assert 'ready in' in self.output, self.output

    def end(self, number: signal.Signals) -> int:
        """Signal the process, wait until it has ended, and return its exit code."""
        assert self._process is not None
        os.kill(self._process.pid, number)
        self._wait()
        return self._process.returncode

    @property
    def variables(self) -> dict[str, str]:
        lines = (self.directory / 'env').read_text().splitlines()
        return dict(line.split('=', 1) for line in lines)

    @property
    def url(self) -> str:
        return self.variables['SUPABASE_URL']

    def rpc(self, function: str, *, key: str | None = None, **params: Any) -> Any:
        """Call a function through the API, as the service unless a key is given."""
        response = http.post(
            f'{self.url}/rest/v1/rpc/{function}',
            headers={'apikey': key or self.variables['SUPABASE_SECRET_KEY']},
            json=params,
        )
        response.raise_for_status()
        return response.json()

    def execute(self, statement: str, params: Sequence[object]) -> None:
        """Change rows directly, as an operator could."""
        with psycopg.connect(self.variables['SUPABASE_DB_URL']) as connection:
            connection.execute(statement.encode(), params)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as stream:
            for line in stream:
                self.output += line

    def _wait(self) -> None:
        if self._process is not None and self._reader is not None:
            self._process.wait(timeout=60)
            self._reader.join()

    def _has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None


def run_silkline(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and check its exit code."""
    done = subprocess.run(
        [*SILKLINE, *words], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done
