"""Write a tree as Markdown (CommonMark with the tables and the strikethrough of GitHub).

Owns blocks: paragraphs, headings, lists, quotes, notes. Text inside a block is written by
`inline.py`, tables by `tables.py`, code by `code.py`. Recursion is bounded because the tree is.
"""

import re

from worker.crawl.extract.code import code_block
from worker.crawl.extract.inline import BREAK, Inline
from worker.crawl.extract.links import Resolver
from worker.crawl.extract.tables import table_block
from worker.crawl.extract.tree import BLOCKS, HEADINGS, Node

MAX_CHARACTERS = 2_000_000
MAX_LIST_DEPTH = 12
MAX_QUOTE_DEPTH = 6

_NOTE = re.compile(
    r'(?:^|[\s_-])(?:admonition|custom-block|markdown-alert|starlight-aside|callout|hint|alert)'
    r'(?:$|[\s_-])'
)
_NOTE_TITLE = re.compile(
    r'admonition-?(?:title|heading)|custom-block-title|alert-?(?:title|heading)|aside__title'
    r'|callout-?title|hint-?title'
)
_KIND = re.compile(
    r'(?:^|[\s_-])(note|tip|hint|info|important|warning|caution|danger|attention|error|seealso'
    r'|success|deprecated|versionadded|versionchanged)(?:$|[\s_-])'
)
_LINE_START = re.compile(r'(?:#{1,6}(?= |$)|[-+](?= |$)|>|={3,}$|-{3,}$|\d{1,9}[.)](?= |$))')
_PARAGRAPH_BREAK = re.compile(rf'\s*{BREAK}(?:\s*{BREAK})+\s*')
_LINE_BREAK = re.compile(rf'\s*{BREAK}\s*')


def write_markdown(root: Node, resolver: Resolver, *, keeps_junk: bool) -> str:
    writer = Writer(resolver, keeps_junk=keeps_junk)
    text = '\n\n'.join(writer.blocks(root))
    if len(text) > MAX_CHARACTERS:
        text = text[:MAX_CHARACTERS].rsplit('\n', 1)[0]
    return text + '\n' if text else ''


