"""Write a tree as Markdown, block by block: paragraphs, headings, lists, quotes, notes.

Text inside a block is written by `inline.py`, tables by `tables.py`, code by `code.py`. Recursion
is bounded because the depth of the tree is.
"""

import re

from silkline.crawl.extract.facts import MAX_MARKDOWN
from silkline.crawl.extract.markdown.code import code_block, code_text, is_listing
from silkline.crawl.extract.markdown.escaping import (
    BREAK,
    code_span,
    finished,
    folded,
    out_of_link,
    with_brackets,
)
from silkline.crawl.extract.markdown.formulas import written
from silkline.crawl.extract.markdown.inline import InlineWriter, is_formula
from silkline.crawl.extract.markdown.lists import add_blocks, has_sections, is_marker, is_tight_item
from silkline.crawl.extract.markdown.notes import is_note, kind_of, title_node
from silkline.crawl.extract.markdown.tables import table_block
from silkline.crawl.extract.tree import HEADINGS, Node
from silkline.crawl.extract.vocabulary import drop_ending

MAX_LIST_DEPTH = 12
MAX_QUOTE_DEPTH = 6
MAX_HEADING = 200

_NOT_IN_HEADINGS = frozenset({'p', 'ul', 'ol', 'dl', 'table', 'pre', 'blockquote', 'section'})
_MARKER = re.compile(r'(?:[-*>|] ?|\d+[.)] |```)')
_LABEL = re.compile(r'\[[^\[\]]{1,20}\]|<sup>[^<>]{1,20}</sup>|\d{1,3}')
_FOOTNOTE = re.compile(r'(?:^|[\s_-])(?:footnote|citation)(?:$|[\s_-])')
_BOLD_KIND = re.compile(r'\*\*\w+:?\*\*:?(?: |$)')
# What would be read as a heading, a list, a quote, an underline, or the second line of a table.
_LINE_START = re.compile(r'(?:#{1,6}(?= |$)|[-+](?= |$)|>|=+ *$|\d{1,9}[.)](?= |$)|[-|:][-|: ]*$)')
_HEADING = re.compile(r'#{1,6} ')
_CLOSING = re.compile(r'(?<!\S)#+$')
_PARAGRAPH_BREAK = re.compile(rf'\s*{BREAK}(?:\s*{BREAK})+\s*')
_LINE_BREAK = re.compile(rf'\s*{BREAK}\s*')


def write_markdown(
    root: Node, inline: InlineWriter, *, heading: Node | None = None, is_main: bool = False
) -> str:
    """Write the content of `root`, below `heading` if it has no heading of its own."""
    writer = MarkdownWriter(inline)
    blocks = writer.blocks(root)
    if heading is not None and blocks and not blocks[0].startswith('# '):
        title = inline.heading(heading)
        if blocks[0].lstrip('# ') != title:
            blocks.insert(0, f'# {title}')
    if is_main:
        drop_ending(blocks)
    text = '\n\n'.join(blocks)
    if len(text) > MAX_MARKDOWN:
        text = text[:MAX_MARKDOWN].rsplit('\n', 1)[0]
    return text + '\n' if text else ''


