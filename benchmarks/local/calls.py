"""One call of a function of the queue, over psycopg and over HTTP.

Both clients take next to no time, so that what is timed is the server.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

END_OF_HEAD = b'\r\n\r\n'
LENGTH = b'content-length:'


@contextmanager
def direct_call(variables: Mapping[str, str], function: str) -> Generator[Callable[[], object]]:
    """The call on one connection, with the role that a caller of the gateway has."""
    statement = sql.SQL('select public.{}()').format(sql.Identifier(function))
    with psycopg.connect(variables['SUPABASE_DB_URL'], autocommit=True) as connection:
        connection.execute('set role service_role')
        connection.prepare_threshold = 0
        yield lambda: connection.execute(statement).fetchall()


class HttpConnection:
    """One connection, which is kept alive."""

    def __init__(self, stream: socket.socket, request: bytes) -> None:
        self._stream = stream
        self._request = request

    def call(self) -> bytes:
        self._stream.sendall(self._request)
        answer = b''
        while (needed := bytes_needed(answer)) is None or len(answer) < needed:
            chunk = self._stream.recv(65536)
            if not chunk:
                raise ConnectionError(f'the gateway closed the connection after {answer!r}')
            answer += chunk
        return checked(answer)


class HttpCall:
    """The call over HTTP with the secret key."""

    def __init__(self, variables: Mapping[str, str], function: str) -> None:
        url = urlsplit(variables['SUPABASE_URL'])
        assert url.hostname is not None
        assert url.port is not None
        self._address = (url.hostname, url.port)
        key = variables['SUPABASE_SECRET_KEY']
        head = (
            f'POST /rest/v1/rpc/{function} HTTP/1.1',
            f'Host: {url.netloc}',
            f'apikey: {key}',
            f'Authorization: Bearer {key}',
            'Content-Type: application/json',
            'Content-Length: 2',
        )
        self._request = '\r\n'.join(head).encode() + END_OF_HEAD + b'{}'

    @contextmanager
    def connect(self) -> Generator[HttpConnection]:
        with socket.create_connection(self._address, timeout=10) as stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield HttpConnection(stream, self._request)

    async def calls_per_second(self, connections: int, seconds: float) -> float:
        deadline = time.perf_counter() + seconds
        counts = await asyncio.gather(*(self._repeat(deadline) for _ in range(connections)))
        return sum(counts) / (seconds + time.perf_counter() - deadline)

    async def _repeat(self, deadline: float) -> int:
        reader, writer = await asyncio.open_connection(*self._address)
        count = 0
        while time.perf_counter() < deadline:
            writer.write(self._request)
            head = await reader.readuntil(END_OF_HEAD)
            needed = bytes_needed(head)
            assert needed is not None
            checked(head + await reader.readexactly(needed - len(head)))
            count += 1
        writer.close()
        return count


def bytes_needed(answer: bytes) -> int | None:
    """The length of the whole answer, once its head has arrived."""
    end = answer.find(END_OF_HEAD)
    if end < 0:
        return None
    head = answer[:end].lower()
    start = head.index(LENGTH) + len(LENGTH)
    return end + len(END_OF_HEAD) + int(head[start:].partition(b'\r\n')[0])


def checked(answer: bytes) -> bytes:
    if not answer.startswith(b'HTTP/1.1 200 '):
        raise ConnectionError(f'the gateway refused: {answer.decode(errors="replace")}')
    return answer
