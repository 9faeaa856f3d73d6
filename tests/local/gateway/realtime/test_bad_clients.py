"""Clients that send garbage, read badly or do nothing: others must not notice.

Bad clients are plain TCP sockets, because libraries refuse to behave like that. In each test, good
clients keep exchanging messages at the same time.
"""

import asyncio
import gc
import os
import resource
import socket
import struct
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession, WSMsgType, web

from silkline_local.gateway.callers import Callers
from silkline_local.gateway.realtime.routes import Realtime
from silkline_local.keys import generate_keys
from tests.support.database import Database
from tests.support.gateway import GatewayThread
from tests.support.phoenix import V1, V2, open_socket, push_frame
from tests.support.waiting import wait_until

TEXT, BINARY, CONTINUATION, CLOSE = 1, 2, 0, 8


def handshake(
    gateway: GatewayThread, *, version: str = V1, receive_bytes: int = 0, header: bytes = b''
) -> socket.socket:
    """A WebSocket on a plain TCP socket. A `header` includes its line end."""
    bare = socket.socket()
    bare.settimeout(60)
    if receive_bytes:
        bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    address = urlsplit(gateway.url)
    bare.connect((address.hostname, address.port))
    bare.sendall(
        f'GET /realtime/v1/websocket?vsn={version}&apikey={gateway.keys.publishable} HTTP/1.1\r\n'
        f'Host: {address.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n'
        'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n'.encode()
        + header
        + b'\r\n'
    )
    response = b''
    while not response.endswith(b'\r\n\r\n'):
        response += bare.recv(1)
    assert response.startswith(b'HTTP/1.1 101'), response
    return bare


def frame(body: bytes, *, opcode: int = TEXT, is_final: bool = True) -> bytes:
    """A client's frame, masked with zeros, which change nothing."""
    size = len(body)
    first = opcode | (0x80 if is_final else 0)
    if size < 126:
        header = struct.pack('>BB', first, 0x80 | size)
    elif size < 65536:
        header = struct.pack('>BBH', first, 0x80 | 126, size)
    else:
        header = struct.pack('>BBQ', first, 0x80 | 127, size)
    return header + bytes(4) + body


def join_frame(topic: str) -> bytes:
    return frame(
        b'{"topic":"realtime:%b","event":"phx_join","payload":{},"ref":"1","join_ref":"1"}'
        % topic.encode()
    )


def read_to_end(bare: socket.socket) -> bytes:
    """Everything that the server sends until it closes the connection."""
    received = bytearray()
    with suppress(ConnectionResetError):
        while chunk := bare.recv(1024 * 1024):
            received += chunk
    return bytes(received)


def read_close(bare: socket.socket) -> int | None:
    """The close code of the server; None if it only closes the connection."""
    received = bytearray()
    with suppress(ConnectionResetError):
        while chunk := bare.recv(65536):
            received += chunk
            start = received.find(b'\x88')
            if 0 <= start <= len(received) - 4:
                return int.from_bytes(received[start + 2 : start + 4], 'big')
    return None


@pytest.fixture
def bystander(gateway: GatewayThread) -> Iterator[Callable[[], None]]:
    """Call it to assert that other clients are served in time."""
    with (
        open_socket(gateway.url, gateway.keys.publishable) as speaker,
        open_socket(gateway.url, gateway.keys.publishable, version=V2) as listener,
    ):
        speaker.join('bystanders')
        listener.join('bystanders')

        def talk() -> None:
            asked_at = time.monotonic()
            speaker.broadcast('bystanders', 'hi', {})
            assert listener.receive_broadcast()['event'] == 'hi'
            assert time.monotonic() - asked_at < 10

        talk()
        yield talk
        talk()


Talk = Callable[[], None]


