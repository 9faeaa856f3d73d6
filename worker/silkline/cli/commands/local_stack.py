"""The local stack beside the other commands: the one place in `silkline` that imports it.

`silkline_local` ships in the same wheel, but what it needs is the extra `local`. Without it these
commands are still listed, and say what to install.
"""

import os
from pathlib import Path

import typer
from silkline_local.cli import commands
from silkline_local.launch import failures_told, find_stack, start_detached

from silkline.errors import ExitCode

__all__ = ['commands', 'start_stack']


def start_stack() -> None:
    """Start the stack that the other commands would find from here; none yet: here."""
    from silkline.cli import output

    named = os.environ.get('SILKLINE_DIRECTORY')
    place = find_stack(Path(named) if named else None)
    with failures_told():
        place.make()
        if place.lock.wait_until_ready() is None:
            try:
                start_detached(place, [])
            except KeyboardInterrupt:
                output.say('silkline: the stack goes on starting; silkline down stops it')
                raise typer.Exit(ExitCode.INTERRUPTED) from None
            output.say('silkline: it goes on running after the crawl, with its pages')
