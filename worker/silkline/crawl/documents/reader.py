"""Turn a response into a page, with its links and metadata, by the kind of document.

Decides whether a page is kept (noindex) and whether its links are followed (nofollow). Reading HTML
is left to `extract/`, what happens to links and canonical URLs to the engine. Never raises,
whatever a site sends.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from silkline import protocol
from silkline.crawl.charsets import decode
from silkline.crawl.documents.kinds import is_binary, kind_of
from silkline.crawl.documents.page_redirects import (
    MAX_REDIRECT_SECONDS,
    other_canonical,
    refresh_of,
)
from silkline.crawl.documents.record import (
    Fingerprints,
    bounded_links,
    complete_page,
    made_with,
)
from silkline.crawl.documents.robots_tag import directives_of
from silkline.crawl.extract import Extractor, Facts, read_html
from silkline.crawl.extract.facts import MAX_HREF
from silkline.crawl.extract.quality import quality_of_text
from silkline.crawl.fetched import Fetched
from silkline.crawl.options import CrawlOptions
from silkline.crawl.responses import Response
from silkline.crawl.urls import URL_RULES, Joiner, join

if TYPE_CHECKING:
    from silkline.crawl.documents.plugin_pages import PageHooks

MAX_METADATA_HEADINGS = 200
MAX_FACT = 5000


class PageReader:
    """Reads the responses of one crawl. `agent` is the crawler's product token."""

    def __init__(
        self,
        options: CrawlOptions,
        *,
        agent: str,
        extractor: Extractor | None = None,
        hooks: 'PageHooks | None' = None,
    ) -> None:
        self._options = options
        self._agent = agent.lower()
        self._extractor = extractor
        self._hooks = hooks
        self._joiner = Joiner()
        self._fingerprints = Fingerprints()
        self.made_with = made_with(options, extractor, hooks=hooks.names if hooks else ())

    def wants(self, status: int, headers: Mapping[str, str], *, url: str) -> bool:
        """Whether the body is worth downloading."""
        return 200 <= status < 300 and kind_of(headers.get('Content-Type'), url) is not None

    def read(self, response: Response, *, task: protocol.Task, url: str) -> Fetched:
        """Read a response whose body was downloaded."""
        kind = kind_of(response.headers.get('Content-Type'), url)
        if kind is None:
            return skipped(response, 'content_type')
        if not response.body or response.body.isspace():
            return skipped(response, 'content_type', error='the body is empty')
        if self._may_be_sitemap(kind, response.body):
            sitemap = self._read_sitemap(response, url)
            if sitemap is not None:
                return sitemap
            if kind == 'xml':
                return skipped(response, 'content_type')
        if self._options.strategy == 'sitemap' and (task.depth == 0 or is_named_sitemap(url)):
            return skipped(response, 'content_type', error='not a sitemap')
        if is_binary(response.body, kind, response.headers.get('Content-Type')):
            return skipped(response, 'content_type', error='binary data sent as text')
        is_html = kind == 'html' or (kind == '' and response.body.lstrip()[:1] == b'<')
        text, charset = decode(response.body, response.headers.get('Content-Type'), is_html=is_html)
        if is_html:
            return self._read_html(response, url, text, charset)
        return self._read_text(response, url, text, charset, is_markdown=kind == 'markdown')

    def _may_be_sitemap(self, kind: str, body: bytes) -> bool:
        if kind in ('', 'text'):
            # A plain list of URLs is a sitemap only if the crawl looks for one.
            return self._options.strategy == 'sitemap' or is_sitemap(body)
        if kind == 'html':
            return self._options.strategy == 'sitemap' and is_sitemap(body)
        return kind == 'xml'

    def _read_html(self, response: Response, url: str, text: str, charset: str) -> Fetched:
        options = self._options
        facts = read_html(
            text,
            url=url,
            markdown=options.markdown,
            links=options.links,
            max_markdown=options.max_markdown_chars,
            extractor=self._extractor,
            agent=self._agent,
        )
        directives = facts.robots | directives_of(response.headers, self._agent)
        base = join(url, facts.base) or url if facts.base else url
        refresh = facts.refresh or response.headers.get('Refresh', '')[:MAX_HREF]
        seconds, target = refresh_of(refresh, base=base, url=url)
        if target is not None and seconds <= MAX_REDIRECT_SECONDS:
            return replace(skipped(response, 'redirect'), redirect=target)
        hrefs = [*self._hrefs(facts), *([target] if target else [])]
        links = [] if self._is_nofollow(directives) else self._links(base, hrefs)
        if self._is_noindex(directives):
            return skipped(response, 'noindex', links=links)
        canonical = join(base, facts.canonical) if facts.canonical else None
        page = protocol.Page(
            url=url,
            http_status=response.status,
            title=facts.title,
            markdown=facts.markdown,
            links=links,
            metadata=metadata_of(facts, charset, canonical=canonical),
            quality=quality_as_fetched(facts.quality, is_rendered=response.is_rendered),
        )
        return self._page(
            response,
            page,
            facts.extractor,
            facts.extractor_version,
            text=text,
            canonical=other_canonical(canonical, url=url),
        )

    def _is_nofollow(self, directives: frozenset[str]) -> bool:
        return bool(directives & {'nofollow', 'none'}) and not self._options.follow_nofollow

    def _is_noindex(self, directives: frozenset[str]) -> bool:
        return bool(directives & {'noindex', 'none'}) and not self._options.keep_noindex

    def _hrefs(self, facts: Facts) -> Iterable[str]:
        if self._options.follow_nofollow:
            return (anchor.href for anchor in facts.anchors)
        return (anchor.href for anchor in facts.anchors if not anchor.is_nofollow)

    def _links(self, base: str, hrefs: Iterable[str]) -> list[str]:
        return bounded_links(self._joiner.links(base, hrefs))

    def _read_text(
        self, response: Response, url: str, text: str, charset: str, *, is_markdown: bool
    ) -> Fetched:
        from silkline.crawl.documents.llms_txt import links_of

        directives = directives_of(response.headers, self._agent)
        is_followed = is_markdown and not self._is_nofollow(directives)
        links = self._links(url, links_of(text)) if is_followed else []
        if self._is_noindex(directives):
            return skipped(response, 'noindex', links=links)
        is_kept = self._options.markdown != 'none'
        kept = text[: self._options.max_markdown_chars]
        page = protocol.Page(
            url=url,
            http_status=response.status,
            title=first_heading(text) if is_markdown else None,
            markdown=kept if is_kept else None,
            links=links,
            metadata={'charset': charset, 'url_rules': URL_RULES},
            quality=quality_of_text(len(text), kept=len(kept)) if is_kept else None,
        )
        return self._page(response, page, 'as-is' if is_kept else None, '1', text=text)

    def _read_sitemap(self, response: Response, url: str) -> Fetched | None:
        from silkline.crawl.documents.sitemap import NotASitemap, parse_sitemap

        try:
            sitemap = parse_sitemap(response.body)
        except NotASitemap:
            return None
        return Fetched(
            status='done',
            http_status=response.status,
            bytes=len(response.body),
            links=self._joiner.links(url, sitemap.pages),
            link_kind='sitemap',
            sitemaps=self._joiner.links(url, sitemap.sitemaps),
            seconds=response.seconds,
        )

    def _page(
        self,
        response: Response,
        page: protocol.Page,
        extractor: str | None,
        extractor_version: str | None,
        *,
        text: str,
        canonical: str | None = None,
    ) -> Fetched:
        if self._hooks is not None:
            url = page.url
            page = self._hooks.run(
                page,
                joined=lambda hrefs: self._joiner.links(url, hrefs),
                max_markdown=self._options.max_markdown_chars,
            )
        page.metadata['made_with'] = self.made_with
        complete_page(
            page,
            response,
            text=text,
            extractor=extractor,
            extractor_version=extractor_version if extractor else None,
        )
        return Fetched(
            status='done',
            http_status=response.status,
            bytes=len(response.body),
            canonical=canonical,
            links=page.links,
            seconds=response.seconds,
            fingerprint=self._fingerprints.of(response, page),
            page=page,
        )


