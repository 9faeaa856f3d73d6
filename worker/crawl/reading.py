"""From a response to a page: by content type, with its links, its facts and its Markdown.

Decides what is kept (noindex, canonical), and what kind of document a response is. How HTML is
read is `extract/`'s, what is done with links the loop's. Never raises for what a site sends.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from worker import pipe
from worker.crawl.charsets import decode
from worker.crawl.extract import Extracted, Extractor, read_html
from worker.crawl.fetched import Fetched
from worker.crawl.options import Options
from worker.crawl.plugins import PageDraft, PageHook
from worker.crawl.urls import URL_RULES, Joiner, host_of, join, key_of

if TYPE_CHECKING:
    from worker.crawl.egress import Response

HTML = frozenset({'text/html', 'application/xhtml+xml'})
MARKDOWN = frozenset({'text/markdown', 'text/x-markdown'})
TEXT = frozenset({'text/plain'})
XML = frozenset({'application/xml', 'text/xml', 'application/rss+xml', 'application/atom+xml'})
# What a compressed sitemap is sent as.
ZIPPED = frozenset({'application/gzip', 'application/x-gzip', 'application/octet-stream'})
MAX_LINKS = 5000
MAX_LINK_BYTES = 1024 * 1024
MAX_METADATA_HEADINGS = 200
MAX_FACT = 5000
# As for the Markdown of HTML: with six bytes for each in JSON it still fits into a message.
MAX_CHARACTERS = 2_000_000


def is_wanted(status: int, headers: Mapping[str, str], *, url: str) -> bool:
    """Whether the body is worth reading."""
    return 200 <= status < 300 and kind_of(headers.get('Content-Type'), url) is not None


def kind_of(content_type: str | None, url: str) -> str | None:
    """html, markdown, text or xml; empty where the body has to tell; None for all others."""
    if not content_type:
        return ''
    name = content_type.partition(';')[0].strip().lower()
    if name in HTML:
        return 'html'
    if name in MARKDOWN:
        return 'markdown'
    if name in TEXT:
        path = url.partition('?')[0]
        return 'markdown' if path.endswith(('.md', '.markdown', '/llms.txt')) else 'text'
    if name in XML or (name in ZIPPED and url.partition('?')[0].endswith('.gz')):
        return 'xml'
    return '' if name == 'application/octet-stream' and url.endswith('.md') else None


class Reader:
    """Reads the responses of one crawl."""

    def __init__(
        self,
        options: Options,
        *,
        agent: str,
        extractor: Extractor | None = None,
        hooks: Sequence[tuple[str, PageHook]] = (),
    ) -> None:
        self._options = options
        self._agent = agent.lower()
        self._extractor = extractor
        self._hooks = hooks
        self._joiner = Joiner()

    def read(self, response: 'Response', *, task: pipe.Task, url: str) -> Fetched:
        """What a response with a body that was wanted holds."""
        kind = kind_of(response.headers.get('Content-Type'), url)
        if kind is None:
            return skipped(response, 'content_type')
        if kind == 'xml' or (kind in ('', 'text') and is_sitemap(response.body)):
            return self._read_sitemap(response, url)
        is_html = kind == 'html' or (kind == '' and response.body.lstrip()[:1] == b'<')
        text, charset = decode(response.body, response.headers.get('Content-Type'), is_html=is_html)
        if is_html:
            return self._read_html(response, url, text, charset)
        return self._read_text(response, url, text, charset, is_markdown=kind == 'markdown')

    def _read_html(self, response: 'Response', url: str, text: str, charset: str) -> Fetched:
        options = self._options
        extracted = read_html(text, url=url, markdown=options.markdown, extractor=self._extractor)
        directives = extracted.robots | header_directives(
            response.headers.get('X-Robots-Tag'), self._agent
        )
        is_nofollow = bool(directives & {'nofollow', 'none'}) and not options.follow_nofollow
        base = join(url, extracted.base) or url if extracted.base else url
        links = [] if is_nofollow else self._links(base, self._hrefs(extracted))
        if directives & {'noindex', 'none'} and not options.keep_noindex:
            return skipped(response, 'noindex', links=links)
        canonical = canonical_elsewhere(extracted.canonical, base=base, url=url)
        if canonical is not None:
            return skipped(response, 'canonical', links=[canonical, *links])
        draft = PageDraft(
            url=url,
            http_status=response.status,
            title=extracted.title,
            markdown=extracted.markdown,
            links=links,
            metadata=facts_of(extracted, charset),
        )
        return self._page(
            response, draft, extracted.extractor, extracted.extractor_version, text=text
        )

    def _hrefs(self, extracted: Extracted) -> Iterable[str]:
        if self._options.follow_nofollow:
            return (anchor.href for anchor in extracted.anchors)
        return (anchor.href for anchor in extracted.anchors if not anchor.is_nofollow)

    def _links(self, base: str, hrefs: Iterable[str]) -> list[str]:
        links = self._joiner.links(base, hrefs)
        if len(links) <= 200:
            return links
        room = MAX_LINK_BYTES
        for nth, link in enumerate(links):
            room -= len(link)
            if room < 0 or nth == MAX_LINKS:
                return links[:nth]
        return links

    def _read_text(
        self, response: 'Response', url: str, text: str, charset: str, *, is_markdown: bool
    ) -> Fetched:
        from worker.crawl.llms_txt import links_of

        text = text[:MAX_CHARACTERS]
        is_kept = self._options.markdown != 'none'
        draft = PageDraft(
            url=url,
            http_status=response.status,
            title=first_heading(text) if is_markdown else None,
            markdown=text if is_kept else None,
            links=self._links(url, links_of(text)) if is_markdown else [],
            metadata={'charset': charset, 'url_rules': URL_RULES},
        )
        return self._page(response, draft, 'as-is' if is_kept else None, '1', text=text)

    def _read_sitemap(self, response: 'Response', url: str) -> Fetched:
        from worker.crawl.sitemap import NotASitemap, parse_sitemap

        try:
            sitemap = parse_sitemap(response.body)
        except NotASitemap:
            return skipped(response, 'content_type')
        links = self._joiner.links(url, [*sitemap.sitemaps, *sitemap.pages])
        return Fetched(
            status='done',
            http_status=response.status,
            bytes=len(response.body),
            links=links,
            link_kind='sitemap',
            seconds=response.seconds,
        )

    def _page(
        self,
        response: 'Response',
        draft: PageDraft,
        extractor: str | None,
        extractor_version: str | None,
        *,
        text: str,
    ) -> Fetched:
        hook_errors = self._run_hooks(draft)
        if hook_errors:
            draft.metadata['hook_errors'] = hook_errors
        return Fetched(
            status='done',
            http_status=response.status,
            bytes=len(response.body),
            links=draft.links,
            seconds=response.seconds,
            fingerprint=fingerprint_of(response, draft),
            page=page_of(
                response,
                draft,
                extractor=extractor,
                extractor_version=extractor_version if extractor else None,
                text=text,
            ),
        )

    def _run_hooks(self, draft: PageDraft) -> list[str]:
        errors: list[str] = []
        for name, hook in self._hooks:
            try:
                hook.change(draft)
            except Exception as error:
                errors.append(f'{name}: {type(error).__name__}: {error}'[:300])
        return errors


def page_of(
    response: 'Response',
    draft: PageDraft,
    *,
    extractor: str | None = None,
    extractor_version: str | None = None,
    text: str,
) -> pipe.Page:
    # What a reader would see decides whether a page has changed: a token in a script does not.
    seen = text if draft.markdown is None else f'{draft.title}\n{draft.markdown}'
    return pipe.Page(
        url=draft.url,
        http_status=response.status,
        content_hash=hashlib.sha256(seen.encode('utf-8', 'replace')).hexdigest(),
        title=draft.title,
        markdown=draft.markdown,
        links=draft.links,
        metadata=draft.metadata,
        etag=header(response, 'ETag'),
        last_modified=header(response, 'Last-Modified'),
        extractor=extractor,
        extractor_version=extractor_version,
    )


def fingerprint_of(response: 'Response', draft: PageDraft) -> int:
    """What pages share that only echo: their words. Their links differ, the next one at least."""
    return hash((draft.title, draft.markdown) if draft.markdown else response.body)


def header(response: 'Response', name: str) -> str | None:
    value = response.headers.get(name)
    return value[:1000] if value else None


def skipped(response: 'Response', reason: pipe.SkipReason, *, links: Sequence[str] = ()) -> Fetched:
    return Fetched(
        status='skipped',
        http_status=response.status,
        bytes=len(response.body),
        skip_reason=reason,
        links=links,
        seconds=response.seconds,
    )


def is_sitemap(body: bytes) -> bool:
    from worker.crawl.sitemap import looks_like_sitemap

    return looks_like_sitemap(body)


def header_directives(value: str | None, agent: str) -> frozenset[str]:
    """Of X-Robots-Tag: those for everybody, and those for us."""
    if not value:
        return frozenset()
    directives: set[str] = set()
    is_for_us = True
    for part in value.lower().split(','):
        name, colon, rest = part.strip().partition(':')
        if colon and name not in ('unavailable_after', 'max-snippet', 'max-image-preview'):
            # A name holds for what follows it, up to the next name.
            is_for_us = name.strip() == agent
            part = rest
        if is_for_us:
            directives.add(part.strip())
    return frozenset(directives)


def canonical_elsewhere(href: str | None, *, base: str, url: str) -> str | None:
    """The URL that a page names as its own, if that is another page of the same host.

    A page that names the front page is mistaken, as whole sites are, and is kept.
    """
    if not href:
        return None
    canonical = join(base, href)
    if canonical is None or host_of(canonical) != host_of(url) or key_of(canonical) == key_of(url):
        return None
    path = canonical.partition('://')[2].partition('/')[2]
    return canonical if path else None


def facts_of(extracted: Extracted, charset: str) -> dict[str, Any]:
    facts: dict[str, Any] = {'charset': charset, 'url_rules': URL_RULES}
    for name in ('description', 'language', 'canonical'):
        if value := getattr(extracted, name):
            facts[name] = value[:MAX_FACT]
    if extracted.headings:
        facts['headings'] = extracted.headings[:MAX_METADATA_HEADINGS]
    if extracted.error:
        facts['extract_error'] = extracted.error
    return facts


def first_heading(text: str) -> str | None:
    for line in text[:20_000].splitlines():
        if line.startswith('# '):
            return line[2:].strip()[:1000] or None
    return None
