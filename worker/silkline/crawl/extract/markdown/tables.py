"""Tables: a grid of one-line cells, or not a table at all.

A cell that spans columns is followed by empty ones, and one that spans rows is repeated in each, so
that every row can be read by itself. A cell cannot hold lines of code: a row with some is written
between two parts of the table, each cell below the head of its column. A layout table is written as
its blocks, and a table of line numbers and code as the code.
"""

import re
from typing import Protocol

from silkline.crawl.extract.markdown.code import (
    are_numbers,
    code_text,
    fenced,
    is_listing,
    language_of,
    lines_of,
)
from silkline.crawl.extract.markdown.inline import InlineWriter, has_break
from silkline.crawl.extract.tree import Node

MAX_COLUMNS = 60
MAX_CODE = 500
_SECTIONS = frozenset({'thead', 'tbody', 'tfoot'})
_TOO_MUCH = frozenset({'table', 'h1', 'h2', 'h3', 'h4', 'blockquote', 'article', 'section'})
_DIGITS = re.compile(r'[\s\d]*')

# Cells that reach down to the next rows: the column, in how many more rows, and the text.
Spans = dict[int, tuple[int, str]]


class BlockWriter(Protocol):
    """The part of `blocks.MarkdownWriter` that a table needs."""

    inline: InlineWriter
    limit: int
    written: int
    headings: int
    code_blocks: int
    is_cell: bool
    is_cut: bool

    def blocks(self, node: Node) -> list[str]: ...


def table_block(table: Node, writer: BlockWriter, blocks: list[str]) -> bool:
    """Write the table and return True; return False if it has to be written as blocks."""
    rows, caption, has_head = _rows(table)
    if not rows or _write_numbered_code(table, rows, writer, blocks):
        return bool(rows)
    width = max(map(len, rows))
    if table.role == 'presentation' or width > MAX_COLUMNS or (len(rows) == 1 and not has_head):
        return False
    coded = _rows_of_code(rows)
    if coded is None or (coded and width == 1):
        return False
    before = (writer.written, writer.headings, writer.code_blocks)
    if coded:
        parts = _parts_with_code(rows, coded, writer, has_head=has_head and 0 not in coded)
    else:
        grid = _grid(rows, writer)
        if len(grid) == 1 and not has_head:
            writer.written, writer.headings, writer.code_blocks = before
            return False
        parts = [_table_text(grid if has_head else [[], *grid])] if grid else []
    writer.written = before[0] + sum(map(len, parts))
    if parts and caption is not None and (title := writer.inline.bold(caption)):
        blocks.append(title)
    blocks += parts
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


def _write_numbered_code(
    table: Node, rows: list[list[Node]], writer: BlockWriter, blocks: list[str]
) -> bool:
    """Write the code of a table of line numbers and code, with or without a name above."""
    last = rows[-1]
    start = last[0].children[:1]
    if start and isinstance(start[0], str) and start[0][:1].isalpha():
        # As in most tables, so it is checked first.
        return False
    above = rows[0] if len(rows) == 2 else []
    is_one = len(last) == 2 and len(above) < 2 and len(rows) < 3
    if is_one and _are_numbers_of(last[0], last[1]):
        code = _first_pre(last[1]) or last[1]
        text = code_text(code)
    elif all(_is_numbered_line(row) for row in rows):
        code, above = last[-1], []
        text = lines_of(row[-1] for row in rows)
    else:
        return False
    # The name of the file.
    blocks += filter(None, map(writer.inline.line, above))
    if text:
        text = fenced(text, language_of(code) or language_of(table))
        writer.written += len(text)
        writer.code_blocks += 1
        blocks.append(text)
    return True


def _are_numbers_of(numbers: Node, code: Node) -> bool:
    if are_numbers(numbers):
        return True
    pre = _first_pre(numbers)
    return (
        pre is not None
        and _DIGITS.fullmatch(pre.source.text) is not None
        and _first_pre(code) is not None
    )


def _is_numbered_line(row: list[Node]) -> bool:
    return len(row) in (2, 3) and all(
        are_numbers(cell)
        or (cell.get('data-line-number') is not None and _DIGITS.fullmatch(cell.source.text))
        for cell in row[:-1]
    )


def _first_pre(node: Node) -> Node | None:
    stack: list[Node] = [node] if node.has_inner_block else []
    while stack:
        inner = stack.pop()
        if inner.tag == 'pre':
            return inner
        stack += reversed(inner.elements)
    return None


