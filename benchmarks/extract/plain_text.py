"""The text of Markdown without its markup, which a reader does not see either."""

import re

_FENCE = re.compile(r'^[ >]*(?:```|~~~)[^\n`]*$', re.MULTILINE)
_IMAGE = re.compile(r'!\[(?:\\.|[^\]\\])*\]\([^)\s]*\)')
_LINK = re.compile(r'\[((?:\\.|[^\[\]\\]|\[[^\]]*\])*)\]\([^)\s]*\)')
_MARKUP = re.compile(r'</?(?:sup|sub|br)>')
_MARKS = re.compile(r'\*\*|~~|(?<!\\)[*`]')
_LINE_MARKS = re.compile(r'^[ >]*(?:\d+\.|[-*]|#+) ', re.MULTILINE)
_ESCAPE = re.compile(r'\\([!-/:-@\[-`{-~])')


def plain_text(markdown: str) -> str:
    """Links as their text; without images, fences, list marks and escapes."""
    text = _IMAGE.sub(' ', _FENCE.sub('', markdown))
    # Twice, for links whose text contains brackets that look like a link.
    text = _LINK.sub(r'\1', _LINK.sub(r'\1', text))
    text = _MARKUP.sub(' ', text)
    text = _LINE_MARKS.sub(' ', text)
    return _ESCAPE.sub(r'\1', _MARKS.sub('', text))
