"""Hostile sites, and crawls of them by a real runner.

A `Case` is one site: a start page, ten good pages, and the harmful pages, each with the way its URL
must end. `crawl_cases` crawls many of them at once, each on its own port, so that every site is a
separate host for the crawl, and measures the runner's memory and time.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from silkline import protocol
from silkline.supervisor.outcome import Outcome
from silkline.supervisor.process import Runner
from tests.support.raw_site import Handler, answer, not_found
from tests.support.runner import Frontier, run_job

Page = bytes | Handler
# A page by path and query; None if there is no such page.
Pages = Callable[[str], Page | None]

MEGABYTE = 1024 * 1024
GOOD = tuple(f'/good/{number}' for number in range(1, 11))
WEB_TYPE = 'text/html; charset=utf-8'


@dataclass(frozen=True)
class End:
    """How a URL ends; `error` is part of the stored message."""

    status: str = 'done'
    skip_reason: str | None = None
    http_status: int | None = None
    error: str | None = None
    # The only other message, where it depends on how the bytes arrive.
    or_error: str | None = None

    def is_met_by(self, finished: protocol.Finished) -> bool:
        return (
            finished.status == self.status
            and finished.skip_reason == self.skip_reason
            and (self.http_status is None or finished.http_status == self.http_status)
            and (
                self.error is None
                or self.error in (finished.error or '')
                or (self.or_error is not None and self.or_error in (finished.error or ''))
            )
            and (finished.status != 'error' or bool(finished.error))
        )


def skipped(reason: str, http_status: int | None = None) -> End:
    return End('skipped', reason, http_status)


def failed(error: str, http_status: int | None = None) -> End:
    return End('error', None, http_status, error)


@dataclass(frozen=True)
class Case:
    """`pages` by path and query, `others` for all other paths; `ends` by path."""

    name: str
    pages: Mapping[str, Page]
    ends: Mapping[str, End]
    others: Pages | None = None
    # Links of the start page besides the good pages; by default, the paths in `ends`.
    links: Sequence[str] | None = None

    def page(self, path: str) -> Page | None:
        if path in self.pages:
            return self.pages[path]
        if path == '/':
            links = list(self.ends) if self.links is None else self.links
            return html_page(*GOOD[:5], *links, *GOOD[5:], title='Start')
        if path in GOOD:
            return html_page('/', *GOOD, title=f'Good {path}')
        return self.others(path) if self.others else None


@dataclass
class HostileSite:
    """A running site; `requests` counts the requests by path."""

    name: str
    port: int
    host: str = '127.0.0.1'
    requests: Counter[str] = field(default_factory=Counter[str])

    @property
    def url(self) -> str:
        return f'http://{self.host}:{self.port}'


@dataclass(frozen=True)
class Ended:
    """One site after its crawl: how each URL ended, by path and query."""

    url: str
    found: Mapping[str, protocol.FoundUrl]
    finished: Mapping[str, protocol.Finished]
    requests: Counter[str]

    def page(self, path: str) -> protocol.Page:
        page = self.finished[path].page
        assert page is not None, self.finished[path]
        return page

    def assert_good(self) -> None:
        for path in ('/', *GOOD):
            finished = self.finished.get(path)
            assert finished is not None, f'{path} never ended'
            assert finished.status == 'done', f'{path}: {finished}'
            assert finished.page is not None
            assert finished.page.title == ('Start' if path == '/' else f'Good {path}')

    def assert_ends(self, ends: Mapping[str, End]) -> None:
        for path, end in ends.items():
            finished = self.finished.get(path)
            assert finished is not None, f'{path} never ended; {self.requests[path]} requests'
            assert end.is_met_by(finished), f'{path}: {finished} is not {end}'

    def count(self, skip_reason: str) -> int:
        """How many URLs were skipped before they were fetched, for that reason."""
        return sum(1 for found in self.found.values() if found.skip_reason == skip_reason)


@dataclass(frozen=True)
class Crawled:
    outcome: Outcome
    sites: Mapping[str, Ended]
    # The peak memory of the runner.
    peak_bytes: int
    seconds: float
    # URLs that were being fetched when the runner ended.
    in_flight: Sequence[str]
    # URLs of other hosts, and how those ended that were leased.
    other_urls: Mapping[str, protocol.FoundUrl]
    ended_other_urls: Mapping[str, protocol.Finished]
    # How many links the rules refused, by reason.
    refused: Mapping[str, int]

    def assert_drained(self, *, within_bytes: int, within_seconds: float) -> None:
        assert self.outcome.done is not None, (self.outcome, self.in_flight)
        assert self.outcome.done.reason == 'drained'
        assert self.peak_bytes < within_bytes, f'{self.peak_bytes // MEGABYTE} MB'
        assert self.seconds < within_seconds


def html_page(*links: str, title: str = 'Page', text: str = 'A page of plain words.') -> bytes:
    anchors = ''.join(f'<li><a href="{link}">{link}</a></li>' for link in links)
    body = (
        f'<!doctype html><html lang="en"><head><title>{title}</title></head><body>'
        f'<main><h1>{title}</h1><p>{text}</p></main><nav><ul>{anchors}</ul></nav></body></html>'
    )
    return web(body.encode())


def web(body: bytes, *, type: str = WEB_TYPE, **headers: str) -> bytes:
    """A complete response with a body of that type."""
    return answer(body, length=len(body), Content_Type=type, **headers)


def sitemap(*links: str, kind: str = 'url', root: str = 'urlset') -> bytes:
    entries = ''.join(f'<{kind}><loc>{link}</loc></{kind}>' for link in links)
    return xml(f'<{root}>{entries}</{root}>'.encode())


def xml(body: bytes) -> bytes:
    return web(body, type='application/xml')


def robots(text: str | bytes) -> bytes:
    return web(text.encode() if isinstance(text, str) else text, type='text/plain')


def redirect(location: str | bytes, status: str = '302 Found') -> bytes:
    where = location.encode() if isinstance(location, str) else location
    head = f'HTTP/1.1 {status}\r\nContent-Length: 0\r\nLocation: '.encode()
    return head + where + b'\r\n\r\n'


def raw(*parts: bytes, stay: bool = False) -> Handler:
    """Writes any bytes, then closes the connection, or waits until the client does."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
        if stay:
            await reader.read()

    return handler


