"""`silkline worker` as a user runs it, and the state of the queue meanwhile."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode
from uuid import uuid4

import psycopg
from psycopg.rows import DictRow, dict_row

from silkline.linux import processes
from tests.support.plugins import GENERATED
from tests.support.stack import StackProcess
from tests.support.waiting import wait_until

OPEN = ['pending', 'processing', 'paused']


class WorkerProcess:
    """A worker with a state directory; `output` is what it has printed so far."""

    def __init__(
        self,
        stack: StackProcess,
        state: Path,
        *words: str,
        variables: Mapping[str, str] = {},
        python: str = sys.executable,
    ) -> None:
        self.output = ''
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(('SUPABASE_', 'SILKLINE_'))
        }
        self._process = subprocess.Popen(
            [python, '-m', 'silkline', 'worker', '--state', str(state), *words],
            cwd=stack.directory.parent,
            env={**kept, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.wait()
        if error is not None:
            print(self.output)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def wait(self, seconds: float = 60) -> int:
        """Wait until the worker ends by itself; returns its exit code."""
        code = self._process.wait(timeout=seconds)
        self._reader.join()
        return code

    def wait_for_output(self, words: str) -> None:
        wait_until(lambda: words in self.output, what=f'"{words}"')

    def runners(self) -> set[int]:
        """The processes that have a job: one that still waits for a job is not isolated yet."""
        return {process for process in self.children() if is_isolated(process)}

    def children(self) -> set[int]:
        return {process.pid for process in processes() if process.parent == self.pid}

    def wait_for_runners(self, count: int) -> set[int]:
        def are_there() -> set[int] | None:
            return found if len(found := self.runners()) == count else None

        return wait_until(are_there, what=f'{count} runners')

    def descriptors(self) -> list[str]:
        """What it has open, without sockets: connections to the API come and go."""
        names: list[str] = []
        for path in Path(f'/proc/{self.pid}/fd').iterdir():
            try:
                names.append(os.readlink(path))
            except FileNotFoundError:
                continue
        return [name for name in names if not name.startswith('socket:')]

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                self.output += line


def is_isolated(pid: int) -> bool:
    try:
        return 'NoNewPrivs:\t1' in Path(f'/proc/{pid}/status').read_text()
    except OSError:
        return False


class Queue:
    """The queue of a stack: jobs are enqueued through the API and read by SQL."""

    def __init__(self, stack: StackProcess) -> None:
        self.stack = stack
        self._connection: psycopg.Connection[DictRow] | None = None

    def enqueue(self, *, concurrency: int = 2, **site: Any) -> str:
        """Enqueue a crawl of a generated site on its own host; see `generated_site.py`."""
        url = f'https://{uuid4().hex}.example/?{urlencode(site)}'
        payload = {**GENERATED, 'url': url, 'concurrency': concurrency}
        return self.stack.rpc('enqueue_crawl_job', p_payload=payload)[0]['id']

    def control(self, job: str, action: str) -> None:
        """Call `cancel_crawl_job` and the like."""
        self.stack.rpc(f'{action}_crawl_job', p_job_id=job)

    def progress(self, job: str) -> dict[str, Any]:
        return self.stack.rpc('crawl_progress', p_job_id=job)

    def job(self, job: str) -> dict[str, Any]:
        [row] = self.rows('select * from silkline.jobs where id = %s', [job])
        return row

    def status(self, job: str) -> str:
        return self.job(job)['status']

    def wait_for(self, status: str, *jobs: str, seconds: float = 60) -> None:
        """Wait until all jobs have this status; reconnect if a test has broken the connection."""
        query = 'select from silkline.jobs where id = any (%s::uuid[]) and status = %s'

        def have_status() -> bool:
            try:
                return len(self.rows(query, [list(jobs), status])) == len(jobs)
            except psycopg.OperationalError:
                return False

        wait_until(have_status, seconds=seconds, what=f'{status} of {jobs}')

    def wait_for_pages(self, count: int, *jobs: str) -> None:
        """Wait until `count` pages of each job are saved."""
        wait_until(
            lambda: all(len(self.finished(job)) >= count for job in jobs),
            what=f'{count} pages of {jobs}',
        )

    def finished(self, job: str) -> dict[str, Any]:
        """The attempt and the time of each finished page, by its key."""
        rows = self.rows(
            'select url_key, attempts, finished_at from silkline.tasks'
            " where job_id = %s and status = 'done'",
            [job],
        )
        return {str(row['url_key']): (row['attempts'], row['finished_at']) for row in rows}

    def assert_complete_once(self, job: str, *, pages: int) -> None:
        """The job has completed; each page is stored once and counted once."""
        assert self.status(job) == 'completed'
        [stored] = self.rows(
            'select count(*) as count, count(distinct url_key) as keys, max(version) as version'
            ' from crawl_pages where job_id = %s',
            [job],
        )
        assert stored == {'count': pages, 'keys': pages, 'version': 1}
        assert len(self.finished(job)) == pages
        progress = self.progress(job)
        assert (progress['pages_done'], progress['pages_new'], progress['pages_unchanged']) == (
            pages,
            pages,
            0,
        )
        assert (
            progress['pages_failed'],
            progress['pages_pending'],
            progress['pages_in_progress'],
        ) == (0, 0, 0)

    def clear(self) -> None:
        for row in self.rows('select id from silkline.jobs where status::text = any (%s)', [OPEN]):
            self.control(str(row['id']), 'cancel')

    def rows(self, query: str, params: Sequence[object] = ()) -> list[dict[str, Any]]:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.Connection[DictRow].connect(
                self.stack.variables['SUPABASE_DB_URL'], row_factory=dict_row, autocommit=True
            )
        return self._connection.execute(query.encode(), params).fetchall()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
