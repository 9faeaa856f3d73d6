"""The public API for plugin authors: a plugin imports this module and nothing else of Silkline.

A plugin is an entry point of the group `silkline.plugins`. It names a class, or a function without
parameters, that is called once per job and returns an object with `api = 1`, a `kind` and the
methods of one of the four protocols below. docs/how-to/plugins.md describes each of them.
Finding and loading plugins is left to `silkline.crawl.installed_plugins`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from silkline.crawl.responses import (
    EgressError,
    NoResponse,
    Refused,
    Response,
    TooLarge,
    UndecodableBody,
)
from silkline.protocol import Page

__all__ = [
    'API',
    'GROUP',
    'EgressError',
    'ExtractorPlugin',
    'FetcherPlugin',
    'JobKind',
    'NoResponse',
    'Page',
    'PageHook',
    'PluginEgress',
    'PluginKind',
    'Reading',
    'Refused',
    'Response',
    'TooLarge',
    'UndecodableBody',
]

GROUP = 'silkline.plugins'
API = 1

PluginKind = Literal['extractor', 'fetcher', 'page_hook', 'job_kind']


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a job kind read in a response: links to fetch next, and a page to store, if any."""

    links: Sequence[str] = ()
    page: Page | None = None


class ExtractorPlugin(Protocol):
    """Turns HTML into Markdown. A job names it in the option `extractor`."""

    version: str

    def markdown(self, html: str, *, url: str) -> str: ...


class PluginEgress(Protocol):
    """The only way to the network: it checks every address, and bounds size and time.

    Both methods raise an `EgressError` instead of returning a response that cannot be used.
    """

    user_agent: str

    async def fetch(
        self,
        url: str,
        *,
        max_bytes: int,
        timeout_seconds: float,
        headers: Mapping[str, str] | None = None,
        wants: Callable[[int, Mapping[str, str]], bool] | None = None,
        method: str = 'GET',
    ) -> Response:
        """Make one request; redirects are returned, not followed.

        `wants` gets the status and the headers before the body is read, and may decline it.
        """
        ...

    async def follow(
        self,
        url: str,
        *,
        max_hops: int,
        max_bytes: int,
        timeout_seconds: float,
        headers: Mapping[str, str] | None = None,
        method: str = 'GET',
    ) -> Response:
        """Make a request and follow at most `max_hops` redirects, each one checked."""
        ...


class FetcherPlugin(Protocol):
    """Fetches URLs in its own way. A job names it in the option `fetcher`."""

    async def open(self, egress: PluginEgress) -> None: ...
    async def fetch(
        self, url: str, *, headers: Mapping[str, str], max_bytes: int, timeout_seconds: float
    ) -> Response: ...
    async def close(self) -> None: ...


class PageHook(Protocol):
    """Sees every page of every crawl before it is stored."""

    def change(self, page: Page) -> None: ...


class JobKind(Protocol):
    """Reads the responses of its own kind of job, instead of the built-in reader."""

    def starts(self, payload: Mapping[str, Any]) -> Sequence[str]: ...
    def read(self, response: Response, *, depth: int) -> Reading: ...
    def result(self) -> Mapping[str, Any]: ...