def reset() -> Handler:
    """Resets the connection."""

    async def handler(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    return handler


@asynccontextmanager
async def serve(
    pages: Pages,
    *,
    name: str = '',
    host: str = '127.0.0.1',
    port: int = 0,
    on_request: Callable[[str], None] | None = None,
) -> AsyncGenerator[HostileSite]:
    """Serve pages by path; bytes are written as they are, and the connection is kept alive."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await serve_requests(reader, writer)
        except asyncio.CancelledError:
            # The site is closing; asyncio would log the cancellation as an error.
            pass
        finally:
            tasks.discard(task)
            writer.close()

    async def serve_requests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b'\r\n\r\n'):
            path = head.split(b' ', 2)[1].decode('latin-1')
            site.requests[path] += 1
            if on_request is not None:
                on_request(path)
            page = pages(path) or not_found()
            if not isinstance(page, bytes):
                await page(reader, writer)
                return
            writer.write(page)
            await writer.drain()

    server = await asyncio.start_server(serve_one, host, port)
    bound = server.sockets[0].getsockname()[1]
    site = HostileSite(name, bound, f'[{host}]' if ':' in host else host)
    try:
        yield site
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


def crawl_cases(
    cases: Sequence[Case],
    *,
    payload: Mapping[str, Any] | None = None,
    allow_networks: Sequence[str] = ('127.0.0.1/32',),
    seconds: float = 90,
) -> Crawled:
    """Crawl the sites of all cases in one runner, for at most `seconds`."""

    async def run() -> Crawled:
        async with AsyncExitStack() as stack:
            sites = [
                await stack.enter_async_context(serve(case.page, name=case.name)) for case in cases
            ]
            return await crawl_sites(
                sites, payload=payload, allow_networks=allow_networks, seconds=seconds
            )

    return asyncio.run(run())


async def crawl_sites(
    sites: Sequence[HostileSite],
    *,
    payload: Mapping[str, Any] | None = None,
    allow_networks: Sequence[str] = ('127.0.0.1/32',),
    seconds: float = 90,
) -> Crawled:
    frontier = Frontier()
    watch = Watch()
    start = protocol.Start(
        job_id=uuid4(),
        kind='crawl',
        payload={
            'urls': [f'{site.url}/' for site in sites],
            'concurrency': 32,
            'timeout_seconds': 10,
            'tries': 2,
            'retry_seconds': 0.01,
            **(payload or {}),
        },
        allow_networks=list(allow_networks),
        limits=protocol.Limits(wall_seconds=seconds),
    )
    started_at = time.monotonic()
    outcome = await run_job(start, frontier, watch=watch)
    other_urls = {
        key: found
        for key, found in frontier.urls.items()
        if not any(found.url.startswith(f'{site.url}/') for site in sites)
    }
    return Crawled(
        outcome=outcome,
        sites={site.name: ended_site(site, frontier) for site in sites},
        peak_bytes=watch.peak_bytes,
        seconds=time.monotonic() - started_at,
        in_flight=list(watch.begun.values()),
        other_urls={found.url: found for found in other_urls.values()},
        ended_other_urls={
            found.url: frontier.ended[key]
            for key, found in other_urls.items()
            if key in frontier.ended
        },
        refused=frontier.refused,
    )


class Watch:
    """Reads the runner's peak memory whenever it asks for tasks."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self.begun: dict[object, str] = {}

    def __call__(self, runner: Runner, message: protocol.FromRunner) -> None:
        match message:
            case protocol.Begun(url_key=key, url=url):
                self.begun[key] = url
            case protocol.Finished(url_key=key) | protocol.Retried(url_key=key):
                self.begun.pop(key, None)
            case protocol.WantTasks():
                # It waits for the answer, so it is still alive.
                self.peak_bytes = max(self.peak_bytes, peak_bytes_of(runner.pid))
            case _:
                pass


def peak_bytes_of(pid: int) -> int:
    """The peak resident memory of a process (Linux); 0 if it has ended."""
    with suppress(OSError):
        for line in Path(f'/proc/{pid}/status').read_text().splitlines():
            if line.startswith('VmHWM:'):
                return int(line.split()[1]) * 1024
    return 0


def ended_site(site: HostileSite, frontier: Frontier) -> Ended:
    found: dict[str, protocol.FoundUrl] = {}
    finished: dict[str, protocol.Finished] = {}
    for key, url in frontier.urls.items():
        if url.url.startswith(f'{site.url}/'):
            parts = urlsplit(url.url)
            path = parts.path + (f'?{parts.query}' if parts.query else '')
            found[path] = url
            if key in frontier.ended:
                finished[path] = frontier.ended[key]
    return Ended(site.url, found, finished, site.requests)
