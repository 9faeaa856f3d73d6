"""A Node process that drives supabase-js for the tests.

Owns the process and the lines that go to and fro; what they mean is told in
`tests/fidelity/js/supabase_js.mjs`. One process serves a whole run: its clients are as apart as
those of two browsers.
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
ANSWER_SECONDS = 40.0

Event = dict[str, Any]


class JavaScriptError(Exception):
    """supabase-js threw; the message is that of its error."""


class JavaScript:
    """Enter it for a running Node; commands may be given from any thread."""

    def __init__(self) -> None:
        node = shutil.which('node')
        if node is None:
            raise Missing('no Node: install Node 20 or later')
        if not (NODE_MODULES / '@supabase/supabase-js').exists():
            raise Missing('no supabase-js: npm ci in tests/tools')
        self._ids = itertools.count(1)
        self._answers: dict[int, Future[Any]] = {}
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

    def ask(self, do: str, **command: Any) -> Any:
        return self._give(do, command).result(timeout=ANSWER_SECONDS)

    async def ask_async(self, do: str, **command: Any) -> Any:
        return await asyncio.wait_for(
            asyncio.wrap_future(self._give(do, command)), timeout=ANSWER_SECONDS
        )

    def new_id(self) -> int:
        """A number that no other client, channel or command of this process has."""
        return next(self._ids)

    def listen(self, channel: int, listener: Callable[[Event], None]) -> None:
        """Call `listener` on the running loop with each event of a channel, in order."""
        loop = asyncio.get_running_loop()

        def pass_on(event: Event) -> None:
            # What comes after the test has ended is nobody's.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(listener, event)

        self._listeners[channel] = pass_on

    def forget(self, channel: int) -> None:
        self._listeners.pop(channel, None)

    def _give(self, do: str, command: dict[str, Any]) -> Future[Any]:
        number = self.new_id()
        answer: Future[Any] = Future()
        self._answers[number] = answer
        line = json.dumps({'id': number, 'do': do, **command}) + '\n'
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        return answer

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if 'channel' in message:
                listener = self._listeners.get(message['channel'])
                if listener is not None:
                    listener(message)
            elif 'error' in message:
                self._answers.pop(message['id']).set_exception(JavaScriptError(message['error']))
            else:
                self._answers.pop(message['id']).set_result(message['value'])
        self._stderr.seek(0)
        last_words = self._stderr.read().decode(errors='replace')[-2000:]
        while self._answers:
            _, answer = self._answers.popitem()
            answer.set_exception(JavaScriptError(f'Node has ended: {last_words}'))
