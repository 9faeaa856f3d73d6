"""Text that Markdown reads as text, and placeholders for what is not decided yet.

Whether a bracket or a mark of emphasis has to be escaped depends on its neighbours, so `inline.py`
writes one character for it, and `finished` replaces it once the line is complete.
"""

import re

from silkline.crawl.extract.markdown.emphasis import settle

SHORT = 60
# Placeholders until a line is complete: <br>, a bracket at the end of a piece of text, brackets in
# the text of a link. `escape` removes them from the text of a page.
BREAK = '\x01'
LAST_BRACKET = '\x08'
IN_LINK = str.maketrans('[]', '\x0e\x0f')

# What would be read as a mark. The set comes first and its conditions after it, because searching
# for a set of characters is ten times faster than for several alternatives.
_SPECIAL = re.compile(
    r"""[\\`*_<\]~&] (?:
        (?<=[\\`*])
        | (?<=_) (?: (?<=(?<![^\W_])_) | (?![^\W_]) )
        | (?<=<) (?=[a-zA-Z/!?]|$)
        | (?<=\]) (?=[(\[:])
        | (?<=&) (?=\#?\w{1,40};|$)
        | (?<=~) (?: (?=~|$) | (?<=~~) | (?<=^~) )
    )""",
    re.VERBOSE,
)
PLACEHOLDERS = re.compile(r'[\x01-\x08\x0e\x0f]')
_BEFORE_BRACKET = re.compile(r'\x08(?=[\x02-\x07]*[(\[:])')
_LINK_IN_LINK = re.compile(r'\x0f[(\[:]|!\x0e')
_TICKS = re.compile(r'`+')


def finished(line: str) -> str:
    """Replace the placeholders of a complete line."""
    # They are not printable. Only in short lines is this faster than searching for them.
    if len(line) < SHORT and line.isprintable():
        return line
    if LAST_BRACKET in line:
        line = _BEFORE_BRACKET.sub(r'\\]', line).replace(LAST_BRACKET, ']')
    return settle(line)


def with_brackets(text: str, *, is_balanced: bool = True) -> str:
    """Write the brackets in the text of a link; unbalanced ones would end it early."""
    if '\x0e' not in text and '\x0f' not in text:
        return text
    depth = 0
    for character in text:
        depth += (character == '\x0e') - (character == '\x0f')
        if depth < 0:
            break
    is_safe = is_balanced and depth == 0 and _LINK_IN_LINK.search(text) is None
    first, last = ('[', ']') if is_safe else (r'\[', r'\]')
    return text.replace('\x0e', first).replace('\x0f', last)


def out_of_link(text: str, *, opened: str = '[') -> str:
    """Write the brackets of text that is in a link on the page, but not in Markdown."""
    text = text.replace('\x0e', opened).replace('\x0f', LAST_BRACKET)
    return _BEFORE_BRACKET.sub(r'\\]', text).replace(LAST_BRACKET, ']')


def folded(line: str) -> str:
    """Collapse the spaces of a line that holds no other white space."""
    line = line.strip()
    # Mostly there is nothing to collapse, and checking takes a seventh of the time of splitting.
    return ' '.join(line.split()) if '  ' in line else line


def flattened(text: str) -> str:
    """Replace white space by single spaces, at the ends, too."""
    words = ' '.join(text.split())
    if not words:
        return ' ' if text else ''
    first = ' ' if text[0].isspace() else ''
    last = ' ' if text[-1].isspace() else ''
    return f'{first}{words}{last}'


def escaped_marks(text: str) -> str:
    return _SPECIAL.sub(lambda found: '\\' + found[0], text)


def code_span(text: str) -> str:
    if '`' not in text:
        return f'`{text}`'
    longest = max(len(run) for run in _TICKS.findall(text))
    fence = '`' * (longest + 1)
    space = ' ' if text[0] == '`' or text[-1] == '`' else ''
    return f'{fence}{space}{text}{space}{fence}'
