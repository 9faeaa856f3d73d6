"""A worker's metrics and health over real sockets, with good and bad clients."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from prometheus_client.parser import text_string_to_metric_families

from silkline.errors import SettingsError
from silkline.supervisor.metrics import MAX_CODES, Metrics
from silkline.supervisor.metrics_server import MAX_CONNECTIONS, serve_metrics

REQUEST = b'GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n'


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


async def exchange(port: int, request: bytes) -> bytes:
    """The whole answer; a reset counts as its end."""
    reader, writer = await asyncio.open_connection('127.0.0.1', port)
    answer = b''
    try:
        writer.write(request)
        await writer.drain()
        while chunk := await reader.read(65536):
            answer += chunk
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()
    return answer


async def get(port: int, path: str, *, method: str = 'GET') -> tuple[int, str, str]:
    """Status, head and body."""
    answer = await exchange(port, f'{method} {path} HTTP/1.1\r\nHost: here\r\n\r\n'.encode())
    head, _, body = answer.decode().partition('\r\n\r\n')
    return int(head.split(' ')[1]), head, body


def served(
    test: Callable[[int, Metrics], Awaitable[None]],
    *,
    metrics: Metrics | None = None,
    connection_seconds: float = 5.0,
) -> None:
    async def run() -> None:
        subject = metrics or Metrics(slots=4)
        async with (
            asyncio.timeout(20),
            serve_metrics(subject, 0, connection_seconds=connection_seconds) as port,
        ):
            await test(port, subject)

    asyncio.run(run())


def test_all_metrics_of_a_worker_can_be_scraped() -> None:
    metrics = Metrics(slots=4)
    metrics.count_claimed(3)
    metrics.count_completed()
    metrics.count_failed('crashed:SIGSEGV')
    metrics.count_released('shutdown')
    metrics.count_lost()
    metrics.set_busy_slots(2)
    metrics.note_heartbeat()
    metrics.note_missed_heartbeat()
    metrics.time_call('claim_crawl_jobs', 'ok', 0.02)
    metrics.time_spawn(0.2)
    metrics.count_checkpoint()

    async def test(port: int, metrics: Metrics) -> None:
        status, head, body = await get(port, '/metrics')
        assert status == 200
        assert 'Content-Type: text/plain; version=0.0.4' in head
        assert f'Content-Length: {len(body.encode())}\r\n' in head
        figures = {
            (one.name, *one.labels.values()): one.value
            for family in text_string_to_metric_families(body)
            for one in family.samples
        }
        expected = {
            ('silkline_worker_info', '0.1.0'): 1,
            ('silkline_jobs_claimed_total',): 3,
            ('silkline_jobs_completed_total',): 1,
            ('silkline_jobs_failed_total', 'crashed'): 1,
            ('silkline_jobs_released_total', 'shutdown'): 1,
            ('silkline_jobs_lost_total',): 1,
            ('silkline_slots',): 4,
            ('silkline_slots_busy',): 2,
            ('silkline_heartbeats_total', 'ok'): 1,
            ('silkline_heartbeats_total', 'failed'): 1,
            ('silkline_api_call_seconds_count', 'claim_crawl_jobs', 'ok'): 1,
            ('silkline_runner_spawn_seconds_sum',): 0.2,
            ('silkline_checkpoints_total',): 1,
        }
        assert {key: figures.get(key) for key in expected} == expected
        assert figures[('silkline_heartbeat_age_seconds',)] < 5
        assert figures[('process_resident_memory_bytes',)] > 0
        assert not [name for name, *_ in figures if name.endswith('_created')]

    served(test, metrics=metrics)


def test_a_worker_is_healthy_while_its_heartbeats_succeed() -> None:
    clock = Clock()

    async def test(port: int, metrics: Metrics) -> None:
        async def health() -> tuple[int, str, float | None]:
            status, head, body = await get(port, '/healthz')
            assert 'Content-Type: application/json' in head
            said = json.loads(body)
            assert said['reason']
            return status, said['status'], said['heartbeat_age_seconds']

        assert await health() == (503, 'starting', None)
        clock.now += 7
        assert sample(metrics, 'silkline_heartbeat_age_seconds') == 7
        metrics.note_heartbeat(asked_at=clock.now - 2)
        assert await health() == (200, 'ok', 2)
        clock.now += 103
        metrics.note_missed_heartbeat()
        assert await health() == (200, 'ok', 105)
        clock.now += 1
        assert await health() == (503, 'out_of_touch', 106)
        metrics.longest_silence_seconds = 200
        assert await health() == (200, 'ok', 106)
        metrics.longest_silence_seconds = 100
        metrics.note_heartbeat()
        assert await health() == (200, 'ok', 0)

    served(test, metrics=Metrics(slots=1, clock=clock))


def test_codes_of_runners_make_a_bounded_number_of_series() -> None:
    metrics = Metrics(slots=1)
    for code in ('exited:1', 'exited:2', 'Not A Code', '', 'x' * 500, 'a"b\n'):
        metrics.count_failed(code)
    for number in range(1000):
        metrics.count_failed('c' + ''.join(chr(ord('a') + int(digit)) for digit in str(number)))

    assert sample(metrics, 'silkline_jobs_failed_total', code='exited') == 2
    series = [
        one
        for family in metrics.registry.collect()
        for one in family.samples
        if one.name == 'silkline_jobs_failed_total'
    ]
    assert len(series) == MAX_CODES + 1
    assert sum(one.value for one in series) == 1006


def test_a_head_request_gets_no_body() -> None:
    async def test(port: int, metrics: Metrics) -> None:
        assert (await get(port, '/healthz', method='HEAD'))[::2] == (503, '')
        assert (await get(port, '/metrics', method='HEAD'))[::2] == (200, '')

    served(test)


def test_a_query_is_ignored_and_other_paths_and_methods_are_refused() -> None:
    async def test(port: int, metrics: Metrics) -> None:
        assert (await get(port, '/metrics?a=b'))[0] == 200
        assert (await get(port, '/'))[0] == 404
        assert (await get(port, '/metrics/..'))[0] == 404
        status, head, _ = await get(port, '/metrics', method='POST')
        assert status == 405
        assert 'Allow: GET, HEAD' in head

    served(test)


@pytest.mark.parametrize(
    'garbage',
    [
        b'GET\r\n\r\n',
        b'GET /metrics HTTP/2\r\n\r\n',
        b'GET  /metrics HTTP/1.1\r\n\r\n',
        b'GET /metrics HTTP/1.1\r\n\r\n',
        b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n',
        b'\xff\xfe\x00 \xff HTTP/1.1\r\n\r\n',
    ],
)
def test_a_malformed_request_is_refused_and_the_next_one_is_served(garbage: bytes) -> None:
    async def test(port: int, metrics: Metrics) -> None:
        assert (await exchange(port, garbage)).startswith(b'HTTP/1.0 400 ')
        assert (await get(port, '/metrics'))[0] == 200

    served(test)


def test_an_endless_request_is_cut_off() -> None:
    async def test(port: int, metrics: Metrics) -> None:
        answer = await exchange(port, b'GET /metrics HTTP/1.1\r\n' + b'X: y\r\n' * 1_000_000)
        # The reset for the unread rest may overtake the answer.
        assert answer == b'' or answer.startswith(b'HTTP/1.0 400 ')
        assert (await get(port, '/metrics'))[0] == 200

    served(test)


def test_a_silent_client_is_disconnected() -> None:
    async def test(port: int, metrics: Metrics) -> None:
        assert await exchange(port, b'') == b''
        assert await exchange(port, b'GET /metrics HT') == b''

    served(test, connection_seconds=0.05)


def test_a_client_that_hangs_up_early_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def test(port: int, metrics: Metrics) -> None:
        for request in (b'', b'GET /met', REQUEST):
            _, writer = await asyncio.open_connection('127.0.0.1', port)
            writer.write(request)
            await writer.drain()
            # Reset, not closed.
            writer.get_extra_info('socket').setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, b'\1\0\0\0\0\0\0\0'
            )
            writer.transport.abort()
        assert (await get(port, '/metrics'))[0] == 200

    served(test)
    assert not caplog.records


def test_connections_above_the_limit_are_refused() -> None:
    async def test(port: int, metrics: Metrics) -> None:
        idle = [await asyncio.open_connection('127.0.0.1', port) for _ in range(MAX_CONNECTIONS)]
        assert await exchange(port, REQUEST) == b''
        for _, writer in idle:
            writer.close()
        # Until the server has noticed that they are closed.
        while not (answer := await exchange(port, REQUEST)):
            pass
        assert answer.startswith(b'HTTP/1.1 200 ')

    served(test)


def test_a_burst_of_connections_does_not_exceed_the_limit() -> None:
    async def test(port: int, metrics: Metrics) -> None:
        async def is_refused(reader: asyncio.StreamReader) -> None:
            with suppress(ConnectionError):
                await reader.read()

        burst = await asyncio.gather(
            *(asyncio.open_connection('127.0.0.1', port) for _ in range(3 * MAX_CONNECTIONS))
        )
        ends = {asyncio.create_task(is_refused(reader)) for reader, _ in burst}
        while len(ends) > MAX_CONNECTIONS:
            _, ends = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        assert len(ends) == MAX_CONNECTIONS
        for _, writer in burst:
            writer.transport.abort()
        await asyncio.gather(*ends)

    served(test, connection_seconds=600)


def test_serving_ends_at_once_despite_open_connections() -> None:
    async def run() -> None:
        async with serve_metrics(Metrics(slots=1), 0, connection_seconds=600) as port:
            reader, writer = await asyncio.open_connection('127.0.0.1', port)
            writer.write(b'GET')
            await writer.drain()
            await get(port, '/metrics')
        with suppress(ConnectionError):
            assert await reader.read() == b''
        writer.transport.abort()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection('127.0.0.1', port)

    asyncio.run(asyncio.wait_for(run(), 10))


@pytest.mark.parametrize('kind', ['taken', 'nowhere', 'impossible'])
def test_the_error_names_the_port_that_cannot_be_opened(kind: str) -> None:
    async def run() -> None:
        metrics = Metrics(slots=1)
        async with serve_metrics(metrics, 0) as taken:
            host = '192.0.2.1' if kind == 'nowhere' else '127.0.0.1'
            port = 70_000 if kind == 'impossible' else taken
            with pytest.raises(SettingsError, match=f'{host}:{port}'):
                async with serve_metrics(metrics, port, host=host):
                    pass

    asyncio.run(run())


def test_metrics_do_not_import_the_worker_and_runners_do_not_import_metrics() -> None:
    program = (
        'import sys, {}; print(*sorted(name for name in sys.modules if name in'
        " ('silkline.supervisor.worker', 'silkline.queue.rpc', 'silkline.supervisor.job_run',"
        " 'prometheus_client', 'aiohttp')))"
    )
    for module, expected in (
        ('silkline.supervisor.metrics', 'prometheus_client'),
        ('silkline.runner.main', ''),
    ):
        done = subprocess.run(
            [sys.executable, '-c', program.format(module)], capture_output=True, text=True
        )
        assert done.stdout.strip() == expected, done.stderr
