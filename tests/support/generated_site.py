"""The fetcher `generated`: a site without a network, whose pages can also break their runner.

It is a plugin, installed only into the Python of `plugins.py`. The query of the start URL describes
the site, and every link repeats it, so a page depends on its URL alone:

    https://generated.example/?pages=200&links=10&bytes=1000&delay_ms=5&fail=3&retry=2&slow=4&slow_ms=500

`pages` form a tree of `links` children each, with links back; every `fail`th page answers 404,
every `retry`th one answers 500 the first time, every `slow`th one takes `slow_ms`. `crash=what`
with `crash_at=17` makes page 17 misbehave: see `CRASHES`; a signal's name sends that signal.
"""

import asyncio
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Mapping
from html import escape
from typing import NoReturn
from urllib.parse import parse_qs, urlsplit

from multidict import CIMultiDict, CIMultiDictProxy

from silkline import framing, protocol
from silkline.plugins import Response


class GeneratedSite:
    kind, api = 'fetcher', 1

    def __init__(self) -> None:
        self._tried: set[str] = set()

    async def open(self, egress: object) -> None:
        pass

    async def fetch(
        self, url: str, *, headers: Mapping[str, str], max_bytes: int, timeout_seconds: float
    ) -> Response:
        page = Page(url)
        milliseconds = page.number('slow_ms', 1000) if page.is_nth('slow') else 0
        await asyncio.sleep((milliseconds or page.number('delay_ms', 0)) / 1000)
        if page.crash and page.nth == page.number('crash_at', 0):
            try:
                await misbehave(page.crash)
            except MemoryError:
                raise
            except Exception as error:
                return response(url, 404, headers=BrokenHeaders(error))
        if page.is_nth('retry') and url not in self._tried:
            self._tried.add(url)
            return response(url, 500)
        if page.is_nth('fail'):
            return response(url, 404)
        return response(url, 200, page.html())

    async def close(self) -> None:
        pass


