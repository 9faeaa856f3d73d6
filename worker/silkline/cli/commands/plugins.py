"""The command `silkline plugins`: what is installed beside the program, and whether it works."""

from typing import TYPE_CHECKING, Annotated

import typer

from silkline.errors import ExitCode

if TYPE_CHECKING:
    from silkline.plugins import Found

commands = typer.Typer()


@commands.command()
def plugins(
    as_json: Annotated[bool, typer.Option('--json', help='Print JSON, for programs.')] = False,
) -> None:
    """List the installed plugins, and whether each one loads.

    Ends with 1 if one does not. A worker leaves it out and goes on.
    """
    from silkline.plugins import discover

    found = discover()
    if as_json:
        print_json(found)
    else:
        print_plugins(found)
    if any(plugin.error for plugin in found):
        raise typer.Exit(ExitCode.REFUSED)


def print_json(found: 'list[Found]') -> None:
    import json

    rows = [
        {
            'name': plugin.name,
            'kind': plugin.kind,
            'package': plugin.package,
            'version': plugin.version,
            'error': plugin.error,
        }
        for plugin in found
    ]
    typer.echo(json.dumps(rows))


def print_plugins(found: 'list[Found]') -> None:
    from silkline.cli import output
    from silkline.cli.terminal import print_table

    if not found:
        output.say('no plugin is installed: docs/how-to/plugins.md tells how one is made')
        return
    rows = [
        (
            plugin.name,
            (plugin.kind or 'unknown').replace('_', ' '),
            f'{plugin.package} {plugin.version}'.rstrip(),
            output.coloured('broken' if plugin.error else 'ok'),
            first_line(plugin.error or ''),
        )
        for plugin in found
    ]
    print_table(('plugin', 'kind', 'package', 'state', 'error'), rows)


def first_line(text: str) -> str:
    return text.splitlines()[0] if text else ''
