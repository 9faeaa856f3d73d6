"""The facts of a page: title, description, language, canonical URL, robots directives, links.

Reads the parser's document directly: without Markdown nothing else is needed, and then every
microsecond counts.
"""

from dataclasses import dataclass, field

from msgspec import Struct

from silkline.crawl.extract.parser import Document, Element, fact_elements, is_of_html
from silkline.crawl.extract.tree import HEADINGS
from silkline.protocol import Quality

MAX_ANCHORS = 5_000
MAX_HEADINGS = 500
MAX_TITLE = 1_000
MAX_DESCRIPTION = 5_000
MAX_HREF = 10_000
# Unless the job sets another limit (`max_markdown_chars`).
MAX_MARKDOWN = 5_000_000


class Anchor(Struct, frozen=True, gc=False):
    href: str
    is_nofollow: bool


@dataclass(slots=True)
class Facts:
    """What was read from a page. URLs are as written in it, neither joined nor checked."""

    title: str | None = None
    description: str | None = None
    language: str | None = None
    canonical: str | None = None
    base: str | None = None
    refresh: str | None = None
    is_article: bool = False
    # Whether it says when it was published.
    is_dated: bool = False
    robots: frozenset[str] = frozenset()
    anchors: list[Anchor] = field(default_factory=list[Anchor])
    headings: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    markdown: str | None = None
    # What made the Markdown.
    extractor: str | None = None
    extractor_version: str | None = None
    # How much of the page the Markdown has; None if that is unknown.
    quality: Quality | None = None
    # Why there is no Markdown, or only plain text.
    error: str | None = None


def read_facts(document: Document, *, agent: str) -> Facts:
    title = description = social = social_title = canonical = base = refresh = None
    is_article = is_dated = False
    robots: set[str] = set()
    anchors: list[Anchor] = []
    headings: list[tuple[int, str]] = []
    for element in fact_elements(document):
        tag = element.tag
        if tag == 'a' or tag == 'area':
            href = element.attr('href')
            if href is not None and len(anchors) < MAX_ANCHORS and len(href) <= MAX_HREF:
                rel = element.attr('rel')
                anchors.append(Anchor(href, rel is not None and 'nofollow' in rel.lower().split()))
        elif tag in HEADINGS:
            if len(headings) < MAX_HEADINGS:
                text = one_line(element.text, MAX_TITLE).strip('¶#§\uf0c1\u200b ')
                if text:
                    headings.append((HEADINGS[tag], text))
        elif tag == 'meta':
            name = (element.attr('name') or element.attr('property') or '').strip().lower()
            content = element.attr('content')
            if content is None:
                continue
            if not name:
                if refresh is None and is_refresh(element):
                    refresh = content[:MAX_HREF]
            elif name == 'og:type':
                is_article = is_article or content.strip().lower().startswith('article')
            elif name == 'article:published_time':
                is_article = is_dated = True
            elif name == 'robots' or name == agent:
                robots.update(content.lower().replace(',', ' ').split())
            elif name == 'description':
                description = description or one_line(content, MAX_DESCRIPTION)
            elif name == 'og:title':
                social_title = social_title or one_line(content, MAX_TITLE)
            elif name == 'og:description':
                social = social or one_line(content, MAX_DESCRIPTION)
        elif tag == 'link':
            rel = element.attr('rel')
            if canonical is None and rel is not None and 'canonical' in rel.lower().split():
                canonical = (element.attr('href') or '').strip() or None
        elif tag == 'title':
            if title is None and is_of_html(element):
                title = one_line(element.text, MAX_TITLE)
        elif base is None:
            base = (element.attr('href') or '').strip() or None
    root = document.root
    language = root.attr('lang') if root is not None else None
    return Facts(
        title=title or social_title or None,
        description=description or social or None,
        language=(language or '').strip()[:35] or None,
        canonical=canonical,
        base=base,
        refresh=refresh,
        is_article=is_article,
        is_dated=is_dated,
        robots=frozenset(robots),
        anchors=anchors,
        headings=headings,
    )


def is_refresh(meta: Element) -> bool:
    """A refresh inside noscript does not count: it leads to a page that asks for scripts."""
    is_named = (meta.attr('http-equiv') or '').strip().lower() == 'refresh'
    return is_named and getattr(meta.parent, 'tag', None) != 'noscript'


def one_line(text: str, limit: int) -> str:
    return ' '.join(text[: limit * 4].split())[:limit]