@pytest.mark.parametrize('version', [V1, V2])
@pytest.mark.parametrize(
    'body',
    [
        b'',
        b'hello',
        b'{',
        b'[]',
        b'{}',
        b'null',
        b'{"topic":1,"event":2,"payload":3}',
        b'["1","2","realtime:room"]',
        b'[1,2,3,4,5]',
        b'[' * 100_000,
        b'{"topic":"realtime:room","event":"phx_join","payload":{"n":1e999}}',
        b'["1","1","realtime:room","phx_join",{"n":%b}]' % (b'9' * 5000),
    ],
    ids=lambda body: body[:20].decode(),
)
def test_a_malformed_text_frame_closes_only_its_socket(
    gateway: GatewayThread, bystander: Talk, version: str, body: bytes
) -> None:
    with handshake(gateway, version=version) as bad:
        bad.sendall(frame(body))
        assert read_close(bad) == 1003
    bystander()


@pytest.mark.parametrize(
    'body',
    [
        b'',
        b'\x03',
        b'\x03\xff\xff\xff\xff\xff\x01',
        b'\x00\x01',
        b'\x09' * 100,
        b'\x03' + b'\xff' * 99,
    ],
)
def test_a_malformed_binary_frame_closes_only_its_socket(
    gateway: GatewayThread, bystander: Talk, body: bytes
) -> None:
    with handshake(gateway, version=V2) as bad:
        bad.sendall(frame(body, opcode=BINARY))
        assert read_close(bad) == 1003
    bystander()


def test_a_header_that_is_not_utf_8_does_not_prevent_a_join(gateway: GatewayThread) -> None:
    with handshake(gateway, header=b'X-Name: \xff\xfe\r\n') as odd:
        odd.sendall(join_frame('room'))
        assert b'"status":"ok"' in odd.recv(1000)


def test_a_binary_frame_closes_a_version_1_socket(gateway: GatewayThread, bystander: Talk) -> None:
    with handshake(gateway) as bad:
        bad.sendall(frame(push_frame('realtime:room', 'hi', b'{}', 1), opcode=BINARY))
        assert read_close(bad) == 1003
    bystander()


def test_text_that_is_not_utf_8_closes_only_its_socket(
    gateway: GatewayThread, bystander: Talk
) -> None:
    with handshake(gateway) as bad:
        bad.sendall(frame(b'{"topic":"\xff\xfe"}'))
        assert read_close(bad) == 1007
    bystander()


@pytest.mark.parametrize(
    'garbage',
    [
        b'GET / HTTP/1.1\r\n\r\n',
        b'\xff' * 1000,
        bytes(1000),
        frame(b'x', opcode=7),
        os.urandom(5000),
    ],
    ids=['http', 'ones', 'zeros', 'opcode', 'random'],
)
def test_garbage_after_the_upgrade_does_not_affect_others(
    gateway: GatewayThread, bystander: Talk, garbage: bytes
) -> None:
    with handshake(gateway) as bad:
        bad.sendall(garbage)
        bystander()


def test_a_message_that_is_too_large_closes_only_its_socket(
    gateway: GatewayThread, bystander: Talk
) -> None:
    with handshake(gateway) as bad:
        with suppress(ConnectionError):
            bad.sendall(frame(b'x' * (4 * 1024 * 1024)))
        assert read_close(bad) in (1009, None)
    bystander()


def test_a_message_that_announces_a_huge_length_closes_its_socket_at_once(
    gateway: GatewayThread, bystander: Talk
) -> None:
    with handshake(gateway) as bad:
        bad.sendall(struct.pack('>BBQ', 0x81, 0x80 | 127, 2**62) + bytes(4))
        bad.sendall(b'x' * 1000)
        assert read_close(bad) == 1009
    bystander()


def test_an_endless_fragmented_message_closes_its_socket(
    gateway: GatewayThread, bystander: Talk
) -> None:
    with handshake(gateway) as bad:
        with suppress(ConnectionError):
            bad.sendall(frame(b'x' * 65536, is_final=False))
            for _ in range(80):
                bad.sendall(frame(b'x' * 65536, opcode=CONTINUATION, is_final=False))
        assert read_close(bad) in (1009, None)
    bystander()


