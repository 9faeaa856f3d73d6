"""Code blocks: their exact text, and the language that the page names.

Line numbers, copy buttons and tooltips that highlighters add to the code are left out. What is code
is not: a name that says "line numbers" counts only where there are numbers.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from silkline.crawl.extract.tree import BLOCKS, Node

MAX_LANGUAGE = 30
REMEMBERED = 500
MAX_BUTTON = 30
_NUMBERS = re.compile(
    r'(?:^|[\s_-])(?:line[_-]?nos?|line[_-]?nr|line[_-]?numbers?|codelinenumber|lnt?|lntd|gutter'
    r'|linenodiv|blob-num)(?:$|[\s_-])'
)
_NUMBERS_ONLY = re.compile(r'[\d\s.:|]*')
_BUTTON = re.compile(r'(?:^|[\s_-])copy-?(?:btn|button|code)(?:$|[\s_-])')
_TOOLTIP = re.compile(r'(?:^|\s)ttc(?:$|\s)')
_UNSELECTABLE = re.compile(r'user-select\s*:\s*none')
_LINE = re.compile(r'(?:^|\s)(?:[\w-]+[_-])?line(?:$|[\s\d])')
_LINE_OF_CODE = re.compile(r'(?:^|\s)(?:code|codemirror|cm|source|token)[_-]line(?:$|\s)')
_LISTING = re.compile(
    r'(?:^|[\s_-])(?:fragment|code|codeblock|sourcecode|listing|snippet)(?:$|[\s_-])'
)
_LANGUAGE = re.compile(
    r'(?:^|\s)(?:language-|(?:mw-highlight-)?lang[-:]|highlight-source-|highlight-text-|highlight-'
    r'|brush:\s*)([a-z0-9+#.-]+)'
)
_SOURCE_CODE = re.compile(
    r'(?:^|\s)(?:sourcecode|hljs|nogutter|syntaxhighlighter)\s+([a-z0-9+#-]+)(?=$|\s)'
)
_NAMED = re.compile(r'[A-Za-z0-9+#.-]{1,30}')
_ATTRIBUTES = ('data-lang', 'data-language', 'lang')
_RARE_ATTRIBUTES = ('data-enlighter-language', 'data-syntaxhighlighter-params')
_BRUSH = re.compile(r'(?:^|\bbrush:\s*)([a-z0-9+#-]{1,30})(?=$|;)')
_NOT_LANGUAGES = frozenset(
    'auto default none language-none text plaintext plain nohighlight no-highlight notranslate txt'
    ' wrapper wrap code block lines line source guess nogutter'.split()
)
# For highlighters that use the bare name of the language, and for the attribute `lang`, which
# names human languages, too.
_LANGUAGES = frozenset(
    'bash c cpp csharp css dart diff go graphql haskell html ini java javascript js json kotlin lua'
    ' nix perl php python ruby rust scala sh shell sql swift toml ts typescript xml yaml'.split()
)
_TICKS = re.compile(r'^[ \t]*(`{3,})', re.MULTILINE)


def code_block(node: Node) -> str:
    text = code_text(node)
    return fenced(text, language_of(node)) if text else ''


def fenced(text: str, language: str) -> str:
    runs = _TICKS.findall(text) if '```' in text else ()
    fence = '`' * (max(map(len, runs), default=2) + 1)
    return f'{fence}{language}\n{text}\n{fence}'


def code_text(node: Node) -> str:
    """The code as it is shown, without empty lines around it."""
    pieces: list[str] = []
    _collect(node, pieces, node.tag == 'pre' or node.tag == 'code')
    return _cleaned(''.join(pieces))


def lines_of(cells: Iterable[Node]) -> str:
    """The code of cells that hold a line each."""
    lines: list[str] = []
    for cell in cells:
        pieces: list[str] = []
        _collect(cell, pieces, True)
        lines.append(''.join(pieces).strip('\r\n'))
    return _cleaned('\n'.join(lines))


def is_listing(node: Node) -> bool:
    """Whether these blocks are lines of code: by their names, or because they are numbered."""
    if not node.elements or node.own:
        return False
    first = node.elements[0]
    if 'line' not in first.names and not (
        first.elements and any('line' in one.names for one in first.elements[:2])
    ):
        return False
    lines = list(_lines(node))
    if not lines or any(line.has_inner_block or not line.has_block for line in lines):
        return False
    if all(map(_is_numbered, lines)):
        return True
    return all(line.tag == 'div' and _LINE.search(line.names) for line in lines) and (
        _LISTING.search(node.names) is not None
        or all(_LINE_OF_CODE.search(line.names) for line in lines)
    )


def are_numbers(node: Node) -> bool:
    """Whether an element holds nothing but the numbers of lines."""
    return (
        node.names != ''
        and _is_named_addition(node.names)
        and _NUMBERS.search(node.names) is not None
        and _NUMBERS_ONLY.fullmatch(node.source.text) is not None
    )


def _lines(node: Node) -> Iterator[Node]:
    """Yield the blocks of lines, which may be grouped so that they can be folded."""
    for child in node.elements:
        if not child.text or (_is_named_addition(child.names) and _is_added(child)):
            continue
        if child.has_inner_block and not child.own and not _LINE.search(child.names):
            yield from _lines(child)
        else:
            yield child


def _is_numbered(line: Node) -> bool:
    for child in line.elements:
        if child.text:
            return are_numbers(child)
    return False


def _cleaned(text: str) -> str:
    text = text.replace('\r\n', '\n').replace('\r', '\n').replace('\xa0', ' ')
    return text.strip('\n') if text.strip() else ''


def _collect(node: Node, pieces: list[str], is_pre: bool) -> None:
    # Between blocks, a browser does not show white space.
    skips_space = node.has_inner_block and not is_pre
    for child in node.children:
        if isinstance(child, str):
            if not skips_space or not child.isspace():
                pieces.append(child)
            continue
        if child.names and _is_named_addition(child.names) and _is_added(child):
            continue
        if child.is_hidden and child.get('aria-hidden') is None:
            continue
        tag = child.tag
        inside = child.children
        if tag in BLOCKS:
            if pieces and not pieces[-1].endswith('\n'):
                pieces.append('\n')
            _collect(child, pieces, is_pre or tag == 'pre')
            if pieces and not pieces[-1].endswith('\n'):
                pieces.append('\n')
        elif len(inside) == 1 and isinstance(text := inside[0], str):
            # As in most elements of highlighted code.
            if not ((not pieces or pieces[-1][-1:] == '\n') and _is_number(child, text)):
                pieces.append(text)
        elif tag == 'br':
            pieces.append('\n')
        else:
            _collect(child, pieces, is_pre)


# In highlighted code the same few names occur a thousand times on a page.
@lru_cache(maxsize=REMEMBERED)
def _is_named_addition(names: str) -> bool:
    return any(pattern.search(names) for pattern in (_NUMBERS, _BUTTON, _TOOLTIP))


def _is_added(node: Node) -> bool:
    """Whether an element with such a name is not code."""
    if _TOOLTIP.search(node.names) or are_numbers(node):
        return True
    return _BUTTON.search(node.names) is not None and len(node.source.text) <= MAX_BUTTON


def _is_number(node: Node, text: str) -> bool:
    """Whether a number at the start of a line cannot be selected, or links to its line."""
    digits = text.strip()
    if not digits.isdigit():
        return False
    if node.tag == 'a':
        for name in ('href', 'id', 'name'):
            target = (node.get(name) or '').rpartition('#')[2]
            if target.endswith(digits) and target.strip('lineLINER0123456789.-_') == '':
                return True
    return (
        node.get('data-line-number') == digits
        or node.get('data-nosnippet') is not None
        or node.get('unselectable') == 'on'
        or _UNSELECTABLE.search(node.get('style') or '') is not None
    )


def language_of(node: Node) -> str:
    """The language that the block names, the code in it, or one of three elements around it."""
    candidates: list[Node] = [node]
    candidates += node.elements[:2]
    if node.elements and node.elements[0].tag == 'pre':
        candidates += node.elements[0].elements[:1]
    inner = len(candidates)
    above = node.parent
    for _ in range(3):
        if above is None:
            break
        candidates.append(above)
        above = above.parent
    for candidate in candidates:
        language = _named_by(candidate)
        if language is not None:
            return language
    for candidate in candidates[:inner]:
        for word in candidate.names.split():
            if word in _LANGUAGES:
                return word
    return ''


def _named_by(node: Node) -> str | None:
    attribute = node.source.attr
    for name in _ATTRIBUTES:
        named = attribute(name)
        if named and _NAMED.fullmatch(named):
            named = named.lower()
            if name == 'lang' and named not in _LANGUAGES:
                continue
            return '' if named in _NOT_LANGUAGES else named
    if not node.names:
        return None
    if 'light' in node.names:
        for name in _RARE_ATTRIBUTES:
            brush = _BRUSH.search(node.get(name) or '')
            if brush is not None:
                return brush[1]
    return _language_in(node.names)


@lru_cache(maxsize=REMEMBERED)
def _language_in(names: str) -> str | None:
    for pattern in (_LANGUAGE, _SOURCE_CODE):
        for language in pattern.findall(names):
            # Such as in 'text-html-basic'.
            language = language.removesuffix('-basic')
            if language not in _NOT_LANGUAGES and len(language) <= MAX_LANGUAGE:
                return language
    return None
