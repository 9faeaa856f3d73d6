"""Code blocks: their text to the last space, and the language that the page names.

Line numbers, prompts to copy and file names that highlighters put beside the code are left out.
"""

import re

from worker.crawl.extract.tree import BLOCKS, Node

MAX_LANGUAGE = 30
_NUMBERS = re.compile(
    r'(?:^|[\s_-])(?:linenos?|linenumbers?|line-numbers?(?:-rows|-wrapper)?|lnt?|gutter'
    r'|linenodiv|hljs-ln-numbers|copy-?(?:btn|button|code)|blob-num)(?:$|[\s_-])'
)
_LANGUAGE = re.compile(
    r'(?:^|\s)(?:language-|lang-|highlight-source-|highlight-text-|highlight-|brush:\s*)'
    r'([a-z0-9+#.-]+)'
)
_SOURCE_CODE = re.compile(r'(?:^|\s)(?:sourcecode|hljs)\s+([a-z0-9+#-]+)(?:$|\s)')
_NOT_LANGUAGES = frozenset(
    'default none text plaintext plain nohighlight no-highlight notranslate txt'
    ' wrapper wrap code block lines line source guess'.split()
)
# Highlighters that name the language and nothing else.
_LANGUAGES = frozenset(
    'bash c cpp csharp css dart diff go graphql haskell html ini java javascript js json kotlin lua'
    ' nix perl php python ruby rust scala sh shell sql swift toml ts typescript xml yaml'.split()
)
_TICKS = re.compile(r'^[ \t]*(`{3,})', re.MULTILINE)


def code_block(node: Node) -> str:
    pieces: list[str] = []
    _collect(node, pieces)
    text = ''.join(pieces).replace('\r\n', '\n').replace('\r', '\n').strip('\n')
    if not text.strip():
        return ''
    longest = max((len(run) for run in _TICKS.findall(text)), default=2)
    fence = '`' * (longest + 1)
    return f'{fence}{language_of(node)}\n{text}\n{fence}'


def _collect(node: Node, pieces: list[str]) -> None:
    for child in node.children:
        if isinstance(child, str):
            pieces.append(child)
        elif child.tag == 'br':
            pieces.append('\n')
        elif child.names and _NUMBERS.search(child.names):
            continue
        elif child.tag in BLOCKS:
            if pieces and not pieces[-1].endswith('\n'):
                pieces.append('\n')
            _collect(child, pieces)
            if pieces and not pieces[-1].endswith('\n'):
                pieces.append('\n')
        else:
            _collect(child, pieces)


def language_of(node: Node) -> str:
    """Look at the block, the code in it and the three elements around it."""
    candidates: list[Node] = [node]
    candidates += node.elements[:2]
    above = node.parent
    for _ in range(3):
        if above is None:
            break
        candidates.append(above)
        above = above.parent
    for candidate in candidates:
        for name in ('data-lang', 'data-language'):
            named = candidate.get(name)
            if named and re.fullmatch(r'[A-Za-z0-9+#.-]{1,30}', named):
                return '' if named.lower() in _NOT_LANGUAGES else named.lower()
        if not candidate.names:
            continue
        for pattern in (_LANGUAGE, _SOURCE_CODE):
            for language in pattern.findall(candidate.names):
                if language not in _NOT_LANGUAGES and len(language) <= MAX_LANGUAGE:
                    return language
    for candidate in candidates[:3]:
        for word in candidate.names.split():
            if word in _LANGUAGES:
                return word
    return ''
