"""Read HTML: title, links and other facts of a page, and its text as Markdown.

`read_html` below is the entry point. An extractor that raises loses no page: see `Facts.error`.

parser         the only module that knows the HTML parser
facts          title, description, robots directives, links
builtin        the built-in extractor, step by step
tree measure   the tree it works on, and how much text each node has
kinds          what a page says it is
titles         which heading is its title
main_content   where the main content is, by the kind of page: prose, posts, pages
clutter        what is not content, by structure, and by names (vocabulary)
tabs           the labels of tab panels
markdown/      the writers
comparison     what was kept of the page, and what to warn of
quality        of text that is not compared with a page
scripted       whether scripts draw the page
plain_text     for pages that are too costly to parse
"""

from typing import Literal, Protocol

from msgspec.structs import replace

from silkline.crawl.extract.facts import MAX_MARKDOWN, Anchor, Facts, read_facts
from silkline.crawl.extract.parser import TooCostly, parse_html
from silkline.crawl.extract.quality import quality_of_text
from silkline.crawl.options import LinkStyle

__all__ = ['EXTRACTOR', 'EXTRACTOR_VERSION', 'Anchor', 'Extractor', 'Facts', 'read_html']

EXTRACTOR = 'silkline'
# Raised with each release that changes the Markdown of any page: anyone who compares pages over
# time can then tell a change of the page from a change of the extractor.
EXTRACTOR_VERSION = '2'
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
    links: LinkStyle = 'inline',
    max_markdown: int = MAX_MARKDOWN,
    extractor: Extractor | None = None,
    agent: str = 'silkline',
) -> Facts:
    """Read one page. Never raises, whatever the HTML or the extractor.

    Markdown longer than `max_markdown` characters is cut, and its quality says so.
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
            # Imported here: a crawl without Markdown does not need it.
            from silkline.crawl.extract import builtin

            write = builtin.full_markdown if markdown == 'full' else builtin.main_markdown
            write(document, facts, html=html, url=url, links=links, max_markdown=max_markdown)
        else:
            name, version = extractor.name, extractor.version
            text = _checked(extractor.markdown(html, url=url))
            _take_text(facts, text, max_markdown, characters=len(text))
    except TooCostly as caught:
        facts = _without_tree(html, max_markdown if markdown != 'none' else 0)
        facts.error = f'read as plain text: {caught}'
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as caught:
        # The extractor of a plugin may raise anything.
        facts.error = ' '.join(f'{type(caught).__name__}: {caught}'.split())[:MAX_ERROR]
    if facts.markdown is not None:
        facts.extractor, facts.extractor_version = name, version
    return facts


def _checked(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f'expected Markdown as a string, got {type(text).__name__}')
    # A plain string: subclasses, such as a parser's, cannot be sent.
    return str.__str__(text)


def _take_text(facts: Facts, text: str, limit: int, *, characters: int) -> None:
    """Keep text that was not compared with the page: of its quality, only a cut is known."""
    facts.markdown = text[:limit]
    if len(facts.markdown) < characters:
        facts.quality = quality_of_text(characters, kept=len(facts.markdown))


def _without_tree(html: str, limit: int) -> Facts:
    from silkline.crawl.extract import plain_text

    facts = Facts(title=plain_text.read_title(html))
    if limit:
        text = plain_text.read_text(html)
        unread = max(0, len(html) - plain_text.MAX_READ)
        facts.markdown = text[:limit]
        quality = quality_of_text(len(text) + unread, kept=len(facts.markdown))
        # There are none in plain text.
        facts.quality = replace(quality, warnings=(*quality.warnings, 'headings_lost'))
    return facts
