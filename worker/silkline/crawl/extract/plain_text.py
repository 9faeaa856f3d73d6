"""Text without a tree, for the rare page whose tree would cost far too much.

What `read_html` falls back to when the parser refuses a page: its title and the text between its
tags. No links are taken from such a page: it is malicious.
"""

import re
from html import unescape

from silkline.crawl.extract.facts import MAX_TITLE, one_line

_SCRIPT = re.compile(r'<(script|style)\b', re.IGNORECASE)
_END = {
    'script': re.compile(r'</script\b[^<>]*>?', re.IGNORECASE),
    'style': re.compile(r'</style\b[^<>]*>?', re.IGNORECASE),
}
_TITLE = re.compile(r'<title[^<>]*>([^<]{0,5000})', re.IGNORECASE)
_TAG = re.compile(r'<[^<>]*>')
_SPACES = re.compile(r'[^\S\n]{2,}|\r')
# The rest of a longer page is not read.
MAX_READ = 20_000_000


def read_title(html: str) -> str | None:
    found = _TITLE.search(html[:MAX_READ])
    return one_line(unescape(found[1]), MAX_TITLE) or None if found else None


def read_text(html: str) -> str:
    """The text between the tags, line by line."""
    text = unescape(_TAG.sub(' ', without_scripts(html[:MAX_READ])))
    # Not split into words: millions of them would take hundreds of megabytes.
    lines = (line.strip() for line in _SPACES.sub(' ', text).split('\n'))
    return '\n'.join(line for line in lines if line)


def without_scripts(html: str) -> str:
    pieces: list[str] = []
    at = 0
    while (found := _SCRIPT.search(html, at)) is not None:
        pieces.append(html[at : found.start()])
        end = _END[found[1].lower()].search(html, found.end())
        if end is None:
            return ''.join(pieces)
        at = end.end()
    return ''.join([*pieces, html[at:]])
