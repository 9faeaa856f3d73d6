"""The fetcher `null`: a generated site, without a network, for tests and benchmarks.

The query of the start URL describes the site, and every link carries it on, so that a page
depends on its URL alone:

    https://null.example/?pages=200&links=10&bytes=1000&delay_ms=5&fail=3&retry=2&slow=4&slow_ms=500

`pages` form a tree of `links` children each, with links back; every `fail`th page answers 500,
every `retry`th one fails at its first try, every `slow`th one takes `slow_ms`. `crash=what` with
`crash_at=17` makes page 17 misbehave: see `CRASHES`; a signal's name kills the process by it.
"""

import asyncio
import hashlib
import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from silkline import protocol
from silkline.crawl.fetched import Fetched


class NullFetcher:
    async def fetch(self, task: protocol.Task) -> Fetched:
        site = Site(task.url)
        milliseconds = site.number('slow_ms', 1000) if site.is_nth('slow') else 0
        await asyncio.sleep((milliseconds or site.number('delay_ms', 0)) / 1000)
        if site.crash and site.page == site.number('crash_at', 0):
            await misbehave(site.crash)
        if site.is_nth('retry') and task.attempts == 1:
            return Fetched(
                status='error', error='try again', trouble='server', retry_after_seconds=0.01
            )
        if site.is_nth('fail'):
            return Fetched(status='error', http_status=500, error='HTTP 500')
        links = site.links()
        text = site.text()
        return Fetched(
            status='done',
            http_status=200,
            bytes=len(text),
            links=links,
            page=protocol.Page(
                url=task.url,
                http_status=200,
                content_hash=hashlib.sha256(text.encode()).hexdigest(),
                title=f'Page {site.page}',
                markdown=text,
                links=links,
                extractor='null',
                extractor_version='1',
            ),
        )


class Site:
    """What one URL says about its site, and which page of it it is."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.base = f'{parts.scheme}://{parts.netloc}'
        self.query = parts.query
        self.options = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        self.page = int(parts.path.removeprefix('/p/') or 0) if parts.path != '/' else 0
        self.crash = self.options.get('crash', '')

    def number(self, key: str, default: int) -> int:
        return int(self.options.get(key, default))

    def is_nth(self, key: str) -> bool:
        every = self.number(key, 0)
        return every > 0 and self.page > 0 and self.page % every == 0

    def links(self) -> list[str]:
        pages, children = self.number('pages', 10), self.number('links', 5)
        first = self.page * children + 1
        numbers = [*range(first, min(first + children, pages)), self.page // 2]
        return [self.url(number) for number in numbers]

    def url(self, page: int) -> str:
        return f'{self.base}/{f"p/{page}" if page else ""}?{self.query}'

    def text(self) -> str:
        size = self.number('bytes', 200)
        line = f'Page {self.page} of {self.query}. '
        return (line * (size // len(line) + 1))[:size]


async def misbehave(what: str) -> None:
    name, _, argument = what.partition(':')
    if name.startswith('SIG'):
        os.kill(os.getpid(), signal.Signals[name])
    elif name == 'wait':
        # Hangs without blocking: only the clock ends it.
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
    """Fork without end; each process for some seconds only, should nobody end it."""
    end_at = time.monotonic() + float(seconds or 20)
    while time.monotonic() < end_at:
        os.fork()
    os._exit(0)


def leave_children(count: str) -> None:
    """Children of every kind: in the group, in others, in other sessions, without parents."""
    for number in range(int(count or 4)):
        if os.fork() == 0:
            if number % 4 == 1:
                os.setpgid(0, 0)
            if number % 4 >= 2:
                os.setsid()
            if number % 4 == 3 and os.fork() > 0:
                os._exit(0)
            # The later ones drop the mark of their runner, too.
            environment = dict(os.environ) if number < 4 else {}
            os.execve('/bin/sleep', ['sleep', '1000'], environment)  # noqa: S606 - no shell


def pipes() -> list[int]:
    """Descriptors that may be the one to the supervisor."""
    numbers = [int(name) for name in os.listdir('/proc/self/fd')]
    return [number for number in numbers if number > 2 and is_pipe(number)]


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
    """Close every pipe to the supervisor and live on."""
    for number in pipes():
        os.close(number)
    hang('')


def shout(code: str) -> None:
    """A megabyte to stderr, then an end."""
    for number in range(16_384):
        sys.stderr.write(f'line {number:6} of a megabyte {"." * 40}\n')
    sys.stderr.write('the last line\n')
    sys.stderr.flush()
    os._exit(int(code or 1))


def talk(_: str) -> None:
    print('a stray line')
    os.write(1, b'another stray line\n')


def chat(count: str) -> None:
    """Log lines without end, in messages as they should be."""
    for _ in range(int(count or 1000)):
        write_to_pipes(protocol.encode(protocol.Log(level='warning', message='a line of chat')))


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
