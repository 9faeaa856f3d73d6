"""The only way out: every request of a crawl is made here.

A URL is parsed as browsers do. Its host must not be one that `refuse_host` refuses; it is resolved
once (`resolver.py`), each address is checked (`addresses.py`), and only a checked address is
dialed; the socket factory checks it once more. One call is one request: redirects are returned to
the caller, or go through `follow`, which checks each one. Sizes and times are bounded, and no
setting is taken from the environment.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, NamedTuple, Self, cast

import aiohttp
from aiohappyeyeballs import start_connection
from aiohttp.abc import AbstractResolver, ResolveResult
from can_ada import parse
from yarl import URL

from silkline.crawl.net.addresses import AddressRules
from silkline.crawl.net.resolver import DnsCache, Resolve, system_resolve
from silkline.crawl.net.session import (
    ForbiddenAddress,
    SessionResponse,
    drain,
    open_session,
    readable,
    receive_body,
    translated,
)
from silkline.crawl.responses import REDIRECTS, NoResponse, Refused, Response, forbidden
from silkline.crawl.urls import BAD_PORTS

Wants = Callable[[int, Mapping[str, str]], bool]

# Headers that must not be sent to another origin.
SECRETS = frozenset(('authorization', 'cookie', 'proxy-authorization'))
MAX_ORIGINS = 4096
# Beyond this, connections are not kept alive. A runner may have 1024 open files.
MAX_SOCKETS = 256
# When an address of a host does not answer, the next one is tried in parallel.
NEXT_ADDRESS_SECONDS = 0.25


class Origin(NamedTuple):
    """Where a request goes. `host` is as browsers write it; `is_literal` if it is an address."""

    scheme: str
    host: str
    port: int
    is_literal: bool


class Egress:
    """Makes the requests of one crawl, over at most `connections`; an async context manager."""

    def __init__(
        self,
        *,
        user_agent: str,
        allow_networks: Sequence[str] = (),
        connections: int = 8,
        resolve: Resolve = system_resolve,
        refuse_host: Callable[[str], str | None] = lambda host: None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.rules = AddressRules(allow_networks)
        self.names = DnsCache(self.rules, resolve)
        self.user_agent = user_agent
        # Says why nothing may be requested from a host.
        self._refuse_host = refuse_host
        self._connections = connections
        self._tls = tls
        self._origins: dict[str, Origin] = {}
        self._sockets: list[socket.socket] = []

    async def __aenter__(self) -> Self:
        self._session = open_session(
            resolver=_CheckedResolver(self.names),
            socket_factory=self._open_socket,
            connections=self._connections,
            tls=self._tls,
            user_agent=self.user_agent,
            is_crowded=lambda: len(self._sockets) >= MAX_SOCKETS,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        await self.names.close()

    async def fetch(
        self,
        url: str,
        *,
        max_bytes: int,
        timeout_seconds: float,
        headers: Mapping[str, str] | None = None,
        wants: Wants | None = None,
        method: str = 'GET',
        is_cut: bool = False,
    ) -> Response:
        """Make one request and receive its response; redirects are not followed.

        `wants` gets the status and the headers before the body is read, and may decline it. The
        timeout includes the wait for a free connection. With `is_cut`, a body that is too large
        is truncated instead of refused.
        """
        href, origin = self.read_url(url)
        started_at = time.monotonic()
        request = self._session.request(
            method, URL(href, encoded=True), headers=headers, allow_redirects=False
        )
        try:
            # Leaving the request closes its connection, unless the response was read to its end.
            async with asyncio.timeout(timeout_seconds), request as plain_answer:
                answer = cast(SessionResponse, plain_answer)
                first_byte_seconds = time.monotonic() - started_at
                shown = readable(answer.headers)
                if answer.status == 101:
                    raise NoResponse(f'{origin.host} switched to another protocol', 'protocol')
                if wants is None or wants(answer.status, shown):
                    body = await receive_body(answer, max_bytes, is_cut=is_cut)
                else:
                    body = b''
                    await drain(answer)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise translated(error, origin.host, timeout_seconds) from error
        return Response(
            url=href,
            status=answer.status,
            headers=shown,
            body=body,
            address=answer.address,
            seconds=time.monotonic() - started_at,
            first_byte_seconds=first_byte_seconds,
        )

    async def follow(
        self,
        url: str,
        *,
        max_hops: int,
        max_bytes: int,
        timeout_seconds: float,
        may_follow: Callable[[str], bool] | None = None,
        headers: Mapping[str, str] | None = None,
        wants: Wants | None = None,
        method: str = 'GET',
        is_cut: bool = False,
    ) -> Response:
        """Fetch a URL and follow at most `max_hops` redirects.

        Each redirect is checked like the first URL; the timeout is for all of them together. A
        redirect that is not followed is returned itself: one without a target, one beyond
        `max_hops`, or one that `may_follow` declines.
        """
        ends_at = time.monotonic() + timeout_seconds
        headers = dict(headers or {})
        hops = 0
        while True:
            response = await self.fetch(
                url,
                max_bytes=max_bytes,
                timeout_seconds=max(0.001, ends_at - time.monotonic()),
                headers=headers,
                wants=wants,
                method=method,
                is_cut=is_cut,
            )
            target = redirect_target(response)
            if target is None or hops >= max_hops:
                return response
            if may_follow is not None and not may_follow(target):
                return response
            hops += 1
            if self.read_url(target)[1] != self.read_url(url)[1]:
                headers = {
                    name: value for name, value in headers.items() if name.lower() not in SECRETS
                }
            url = target

    async def dial(
        self, host: str, port: int, *, timeout_seconds: float, limit: int = 2**16
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a plain connection to a host under the same rules, for `fetchers/proxy.py`."""
        name = f'[{host}]' if ':' in host and not host.startswith('[') else host
        href, origin = self.read_url(f'http://{name}:{port}/')
        if origin.port != port or href.count('/') > 3:
            raise Refused(f'{host[:200]!r} is not a host name', 'invalid_url')
        try:
            async with asyncio.timeout(timeout_seconds):
                opened = await start_connection(
                    [
                        (family_of(address), socket.SOCK_STREAM, 0, '', (address, origin.port))
                        for address in await self._addresses(origin)
                    ],
                    happy_eyeballs_delay=NEXT_ADDRESS_SECONDS,
                    socket_factory=self._open_socket,
                )
                return await asyncio.open_connection(sock=opened, limit=limit)
        except TimeoutError as late:
            raise NoResponse(
                f'could not connect to {origin.host} within {timeout_seconds:g} s', 'timeout'
            ) from late
        except ForbiddenAddress as error:
            raise forbidden(origin.host) from error
        except OSError as error:
            raise NoResponse(f'could not connect to {origin.host}', 'connect') from error

    def read_url(self, url: str) -> tuple[str, Origin]:
        """The URL as browsers write it, without its fragment, and its checked origin."""
        try:
            href = parse(url).href
        except (ValueError, TypeError) as error:
            raise Refused(f'{url[:200]!r} is not a URL', 'invalid_url') from error
        href, _, _ = href.partition('#')
        # The path begins at the first slash after http:// or https://.
        end = href.find('/', 8)
        origin = self._origins.get(href[:end])
        if origin is None:
            origin = self._read_origin(href)
            if len(self._origins) >= MAX_ORIGINS:
                self._origins.clear()
            self._origins[href[:end]] = origin
        return href, origin

    def _read_origin(self, href: str) -> Origin:
        parts = parse(href)
        scheme = parts.protocol[:-1]
        if scheme not in ('http', 'https'):
            raise Refused(f'only http and https are fetched, not {scheme}', 'invalid_url')
        if parts.has_credentials():
            raise Refused('URLs with a user name or password are not fetched', 'invalid_url')
        host = parts.hostname
        port = int(parts.port) if parts.port else {'http': 80, 'https': 443}[scheme]
        if port in BAD_PORTS:
            raise Refused(f'port {port} of {host} is not for web pages', 'forbidden_address')
        if (why := self._refuse_host(host)) is not None:
            raise Refused(why, 'forbidden_address')
        is_literal = is_address(host)
        try:
            is_allowed = not is_literal or self.rules.allow(host.strip('[]'))
        except OSError as error:
            # Out of file descriptors: the route could not be looked up.
            raise NoResponse(f'could not connect to {host}', 'connect') from error
        if not is_allowed:
            raise forbidden(host)
        return Origin(scheme, host, port, is_literal)

    async def _addresses(self, origin: Origin) -> tuple[str, ...]:
        if origin.is_literal:
            return (origin.host.strip('[]'),)
        return await self.names.addresses(origin.host)

    def _open_socket(self, address_info: Any) -> socket.socket:
        """Check once more the very address that the connection goes to."""
        family, kind, protocol, _, address = address_info
        if not self.rules.allow(address[0]):
            raise ForbiddenAddress('forbidden address')
        opened = socket.socket(family, kind, protocol)
        if len(self._sockets) >= MAX_SOCKETS:
            self._sockets = [known for known in self._sockets if known.fileno() != -1]
        self._sockets.append(opened)
        return opened


class _CheckedResolver(AbstractResolver):
    """`DnsCache` for aiohttp, which calls it only to open a connection."""

    def __init__(self, names: DnsCache) -> None:
        self._names = names

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=family_of(address),
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in await self._names.addresses(host)
        ]

    async def close(self) -> None:
        pass


def redirect_target(response: Response) -> str | None:
    location = response.headers.get('Location')
    if response.status not in REDIRECTS or not location:
        return None
    try:
        return str(parse(response.url) + location).partition('#')[0]
    except (ValueError, TypeError):
        return None


def family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ':' in address else socket.AF_INET


def is_address(host: str) -> bool:
    """Whether a host, as browsers write it, is an address."""
    try:
        ip_address(host.strip('[]'))
    except ValueError:
        return False
    return True
