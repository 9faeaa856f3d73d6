"""DNS lookups: unknown names, resolvers that fail or hang, and shared lookups."""

import asyncio
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

from silkline.crawl.net.resolver import THREADS, LookupThreads, system_resolve
from silkline.crawl.responses import EgressError, NoResponse, Refused
from tests.support.egress import OK, egress, fetch_from, resolving
from tests.support.raw_site import raw_site


def test_a_name_that_does_not_exist_is_unknown() -> None:
    async def run() -> None:
        async with egress(resolve=resolving({'empty.example': []})) as out:
            for host in ('no.example', 'empty.example'):
                with pytest.raises(NoResponse, match=host) as caught:
                    await fetch_from(out, f'http://{host}/')
                assert caught.value.kind == 'dns_unknown'

    asyncio.run(run())


@pytest.mark.parametrize('host', ['a' * 64 + '.example', 'a..example', '.'.join(['abc'] * 80)])
def test_an_impossible_name_is_unknown_to_the_system(host: str) -> None:
    async def run() -> None:
        async with egress() as out:
            with pytest.raises(EgressError) as caught:
                await fetch_from(out, f'http://{host}/')
            error = caught.value
            assert isinstance(error, Refused) or error.kind in ('dns_unknown', 'dns')  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

    asyncio.run(run())


def test_a_failing_resolver_is_not_an_unknown_name() -> None:
    async def resolve(_: str) -> list[str]:
        raise socket.gaierror(socket.EAI_AGAIN, 'Temporary failure in name resolution')

    async def run() -> None:
        async with egress(resolve=resolve) as out:
            with pytest.raises(NoResponse) as caught:
                await fetch_from(out, 'http://some.example/')
            assert caught.value.kind == 'dns'

    asyncio.run(run())


def test_a_hanging_resolver_ends_with_the_timeout_of_the_request() -> None:
    async def resolve(_: str) -> list[str]:
        await asyncio.Event().wait()
        return []

    async def run() -> None:
        async with egress(resolve=resolve) as out:
            with pytest.raises(NoResponse) as caught:
                await fetch_from(out, 'http://some.example/', timeout_seconds=0.2)
            assert caught.value.kind == 'timeout'

    asyncio.run(run())


def test_a_hanging_system_resolver_blocks_few_threads_and_recovers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go = threading.Event()

    def hang(host: bytes, *_: Any, **__: Any) -> Any:
        assert go.wait(60)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, '', ('127.0.0.1', 0))]

    async def run() -> None:
        async with raw_site({'/': OK}) as site, egress(connections=50) as out:
            urls = [site.url(host=f'{number}.hanging.example') for number in range(30)]
            monkeypatch.setattr(socket, 'getaddrinfo', hang)
            fetches = [fetch_from(out, url, timeout_seconds=0.5) for url in urls]
            errors = await asyncio.gather(*fetches, return_exceptions=True)
            assert {getattr(error, 'kind', None) for error in errors} == {'timeout'}
            names = [thread.name for thread in threading.enumerate()]
            assert names.count('lookup') <= 16
            go.set()
            assert (await fetch_from(out, urls[-1])).body == b'hello'

    asyncio.run(run())


def test_a_few_hanging_names_do_not_delay_others(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def hang(host: bytes, *_: Any, **__: Any) -> Any:
        assert host == b'quick.example' or go.wait(60)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, '', ('127.0.0.1', 0))]

    async def run() -> None:
        monkeypatch.setattr(socket, 'getaddrinfo', hang)
        hosts = [*(f'{number}.hanging.example' for number in range(8)), 'quick.example']
        lookups = [asyncio.ensure_future(system_resolve(host)) for host in hosts]
        try:
            assert await asyncio.wait_for(lookups[-1], 50) == ['127.0.0.1']
        finally:
            go.set()
        assert await asyncio.gather(*lookups) == [['127.0.0.1']] * len(hosts)

    asyncio.run(run())


def test_a_hanging_system_resolver_does_not_delay_the_exit() -> None:
    program = """
import asyncio, socket, threading
socket.getaddrinfo = lambda *_, **__: threading.Event().wait()
from tests.support.egress import egress, fetch_from
async def run():
    async with egress() as out:
        try:
            await fetch_from(out, 'http://hanging.example/', timeout_seconds=0.1)
        except Exception as error:
            print(error)
asyncio.run(run())
"""
    done = subprocess.run(
        [sys.executable, '-c', program], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == 'hanging.example did not answer within 0.1 s\n'


def test_concurrent_requests_share_one_lookup_even_if_one_is_cancelled() -> None:
    asked: list[str] = []
    is_asked, go = asyncio.Event(), asyncio.Event()

    async def resolve(host: str) -> list[str]:
        asked.append(host)
        is_asked.set()
        await go.wait()
        return ['127.0.0.1']

    async def run() -> None:
        async with raw_site({'/': OK}) as site, egress(resolve=resolve) as out:
            url = site.url(host='slow.example')
            async with asyncio.TaskGroup() as group:
                first, *others = [group.create_task(fetch_from(out, url)) for _ in range(4)]
                await is_asked.wait()
                first.cancel()
                await asyncio.wait([first])
                go.set()
            assert [task.result().status for task in others] == [200, 200, 200]
            assert asked == ['slow.example']

    asyncio.run(run())


def test_a_lookup_without_a_thread_fails_and_a_later_one_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads, usual = LookupThreads(), threading.stack_size()
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, 'start', refuse)
        for _ in range(THREADS + 1):
            with pytest.raises(OSError, match="can't start"):
                asyncio.run(threads.ask('localhost'))

    assert '127.0.0.1' in asyncio.run(threads.ask('localhost'))
    assert threading.stack_size() == usual
