"""Plugins, put where the engine expects its own parts."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from worker import pipe
from worker.crawl.fetched import Fetched
from worker.crawl.options import CrawlError
from worker.crawl.plugins import (
    ExtractorPlugin,
    FetcherPlugin,
    JobKind,
    Kind,
    PageHook,
    discover,
    find,
)
from worker.crawl.reading import page_of
from worker.crawl.urls import join

if TYPE_CHECKING:
    from worker.crawl.egress import Egress, Response
    from worker.crawl.http import Get, Read, Wants


def page_hooks() -> tuple[list[tuple[str, PageHook]], list[str]]:
    """The hooks that load, and a line about each plugin that does not."""
    found = discover()
    hooks = [(one.name, one.plugin) for one in found if one.kind == 'page_hook' and one.plugin]
    errors = [f'plugin {one.name} is left out: {one.error}' for one in found if one.error]
    return hooks, errors


def extractor(name: str) -> 'NamedExtractor':
    return NamedExtractor(name, cast(ExtractorPlugin, needed(name, 'extractor')))


def job_kind(name: str) -> JobKind:
    return cast(JobKind, needed(name, 'job_kind'))


def starts_of(kind: JobKind, payload: Mapping[str, Any]) -> list[str]:
    try:
        return [str(url) for url in kind.starts(payload)]
    except Exception as error:
        raise CrawlError(f'the job kind cannot begin: {told(error)}') from error


def told(error: Exception) -> str:
    return f'{type(error).__name__}: {error}'[:500]


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
        self.version = plugin.version
        self.markdown = plugin.markdown


@asynccontextmanager
async def open_fetcher(name: str, egress: 'Egress') -> 'AsyncGenerator[Get]':
    plugin = cast(FetcherPlugin, needed(name, 'fetcher'))

    async def get(
        url: str,
        *,
        headers: Mapping[str, str],
        max_bytes: int,
        timeout_seconds: float,
        wants: 'Wants',
    ) -> 'Response':
        from worker.crawl.egress import EgressError

        try:
            return await plugin.fetch(
                url, headers=headers, max_bytes=max_bytes, timeout_seconds=timeout_seconds
            )
        except (EgressError, MemoryError):
            raise
        except Exception as error:
            # Of one page, not of the crawl.
            raise EgressError(f'the fetcher {name!r} broke: {told(error)}') from error

    await plugin.open(egress)
    try:
        yield get
    finally:
        await plugin.close()


def reader_of(kind: JobKind) -> 'Read':
    def read(response: 'Response', *, task: pipe.Task, url: str) -> Fetched:
        reading = kind.read(response, depth=task.depth)
        links = [link for href in reading.links if (link := join(url, href)) is not None]
        draft = reading.page
        return Fetched(
            status='done',
            http_status=response.status,
            bytes=len(response.body),
            links=links,
            seconds=response.seconds,
            page=None
            if draft is None
            else page_of(response, draft, text=response.body.decode('utf-8', 'replace')),
        )

    return read
