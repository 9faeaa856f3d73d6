"""Jobs of a plugin's own kind: its responses are read by the plugin, and checked here.

Whatever the plugin raises or returns costs the page it was called for. Only a kind that cannot say
where to start fails its job. The limits of a page are those of `plugin_pages.py`.
"""

from collections.abc import Mapping
from typing import Any

from silkline import protocol
from silkline.crawl.documents.plugin_pages import (
    checked_metadata,
    checked_page,
    checked_strings,
)
from silkline.crawl.documents.record import complete_page, short, versioned
from silkline.crawl.fetched import Fetched
from silkline.crawl.installed_plugins import FATAL, describe, required, version_of
from silkline.crawl.options import CrawlError
from silkline.crawl.responses import Response
from silkline.crawl.urls import URL_RULES, Joiner, join
from silkline.plugins import JobKind, Reading


class PluginJobKind:
    """A job kind under the name it was installed by."""

    def __init__(self, name: str, plugin: JobKind) -> None:
        self.name = name
        self.version = version_of(plugin)
        self._plugin = plugin
        self.read = plugin.read

    @classmethod
    def load(cls, name: str) -> 'PluginJobKind':
        return cls(name, required(name, 'job_kind'))

    def starts(self, payload: Mapping[str, Any]) -> list[str]:
        try:
            return checked_strings(self._plugin.starts(payload), 'starts')
        except FATAL:
            raise
        except BaseException as error:
            raise CrawlError(f'the job kind {self.name!r} failed: {describe(error)}') from error

    def result(self) -> dict[str, Any]:
        """The result of the job. All pages are stored by now, so an error does not fail it."""
        try:
            return checked_metadata(dict(self._plugin.result()))
        except FATAL:
            raise
        except BaseException as error:
            return {'result_error': describe(error)}


class JobKindReader:
    """Has a job kind read the responses of its jobs."""

    def __init__(self, kind: PluginJobKind) -> None:
        self._kind = kind
        self._joiner = Joiner()
        self.made_with = short(f'kind={versioned(kind.name, kind.version)} urls={URL_RULES}')

    def wants(self, status: int, headers: Mapping[str, str], *, url: str) -> bool:
        """Whether to read the body. The kind decides about content types, not the crawl."""
        return 200 <= status < 300

    def read(self, response: Response, *, task: protocol.Task, url: str) -> Fetched:
        try:
            return self._fetched(response, self._kind.read(response, depth=task.depth), url)
        except FATAL:
            raise
        except BaseException as error:
            return Fetched(
                status='error',
                http_status=response.status,
                bytes=len(response.body),
                error=f'the job kind {self._kind.name!r} failed: {describe(error)}',
                seconds=response.seconds,
            )

    def _fetched(self, response: Response, reading: Reading, url: str) -> Fetched:
        links = self._joiner.links(url, checked_strings(reading.links, 'links'))
        page = None
        if reading.page is not None:
            at = join(url, reading.page.url)
            if at is None:
                raise ValueError('the url of its page is not an http or https URL')
            page = checked_page(
                reading.page, url=at, joined=lambda hrefs: self._joiner.links(url, hrefs)
            )
            page.metadata['made_with'] = self.made_with
            complete_page(page, response, text=response.body.decode('utf-8', 'replace'))
        return Fetched(
            status='done',
            http_status=response.status,
            bytes=len(response.body),
            links=links,
            seconds=response.seconds,
            page=page,
        )
