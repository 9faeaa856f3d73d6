"""Recognise pages that scripts draw: without a browser, there is nothing to read in them."""

import re

from silkline.crawl.extract.plain_text import without_scripts

# A page with more text than this is worth reading as it is, whatever its scripts add.
MAX_TEXT = 500
# Less text than this in HTML of this length is no page, whatever its scripts fill.
MIN_TEXT = 40
LARGE = 5_000
# "Loading…", a name and a slogan.
MAX_SHELL_TEXT = 100

# These patterns take linear time on whatever a site sends.
_NOSCRIPT = re.compile(
    r'<noscript\b[^<>]*>([^<]*(?:<(?!/?noscript)[^<]*)*)(?:</noscript)?', re.IGNORECASE
)
# An element for scripts to fill.
_EMPTY = re.compile(
    r'<(div|main|section|article|[a-z]{1,60}-[a-z0-9-]{1,60})\b[^<>]*>\s*</\1\b', re.IGNORECASE
)
# What a page may consist of besides text.
_OTHER_CONTENT = re.compile(
    r'<(?:img|picture|video|audio|iframe|frame|object|embed|table|form)\b', re.IGNORECASE
)


def needs_browser(html: str, *, text_characters: int) -> bool:
    """Whether a page with this much visible text only shows its content once its scripts ran."""
    if text_characters > MAX_TEXT or '<script' not in html.lower():
        return False
    page = without_scripts(html)
    if any('javascript' in notice[1].lower() for notice in _NOSCRIPT.finditer(page)):
        return True
    if text_characters > MAX_SHELL_TEXT:
        return False
    page = _NOSCRIPT.sub('', page)
    if _OTHER_CONTENT.search(page) is not None:
        return False
    is_empty = text_characters < MIN_TEXT and len(html) > LARGE
    return is_empty or _EMPTY.search(page) is not None
