"""HTML to what is stored of a page: facts, links, headings and Markdown.

`read_html` is the way in. The parser is behind `parser.py`, the facts in `facts.py`; the built-in
extractor finds the main content (`main_content.py`) and writes it (`markdown.py`). An extractor's
exception never loses a page: it is told in `error`.
"""

import re
from dataclasses import dataclass
from typing import Literal, Protocol

from worker.crawl.extract.facts import Anchor, Facts, read_facts
from worker.crawl.extract.links import Resolver
from worker.crawl.extract.main_content import find_main
from worker.crawl.extract.markdown import MAX_CHARACTERS, write_markdown
from worker.crawl.extract.measure import measure
from worker.crawl.extract.parser import build_tree, parse_html

__all__ = ['EXTRACTOR', 'EXTRACTOR_VERSION', 'Anchor', 'Extracted', 'Extractor', 'read_html']

EXTRACTOR = 'silkline'
# Goes up with each release whose Markdown differs from the last one's for any page: whoever
# compares pages over time can tell a change of the page from a change of the extractor.
EXTRACTOR_VERSION = '1'

_ARTICLE = re.compile(r'"@type"\s*:\s*"(?:News|Blog|Reportage)?(?:Article|Posting)"')
_TAG = re.compile(r'<[^>]{0,2000}>')


@dataclass(frozen=True, slots=True)
class Extracted:
    title: str | None
    description: str | None
    language: str | None
    canonical: str | None
    base: str | None
    robots: frozenset[str]
    anchors: list[Anchor]
    headings: list[tuple[int, str]]
    markdown: str | None
    extractor: str | None
    extractor_version: str | None
    error: str | None


class Extractor(Protocol):
    """Makes Markdown of a page; a plugin may bring its own."""

    name: str
    version: str

    def markdown(self, html: str, *, url: str) -> str: ...


def read_html(
    html: str,
    *,
    url: str,
    markdown: Literal['main', 'full', 'none'],
    extractor: Extractor | None = None,
) -> Extracted:
    """Read one page. Never raises, whatever the HTML."""
    facts = Facts()
    text: str | None = None
    error: str | None = None
    try:
        document = parse_html(html)
        facts = read_facts(document)
        if markdown != 'none':
            if extractor is not None:
                text = extractor.markdown(html, url=url)[:MAX_CHARACTERS]
            else:
                nodes = build_tree(document)
                resolver = Resolver(url, facts.base)
                if nodes and markdown == 'main':
                    main = find_main(
                        nodes,
                        title=facts.title,
                        is_article=facts.is_article or _ARTICLE.search(html) is not None,
                    )
                    text = write_markdown(main, resolver, keeps_junk=False)
                elif nodes:
                    measure(nodes)
                    text = write_markdown(nodes[0], resolver, keeps_junk=True)
    except Exception as caught:
        error = ' '.join(f'{type(caught).__name__}: {caught}'.split())[:500]
    return Extracted(
        title=facts.title,
        description=facts.description,
        language=facts.language,
        canonical=facts.canonical,
        base=facts.base,
        robots=facts.robots,
        anchors=facts.anchors,
        headings=facts.headings,
        markdown=text,
        extractor=None if text is None else extractor.name if extractor else EXTRACTOR,
        extractor_version=None
        if text is None
        else extractor.version
        if extractor
        else EXTRACTOR_VERSION,
        error=error,
    )