def _rows_of_code(rows: list[list[Node]]) -> set[int] | None:
    """The indexes of the rows with several lines of code; None if this is a layout table."""
    coded: set[int] = set()
    for index, row in enumerate(rows):
        for cell in row:
            stack = cell.elements[:] if cell.has_inner_block else []
            while stack:
                node = stack.pop()
                if node.tag in _TOO_MUCH:
                    return None
                if node.tag == 'pre':
                    if node.text > MAX_CODE or '\n' in code_text(node):
                        coded.add(index)
                elif node.has_inner_block:
                    if is_listing(node):
                        coded.add(index)
                    stack += node.elements
    return coded


def _grid(rows: list[list[Node]], writer: BlockWriter) -> list[list[str]]:
    grid: list[list[str]] = []
    spans: Spans = {}
    size = 0
    for row in rows:
        line: list[str] = []
        for cell in row:
            if spans:
                _fill(line, spans)
            text = _cell_text(cell, writer)
            size += len(text)
            _put(cell, text, line, spans)
        if spans:
            _fill(line, spans)
        size += len(line) * 3
        if size > writer.limit:
            writer.is_cut = True
            break
        while line and not line[-1]:
            del line[-1]
        if line:
            grid.append(line)
    return grid


def _parts_with_code(
    rows: list[list[Node]], coded: set[int], writer: BlockWriter, *, has_head: bool
) -> list[str]:
    """Write parts of the table, and between them the rows with code as blocks."""
    parts: list[str] = []
    grid: list[list[str]] = []
    spans: Spans = {}
    head: list[str] = []
    labels: dict[int, str] = {}
    if has_head:
        head, columns = _line(rows[0], [_cell_text(cell, writer) for cell in rows[0]], spans)
        labels = dict(zip(columns, map(writer.inline.bold, rows[0]), strict=True))
    for index in range(int(has_head), len(rows)):
        row = rows[index]
        if index not in coded:
            line, _ = _line(row, [_cell_text(cell, writer) for cell in row], spans)
            if line:
                grid.append(line)
            continue
        if grid:
            parts.append(_table_text([head, *grid]))
            grid = []
        texts = [writer.inline.line(cell) if cell.get('rowspan') else '' for cell in row]
        line, columns = _line(row, texts, spans)
        cells = dict(zip(columns, row, strict=True))
        for column in range(max(len(line), columns[-1] + 1)):
            # Other columns have the cells of rows above.
            inner = writer.blocks(cells[column]) if column in cells else [line[column]]
            if any(inner):
                parts += filter(None, [labels.get(column), *inner])
    if grid:
        parts.append(_table_text([head, *grid]))
    return parts


def _table_text(grid: list[list[str]]) -> str:
    width = max(map(len, grid))
    lines = ['| ' + ' | '.join(row + [''] * (width - len(row))) + ' |' for row in grid]
    lines.insert(1, '|' + ' --- |' * width)
    return '\n'.join(lines)


def _line(row: list[Node], texts: list[str], spans: Spans) -> tuple[list[str], list[int]]:
    """Place the texts of the cells; return the row of the grid, and each cell's column in it."""
    line: list[str] = []
    columns: list[int] = []
    for cell, text in zip(row, texts, strict=True):
        _fill(line, spans)
        columns.append(len(line))
        _put(cell, text, line, spans)
    _fill(line, spans)
    while line and not line[-1]:
        del line[-1]
    return line, columns


def _put(cell: Node, text: str, line: list[str], spans: Spans) -> None:
    """Add a cell to the row, and empty ones for the columns that it spans."""
    attribute = cell.source.attr
    across, down = attribute('colspan'), attribute('rowspan')
    if across is None and down is None:
        line.append(text)
        return
    height = _span(down)
    for _ in range(max(1, min(_span(across), MAX_COLUMNS - len(line)))):
        if height > 1:
            spans[len(line)] = (height - 1, text)
        line.append(text)
        text = ''


def _fill(line: list[str], spans: Spans) -> None:
    """Repeat the cells from rows above that span down to this one."""
    while (span := spans.get(len(line))) is not None:
        left, text = span
        if left == 1:
            del spans[len(line)]
        else:
            spans[len(line)] = (left - 1, text)
        line.append(text)


def _cell_text(cell: Node, writer: BlockWriter) -> str:
    if not cell.has_inner_block and not (cell.elements and has_break(cell)):
        text = writer.inline.line(cell)
        return text.replace('|', '\\|') if '|' in text else text
    was_cell, writer.is_cell = writer.is_cell, True
    blocks = writer.blocks(cell)
    writer.is_cell = was_cell
    text = '<br>'.join(block.replace('  \n', '<br>').replace('\n', '<br>') for block in blocks)
    return text.replace('|', '\\|')


def _span(text: str | None) -> int:
    if text and text.isascii() and text.isdigit() and len(text) < 6:
        return max(1, min(int(text), 1000))
    return 1
