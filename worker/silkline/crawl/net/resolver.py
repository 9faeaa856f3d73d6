"""Look up the addresses of a host name once, and check every one of them.

`DnsCache` serves the egress: it calls a `Resolve`, refuses a name with any forbidden address, and
caches the result. `system_resolve` calls the system's resolver in a few threads, because the call
cannot be interrupted: a resolver that hangs blocks those threads and nothing else.
"""

import asyncio
import contextlib
import errno
import queue
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from silkline.crawl.net.addresses import AddressRules
from silkline.crawl.responses import EgressError, NoResponse, Refused, forbidden

Resolve = Callable[[str], Awaitable[Sequence[str]]]

LOOKUP_SECONDS = 10.0
KEEP_SECONDS = 60.0
KEEP_ERROR_SECONDS = 5.0
MAX_NAMES = 2048
# All addresses of a name are checked; at most this many of IPv4 and of IPv6 are dialed.
MAX_ADDRESSES = 4
THREADS = 16
# The usual 8 MB would count towards the runner's memory limit.
STACK_BYTES = 1024 * 1024
UNKNOWN = (socket.EAI_NONAME, getattr(socket, 'EAI_NODATA', socket.EAI_NONAME))


@dataclass(frozen=True, slots=True)
class CachedLookup:
    """The result of a lookup, valid until a time of `time.monotonic`."""

    until: float
    addresses: tuple[str, ...] = ()
    error: EgressError | None = None


class DnsCache:
    """The lookups of one egress. Used from one event loop."""

    def __init__(self, rules: AddressRules, resolve: Resolve) -> None:
        self._rules = rules
        self._resolve = resolve
        self._answers: dict[str, CachedLookup] = {}
        self._lookups: dict[str, asyncio.Task[CachedLookup]] = {}

    async def addresses(self, host: str) -> tuple[str, ...]:
        """The checked addresses of a name; raises `Refused` or `NoResponse`."""
        answer = self._answers.get(host)
        if answer is None or answer.until < time.monotonic():
            answer = await self._join_lookup(host)
        if answer.error is not None:
            # A copy: the traceback of an exception grows each time it is raised.
            raise copy_of(answer.error)
        return answer.addresses

    def forget(self) -> None:
        """Drop the cache: every name is looked up again."""
        self._answers.clear()

    async def close(self) -> None:
        lookups = list(self._lookups.values())
        for lookup in lookups:
            lookup.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)

    async def _join_lookup(self, host: str) -> CachedLookup:
        """Share one lookup between all callers; a caller that is cancelled does not end it."""
        lookup = self._lookups.get(host)
        if lookup is None:
            lookup = asyncio.create_task(self._look_up(host), name=f'lookup of {host}')
            self._lookups[host] = lookup
            lookup.add_done_callback(lambda _: self._lookups.pop(host, None))
        return await asyncio.shield(lookup)

    async def _look_up(self, host: str) -> CachedLookup:
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                found = await self._resolve(host)
            addresses = self._checked(host, found)
        except EgressError as error:
            kept = KEEP_SECONDS if isinstance(error, Refused) else KEEP_ERROR_SECONDS
            answer = CachedLookup(time.monotonic() + kept, error=error)
        except (OSError, UnicodeError) as error:
            answer = CachedLookup(
                time.monotonic() + KEEP_ERROR_SECONDS, error=translated(host, error)
            )
        else:
            answer = CachedLookup(time.monotonic() + KEEP_SECONDS, addresses=addresses)
        if len(self._answers) >= MAX_NAMES:
            self._answers.clear()
        self._answers[host] = answer
        return answer

    def _checked(self, host: str, found: Sequence[str]) -> tuple[str, ...]:
        if not found:
            raise NoResponse(f'{host} has no address', 'dns_unknown')
        # One forbidden address is enough: the owner of the name could choose which one is dialed.
        if not all(self._rules.allow(address) for address in found):
            raise forbidden(host)
        unique = list(dict.fromkeys(found))
        ipv6 = [address for address in unique if ':' in address][:MAX_ADDRESSES]
        ipv4 = [address for address in unique if ':' not in address][:MAX_ADDRESSES]
        # In the system's order, because it knows whether this machine has IPv6.
        return tuple(sorted([*ipv6, *ipv4], key=unique.index))


def translated(host: str, error: OSError | UnicodeError) -> NoResponse:
    if isinstance(error, TimeoutError):
        return NoResponse(f'the DNS lookup of {host} took longer than {LOOKUP_SECONDS:g} s', 'dns')
    if isinstance(error, UnicodeError) or error.errno in UNKNOWN:
        return NoResponse(f'the host {host} does not exist', 'dns_unknown')
    return NoResponse(f'the DNS lookup of {host} failed', 'dns')


def copy_of(error: EgressError) -> EgressError:
    if isinstance(error, Refused):
        return Refused(str(error), error.skip_reason)
    if isinstance(error, NoResponse):
        return NoResponse(str(error), error.kind)
    return error


async def system_resolve(host: str) -> list[str]:
    """Call the system's resolver; raises `socket.gaierror`."""
    return await LOOKUP_THREADS.ask(host)


@dataclass(slots=True)
class LookupRequest:
    host: str
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[list[str]]


class LookupThreads:
    """At most `THREADS` threads that wait for the system's resolver.

    They never delay the exit of the process; the threads of `concurrent.futures` are joined at
    exit, however long they hang.
    """

    def __init__(self) -> None:
        self._questions: queue.SimpleQueue[LookupRequest] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._idle = 0

    async def ask(self, host: str) -> list[str]:
        loop = asyncio.get_running_loop()
        question = LookupRequest(host, loop, loop.create_future())
        with self._lock:
            self._questions.put(question)
            is_one_more = self._questions.qsize() > self._idle and self._count < THREADS
            self._count += is_one_more
        if is_one_more:
            self._start_thread(question)
        return await question.answer

    def _start_thread(self, question: LookupRequest) -> None:
        usual = threading.stack_size(STACK_BYTES)
        try:
            threading.Thread(target=self._answer_questions, name='lookup', daemon=True).start()
        except RuntimeError as error:
            # Out of memory or of threads: the existing threads will serve the request, if any.
            with self._lock:
                self._count -= 1
                is_alone = self._count == 0
            if is_alone:
                question.answer.cancel()
                raise OSError(errno.EAGAIN, str(error)) from error
        finally:
            threading.stack_size(usual)

    def _answer_questions(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            question = self._questions.get()
            with self._lock:
                self._idle -= 1
            # The caller may have been cancelled while the request waited for a thread.
            if question.answer.cancelled():
                continue
            try:
                answer = look_up(question.host)
            except (OSError, UnicodeError) as error:
                self._deliver(question, error)
            else:
                self._deliver(question, answer)

    def _deliver(self, question: LookupRequest, result: list[str] | Exception) -> None:
        def deliver() -> None:
            if question.answer.done():
                return
            if isinstance(result, Exception):
                question.answer.set_exception(result)
            else:
                question.answer.set_result(result)

        # The loop may be closed by now.
        with contextlib.suppress(RuntimeError):
            question.loop.call_soon_threadsafe(deliver)


def look_up(host: str) -> list[str]:
    # As bytes: the name is already in ASCII, and Python would apply an older version of IDNA.
    found = socket.getaddrinfo(
        host.encode('ascii'),
        None,
        type=socket.SOCK_STREAM,
        flags=socket.AI_ADDRCONFIG,
    )
    return [str(entry[4][0]) for entry in found]


LOOKUP_THREADS = LookupThreads()
