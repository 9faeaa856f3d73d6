"""Two plugins: a page hook that notes how long reading takes, and an extractor of plain text.

A plugin needs nothing of Silkline's: it is found by its entry point (pyproject.toml), and known by
its `api`, its `kind` and its methods. docs/how-to/plugins.md has all four kinds.
"""

import re
from html.parser import HTMLParser
from typing import Any, Protocol

WORDS_PER_MINUTE = 220
BLOCKS = re.compile(
    r'address|article|aside|blockquote|br|d[dlt]|div|footer|h[1-6]|header|hr|li|main|nav|ol|p|pre|section|table|t[hr]|ul'
)
UNSEEN = ('head', 'script', 'style', 'template')


class Page(Protocol):
    """What a page hook may change: the fields of `silkline.plugins.PageDraft` it uses."""

    markdown: str | None
    metadata: dict[str, Any]


class ReadingTime:
    """Adds `words` and `reading_minutes` to the metadata of each page."""

    api = 1
    kind = 'page_hook'
    # Raise it when a page would come out differently: then unchanged pages are read again.
    version = '1'

    def change(self, page: Page) -> None:
        words = len(re.findall(r'\w+', page.markdown or ''))
        page.metadata['words'] = words
        page.metadata['reading_minutes'] = max(1, round(words / WORDS_PER_MINUTE))


class PlainText:
    """The words of a page and nothing else, for what does not read Markdown."""

    api = 1
    kind = 'extractor'
    # Stored with each page. Raise it when the text of a page would come out differently.
    version = '1'

    def markdown(self, html: str, *, url: str) -> str:
        words = Words()
        words.feed(html)
        words.close()
        lines = (' '.join(line.split()) for line in ''.join(words.found).splitlines())
        return '\n'.join(line for line in lines if line)


class Words(HTMLParser):
    """Collects text, with a line break around each block."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._unseen += tag in UNSEEN
        self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        self._unseen = max(0, self._unseen - (tag in UNSEEN))
        self._break(tag)

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.found.append(' '.join(data.split('\n')))

    def _break(self, tag: str) -> None:
        if BLOCKS.fullmatch(tag):
            self.found.append('\n')
