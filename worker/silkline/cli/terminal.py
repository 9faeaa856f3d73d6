"""What a terminal can show: tables that fit its width, and text without control characters.

No cell is cut. A column without room goes to the next line; the last column only in the rows where
it does not fit. In a pipe, every row is one line.
"""

import shutil
import sys
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

GAP = '  '
INDENT = '  '


def print_table(
    head: Sequence[str], rows: Iterable[Sequence[str | Text]], *, with_head: bool = True
) -> None:
    cells = [[as_cell(cell) for cell in row] for row in rows]
    if with_head:
        cells.insert(0, [Text(name, style='bold') for name in head])
    widths = [max(row[nth].cell_len for row in cells) for nth in range(len(head))]
    width = terminal_width()
    output = console()
    for row in cells:
        wraps = wrapped_columns([*widths[:-1], row[-1].cell_len], width)
        output.print(lay_out(row, widths, wraps), soft_wrap=True)


def as_cell(cell: str | Text) -> Text:
    return cell if isinstance(cell, Text) else Text(printable(cell))


def wrapped_columns(widths: Sequence[int], width: int | None) -> list[bool]:
    """For each column, whether it goes to a new line because the current one is full."""
    wraps: list[bool] = []
    used = 0
    for nth, column in enumerate(widths):
        is_full = width is not None and nth > 0 and used + column > width
        wraps.append(is_full)
        used = (len(INDENT) if is_full else used) + column + len(GAP)
    return wraps


def lay_out(row: Sequence[Text], widths: Sequence[int], wraps: Sequence[bool]) -> Text:
    lines = [Text()]
    gap = 0
    for cell, column, is_wrapped in zip(row, widths, wraps, strict=True):
        if is_wrapped:
            lines.append(Text(INDENT))
        elif gap:
            lines[-1].append(' ' * gap)
        lines[-1].append_text(cell)
        gap = column - cell.cell_len + len(GAP)
    for line in lines:
        line.rstrip()
    return Text('\n').join(line for line in lines if line)


def shorten(text: str, width: int | None) -> str:
    if width is None or cell_len(text) <= width:
        return text
    return f'{set_cell_size(text, width - 1).rstrip()}…'


def printable(text: str) -> str:
    """Escape control characters: titles and errors may come from a crawled site."""
    return ''.join(
        char if char.isprintable() or char in '\n\t' else repr(char)[1:-1] for char in text
    )


def terminal_width() -> int | None:
    """None if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def console() -> Console:
    return Console(highlight=False)
