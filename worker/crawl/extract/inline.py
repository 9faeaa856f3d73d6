"""Write the text inside a block: emphasis, code, links, images, line breaks.

Pieces are joined by the caller, which also folds white space: here spaces are only kept from
standing where Markdown forbids them, as inside the asterisks of bold text.
"""

import re

from worker.crawl.extract.facts import MAX_MARKDOWN
from worker.crawl.extract.links import Resolver
from worker.crawl.extract.tree import BLOCKS, Node

# Stands for <br> until white space is folded; no page can hold it after `escape`.
BREAK = '\x01'

_EMPHASIS = {
    'strong': '**',
    'b': '**',
    'em': '*',
    'i': '*',
    'dfn': '*',
    'cite': '*',
    'del': '~~',
    's': '~~',
    'strike': '~~',
}
_CODE = frozenset({'code', 'kbd', 'samp', 'tt'})
# Whether there is anything to escape at all is a much quicker question than what it is.
_MAYBE_SPECIAL = re.compile(r'[\\`*_<\]\x01]')
_SPECIAL = re.compile(r'[\\`*]|<(?=[a-zA-Z/!?])|\](?=[(\[:])|(?<![^\W_])_+|_+(?![^\W_])')
_TICKS = re.compile(r'`+')
_SELF_LINK_NAMES = re.compile(r'headerlink|hash-link|header-anchor|anchorjs|heading-anchor')
_SOURCES = ('src', 'data-src', 'data-original', 'data-lazy-src')
_PIXEL = frozenset({'0', '1', '1px', '0px'})


