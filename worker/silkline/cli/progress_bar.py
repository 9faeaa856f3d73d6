"""Showing the progress of a job: a bar, a line per change, or JSON lines.

`watch.py` decides when a snapshot is shown. rich is imported only then, to keep `--help` fast.
"""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from silkline.queue.rows import Progress


@contextmanager
def progress_display(
    *, as_json: bool = False, to_stdout: bool = True
) -> 'Generator[Callable[[Progress], None]]':
    """Yield a function that shows a snapshot: on a terminal as a bar, in a pipe as a line.

    The lines go to stdout, or to stderr where stdout is for other data.
    """
    from rich.console import Console, Group
    from rich.constrain import Constrain
    from rich.live import Live
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as ProgressBar
    from rich.text import Text

    from silkline.cli import output, wording

    if as_json:
        yield output.print_json
        return
    if not sys.stderr.isatty():

        def print_line(progress: 'Progress') -> None:
            parts = filter(None, [wording.page_counts(progress), wording.describe_wait(progress)])
            typer.echo(f'{progress.status}  {", ".join(parts)}', err=not to_stdout)

        yield print_line
        return
    bar = ProgressBar(
        TextColumn('{task.fields[status]:10}'),
        # The default is red, as if something had failed.
        BarColumn(complete_style='cyan', finished_style='green'),
        TextColumn('{task.fields[pages]}'),
        TimeElapsedColumn(),
    )
    task = bar.add_task('', total=100, status='', pages='')
    with Live(bar, console=Console(stderr=True)) as live:

        def draw(progress: 'Progress') -> None:
            bar.update(
                task,
                completed=progress.progress_percentage,
                status=progress.status,
                pages=wording.page_counts(progress),
            )
            wait = wording.describe_wait(progress)
            # The wait gets its own line: the bar's line has no room for it. Both lines end early
            # enough for the terminal's ^C, which would start a new line otherwise.
            lines = Group(bar, *([Text(wait)] if wait else []))
            live.update(Constrain(lines, live.console.width - len('^C')))

        yield draw
