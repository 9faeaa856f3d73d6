"""The fetcher of a plugin, opened, bounded in time and checked.

Whatever it raises, returns or waits for costs the page it was called for, and never the process.
Only a fetcher that does not open fails its job. What its responses mean is left to `http.py`.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from multidict import CIMultiDict, CIMultiDictProxy

from silkline.crawl.installed_plugins import FATAL, describe, required
from silkline.crawl.options import CrawlError
from silkline.crawl.responses import EgressError, NoResponse, Response, TooLarge

if TYPE_CHECKING:
    from silkline.crawl.fetchers.http import FetchUrl
    from silkline.crawl.net.egress import Egress, Wants
    from silkline.plugins import FetcherPlugin

# How much longer than `timeout_seconds` a fetcher may take before it is cancelled.
GRACE_SECONDS = 5.0
OPEN_SECONDS = 60.0
CLOSE_SECONDS = 10.0
RESPONSE_TYPES: Mapping[str, type | tuple[type, ...]] = {
    'status': int,
    'body': bytes,
    'headers': Mapping,
    'seconds': (int, float),
}


@asynccontextmanager
async def open_fetcher(name: str, egress: 'Egress') -> 'AsyncGenerator[FetchUrl]':
    plugin: FetcherPlugin = required(name, 'fetcher')

    async def fetch_url(
        url: str,
        *,
        headers: Mapping[str, str],
        max_bytes: int,
        timeout_seconds: float,
        wants: 'Wants',
    ) -> Response:
        clock = asyncio.timeout(timeout_seconds + GRACE_SECONDS)
        try:
            async with clock:
                response = await plugin.fetch(
                    url, headers=headers, max_bytes=max_bytes, timeout_seconds=timeout_seconds
                )
            return checked_response(response, max_bytes=max_bytes)
        except EgressError as error:
            # Stored with the URL, and bounded like every other message there.
            error.args = (str(error)[:1000], *error.args[1:])
            raise
        except FATAL:
            raise
        except BaseException as error:
            if is_cancelled(error):
                raise
            if clock.expired():
                raise NoResponse(
                    f'the fetcher {name!r} did not return within '
                    f'{timeout_seconds + GRACE_SECONDS:g} s',
                    'timeout',
                ) from error
            raise EgressError(f'the fetcher {name!r} failed: {describe(error)}') from error

    try:
        async with asyncio.timeout(OPEN_SECONDS):
            await plugin.open(egress)
    except FATAL:
        raise
    except BaseException as error:
        if is_cancelled(error):
            raise
        raise CrawlError(f'the fetcher {name!r} failed to open: {describe(error)}') from error
    try:
        yield fetch_url
    finally:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await plugin.close()
        except FATAL:
            raise
        except BaseException as error:
            # All pages are fetched by now: there is nothing left to lose.
            if is_cancelled(error):
                raise


def is_cancelled(error: BaseException) -> bool:
    """Whether this task is being cancelled, as opposed to one that the plugin cancelled itself."""
    if isinstance(error, GeneratorExit):
        return True
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def checked_response(response: object, *, max_bytes: int) -> Response:
    """The response, if the reader can rely on its fields; else TypeError or ValueError."""
    if not isinstance(response, Response):
        raise TypeError(f'expected a Response, got {type(response).__name__}')
    for name, wanted in RESPONSE_TYPES.items():
        value = getattr(response, name)
        if not isinstance(value, wanted):
            raise TypeError(f'the {name} of its response has type {type(value).__name__}')
    if not 100 <= response.status <= 999 or not math.isfinite(response.seconds):
        raise ValueError('the status or the time of its response is not valid')
    if len(response.body) > max_bytes:
        raise TooLarge(f'the body is larger than {max_bytes} bytes')
    if not isinstance(response.headers, CIMultiDictProxy):
        pairs = cast(list[Any], [*response.headers, *response.headers.values()])
        if not all(isinstance(text, str) for text in pairs):
            raise TypeError('the headers of its response are not all strings')
        # Header names are looked up in any case.
        response = replace(response, headers=CIMultiDict(response.headers))
    return response
