"""HTML to what is stored of a page: facts, links, headings and Markdown.

`read_html` is the way in. The parser is behind `parser.py`, the facts in `facts.py`; the built-in
extractor finds the main content (`main_content.py`) and writes it (`markdown.py` its blocks,
`inline.py` the text in them; what has rules of its own, such as `lists.py` and `code.py`, is named
for it). An extractor's exception never loses a page: it is told in `error`.
"""

from typing import Literal, Protocol

from silkline.crawl.extract.facts import MAX_MARKDOWN, Anchor, Facts, read_facts
from silkline.crawl.extract.parser import Document, TooCostly, parse_html

__all__ = ['EXTRACTOR', 'EXTRACTOR_VERSION', 'Anchor', 'Extractor', 'Facts', 'read_html']

EXTRACTOR = 'silkline'
# Goes up with each release whose Markdown differs from the last one's for any page: whoever
# compares pages over time can tell a change of the page from a change of the extractor.
EXTRACTOR_VERSION = '1'
MAX_ERROR = 500


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
    agent: str = 'silkline',
) -> Facts:
    """Read one page. Never raises, whatever the HTML or the extractor.

    `agent` is the name, in lower case, under which a page may have robots directives for us.
    """
    facts = Facts()
    name, version = EXTRACTOR, EXTRACTOR_VERSION
    try:
        document = parse_html(html)
        facts = read_facts(document, agent=agent)
        if markdown == 'none':
            pass
        elif extractor is None:
            is_full = markdown == 'full'
            facts.markdown = _built_in(document, facts, html=html, url=url, is_full=is_full)
        else:
            name, version = extractor.name, extractor.version
            facts.markdown = _checked(extractor.markdown(html, url=url))
    except TooCostly as caught:
        facts = _without_tree(html, wants_text=markdown != 'none')
        facts.error = f'read as plain text: {caught}'
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as caught:
        # An extractor of a plugin may raise anything.
        facts.error = ' '.join(f'{type(caught).__name__}: {caught}'.split())[:MAX_ERROR]
    if facts.markdown is not None:
        facts.extractor, facts.extractor_version = name, version
    return facts


def _built_in(document: Document, facts: Facts, *, html: str, url: str, is_full: bool) -> str:
    # Imported late: a crawl that wants no Markdown need not wait for what writes it.
    from silkline.crawl.extract import builtin

    if is_full:
        return builtin.full_markdown(document, facts, html=html, url=url)
    return builtin.main_markdown(document, facts, html=html, url=url)


def _checked(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f'its Markdown is of type {type(text).__name__}, not text')
    # A plain one: subclasses, such as a parser's, cannot be sent.
    return str.__str__(text[:MAX_MARKDOWN])


def _without_tree(html: str, *, wants_text: bool) -> Facts:
    from silkline.crawl.extract import plain_text

    facts = Facts(title=plain_text.read_title(html))
    if wants_text:
        facts.markdown = plain_text.read_text(html)
    return facts