def test_a_message_of_the_largest_size_is_delivered(gateway: GatewayThread) -> None:
    with (
        open_socket(gateway.url, gateway.keys.publishable) as sender,
        open_socket(gateway.url, gateway.keys.publishable) as listener,
    ):
        sender.join('room', ack=True)
        listener.join('room')
        text = 'x' * (3 * 1024 * 1024)
        assert sender.receive_reply(sender.broadcast('room', 'large', {'x': text})).status == 'ok'
        assert listener.receive_broadcast()['payload']['x'] == text


def test_too_many_channels_on_one_socket_are_refused(gateway: GatewayThread) -> None:
    with open_socket(gateway.url, gateway.keys.publishable) as greedy:
        for number in range(1000):
            greedy.join(f'room:{number}')
        refused = greedy.join('one too many', expect='error')
        assert refused.reason == 'ChannelRateLimitReached: Too many channels'


def test_a_client_that_reads_nothing_is_disconnected_and_others_get_everything(
    gateway: GatewayThread, bystander: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    text = 'x' * 60_000
    count = 200
    with (
        handshake(gateway, receive_bytes=4096) as slow,
        open_socket(gateway.url, gateway.keys.publishable) as fast,
        open_socket(gateway.url, gateway.keys.publishable) as sender,
    ):
        slow.sendall(join_frame('flood'))
        assert b'phx_reply' in slow.recv(1000)
        fast.join('flood')
        sender.join('flood')
        for number in range(count):
            sender.broadcast('flood', 'news', {'number': number, 'text': text})
            assert fast.receive_broadcast()['payload']['number'] == number
        bystander()
        unread = read_to_end(slow)
        assert len(unread) < count * len(text) / 2
    assert 'disconnected a client: it reads too slowly' in caplog.text


@contextmanager
def client_that_does_not_read(gateway: GatewayThread) -> Generator[socket.socket]:
    """A client that has left two megabytes unread, which is still allowed."""
    with (
        handshake(gateway, receive_bytes=4096) as slow,
        open_socket(gateway.url, gateway.keys.publishable) as sender,
    ):
        slow.sendall(join_frame('flood'))
        assert b'phx_reply' in slow.recv(1000)
        sender.join('flood', ack=True)
        for _ in range(20):
            ref = sender.broadcast('flood', 'news', {'text': 'x' * 100_000})
            assert sender.receive_reply(ref).status == 'ok'
        yield slow


CONNECTIONS = Path('/proc/self/net/tcp')
LISTENING = '0A'
NO_FILE = '0'

counts_connections = pytest.mark.skipif(
    not CONNECTIONS.exists(), reason='connections are counted in /proc'
)


def connections(gateway: GatewayThread) -> int:
    """How many connections the gateway has open; those that only the kernel holds have no file."""
    rows = [line.split() for line in CONNECTIONS.read_text().splitlines()[1:]]
    return sum(
        row[1].endswith(f':{gateway.port:04X}') and row[3] != LISTENING and row[9] != NO_FILE
        for row in rows
    )


@counts_connections
@pytest.mark.parametrize(
    'last',
    [frame(struct.pack('>H', 1000), opcode=CLOSE), frame(b'garbage')],
    ids=['close', 'garbage'],
)
def test_unread_data_is_dropped_when_a_client_leaves(gateway: GatewayThread, last: bytes) -> None:
    with client_that_does_not_read(gateway) as slow:
        assert connections(gateway) == 2
        slow.sendall(last)
        wait_until(lambda: connections(gateway) == 1, what='the end of the connection')


def test_a_client_that_reads_nothing_does_not_delay_the_shutdown(gateway: GatewayThread) -> None:
    with client_that_does_not_read(gateway):
        stopped_at = time.monotonic()
        gateway.stop()
        assert time.monotonic() - stopped_at < 2


def test_a_client_that_sends_and_never_reads_is_disconnected(
    gateway: GatewayThread, bystander: Talk
) -> None:
    heartbeat = frame(
        b'{"topic":"phoenix","event":"heartbeat","payload":{},"ref":"%b"}' % (b'7' * 2000)
    )
    with handshake(gateway, receive_bytes=4096) as slow:
        with suppress(ConnectionError):
            for _ in range(20_000):
                slow.sendall(heartbeat)
        bystander()
        assert len(read_to_end(slow)) < 20_000 * 2000


def test_an_unfinished_handshake_does_not_affect_others(
    gateway: GatewayThread, bystander: Talk
) -> None:
    address = urlsplit(gateway.url)
    with ExitStack() as stack:
        for number in range(200):
            half = stack.enter_context(socket.create_connection((address.hostname, address.port)))
            half.sendall(b'GET /realtime/v1/websocket?apikey=' if number % 2 else b'')
        bystander()


@counts_connections
def test_sockets_that_disappear_are_removed(gateway: GatewayThread, bystander: Talk) -> None:
    with open_socket(gateway.url, gateway.keys.publishable) as sender:
        sender.join('room', ack=True)
        before = connections(gateway)
        for _ in range(20):
            with handshake(gateway) as gone:
                gone.sendall(join_frame('room'))
                assert b'phx_reply' in gone.recv(1000)
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        assert sender.receive_reply(sender.broadcast('room', 'hi', {})).status == 'ok'
        wait_until(lambda: connections(gateway) == before, what='the end of 20 connections')
        bystander()


@contextmanager
def many_files(count: int) -> Generator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard not in (resource.RLIM_INFINITY, -1) and hard < count:
        pytest.skip(f'this process may open {hard} files only')
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident_bytes() -> int:
    gc.collect()
    pages = int(Path('/proc/self/statm').read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.skipif(not Path('/proc/self/statm').exists(), reason='memory is read from /proc')
def test_a_thousand_idle_sockets_use_little_memory_and_get_the_next_message(
    gateway: GatewayThread, bystander: Talk
) -> None:
    count = 1000
    with many_files(2 * count + 500), ExitStack() as stack:
        warm = [stack.enter_context(handshake(gateway)) for _ in range(20)]
        before = resident_bytes()
        idle = [stack.enter_context(handshake(gateway)) for _ in range(count)]
        for bare in idle:
            bare.sendall(join_frame('room'))
        for bare in idle:
            assert b'phx_reply' in bare.recv(1000)
        each = (resident_bytes() - before) / count
        assert each < 60_000, f'{each} bytes per socket'
        bystander()
        with open_socket(gateway.url, gateway.keys.publishable) as sender:
            sender.join('room')
            sender.broadcast('room', 'hi', {})
            for bare in idle:
                assert b'"broadcast"' in bare.recv(1000)
        bystander()
        assert warm


@pytest.mark.parametrize('version', [V1, V2])
def test_a_client_that_does_not_response_pings_is_disconnected(
    database: Database, version: str
) -> None:
    """Pings come every second; one client responses them, the other does not."""
    keys = generate_keys()

    async def run() -> None:
        realtime = Realtime(
            database_url=database.url('supabase_admin'),
            callers=Callers(keys),
            ping_seconds=1.0,
        )
        async with realtime:
            application = web.Application()
            realtime.add_routes(application.router)
            application.on_shutdown.append(realtime.close_sockets)
            runner = web.AppRunner(application)
            await runner.setup()
            await web.TCPSite(runner, '127.0.0.1', 0).start()
            port = runner.addresses[0][1]
            url = f'http://127.0.0.1:{port}/realtime/v1/websocket?vsn={version}'
            headers = {'apikey': keys.publishable}
            async with ClientSession(headers=headers) as session:
                dead = await session.ws_connect(url, autoping=False)
                live = await session.ws_connect(url)
                assert realtime.socket_count == 2
                receiving = asyncio.ensure_future(live.receive())
                async with asyncio.timeout(30):
                    while (await dead.receive()).type is not WSMsgType.CLOSED:
                        pass
                assert realtime.socket_count == 1
                assert not receiving.done()
                await live.close()
                await receiving
                await dead.close()
            await runner.cleanup()
        assert realtime.socket_count == 0

    asyncio.run(run())


def test_a_client_whose_socket_was_closed_can_reconnect(gateway: GatewayThread) -> None:
    with handshake(gateway) as bad:
        bad.sendall(frame(b'garbage'))
        read_to_end(bad)
    with handshake(gateway) as again:
        again.sendall(join_frame('room'))
        assert b'"status":"ok"' in again.recv(1000)
