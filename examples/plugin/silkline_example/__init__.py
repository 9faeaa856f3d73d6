"""Two plugins: a page hook that adds the reading time, and an extractor of plain text.

Silkline finds a plugin by its entry point (pyproject.toml), and calls it by its `api`, its `kind`
and its methods. All types come from `silkline.plugins`. docs/how-to/plugins.md has all four kinds.
"""

import re
from html.parser import HTMLParser

from silkline.plugins import Page

WORDS_PER_MINUTE = 220
BLOCKS = re.compile(
    r'address|article|aside|blockquote|br|d[dlt]|div|footer|h[1-6]|header|hr|li|main|nav|ol|p|pre|section|table|t[hr]|ul'
)
UNSEEN = ('head', 'script', 'style', 'template')


class ReadingTime:
    """Adds `words` and `reading_minutes` to the metadata of each page."""

    api = 1
    kind = 'page_hook'
    # Raise it when the result for a page changes: then unchanged pages are fetched again, too.
    version = '1'

    def change(self, page: Page) -> None:
        words = len(re.findall(r'\w+', page.markdown or ''))
        page.metadata['words'] = words
        page.metadata['reading_minutes'] = max(1, round(words / WORDS_PER_MINUTE))


class PlainText:
    """The text of a page without any markup, for programs that do not read Markdown."""

    api = 1
    kind = 'extractor'
    # Stored with each page. Raise it when the text of a page changes.
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
