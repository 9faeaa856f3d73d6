"""The commands of the local stack: the only module of `silkline` that imports `silkline_local`.

The stack ships in the same wheel; what it imports is the extra `local`. Without the extra, its
commands are listed and say what to install. So they do in a checkout that is not installed, where
`python worker/worker.py` finds `silkline` but not `silkline_local`.
"""

import os
from importlib import import_module
from pathlib import Path

import typer

from silkline.cli.runtime import print_message
from silkline.errors import ExitCode

NOT_INSTALLED = (
    "silkline: the local stack is not installed: run pip install 'silkline[local]',"
    ' or make install in a clone'
)


def stack_commands() -> typer.Typer:
    try:
        from silkline_local.cli import commands
    except ModuleNotFoundError as error:
        if error.name != 'silkline_local':
            raise
        return stand_in_commands()
    return commands


def stand_in_commands() -> typer.Typer:
    """Commands with the stack's names that only say what to install."""
    stand_ins = typer.Typer()
    any_arguments = {'ignore_unknown_options': True, 'allow_extra_args': True}
    for name in ('up', 'down', 'reset', 'token'):
        stand_ins.command(
            name, context_settings=any_arguments, help='Part of the local stack: not installed.'
        )(refuse_missing_stack)
    return stand_ins


def refuse_missing_stack() -> None:
    print_message(NOT_INSTALLED)
    raise typer.Exit(ExitCode.REFUSED)


def start_stack() -> None:
    """Start the stack that other commands find from here; if there is none, create it here."""
    try:
        from silkline_local.cli import exit_on_error, require_extra
        from silkline_local.launch import find_stack, start_detached
    except ModuleNotFoundError:
        refuse_missing_stack()
        return
    named = os.environ.get('SILKLINE_DIRECTORY')
    stack = find_stack(Path(named) if named else None)
    with exit_on_error():
        if not stack.is_stack:
            with require_extra():
                # Before a directory is created for a stack that cannot start.
                import_module('silkline_local.stack')
        stack.create()
        if stack.lock.wait_until_ready() is None:
            try:
                start_detached(stack, [])
            except KeyboardInterrupt:
                print_message('silkline: the stack is still starting; silkline down stops it')
                raise typer.Exit(ExitCode.INTERRUPTED) from None
            print_message('silkline: it keeps running after the crawl, with its pages')


commands = stack_commands()
