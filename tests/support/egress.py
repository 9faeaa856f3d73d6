"""Egresses that may reach loopback, and short ways to fetch through them."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from silkline.crawl.net.egress import Egress
from silkline.crawl.responses import EgressError
from tests.support.raw_site import answer, raw_site

LOOPBACK = ('127.0.0.0/8', '::1/128')
OK = answer(b'hello')
MEGABYTE = 1024 * 1024


def resolving(table: dict[str, Sequence[str]]) -> Callable[[str], Awaitable[Sequence[str]]]:
    async def resolve(host: str) -> Sequence[str]:
        if host not in table:
            raise socket.gaierror(socket.EAI_NONAME, 'Name or service not known')
        return table[host]

    return resolve


def egress(**options: Any) -> Egress:
    options.setdefault('allow_networks', LOOPBACK)
    return Egress(user_agent='silkline-test', **options)


async def fetch_from(out: Egress, url: str, **options: Any) -> Any:
    options.setdefault('max_bytes', MEGABYTE)
    options.setdefault('timeout_seconds', 60)
    return await out.fetch(url, **options)


def fetch_one(page: Any, *, options: dict[str, Any] | None = None, **fetching: Any) -> Any:
    """Fetch one page of a raw site; returns the response, or the error raised instead."""

    async def run() -> Any:
        async with raw_site({'/': page}) as site, egress(**(options or {})) as out:
            try:
                result = await fetch_from(out, site.url(), **fetching)
            except EgressError as error:
                result = error
            await asyncio.wait_for(out.__aexit__(None, None, None), 60)
            await site.wait_until_idle()
            return result

    return asyncio.run(run())


def declines(*_: Any) -> bool:
    return False
