"""HTML to what is stored of a page: facts, links, headings and Markdown.

`read_html` is the way in. The parser is behind `parser.py`, the facts in `facts.py`; the built-in
extractor finds the main content (`main_content.py`) and writes it (`markdown.py`). An extractor's
exception never loses a page: it is told in `error`.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from worker.crawl.extract.builtin import EXTRACTOR, EXTRACTOR_VERSION, full_markdown, main_markdown
from worker.crawl.extract.facts import Anchor, Facts, read_facts
from worker.crawl.extract.markdown import MAX_CHARACTERS
from worker.crawl.extract.parser import TooCostly, parse_html
from worker.crawl.extract.plain_text import plain_facts, plain_text

__all__ = ['EXTRACTOR', 'EXTRACTOR_VERSION', 'Anchor', 'Extracted', 'Extractor', 'read_html']

MAX_ERROR = 500


@dataclass(frozen=True, slots=True)
class Extracted:
    """What a page says; addresses are as written in it, neither joined nor checked."""

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
    """Read one page. Never raises, whatever the HTML or the extractor."""
    facts = Facts()
    text: str | None = None
    error: str | None = None
    try:
        document = parse_html(html)
        facts = read_facts(document)
        if markdown == 'none':
            pass
        elif extractor is not None:
            text = extractor.markdown(html, url=url)[:MAX_CHARACTERS]
        elif markdown == 'main':
            text = main_markdown(document, facts, html=html, url=url)
        else:
            text = full_markdown(document, facts, url=url)
    except TooCostly as caught:
        error = f'read as plain text: {caught}'
        facts = plain_facts(html)
        text = None if markdown == 'none' else plain_text(html)
    except Exception as caught:
        error = ' '.join(f'{type(caught).__name__}: {caught}'.split())[:MAX_ERROR]
    name, version = None, None
    if text is not None:
        by_plugin = extractor is not None and error is None
        name = extractor.name if extractor is not None and by_plugin else EXTRACTOR
        version = extractor.version if extractor is not None and by_plugin else EXTRACTOR_VERSION
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
        extractor=name,
        extractor_version=version,
        error=error,
    )
