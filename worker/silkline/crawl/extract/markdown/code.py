"""Code blocks: their exact text, and the language that the page names.

Line numbers, copy buttons and file names that highlighters add to the code are left out.
"""

import re
from functools import lru_cache

from silkline.crawl.extract.tree import BLOCKS, Node

MAX_LANGUAGE = 30
REMEMBERED = 500
_NUMBERS = re.compile(
    r'(?:^|[\s_-])(?:linenos?|linenumbers?|line-numbers?(?:-rows|-wrapper)?|codelinenumber|lnt?'
    r'|gutter|linenodiv|hljs-ln-numbers|copy-?(?:btn|button|code)|blob-num|ttc)(?:$|[\s_-])'
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
    'default none text plaintext plain nohighlight no-highlight notranslate txt'
    ' wrapper wrap code block lines line source guess nogutter'.split()
)
# For highlighters that use the bare name of the language, and for the attribute `lang`, which
# names human languages, too.
_LANGUAGES = frozenset(
    'bash c cpp csharp css dart diff go graphql haskell html ini java javascript js json kotlin lua'
    ' nix perl php python ruby rust scala sh shell sql swift toml ts typescript xml yaml'.split()
)
_TICKS = re.compile(r'^[ \t]*(`{3,})', re.MULTILINE)


def code_block(node: Node, *, inside: Node | None = None) -> str:
    """Write the code; `inside` is another element that may name its language."""
    text = code_text(node)
    if not text:
        return ''
    runs = _TICKS.findall(text) if '```' in text else ()
    fence = '`' * (max(map(len, runs), default=2) + 1)
    language = language_of(node) or (language_of(inside) if inside is not None else '')
    return f'{fence}{language}\n{text}\n{fence}'


def code_text(node: Node) -> str:
    """The code as it is shown, without empty lines around it."""
    pieces: list[str] = []
    _collect(node, pieces)
    text = ''.join(pieces).replace('\r\n', '\n').replace('\r', '\n').replace('\xa0', ' ')
    return text.strip('\n') if text.strip() else ''


def is_listing(node: Node) -> bool:
    """Whether these blocks are lines of code, as Doxygen writes them."""
    return 'fragment' in node.names.split() and any(
        'line' in child.names.split() for child in node.elements
    )


def _collect(node: Node, pieces: list[str]) -> None:
    for child in node.children:
        if isinstance(child, str):
            pieces.append(child)
        elif child.tag == 'br':
            pieces.append('\n')
        elif child.names and _are_line_numbers(child.names):
            continue
        elif child.tag in BLOCKS:
            if pieces and not pieces[-1].endswith('\n'):
                pieces.append('\n')
            _collect(child, pieces)
            if pieces and not pieces[-1].endswith('\n'):
                pieces.append('\n')
        else:
            _collect(child, pieces)


# In highlighted code the same few names occur a thousand times on a page.
@lru_cache(maxsize=REMEMBERED)
def _are_line_numbers(names: str) -> bool:
    return _NUMBERS.search(names) is not None


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
    for name in _ATTRIBUTES:
        named = node.get(name)
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
