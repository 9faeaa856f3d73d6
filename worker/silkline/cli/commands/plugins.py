"""The command `silkline plugins`: the installed plugins, and whether each one loads."""

from typing import TYPE_CHECKING

import typer

from silkline.cli.runtime import AsJson, print_message
from silkline.errors import ExitCode

if TYPE_CHECKING:
    from silkline.crawl.installed_plugins import InstalledPlugin

commands = typer.Typer()


@commands.command()
def plugins(as_json: AsJson = False) -> None:
    """List installed plugins and whether each one loads.

    Also says whether this machine can render pages. Exits with 1 if a plugin does not load;
    workers run without it.
    """
    from silkline.crawl.installed_plugins import discover

    found = discover()
    if as_json:
        print_json(found)
    else:
        print_plugins(found)
        print_message(rendering())
    if any(plugin.error for plugin in found):
        raise typer.Exit(ExitCode.REFUSED)


def rendering() -> str:
    """Whether this machine can render pages, in a sentence."""
    from silkline.browser import find_browser

    browser = find_browser()
    if browser.problem:
        return f'this machine cannot render pages: {browser.problem}'
    return f'this machine can render pages: {browser.program}'


def print_json(found: 'list[InstalledPlugin]') -> None:
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


def print_plugins(found: 'list[InstalledPlugin]') -> None:
    from silkline.cli import output
    from silkline.cli.terminal import print_table

    if not found:
        print_message('no plugins are installed: docs/how-to/plugins.md explains how to write one')
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