class Inline:
    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self._marks: list[str] = []
        self._is_heading = False

    def escape(self, text: str) -> str:
        if not _MAYBE_SPECIAL.search(text):
            return text
        # More is not kept, and ten megabytes of marks would take seconds.
        text = text[:MAX_MARKDOWN]
        if BREAK in text:
            text = text.replace(BREAK, ' ')
        return _SPECIAL.sub(lambda found: '\\' + '\\'.join(found[0]), text)

    def line(self, node: Node) -> str:
        """Write all that is inside in one line."""
        pieces: list[str] = []
        self._inside(node, pieces)
        return ' '.join(''.join(pieces).replace(BREAK, ' ').split())

    def heading(self, node: Node) -> str:
        self._marks.append('**')
        self._is_heading = True
        text = self.line(node)
        self._is_heading = False
        self._marks.pop()
        return text

    def plain(self, node: Node) -> str:
        """Return the text inside as it is read, without any mark."""
        pieces: list[str] = []
        self._plain(node, pieces)
        return ' '.join(''.join(pieces).replace(BREAK, ' ').split())

    def write(self, node: Node, pieces: list[str]) -> None:
        tag = node.tag
        if node.is_junk:
            return
        if tag == 'a':
            self._link(node, pieces)
        elif tag == 'br':
            pieces.append(BREAK)
        elif tag == 'img':
            self._image(node, pieces)
        elif tag in _EMPHASIS:
            self._emphasis(node, _EMPHASIS[tag], pieces)
        elif tag in _CODE:
            self._code(node, pieces)
        elif tag == 'sup' or tag == 'sub':
            text = self.line(node)
            if text:
                pieces.append(text if '](' in text else f'<{tag}>{text}</{tag}>')
        elif tag == 'q':
            pieces.append('"')
            self._inside(node, pieces)
            pieces.append('"')
        elif tag == 'input':
            # Only Markdown of task lists is written as boxes that nobody can tick.
            if node.get('type') == 'checkbox' and node.get('disabled') is not None:
                pieces.append('[ ] ' if node.get('checked') is None else '[x] ')
        elif tag == 'math':
            self._math(node, pieces)
        elif tag == 'label':
            # Labels stand apart by style alone.
            self._inside(node, pieces)
            pieces.append(' ')
        elif tag != 'wbr':
            self._inside(node, pieces)

    def _inside(self, node: Node, pieces: list[str]) -> None:
        for child in node.children:
            if isinstance(child, str):
                pieces.append(self.escape(child))
            elif child.tag in BLOCKS:
                if not child.is_junk:
                    pieces.append(' ')
                    self._inside(child, pieces)
                    pieces.append(' ')
            else:
                self.write(child, pieces)

    def _emphasis(self, node: Node, mark: str, pieces: list[str]) -> None:
        if mark in self._marks:
            self._inside(node, pieces)
            return
        inner: list[str] = []
        self._marks.append(mark)
        self._inside(node, inner)
        self._marks.pop()
        text = ''.join(inner)
        stripped = text.strip().strip(BREAK).strip()
        if not stripped:
            pieces.append(text)
            return
        before, _, after = text.partition(stripped)
        # A break inside would cut the mark off from its end when it becomes a new paragraph.
        parts = stripped.split(BREAK)
        marked = BREAK.join(f'{mark}{part.strip()}{mark}' if part.strip() else '' for part in parts)
        pieces += (before, marked, after)

    def _code(self, node: Node, pieces: list[str]) -> None:
        if '`' in self._marks:
            self._inside(node, pieces)
            return
        text = self.plain(node)
        if text:
            pieces.append(code_span(text))

    def _link(self, node: Node, pieces: list[str]) -> None:
        href = node.get('href')
        if '](' in self._marks or href is None:
            self._inside(node, pieces)
            return
        inner: list[str] = []
        self._marks.append('](')
        self._inside(node, inner)
        self._marks.pop()
        text = ''.join(inner)
        stripped = ' '.join(text.replace(BREAK, ' ').split())
        if href.startswith('#'):
            if not any(map(str.isalnum, stripped)):
                # A pilcrow or an arrow that leads to where the reader is.
                return
            if self._is_heading:
                pieces.append(text)
                return
        if node.names and _SELF_LINK_NAMES.search(node.names):
            return
        if not stripped:
            pieces.append(text)
            return
        address = self.resolver.absolute(href)
        if address is None:
            pieces.append(text)
            return
        before = ' ' if text[0].isspace() else ''
        after = ' ' if text[-1].isspace() else ''
        pieces.append(f'{before}[{stripped}]({address}){after}')

    def _image(self, node: Node, pieces: list[str]) -> None:
        if node.get('width') in _PIXEL or node.get('height') in _PIXEL:
            return
        alt = ' '.join((node.get('alt') or '').split())[:1000]
        for name in _SOURCES:
            source = node.get(name)
            address = self.resolver.absolute(source) if source else None
            if address is not None:
                alt = self.escape(alt).replace('[', r'\[').replace(']', r'\]')
                pieces.append(f'![{alt}]({address})')
                return

    def _math(self, node: Node, pieces: list[str]) -> None:
        source = node.get('alttext')
        stack: list[Node] = [node]
        while stack and source is None:
            part = stack.pop()
            if part.tag == 'annotation' and part.get('encoding') == 'application/x-tex':
                source = self.plain(part)
            stack += part.elements
        pieces.append(f'${source.strip()}$' if source else self.plain(node))

    def _plain(self, node: Node, pieces: list[str]) -> None:
        for child in node.children:
            if isinstance(child, str):
                pieces.append(child)
            elif child.tag == 'br' or child.tag in BLOCKS:
                pieces.append(' ')
                self._plain(child, pieces)
            elif child.tag != 'a' or not _SELF_LINK_NAMES.search(child.names):
                self._plain(child, pieces)


def code_span(text: str) -> str:
    if '`' not in text:
        return f'`{text}`'
    longest = max(len(run) for run in _TICKS.findall(text))
    fence = '`' * (longest + 1)
    space = ' ' if text[0] == '`' or text[-1] == '`' else ''
    return f'{fence}{space}{text}{space}{fence}'
