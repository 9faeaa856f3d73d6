"""A Node process that drives supabase-js for the tests.

Owns the process and the lines in both directions; `tests/fidelity/js/supabase_js.mjs` defines them.
One process serves a whole run: its clients are as separate as those of two browsers.
"""

import asyncio
import itertools
import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from tests.support.servers import NODE_MODULES, ROOT, Missing

DRIVER = ROOT / 'tests/fidelity/js/supabase_js.mjs'
PACKAGE = ROOT / 'tests/tools/package.json'
TIMEOUT_SECONDS = 40.0

Event = dict[str, Any]


class JavaScriptError(Exception):
    """supabase-js threw an error with this message."""


class JavaScript:
    """Runs Node while entered; any thread may send commands."""

    def __init__(self) -> None:
        node = shutil.which('node')
        if node is None:
            raise Missing('Node is not installed: install Node 20 or later')
        if not (NODE_MODULES / '@supabase/supabase-js').exists():
            raise Missing('supabase-js is not installed: run npm ci in tests/tools')
        self._ids = itertools.count(1)
        self._results: dict[int, Future[Any]] = {}
        self._listeners: dict[int, Callable[[Event], None]] = {}
        self._lock = threading.Lock()
        self._stderr = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [node, str(DRIVER), str(PACKAGE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
            self._reader.join(timeout=10)
        self._stderr.close()

    def run(self, do: str, **command: Any) -> Any:
        return self._send(do, command).result(timeout=TIMEOUT_SECONDS)

    async def run_async(self, do: str, **command: Any) -> Any:
        return await asyncio.wait_for(
            asyncio.wrap_future(self._send(do, command)), timeout=TIMEOUT_SECONDS
        )

    def new_id(self) -> int:
        """A number that is unique among clients, channels and commands of this process."""
        return next(self._ids)

    def listen(self, channel: int, listener: Callable[[Event], None]) -> None:
        """Call `listener` on the running event loop with each event of a channel, in order."""
        loop = asyncio.get_running_loop()

        def pass_on(event: Event) -> None:
            # Events that arrive after the end of the test are dropped.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(listener, event)

        self._listeners[channel] = pass_on

    def remove_listener(self, channel: int) -> None:
        self._listeners.pop(channel, None)

    def _send(self, do: str, command: dict[str, Any]) -> Future[Any]:
        number = self.new_id()
        result: Future[Any] = Future()
        self._results[number] = result
        line = json.dumps({'id': number, 'do': do, **command}) + '\n'
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        return result

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if 'channel' in message:
                listener = self._listeners.get(message['channel'])
                if listener is not None:
                    listener(message)
            elif 'error' in message:
                self._results.pop(message['id']).set_exception(JavaScriptError(message['error']))
            else:
                self._results.pop(message['id']).set_result(message['value'])
        self._stderr.seek(0)
        stderr = self._stderr.read().decode(errors='replace')[-2000:]
        while self._results:
            _, result = self._results.popitem()
            result.set_exception(JavaScriptError(f'Node has exited: {stderr}'))
