"""Write a tree as Markdown (CommonMark with the tables and the strikethrough of GitHub).

Owns blocks: paragraphs, headings, lists, quotes, notes. Text inside a block is written by
`inline.py`, tables by `tables.py`, code by `code.py`. Recursion is bounded because the tree is.
"""

import re

from worker.crawl.extract.code import code_block
from worker.crawl.extract.facts import MAX_MARKDOWN
from worker.crawl.extract.inline import BREAK, Inline
from worker.crawl.extract.links import Resolver
from worker.crawl.extract.notes import is_note, kind_of, title_node
from worker.crawl.extract.tables import table_block
from worker.crawl.extract.tree import HEADINGS, Node

MAX_LIST_DEPTH = 12
MAX_QUOTE_DEPTH = 6

_NOT_IN_HEADINGS = frozenset({'p', 'ul', 'ol', 'dl', 'table', 'pre', 'blockquote', 'section'})
_BULLET = re.compile(r'^- ', re.MULTILINE)
_NUMBER = re.compile(r'\d{1,9}\\?[.)]|[•·]')
_LAST_UPDATE = re.compile(r'\W*last (?:updated?|modified|edited)\b.{0,80}', re.IGNORECASE)
_ONLY_LINKS = re.compile(r'(?:\[[^\[\]]*\]\([^()]*\)\s*)+')
_LINE_START = re.compile(r'(?:#{1,6}(?= |$)|[-+](?= |$)|>|={3,}$|-{3,}$|\d{1,9}[.)](?= |$))')
_PARAGRAPH_BREAK = re.compile(rf'\s*{BREAK}(?:\s*{BREAK})+\s*')
_LINE_BREAK = re.compile(rf'\s*{BREAK}\s*')


def write_markdown(
    root: Node, resolver: Resolver, *, heading: Node | None = None, is_main: bool = False
) -> str:
    """Write what is inside `root`, below `heading` if it begins with none of its own."""
    writer = Writer(resolver)
    blocks = writer.blocks(root)
    if heading is not None and blocks and not blocks[0].startswith('#'):
        blocks.insert(0, f'# {writer.inline.heading(heading)}')
    if is_main:
        _drop_last_links(blocks)
    text = '\n\n'.join(blocks)
    if len(text) > MAX_MARKDOWN:
        text = text[:MAX_MARKDOWN].rsplit('\n', 1)[0]
    return text + '\n' if text else ''


def _drop_last_links(blocks: list[str]) -> None:
    """Drop what closes a page and has no name: links to the next page, the date of a change."""
    for _ in range(min(3, len(blocks) - 3)):
        if not _ONLY_LINKS.fullmatch(blocks[-1]) and not _LAST_UPDATE.fullmatch(blocks[-1]):
            break
        del blocks[-1]


class Writer:
    def __init__(self, resolver: Resolver) -> None:
        self.inline = Inline(resolver)
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
            elif child.is_junk:
                continue
            elif not child.has_block:
                if child.names != 'lang ' or not _has_code(node):
                    self.inline.write(child, pieces)
            else:
                if pieces:
                    self._end_paragraph(pieces, blocks)
                    pieces = []
                if self.written > MAX_MARKDOWN:
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
            self._heading(node, blocks)
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
            self._quote(node, blocks)
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
        elif node.names and is_note(node):
            self._note(node, blocks)
        else:
            _extend(blocks, self.blocks(node))

    def _heading(self, node: Node, blocks: list[str]) -> None:
        marks = '#' * HEADINGS[node.tag] + ' '
        if any(child.tag in _NOT_IN_HEADINGS for child in node.elements):
            # Nobody closed it: the first line is the heading, the rest is what follows.
            inner = self.blocks(node)
            blocks += [marks + inner[0], *inner[1:]] if inner else []
        elif text := self.inline.heading(node):
            self._add(marks + text, blocks)

    def _quote(self, node: Node, blocks: list[str], *, title: str = '') -> None:
        self.quote_depth += 1
        inner = self.blocks(node)
        self.quote_depth -= 1
        if title:
            if inner and inner[0].strip('*:').lower() == title.lower():
                del inner[0]
            inner.insert(0, f'**{title}**')
        if inner and self.quote_depth < MAX_QUOTE_DEPTH:
            blocks.append(prefixed('\n\n'.join(inner), '> ', '> '))
        else:
            blocks += inner

    def _note(self, node: Node, blocks: list[str]) -> None:
        """Write an admonition as a quote that begins with its title in bold."""
        title = ''
        titled = title_node(node)
        if titled is not None:
            title = self.inline.line(titled).strip('*: ')
            titled.is_junk = True
        title = title or kind_of(node)
        if title.islower() or title.isupper():
            title = title.capitalize()
        self._quote(node, blocks, title=title)

    def _list(self, node: Node, blocks: list[str]) -> None:
        if self.list_depth >= MAX_LIST_DEPTH:
            blocks += self.blocks(node)
            return
        self.list_depth += 1
        items: list[list[str]] = []
        number = _integer(node.get('start'), 1) if node.tag == 'ol' else None
        for child in node.children:
            if isinstance(child, str):
                if not child.isspace():
                    items.append([' '.join(self.inline.escape(child).split())])
            elif child.is_junk:
                continue
            elif child.tag == 'li':
                item = self.blocks(child)
                if len(item) > 1 and _NUMBER.fullmatch(item[0]):
                    # The page writes its own bullets or numbers.
                    del item[0]
                items.append(item)
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
            _extend(blocks, [('\n' if is_tight else '\n\n').join(lines)])

    def _definitions(self, node: Node, blocks: list[str]) -> None:
        parts = list(_definition_parts(node))
        is_short = all(
            part.tag == 'dt' or not any(child.has_block for child in part.elements)
            for part in parts
        ) and all(part.tag in ('dt', 'dd') for part in parts)
        if not is_short:
            for part in parts:
                if not part.is_junk:
                    self._block(part, blocks)
            return
        lines: list[str] = []
        for part in parts:
            if part.is_junk:
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


def _extend(blocks: list[str], inner: list[str]) -> None:
    """Add blocks; two lists in a row would be read as one if their bullets were the same."""
    if inner and blocks and blocks[-1].startswith('- ') and inner[0].startswith('- '):
        inner[0] = _BULLET.sub('* ', inner[0])
    blocks += inner


def prefixed(text: str, first: str, others: str) -> str:
    """Put `first` before the first line and `others` before each other that is not empty."""
    lines = text.split('\n')
    bare = others.rstrip()
    rest = [others + line if line else bare for line in lines[1:]]
    return '\n'.join([first + lines[0], *rest])


def _has_code(node: Node) -> bool:
    """Tell whether this is a block of code with the name of its language written beside it."""
    return any(child.tag == 'pre' for child in node.elements)


def _is_tight(item: list[str]) -> bool:
    """Tell whether the blocks of a list item can stand without empty lines between them."""
    return len(item) <= 1 or (
        '\n\n' not in item[0]
        and not item[0].startswith(('```', '> ', '|'))
        and all(_is_list(part) for part in item[1:])
    )


def _is_list(text: str) -> bool:
    return text.startswith(('- ', '* ')) or re.match(r'\d+\. ', text) is not None


def _definition_parts(node: Node) -> list[Node]:
    parts: list[Node] = []
    for child in node.elements:
        parts += child.elements if child.tag == 'div' else [child]
    return parts


def _start_escaped(text: str) -> str:
    found = _LINE_START.match(text)
    if found is None:
        return text
    at = found.end() - 1 if text[0].isdigit() else 0
    return f'{text[:at]}\\{text[at:]}'


def _integer(text: str | None, default: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else default
