"""The runner's end of the pipe.

Sending waits while the supervisor does not read, so a crawl is never far ahead of what was taken
from it. Without a supervisor there is nothing to do: the process exits.
"""

import asyncio
import os
from typing import NoReturn

from silkline import framing, protocol


class PipeChannel:
    """`protocol.Channel` over two file descriptors."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._answers: asyncio.Queue[protocol.Tasks] = asyncio.Queue(maxsize=1)
        self.command: protocol.Command = 'continue'
        # Set while the command is not `continue`.
        self.leaving = asyncio.Event()

    @classmethod
    async def open(cls, source: int, sink: int) -> 'PipeChannel':
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        incoming = asyncio.StreamReaderProtocol(reader)
        await loop.connect_read_pipe(lambda: incoming, os.fdopen(source, 'rb', 0))
        flow = asyncio.StreamReaderProtocol(asyncio.StreamReader())
        transport, _ = await loop.connect_write_pipe(lambda: flow, os.fdopen(sink, 'wb', 0))
        # What was sent has left this process: a kill loses only what is still open.
        transport.set_write_buffer_limits(high=0)
        return cls(reader, asyncio.StreamWriter(transport, flow, None, loop))

    async def send(self, message: protocol.FromRunner) -> None:
        try:
            self._writer.write(framing.encode(message))
            await self._writer.drain()
        except ConnectionError:
            os._exit(protocol.EXIT_LOST)

    async def want_tasks(self, wish: protocol.WantTasks) -> protocol.Tasks:
        """Have everything sent so far saved, and return the answer. One call at a time."""
        await self.send(wish)
        answer = await self._answers.get()
        self.obey(answer.command)
        return answer

    async def close(self) -> None:
        """Wait until the supervisor has read everything, and close."""
        self._writer.close()
        await self._writer.wait_closed()

    async def listen(self) -> NoReturn:
        while True:
            try:
                header = await self._reader.readexactly(framing.HEADER_BYTES)
                body = await self._reader.readexactly(framing.frame_length(header))
            except asyncio.IncompleteReadError:
                os._exit(protocol.EXIT_LOST)
            match framing.decode_to_runner(body):
                case protocol.Tasks() as answer:
                    self._answers.put_nowait(answer)
                case protocol.NewCommand(command=command):
                    self.obey(command)
                case protocol.Start():
                    raise framing.FrameMalformed('received a second Start')

    async def keep_alive(self, every_seconds: float) -> NoReturn:
        while True:
            await asyncio.sleep(every_seconds)
            await self.send(protocol.Alive())

    def obey(self, command: protocol.Command) -> None:
        if command in ('cancel', 'lost'):
            # The queue would discard anything saved from here on.
            os._exit(0)
        self.command = command
        if command == 'continue':
            self.leaving.clear()
        else:
            self.leaving.set()