class MarkdownWriter:
    def __init__(self, inline: InlineWriter) -> None:
        self.inline = inline
        self.written = 0
        self.list_depth = 0
        self.quote_depth = 0
        self.is_cell = False

    def blocks(self, node: Node) -> list[str]:
        """Write the content as blocks, one string each."""
        blocks: list[str] = []
        pieces: list[str] = []
        inline = self.inline
        for child in node.children:
            if isinstance(child, str):
                if pieces or not child.isspace():
                    pieces.append(inline.escape(child))
            elif child.is_junk:
                continue
            elif not child.has_block:
                if child.names != 'lang ' or not _has_code(node):
                    inline.write(child, pieces)
            else:
                if pieces:
                    self._end_paragraph(pieces, blocks)
                    pieces = []
                if self.written > MAX_MARKDOWN:
                    break
                if child.label:
                    self._add(f'**{inline.escape(child.label)}**', blocks)
                self._block(child, blocks)
        if pieces:
            self._end_paragraph(pieces, blocks)
        return blocks

    def _end_paragraph(self, pieces: list[str], blocks: list[str]) -> None:
        text = folded(''.join(pieces))
        if not text:
            return
        if BREAK not in text:
            self._add(_start_escaped(finished(text)), blocks)
            return
        for part in _PARAGRAPH_BREAK.split(text):
            lines = [_start_escaped(finished(line)) for line in _LINE_BREAK.split(part) if line]
            lines = [line for line in lines if line]
            if lines:
                self._add('  \n'.join(lines), blocks)

    def _add(self, text: str, blocks: list[str]) -> None:
        self.written += len(text)
        blocks.append(text)

    def _block(self, node: Node, blocks: list[str]) -> None:
        tag = node.tag
        if tag in HEADINGS:
            self._heading(node, blocks)
        elif tag == 'pre' or tag == 'code':
            self._code(node, blocks)
        elif tag == 'ul' or tag == 'ol' or tag == 'menu' or tag == 'dir':
            self._list(node, blocks)
        elif tag == 'table':
            if not table_block(node, self, blocks):
                blocks += self.blocks(node)
        elif tag == 'tr':
            self._row(node, blocks)
        elif tag == 'blockquote' and not is_note(node):
            self._quote(node, blocks)
        elif tag == 'dl':
            self._definitions(node, blocks)
        elif tag == 'hr':
            self._add('---', blocks)
        elif tag == 'dt':
            self._term(node, blocks)
        elif tag == 'summary':
            if _has_heading(node):
                blocks += self.blocks(node)
            elif text := self.inline.bold(node):
                self._add(text, blocks)
        elif tag == 'a':
            self._block_link(node, blocks)
        elif not node.names:
            add_blocks(blocks, self.blocks(node))
        elif is_note(node):
            self._note(node, blocks)
        elif is_listing(node):
            self._code(node, blocks)
        elif is_formula(node) and (formula := written(node.source.text, is_display=True)):
            self._add(formula, blocks)
        else:
            inner = self.blocks(node)
            if len(inner) > 1 and _LABEL.fullmatch(inner[0]) and _FOOTNOTE.search(node.names):
                inner[:2] = [f'{inner[0]} {inner[1]}']
            add_blocks(blocks, inner)

    def _code(self, node: Node, blocks: list[str]) -> None:
        if self.is_cell:
            text = '\n'.join(map(code_span, filter(str.strip, code_text(node).split('\n'))))
        else:
            text = code_block(node)
        if text:
            self._add(text, blocks)

    def _row(self, node: Node, blocks: list[str]) -> None:
        """Write a row of a layout table: in one line, if its cells have one line each."""
        if any(cell.has_inner_block or _has_break(cell) for cell in node.elements):
            blocks += self.blocks(node)
            return
        pieces: list[str] = []
        for cell in node.elements:
            if not cell.is_junk:
                self.inline.write(cell, pieces)
                pieces.append(' ')
        self._end_paragraph(pieces, blocks)

    def _heading(self, node: Node, blocks: list[str]) -> None:
        marks = '#' * HEADINGS[node.tag] + ' '
        if _is_left_open(node):
            # It was never closed: the first line is the heading, the rest follows it.
            inner = self.blocks(node)
            if inner and '\n' not in inner[0] and not _MARKER.match(inner[0]):
                inner[0] = marks + _closed(inner[0])
            blocks += inner
        elif text := self.inline.heading(node):
            self._add(marks + _closed(text), blocks)

    def _quote(
        self, node: Node, blocks: list[str], *, title: str = '', is_kind: bool = False
    ) -> None:
        self.quote_depth += 1
        inner = self.blocks(node)
        self.quote_depth -= 1
        if title and not (is_kind and inner and _BOLD_KIND.match(inner[0])):
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
            title = self.inline.bold(titled).strip('*: ')
            titled.is_junk = True
        is_kind = not title
        title = title or kind_of(node)
        if title.islower() or title.isupper():
            title = title.capitalize()
        self._quote(node, blocks, title=title, is_kind=is_kind)

    def _list(self, node: Node, blocks: list[str]) -> None:
        if self.list_depth >= MAX_LIST_DEPTH or (node.tag == 'ul' and has_sections(node)):
            blocks += self.blocks(node)
            return
        self.list_depth += 1
        item: list[str]
        items: list[list[str]] = []
        number = _integer(node.get('start'), 1) if node.tag == 'ol' else None
        for child in node.children:
            if isinstance(child, str):
                if not child.isspace():
                    item = []
                    self._end_paragraph([self.inline.escape(child)], item)
                    items.append(item)
            elif child.is_junk:
                continue
            elif child.tag == 'li':
                item = self.blocks(child)
                if len(item) > 1 and is_marker(item[0], number, len(items)):
                    del item[0]
                items.append(item)
            elif child.tag in ('ul', 'ol') and items:
                # A list next to its item instead of inside it: common, and invalid.
                self._list(child, items[-1])
            else:
                items.append(self.blocks(child) if child.has_block else [self.inline.line(child)])
        self.list_depth -= 1
        is_tight = all(is_tight_item(item) for item in items)
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
            add_blocks(blocks, [('\n' if is_tight else '\n\n').join(lines)])

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
        if text := self.inline.bold(node):
            self._add(text, blocks)

    def _block_link(self, node: Node, blocks: list[str]) -> None:
        """Write a link around blocks: its first line, text or heading, becomes the link."""
        href = node.get('href')
        address = self.inline.resolver.absolute(href) if href else None
        if address is None or self.inline.is_link:
            blocks += self.blocks(node)
            return
        self.inline.is_link = True
        inner = self.blocks(node)
        self.inline.is_link = False
        first = inner[0] if inner else ''
        found = _HEADING.match(first)
        text = first[found.end() :] if found else first
        rest = map(out_of_link, inner)
        if text and '\n' not in text and not _MARKER.match(text):
            next(rest)
            blocks.append(f'{found[0] if found else ""}[{with_brackets(text)}]({address})')
        blocks += rest


