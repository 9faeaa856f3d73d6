"""Plugins, put where the engine expects its own parts, each inside a wall of its own.

Whatever a plugin raises, returns or waits for costs the page it was asked about, or fails its job
with a sentence, and never ends the process. What a page may hold is checked by `drafts.py`.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from silkline import protocol
from silkline.crawl.documents.plugin_pages import checked, small, strings
from silkline.crawl.documents.record import page_of, short
from silkline.crawl.fetched import Fetched
from silkline.crawl.options import CrawlError
from silkline.crawl.urls import URL_RULES, Joiner, join
from silkline.plugins import (
    OURS,
    ExtractorPlugin,
    FetcherPlugin,
    JobKind,
    Kind,
    PageHook,
    Reading,
    discover,
    find,
    named,
    told,
    version_of,
)

if TYPE_CHECKING:
    from silkline.crawl.fetchers.http import Get
    from silkline.crawl.net.egress import Egress, Wants
    from silkline.crawl.responses import Response

# What a fetcher gets beyond the time it was told.
GRACE_SECONDS = 5.0
OPEN_SECONDS = 60.0
CLOSE_SECONDS = 10.0
RESPONSE_TYPES: Mapping[str, type | tuple[type, ...]] = {
    'status': int,
    'body': bytes,
    'headers': Mapping,
    'seconds': (int, float),
}


def page_hooks() -> tuple[list[tuple[str, PageHook]], list[str]]:
    """The hooks that load, and a line about each plugin that does not."""
    found = discover()
    hooks = [(one.name, one.plugin) for one in found if one.kind == 'page_hook' and one.plugin]
    errors = [f'plugin {one.name} is left out: {one.error}' for one in found if one.error]
    return hooks, errors


def extractor(name: str) -> 'NamedExtractor':
    return NamedExtractor(name, cast(ExtractorPlugin, needed(name, 'extractor')))


def job_kind(name: str) -> 'NamedKind':
    return NamedKind(name, cast(JobKind, needed(name, 'job_kind')))


def starts_of(kind: JobKind, payload: Mapping[str, Any]) -> list[str]:
    try:
        return strings(kind.starts(payload), 'starts')
    except OURS:
        raise
    except BaseException as error:
        raise CrawlError(f'the job kind cannot begin: {told(error)}') from error


def needed(name: str, kind: Kind) -> Any:
    """The plugin that a job names; one that is not there fails the job, not the worker."""
    found = find(name, kind)
    what = kind.replace('_', ' ')
    if found is None:
        raise CrawlError(f'no {what} {name!r} is installed here; silkline plugins lists them')
    if found.error is not None:
        raise CrawlError(f'the {what} {name!r} does not load: {found.error}')
    return found.plugin


class NamedExtractor:
    """An extractor under the name it was installed by."""

    def __init__(self, name: str, plugin: ExtractorPlugin) -> None:
        self.name = name
        self.version = version_of(plugin)
        self.markdown = plugin.markdown


class NamedKind:
    """A job kind under the name it was installed by."""

    def __init__(self, name: str, plugin: JobKind) -> None:
        self.name = name
        self.version = version_of(plugin)
        self.starts = plugin.starts
        self.read = plugin.read
        self._result = plugin.result

    def result(self) -> dict[str, Any]:
        """The pages are stored by now: a result that cannot be told does not fail the job."""
        try:
            return small(dict(self._result()))
        except OURS:
            raise
        except BaseException as error:
            return {'result_error': told(error)}


@asynccontextmanager
async def open_fetcher(name: str, egress: 'Egress') -> 'AsyncGenerator[Get]':
    from silkline.crawl.responses import EgressError, Unreachable

    plugin = cast(FetcherPlugin, needed(name, 'fetcher'))

    async def get(
        url: str,
        *,
        headers: Mapping[str, str],
        max_bytes: int,
        timeout_seconds: float,
        wants: 'Wants',
    ) -> 'Response':
        clock = asyncio.timeout(timeout_seconds + GRACE_SECONDS)
        try:
            async with clock:
                response: object = await plugin.fetch(
                    url, headers=headers, max_bytes=max_bytes, timeout_seconds=timeout_seconds
                )
            return checked_response(response, max_bytes=max_bytes)
        except EgressError as error:
            # It is stored: no longer than others are.
            error.args = (str(error)[:1000], *error.args[1:])
            raise
        except OURS:
            raise
        except BaseException as error:
            if is_ours(error):
                raise
            if clock.expired():
                raise Unreachable(
                    f'the fetcher {name!r} did not answer within '
                    f'{timeout_seconds + GRACE_SECONDS:g} s',
                    'timeout',
                ) from error
            # Of one page, not of the crawl.
            raise EgressError(f'the fetcher {name!r} broke: {told(error)}') from error

    try:
        async with asyncio.timeout(OPEN_SECONDS):
            await plugin.open(egress)
    except OURS:
        raise
    except BaseException as error:
        if is_ours(error):
            raise
        raise CrawlError(f'the fetcher {name!r} does not open: {told(error)}') from error
    try:
        yield get
    finally:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await plugin.close()
        except OURS:
            raise
        except BaseException as error:
            # Everything is fetched: there is nothing left that it could spoil.
            if is_ours(error):
                raise


def is_ours(error: BaseException) -> bool:
    """Whether this task is being ended, as opposed to one that a plugin has ended itself."""
    if isinstance(error, GeneratorExit):
        return True
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def checked_response(response: object, *, max_bytes: int) -> 'Response':
    """A response that can be read on. TypeError or ValueError where it is none."""
    from dataclasses import replace

    from multidict import CIMultiDict, CIMultiDictProxy

    from silkline.crawl.responses import Response, TooLarge

    if not isinstance(response, Response):
        raise TypeError(f'it answered with {type(response).__name__}, not with a Response')
    for name, wanted in RESPONSE_TYPES.items():
        value = getattr(response, name)
        if not isinstance(value, wanted):
            raise TypeError(f'the {name} of its response is of type {type(value).__name__}')
    if not 100 <= response.status <= 999 or not math.isfinite(response.seconds):
        raise ValueError('the status or the time of its response is none')
    if len(response.body) > max_bytes:
        raise TooLarge(f'the body has more than {max_bytes} bytes')
    if not isinstance(response.headers, CIMultiDictProxy):
        pairs: list[Any] = [*response.headers, *response.headers.values()]
        if not all(isinstance(text, str) for text in pairs):
            raise TypeError('the headers of its response hold more than text')
        # Names in any case are found.
        response = replace(response, headers=CIMultiDict(response.headers))
    return response


class KindReader:
    """Has a job kind read the responses of its jobs."""

    def __init__(self, kind: NamedKind) -> None:
        self._kind = kind
        self._joiner = Joiner()
        self.made_with = short(f'kind={named(kind.name, kind.version)} urls={URL_RULES}')

    def wants(self, status: int, headers: Mapping[str, str], *, url: str) -> bool:
        """Whether the body is worth reading: of whatever type it is, the kind knows why."""
        return 200 <= status < 300

    def read(self, response: 'Response', *, task: protocol.Task, url: str) -> Fetched:
        try:
            return self._fetched(response, self._kind.read(response, depth=task.depth), url)
        except OURS:
            raise
        except BaseException as error:
            return Fetched(
                status='error',
                http_status=response.status,
                bytes=len(response.body),
                error=f'the job kind {self._kind.name!r} broke: {told(error)}',
                seconds=response.seconds,
            )

    def _fetched(self, response: 'Response', reading: Reading, url: str) -> Fetched:
        links = self._joiner.links(url, strings(reading.links, 'links'))
        page = None
        if reading.page is not None:
            at = join(url, reading.page.url)
            if at is None:
                raise ValueError('the url of its page is none of http or https')
            draft = checked(
                reading.page, url=at, joined=lambda hrefs: self._joiner.links(url, hrefs)
            )
            draft.metadata['made_with'] = self.made_with
            page = page_of(response, draft, text=response.body.decode('utf-8', 'replace'))
        return Fetched(
            status='done',
            http_status=response.status,
            bytes=len(response.body),
            links=links,
            seconds=response.seconds,
            page=page,
        )


def reader_of(kind: NamedKind) -> KindReader:
    return KindReader(kind)