def skipped(
    response: Response,
    reason: protocol.SkipReason,
    *,
    links: Sequence[str] = (),
    error: str | None = None,
) -> Fetched:
    return Fetched(
        status='skipped',
        http_status=response.status,
        bytes=len(response.body),
        skip_reason=reason,
        error=error,
        links=links,
        seconds=response.seconds,
    )


def is_named_sitemap(url: str) -> bool:
    return url.partition('?')[0].endswith(('.xml', '.xml.gz'))


def is_sitemap(body: bytes) -> bool:
    from silkline.crawl.documents.sitemap import looks_like_sitemap

    return looks_like_sitemap(body)


def metadata_of(facts: Facts, charset: str, *, canonical: str | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {'charset': charset, 'url_rules': URL_RULES}
    texts = {
        'description': facts.description,
        'language': facts.language,
        'canonical': canonical,
    }
    for name, value in texts.items():
        if value:
            metadata[name] = value[:MAX_FACT]
    if facts.headings:
        metadata['headings'] = facts.headings[:MAX_METADATA_HEADINGS]
    if facts.error:
        metadata['extract_error'] = facts.error
    return metadata


def quality_as_fetched(
    quality: protocol.Quality | None, *, is_rendered: bool
) -> protocol.Quality | None:
    """Without `needs_browser` if a browser has shown the page: there is no more to it."""
    if quality is None or not quality.needs_browser or not is_rendered:
        return quality
    warnings = tuple(kind for kind in quality.warnings if kind != 'needs_browser')
    return msgspec.structs.replace(quality, needs_browser=False, warnings=warnings)


def first_heading(text: str) -> str | None:
    for line in text[:20_000].splitlines():
        if line.startswith('# '):
            return line[2:].strip()[:1000] or None
    return None