def prefixed(text: str, first: str, others: str) -> str:
    """Put `first` before the first line and `others` before every other line that is not empty."""
    if '\n' not in text:
        return first + text
    lines = text.split('\n')
    bare = others.rstrip()
    rest = [others + line if line else bare for line in lines[1:]]
    return '\n'.join([first + lines[0], *rest])


def _has_code(node: Node) -> bool:
    """Whether this is a block of code next to the name of its language."""
    return any(child.tag == 'pre' for child in node.elements)


def _has_break(node: Node) -> bool:
    return any(child.tag == 'br' for child in node.elements)


def _is_left_open(heading: Node) -> bool:
    """Whether a heading contains more than its line, because it was never closed."""
    inside = [child for child in heading.elements if child.tag in _NOT_IN_HEADINGS]
    if len(inside) == 1 and inside[0].tag == 'p' and not inside[0].has_inner_block:
        return heading.own > 0 or inside[0].text > MAX_HEADING
    return bool(inside)


def _has_heading(node: Node) -> bool:
    return node.has_inner_block and any(
        child.tag in HEADINGS or _has_heading(child) for child in node.elements
    )


def _closed(heading: str) -> str:
    """Keep # at the end of a heading from being read as its closing mark."""
    return _CLOSING.sub(r'\\\g<0>', heading) if heading.endswith('#') else heading


def _definition_parts(node: Node) -> list[Node]:
    parts: list[Node] = []
    for child in node.elements:
        parts += child.elements if child.tag == 'div' else [child]
    return parts


def _start_escaped(text: str) -> str:
    # Faster than the pattern, and enough for most lines.
    if text[:1].isalpha():
        return text
    found = _LINE_START.match(text)
    if found is None:
        return text
    at = found.end() - 1 if text[0].isdigit() else 0
    return f'{text[:at]}\\{text[at:]}'


def _integer(text: str | None, default: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else default
