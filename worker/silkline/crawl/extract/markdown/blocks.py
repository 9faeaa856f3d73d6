"""Write a tree as Markdown, block by block: paragraphs, headings, lists, quotes, notes.

Text inside a block is written by `inline.py`, tables by `tables.py`, code by `code.py`. Recursion
is bounded because the depth of the tree is.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar

from silkline.crawl.extract.markdown.code import are_numbers, code_block, code_text, is_listing
from silkline.crawl.extract.markdown.escaping import (
    BREAK,
    code_span,
    finished,
    folded,
)
from silkline.crawl.extract.markdown.formulas import written
from silkline.crawl.extract.markdown.inline import InlineWriter, is_formula
from silkline.crawl.extract.markdown.lists import add_blocks, has_sections, is_marker, is_tight_item
from silkline.crawl.extract.markdown.notes import Note, read_note
from silkline.crawl.extract.markdown.tables import table_block
from silkline.crawl.extract.tree import HEADINGS, Node

REMEMBERED = 500
MAX_LIST_DEPTH = 12
MAX_QUOTE_DEPTH = 6
MAX_HEADING = 200

_NOT_IN_HEADINGS = frozenset({'p', 'ul', 'ol', 'dl', 'table', 'pre', 'blockquote', 'section'})
_MARKER = re.compile(r'(?:[-*>|] ?|\d+[.)] |```)')
_LABEL = re.compile(r'\[[^\[\]]{1,20}\]|<sup>[^<>]{1,20}</sup>|\d{1,3}')
_FOOTNOTE = re.compile(r'(?:^|[\s_-])(?:footnote|citation)(?:$|[\s_-])')
_BESIDE_CODE = re.compile(
    r'^lang$|(?:^|[\s_-])(?:copy(?:-?(?:btn|button|code|link))?|clipboard|test-arrow'
    r'|run-?(?:btn|button|code|link))(?:$|\s)'
)
_INVISIBLE = ' \xad\u200b\u200c\u200d\u2060\ufeff'
_IMAGE_ONLY = re.compile(r'!\[\](?:\([^()]*\)|\[\d+\])')
_ENDS = frozenset(':!.\u2013\u2014-')
_BOLD_KIND = re.compile(r'\*\*\w+:?\*\*:?(?: |$)')
# What would be read as a heading, a list, a quote, an underline, or the second line of a table.
_LINE_START = re.compile(r'(?:#{1,6}(?= |$)|[-+](?= |$)|>|=+ *$|\d{1,9}[.)](?= |$)|[-|:][-|: ]*$)')
_HEADING = re.compile(r'#{1,6} ')
_CLOSING = re.compile(r'(?<!\S)#+$')
_PARAGRAPH_BREAK = re.compile(rf'\s*{BREAK}(?:\s*{BREAK})+\s*')
_LINE_BREAK = re.compile(rf'\s*{BREAK}\s*')


class MarkdownWriter:
    def __init__(self, inline: InlineWriter, *, limit: int) -> None:
        self.inline = inline
        self.limit = inline.limit = limit
        self.written = 0
        self.headings = 0
        self.code_blocks = 0
        self.list_depth = 0
        self.quote_depth = 0
        self.is_cell = False
        self.is_cut = False

    def blocks(self, node: Node) -> list[str]:
        """Write the content as blocks, one string each."""
        blocks: list[str] = []
        if not node.has_inner_block:
            self._leaf(node, blocks)
            return blocks
        pieces: list[str] = []
        inline = self.inline
        for child in node.children:
            if isinstance(child, str):
                if pieces or not child.isspace():
                    pieces.append(inline.escape(child))
            elif child.is_junk:
                continue
            elif not child.has_block:
                if not (child.names and _is_beside_code(child.names) and _has_code(node)):
                    inline.write(child, pieces)
            else:
                if pieces:
                    self._end_paragraph(pieces, blocks)
                    pieces = []
                if self.written > self.limit:
                    self.is_cut = True
                    break
                if child.label:
                    self._add(f'**{inline.escape(child.label)}**', blocks)
                self._block(child, blocks)
        if pieces:
            self._end_paragraph(pieces, blocks)
        return blocks

    def _leaf(self, node: Node, blocks: list[str]) -> None:
        """Write a block without blocks inside."""
        inline = self.inline
        children = node.children
        if len(children) == 1 and isinstance(only := children[0], str):
            # As in most of them.
            if text := folded(inline.escape(only)):
                self._add(_start_escaped(finished(text)), blocks)
            return
        pieces: list[str] = []
        for child in children:
            if isinstance(child, str):
                if pieces or not child.isspace():
                    pieces.append(inline.escape(child))
            else:
                inline.write(child, pieces)
        if pieces:
            self._end_paragraph(pieces, blocks)

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
        write = self._writers.get(node.tag)
        if write is not None:
            write(self, node, blocks)
        elif node.names:
            self._named(node, blocks)
        elif not node.has_inner_block:
            self._leaf(node, blocks)
        elif is_listing(node):
            self.code(node, blocks)
        else:
            add_blocks(blocks, self.blocks(node))

    def _named(self, node: Node, blocks: list[str]) -> None:
        if (note := read_note(node)) is not None:
            self._note(note, blocks)
        elif is_listing(node):
            self.code(node, blocks)
        elif is_formula(node) and (formula := written(node.source.text, is_display=True)):
            self._add(formula, blocks)
        elif not node.has_inner_block:
            self._leaf(node, blocks)
        else:
            inner = self.blocks(node)
            if len(inner) > 1 and _LABEL.fullmatch(inner[0]) and _FOOTNOTE.search(node.names):
                inner[:2] = [f'{inner[0]} {inner[1]}']
            add_blocks(blocks, inner)

    def code(self, node: Node, blocks: list[str]) -> None:
        if node.names and are_numbers(node):
            # They are beside the code.
            return
        if self.is_cell:
            text = '\n'.join(map(code_span, filter(str.strip, code_text(node).split('\n'))))
        else:
            text = code_block(node)
        if text:
            self.code_blocks += 1
            self._add(text, blocks)

    def _table(self, node: Node, blocks: list[str]) -> None:
        if node.names and (note := read_note(node)) is not None:
            self._note(note, blocks)
        elif not table_block(node, self, blocks):
            blocks += self.blocks(node)

    def _rule(self, node: Node, blocks: list[str]) -> None:
        self._add('---', blocks)

    def _summary(self, node: Node, blocks: list[str]) -> None:
        if _has_heading(node):
            blocks += self.blocks(node)
        elif text := self.inline.bold(node):
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
        if node.has_inner_block and _is_left_open(node):
            # It was never closed: the first line is the heading, the rest follows it.
            inner = self.blocks(node)
            if inner and '\n' not in inner[0] and not _MARKER.match(inner[0]):
                inner[0] = marks + _closed(inner[0])
                self.headings += 1
            blocks += inner
            return
        text = self.inline.heading(node)
        if not text.strip(_INVISIBLE):
            return
        if _IMAGE_ONLY.fullmatch(text):
            self._add(text, blocks)
            return
        self.headings += 1
        self._add(self.inline.bold(node) if self.is_cell else marks + _closed(text), blocks)

    def _quote(self, node: Node, blocks: list[str]) -> None:
        if node.names and (note := read_note(node)) is not None:
            self._note(note, blocks)
            return
        self.quote_depth += 1
        inner = self.blocks(node)
        self.quote_depth -= 1
        self._add_quote(inner, blocks)

    def _add_quote(self, inner: list[str], blocks: list[str]) -> None:
        if inner and self.quote_depth < MAX_QUOTE_DEPTH and not self.is_cell:
            blocks.append(prefixed('\n\n'.join(inner), '> ', '> '))
        else:
            blocks += inner

    def _note(self, note: Note, blocks: list[str]) -> None:
        """Write an admonition as a quote that begins with its title, or else with its kind."""
        inner: list[str] = []
        titled = note.title
        title = '' if titled is None else self.inline.bold(titled).strip('*: ')
        self.quote_depth += 1
        was_junk = titled is not None and titled.is_junk
        if titled is not None:
            if note.has_heading:
                self._heading(titled, inner)
            titled.is_junk = True
        is_headed = bool(inner)
        for part in note.body:
            if not part.is_junk:
                add_blocks(inner, self.blocks(part))
        if titled is not None:
            titled.is_junk = was_junk
        self.quote_depth -= 1
        if not title and not (inner and _says(inner[0], note.kind)):
            title = note.kind
        if title and not is_headed:
            if title.islower() or title.isupper():
                title = title.capitalize()
            if inner and inner[0].strip('*:').lower() == title.lower():
                del inner[0]
            inner.insert(0, f'**{title}**')
        self._add_quote(inner, blocks)

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
        if node.names and (note := read_note(node)) is not None:
            self._note(note, blocks)
            return
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
        if len(lines) > 1 and all(part.tag == 'dt' for part in parts):
            # Names without definitions, as in a table of contents.
            lines = [f'- {line}' for line in lines if line]
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
        rest = map(self.inline.out_of_link, inner)
        if text and '\n' not in text and not _MARKER.match(text):
            next(rest)
            blocks.append(f'{found[0] if found else ""}{self.inline.link(text, address)}')
        blocks += rest

    _writers: ClassVar[dict[str, Callable[['MarkdownWriter', Node, list[str]], None]]] = {
        **dict.fromkeys(HEADINGS, _heading),
        **dict.fromkeys(('pre', 'code'), code),
        **dict.fromkeys(('ul', 'ol', 'menu', 'dir'), _list),
        'table': _table,
        'tr': _row,
        'blockquote': _quote,
        'dl': _definitions,
        'dt': _term,
        'hr': _rule,
        'summary': _summary,
        'a': _block_link,
    }


def _says(text: str, kind: str) -> bool:
    """Whether a note without a title begins with its kind, as in 'Note: …' or in bold."""
    if _BOLD_KIND.match(text):
        return True
    return text[: len(kind)].lower() == kind.lower() and text[len(kind) :].lstrip()[:1] in _ENDS


def prefixed(text: str, first: str, others: str) -> str:
    """Put `first` before the first line and `others` before every other line that is not empty."""
    if '\n' not in text:
        return first + text
    lines = text.split('\n')
    bare = others.rstrip()
    rest = [others + line if line else bare for line in lines[1:]]
    return '\n'.join([first + lines[0], *rest])


# The same names occur again and again, on a page and on all pages of a site.
@lru_cache(maxsize=REMEMBERED)
def _is_beside_code(names: str) -> bool:
    return _BESIDE_CODE.search(names) is not None


def _has_code(node: Node) -> bool:
    """Whether what is next to code may be the name of its language or a button."""
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
