"""Tables: a grid of one-line cells, or not a table at all.

A cell that spans columns is followed by empty ones, and one that spans rows is repeated in each, so
that every row can be read by itself. A layout table is written as its blocks, and a table of line
numbers and code as the code.
"""

from typing import Protocol

from silkline.crawl.extract.markdown.code import code_block
from silkline.crawl.extract.markdown.inline import InlineWriter
from silkline.crawl.extract.tree import Node

MAX_COLUMNS = 60
MAX_CELLS = 50_000
_SECTIONS = frozenset({'thead', 'tbody', 'tfoot'})
MAX_CODE = 500
_TOO_MUCH = frozenset({'table', 'h1', 'h2', 'h3', 'h4', 'blockquote', 'article', 'section'})
_NUMBERS = ('linenos', 'gutter', 'lineno', 'lntd')


class BlockWriter(Protocol):
    """The part of `blocks.MarkdownWriter` that a table needs."""

    inline: InlineWriter
    written: int
    is_cell: bool

    def blocks(self, node: Node) -> list[str]: ...


def table_block(table: Node, writer: BlockWriter, blocks: list[str]) -> bool:
    """Write the table and return True; return False if it has to be written as blocks."""
    rows, caption, has_head = _rows(table)
    code = _code_of(rows)
    if code is not None:
        for row in rows[:-1]:
            # The name of the file.
            blocks += filter(None, map(writer.inline.line, row))
        blocks += filter(None, [code_block(code, inside=table)])
        return True
    if table.get('role') == 'presentation' or not _is_grid(rows):
        return False
    grid = _grid(rows, writer)
    if not grid:
        return True
    width = max(len(row) for row in grid)
    if len(grid) < 2 and not has_head:
        return False
    if not has_head:
        grid.insert(0, [])
    lines = ['| ' + ' | '.join(row + [''] * (width - len(row))) + ' |' for row in grid]
    lines.insert(1, '|' + ' --- |' * width)
    text = '\n'.join(lines)
    writer.written += len(text)
    if caption is not None and (title := writer.inline.bold(caption)):
        blocks.append(title)
    blocks.append(text)
    return True


def _rows(table: Node) -> tuple[list[list[Node]], Node | None, bool]:
    rows: list[list[Node]] = []
    caption: Node | None = None
    has_head = False
    for child in table.elements:
        if child.tag == 'caption':
            caption = child
        elif child.tag in _SECTIONS:
            for row in child.elements:
                if row.tag == 'tr':
                    has_head = has_head or (child.tag == 'thead' and not rows)
                    rows.append(_cells(row))
        elif child.tag == 'tr':
            rows.append(_cells(child))
    rows = [row for row in rows if row]
    if rows and not has_head:
        has_head = all(cell.tag == 'th' for cell in rows[0])
    return rows, caption, has_head


def _cells(row: Node) -> list[Node]:
    return [cell for cell in row.elements if cell.tag in ('td', 'th')]


def _code_of(rows: list[list[Node]]) -> Node | None:
    """The code of a table of line numbers and code, with or without a name above."""
    if not rows or len(rows) > 2 or len(rows[-1]) != 2 or (len(rows) == 2 and len(rows[0]) != 1):
        return None
    first, second = rows[-1]
    if not any(name in first.names for name in _NUMBERS):
        return None
    stack: list[Node] = [second]
    while stack:
        node = stack.pop()
        if node.tag == 'pre':
            return node
        stack += node.elements
    return second


def _is_grid(rows: list[list[Node]]) -> bool:
    for row in rows:
        for cell in row:
            stack: list[Node] = [cell]
            while stack:
                node = stack.pop()
                if node.tag in _TOO_MUCH or (node.tag == 'pre' and node.text > MAX_CODE):
                    return False
                if node.has_inner_block or node is cell:
                    stack += node.elements
    return True


def _grid(rows: list[list[Node]], writer: BlockWriter) -> list[list[str]]:
    grid: list[list[str]] = []
    spans: dict[int, tuple[int, str]] = {}
    count = 0
    for row in rows:
        line: list[str] = []
        for cell in row:
            if spans:
                _fill(line, spans)
            text = _cell_text(cell, writer)
            across, down = cell.get('colspan'), cell.get('rowspan')
            if across is None and down is None and len(line) < MAX_COLUMNS:
                line.append(text)
                continue
            width = min(_span(across), MAX_COLUMNS)
            height = _span(down)
            for offset in range(width):
                if len(line) >= MAX_COLUMNS:
                    break
                if height > 1:
                    spans[len(line)] = (height - 1, text if offset == 0 else '')
                line.append(text if offset == 0 else '')
        _fill(line, spans)
        count += len(line)
        if count > MAX_CELLS:
            break
        while line and not line[-1]:
            del line[-1]
        if line:
            grid.append(line)
    return grid


def _fill(line: list[str], spans: dict[int, tuple[int, str]]) -> None:
    """Repeat the cells from rows above that span down to this one."""
    while (span := spans.get(len(line))) is not None:
        left, text = span
        if left == 1:
            del spans[len(line)]
        else:
            spans[len(line)] = (left - 1, text)
        line.append(text)


def _cell_text(cell: Node, writer: BlockWriter) -> str:
    has_lines = cell.elements and (
        cell.has_inner_block or any(child.tag == 'br' for child in cell.elements)
    )
    if not has_lines:
        return writer.inline.line(cell).replace('|', '\\|')
    was_cell, writer.is_cell = writer.is_cell, True
    blocks = writer.blocks(cell)
    writer.is_cell = was_cell
    text = '<br>'.join(block.replace('  \n', '<br>').replace('\n', '<br>') for block in blocks)
    return text.replace('|', '\\|')


def _span(text: str | None) -> int:
    if text and text.isascii() and text.isdigit() and len(text) < 6:
        return max(1, min(int(text), 1000))
    return 1
