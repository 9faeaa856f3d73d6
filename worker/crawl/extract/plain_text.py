"""Text without a tree, for the rare page whose tree would cost far more than its size allows."""

import re
from html import unescape

from worker.crawl.extract.facts import MAX_TITLE, Facts, one_line
from worker.crawl.extract.markdown import MAX_CHARACTERS

_SKIPPED = re.compile(r'<(script|style)\b[^<>]*>.*?</\1\s*>', re.IGNORECASE | re.DOTALL)
_TITLE = re.compile(r'<title[^<>]*>([^<]{0,5000})', re.IGNORECASE)
_TAG = re.compile(r'<[^<>]*>')
_LINES = re.compile(r'[ \t\r\f\v]*\n\s*')
# Where the text of a page that is not worth a tree may be cut off.
MAX_READ = 4 * MAX_CHARACTERS


def plain_facts(html: str) -> Facts:
    found = _TITLE.search(html[:MAX_READ])
    return Facts(title=one_line(unescape(found[1]), MAX_TITLE) or None if found else None)


def plain_text(html: str) -> str:
    """Return the text between the tags, line by line."""
    text = _TAG.sub(' ', _without_scripts(html[:MAX_READ]))
    text = _LINES.sub('\n', unescape(text)).strip()
    return text[:MAX_CHARACTERS]


def _without_scripts(html: str) -> str:
    # Without an end tag each start would be searched to the end of the page again.
    if html.count('<script') + html.count('<style') > 1000:
        return html
    return _SKIPPED.sub(' ', html)