def response(
    url: str, status: int, body: str = '', *, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(
        url=url,
        status=status,
        headers={'Content-Type': 'text/html'} if headers is None else headers,
        body=body.encode(),
        address='192.0.2.1',
        seconds=0.0,
        first_byte_seconds=0.0,
    )


class BrokenHeaders(CIMultiDictProxy[str]):
    """Headers that cannot be read.

    What a plugin raises costs one page. An error that comes up where the engine reads a response
    is one of the engine, and fails the job.
    """

    def __new__(cls, error: Exception) -> 'BrokenHeaders':
        return super().__new__(cls)

    def __init__(self, error: Exception) -> None:
        super().__init__(CIMultiDict())
        self._error = error

    def get(self, key: str, default: object = None) -> NoReturn:
        raise self._error


class Page:
    """What a URL says about its site, and which page of it it is."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.base = f'{parts.scheme}://{parts.netloc}'
        self.query = parts.query
        self.options = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        self.nth = int(parts.path.removeprefix('/p/') or 0) if parts.path != '/' else 0
        self.crash = self.options.get('crash', '')

    def number(self, key: str, default: int) -> int:
        return int(self.options.get(key, default))

    def is_nth(self, key: str) -> bool:
        every = self.number(key, 0)
        return every > 0 and self.nth > 0 and self.nth % every == 0

    def html(self) -> str:
        links = ''.join(f'<a href="{escape(link)}">{link}</a> ' for link in self.links())
        return (
            f'<!doctype html><title>Page {self.nth}</title>'
            f'<main><p>{self.text()}</p></main><nav>{links}</nav>'
        )

    def links(self) -> list[str]:
        pages, children = self.number('pages', 10), self.number('links', 5)
        first = self.nth * children + 1
        numbers = [*range(first, min(first + children, pages)), self.nth // 2]
        return [self.url(number) for number in numbers]

    def url(self, nth: int) -> str:
        return f'{self.base}/{f"p/{nth}" if nth else ""}?{self.query}'

    def text(self) -> str:
        size = self.number('bytes', 200)
        line = f'Page {self.nth} of a generated site. '
        return (line * (size // len(line) + 1))[:size]


async def misbehave(what: str) -> None:
    name, _, argument = what.partition(':')
    if name.startswith('SIG'):
        os.kill(os.getpid(), signal.Signals[name])
    elif name == 'wait':
        # Does not block the event loop: only the time limit ends it.
        await asyncio.Event().wait()
    else:
        CRASHES[name](argument)


def eat_memory(_: str) -> None:
    eaten: list[bytes] = []
    while True:
        eaten.append(os.urandom(1024) * 1024)


def hang(_: str) -> None:
    time.sleep(86_400)


def be_busy(_: str) -> None:
    while True:
        pass


def leave(code: str) -> None:
    os._exit(int(code or 1))


def fail(message: str) -> None:
    raise RuntimeError(message or 'this page is broken')


def fork_bomb(seconds: str) -> None:
    """Fork forever; each process stops by itself after some seconds, in case nothing kills it."""
    end_at = time.monotonic() + float(seconds or 20)
    while time.monotonic() < end_at:
        os.fork()
    os._exit(0)


def leave_children(count: str) -> None:
    """Start children in this process group, in others, in other sessions, and orphaned ones."""
    for number in range(int(count or 4)):
        if os.fork() == 0:
            if number % 4 == 1:
                os.setpgid(0, 0)
            if number % 4 >= 2:
                os.setsid()
            if number % 4 == 3 and os.fork() > 0:
                os._exit(0)
            # The later ones also drop the variable that marks them as this runner's.
            environment = dict(os.environ) if number < 4 else {}
            os.execve('/bin/sleep', ['sleep', '1000'], environment)  # noqa: S606 - no shell


def pipes() -> list[int]:
    """The pipes from and to the supervisor: they are older than those of the event loop."""
    numbers = sorted(int(name) for name in os.listdir('/proc/self/fd'))
    return [number for number in numbers if number > 2 and is_pipe(number)][:2]


def is_pipe(number: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(number).st_mode)
    except OSError:
        return False


def write_to_pipes(data: bytes) -> None:
    for number in pipes():
        try:
            os.set_blocking(number, True)
            os.write(number, data)
        except OSError:
            continue


def flood(_: str) -> None:
    while True:
        write_to_pipes(b'x' * 65536)


def send_garbage(_: str) -> None:
    write_to_pipes((6).to_bytes(4) + b'{"a":}')
    hang('')


def announce_huge_frame(_: str) -> None:
    write_to_pipes(b'\x7f\xff\xff\xff')
    hang('')


def fall_silent(_: str) -> None:
    """Close both pipes and keep running."""
    for number in pipes():
        os.close(number)
    hang('')


def shout(code: str) -> None:
    """Write a megabyte to stderr, then exit."""
    for number in range(16_384):
        sys.stderr.write(f'line {number:6} of a megabyte {"." * 40}\n')
    sys.stderr.write('the last line\n')
    sys.stderr.flush()
    os._exit(int(code or 1))


def talk(_: str) -> None:
    print('a stray line')
    os.write(1, b'another stray line\n')


def chat(count: str) -> None:
    """Send well-formed log messages, far too many."""
    for _ in range(int(count or 1000)):
        write_to_pipes(framing.encode(protocol.Log(level='warning', message='a line of chat')))


def snoop(_: str) -> None:
    """Try to read the supervisor's environment."""
    with open(f'/proc/{os.getppid()}/environ', 'rb') as file:
        raise RuntimeError(f'the supervisor has {file.read()!r}')


CRASHES: dict[str, Callable[[str], None]] = {
    'memory': eat_memory,
    'hang': hang,
    'busy': be_busy,
    'exit': leave,
    'raise': fail,
    'fork': fork_bomb,
    'children': leave_children,
    'flood': flood,
    'garbage': send_garbage,
    'huge': announce_huge_frame,
    'silent': fall_silent,
    'stderr': shout,
    'print': talk,
    'snoop': snoop,
    'chat': chat,
}