class Writer:
    def __init__(self, resolver: Resolver, *, keeps_junk: bool) -> None:
        self.keeps_junk = keeps_junk
        self.inline = Inline(resolver, keeps_junk=keeps_junk)
        self.written = 0
        self.list_depth = 0
        self.quote_depth = 0

    def blocks(self, node: Node) -> list[str]:
        """Write what is inside as blocks, one string each."""
        blocks: list[str] = []
        pieces: list[str] = []
        for child in node.children:
            if isinstance(child, str):
                pieces.append(self.inline.escape(child))
            elif child.is_junk and not self.keeps_junk:
                continue
            elif child.tag not in BLOCKS and not child.has_block:
                self.inline.write(child, pieces)
            else:
                if pieces:
                    self._end_paragraph(pieces, blocks)
                    pieces = []
                if self.written > MAX_CHARACTERS:
                    break
                self._block(child, blocks)
        if pieces:
            self._end_paragraph(pieces, blocks)
        return blocks

    def _end_paragraph(self, pieces: list[str], blocks: list[str]) -> None:
        text = ' '.join(''.join(pieces).split())
        if not text:
            return
        if BREAK not in text:
            self._add(_start_escaped(text), blocks)
            return
        for part in _PARAGRAPH_BREAK.split(text):
            lines = [_start_escaped(line) for line in _LINE_BREAK.split(part) if line]
            if lines:
                self._add('  \n'.join(lines), blocks)

    def _add(self, text: str, blocks: list[str]) -> None:
        self.written += len(text)
        blocks.append(text)

    def _block(self, node: Node, blocks: list[str]) -> None:
        tag = node.tag
        if tag in HEADINGS:
            text = self.inline.heading(node)
            if text:
                self._add('#' * HEADINGS[tag] + ' ' + text, blocks)
        elif tag == 'pre':
            text = code_block(node)
            if text:
                self._add(text, blocks)
        elif tag == 'ul' or tag == 'ol' or tag == 'menu' or tag == 'dir':
            self._list(node, blocks)
        elif tag == 'table':
            if not table_block(node, self, blocks):
                blocks += self.blocks(node)
        elif tag == 'blockquote':
            self._quote(self.blocks(node), blocks)
        elif tag == 'dl':
            self._definitions(node, blocks)
        elif tag == 'hr':
            self._add('---', blocks)
        elif tag == 'dt':
            self._term(node, blocks)
        elif tag == 'summary':
            text = self.inline.line(node)
            if text:
                self._add(f'**{text}**', blocks)
        elif tag == 'a':
            self._block_link(node, blocks)
        elif node.names and _is_note(node):
            self._note(node, blocks)
        else:
            blocks += self.blocks(node)

    def _quote(self, inner: list[str], blocks: list[str]) -> None:
        if not inner:
            return
        if self.quote_depth >= MAX_QUOTE_DEPTH:
            blocks += inner
            return
        self._add(prefixed('\n\n'.join(inner), '> ', '> '), blocks)

    def _note(self, node: Node, blocks: list[str]) -> None:
        """Write an admonition as a quote that begins with its title in bold."""
        title = ''
        self.quote_depth += 1
        for child in node.children:
            if isinstance(child, Node) and _NOTE_TITLE.search(child.names):
                title = self.inline.line(child).strip('*: ')
                child.is_junk = True
                break
        was, self.keeps_junk = self.keeps_junk, False
        inner = self.blocks(node)
        self.keeps_junk = was
        self.quote_depth -= 1
        if not title and (kind := _KIND.search(node.names)):
            title = kind[1].capitalize()
            if inner and inner[0].strip('*:').lower() == title.lower():
                del inner[0]
        if title:
            inner.insert(0, f'**{title}**')
        self._quote(inner, blocks)

    def _list(self, node: Node, blocks: list[str]) -> None:
        if self.list_depth >= MAX_LIST_DEPTH:
            blocks += self.blocks(node)
            return
        self.list_depth += 1
        items: list[list[str]] = []
        number = _integer(node.get('start'), 1) if node.tag == 'ol' else None
        loose: list[str] = []
        for child in node.children:
            if isinstance(child, str):
                if not child.isspace():
                    loose.append(child)
            elif child.is_junk and not self.keeps_junk:
                continue
            elif child.tag == 'li':
                items.append(self.blocks(child))
            elif child.tag in ('ul', 'ol') and items:
                # A list that hangs beside its item and not in it: common, and wrong.
                self._list(child, items[-1])
            else:
                items.append(self.blocks(child) if child.has_block else [self.inline.line(child)])
        self.list_depth -= 1
        is_tight = all(_is_tight(item) for item in items)
        lines: list[str] = []
        for item in items:
            text = ('\n' if is_tight else '\n\n').join(part for part in item if part)
            if not text:
                continue
            marker = '- ' if number is None else f'{number}. '
            if number is not None:
                number += 1
            lines.append(prefixed(text, marker, ' ' * len(marker)))
        if lines:
            blocks.append(('\n' if is_tight else '\n\n').join(lines))

    def _definitions(self, node: Node, blocks: list[str]) -> None:
        parts = list(_definition_parts(node))
        is_short = all(
            part.tag == 'dt' or not any(isinstance(child, Node) and child.has_block
                                        for child in part.children)
            for part in parts
        ) and all(part.tag in ('dt', 'dd') for part in parts)
        if not is_short:
            for part in parts:
                if not part.is_junk or self.keeps_junk:
                    self._block(part, blocks)
            return
        lines: list[str] = []
        for part in parts:
            if part.is_junk and not self.keeps_junk:
                continue
            inner: list[str] = []
            if part.tag == 'dt':
                self._term(part, inner)
                if inner and lines and lines[-1].startswith(': '):
                    lines.append('')
                lines += inner
            else:
                inner = self.blocks(part)
                if inner:
                    lines.append(prefixed('\n\n'.join(inner), ': ', '  '))
        if lines:
            blocks.append('\n'.join(lines))

    def _term(self, node: Node, blocks: list[str]) -> None:
        if node.has_inner_block:
            blocks += self.blocks(node)
            return
        if 'sig' in node.names.split():
            text = self.inline.plain(node)
            if text:
                self._add(f'**`{text}`**' if '`' not in text else text, blocks)
            return
        text = self.inline.line(node).strip()
        if text:
            self._add(text if text.startswith('**') else f'**{text}**', blocks)

    def _block_link(self, node: Node, blocks: list[str]) -> None:
        """Write a link around blocks: as a link if it holds one line, as its blocks if more."""
        inner = self.blocks(node)
        href = node.get('href')
        address = self.inline.resolver.absolute(href) if href else None
        if len(inner) == 1 and address and '\n' not in inner[0] and '](' not in inner[0]:
            hashes, mark, text = inner[0].partition('# ')
            if mark and not hashes.strip('#'):
                blocks.append(f'{hashes}# [{text}]({address})')
            else:
                blocks.append(f'[{inner[0]}]({address})')
        else:
            blocks += inner


def prefixed(text: str, first: str, others: str) -> str:
    """Put `first` before the first line and `others` before each other that is not empty."""
    lines = text.split('\n')
    bare = others.rstrip()
    rest = [others + line if line else bare for line in lines[1:]]
    return '\n'.join([first + lines[0], *rest])


def _is_tight(item: list[str]) -> bool:
    """Tell whether the blocks of a list item can stand without empty lines between them."""
    return len(item) <= 1 or (
        '\n\n' not in item[0]
        and not item[0].startswith(('```', '> ', '|'))
        and all(_is_list(part) for part in item[1:])
    )


def _is_list(text: str) -> bool:
    return text.startswith('- ') or re.match(r'\d+\. ', text) is not None


def _is_note(node: Node) -> bool:
    return _NOTE.search(node.names) is not None and (
        _KIND.search(node.names) is not None
        or any(isinstance(child, Node) and _NOTE_TITLE.search(child.names)
               for child in node.children)
    )


def _definition_parts(node: Node) -> list[Node]:
    parts: list[Node] = []
    for child in node.children:
        if isinstance(child, Node):
            if child.tag == 'div':
                parts += [part for part in child.children if isinstance(part, Node)]
            else:
                parts.append(child)
    return parts


def _start_escaped(text: str) -> str:
    found = _LINE_START.match(text)
    if found is None:
        return text
    at = found.end() - 1 if text[0].isdigit() else 0
    return f'{text[:at]}\\{text[at:]}'


def _integer(text: str | None, default: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else default
