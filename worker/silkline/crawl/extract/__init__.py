"""Read HTML: title, links and other facts of a page, and its text as Markdown.

`read_html` below is the entry point. An extractor that raises loses no page: see `Facts.error`.

parser        the only module that knows the HTML parser
facts         title, description, robots directives, links
builtin       the built-in extractor, step by step
tree measure  the tree it works on, and how much text each node has
main_content  where the main content is
vocabulary    the class names and phrases that mark content or clutter
tabs          the labels of tab panels
markdown/     the writers
plain_text    for pages that are too costly to parse
"""

from typing import Literal, Protocol

from silkline.crawl.extract.facts import MAX_MARKDOWN, Anchor, Facts, read_facts
from silkline.crawl.extract.parser import Document, TooCostly, parse_html

__all__ = ['EXTRACTOR', 'EXTRACTOR_VERSION', 'Anchor', 'Extractor', 'Facts', 'read_html']

EXTRACTOR = 'silkline'
# Raised with each release that changes the Markdown of any page: anyone who compares pages over
# time can then tell a change of the page from a change of the extractor.
EXTRACTOR_VERSION = '1'
MAX_ERROR = 500


class Extractor(Protocol):
    """Turns a page into Markdown; a plugin may provide one."""

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

    `agent` is the lower-case name of this crawler, which robots directives of a page may name.
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
        # The extractor of a plugin may raise anything.
        facts.error = ' '.join(f'{type(caught).__name__}: {caught}'.split())[:MAX_ERROR]
    if facts.markdown is not None:
        facts.extractor, facts.extractor_version = name, version
    return facts


def _built_in(document: Document, facts: Facts, *, html: str, url: str, is_full: bool) -> str:
    # Imported here: a crawl without Markdown does not need it.
    from silkline.crawl.extract import builtin

    if is_full:
        return builtin.full_markdown(document, facts, html=html, url=url)
    return builtin.main_markdown(document, facts, html=html, url=url)


def _checked(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f'expected Markdown as a string, got {type(text).__name__}')
    # A plain string: subclasses, such as a parser's, cannot be sent.
    return str.__str__(text[:MAX_MARKDOWN])


def _without_tree(html: str, *, wants_text: bool) -> Facts:
    from silkline.crawl.extract import plain_text

    facts = Facts(title=plain_text.read_title(html))
    if wants_text:
        facts.markdown = plain_text.read_text(html)
    return facts
