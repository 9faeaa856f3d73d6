"""The commands about the whole queue: stats, workers, doctor, install, migrations."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silkline.cli.runtime import AsJson, print_message, run
from silkline.errors import ExitCode
from silkline.settings import Project, migrations_directory

if TYPE_CHECKING:
    from silkline.queue.rpc import Rpc

commands = typer.Typer()


@commands.command()
def stats(as_json: AsJson = False) -> None:
    """Show how many jobs and workers the queue has."""

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from silkline.cli import output

        found = await rpc.crawl_queue_stats()
        output.print_result(found, output.print_stats, as_json=as_json)
        return ExitCode.OK

    run(work)


@commands.command()
def workers(as_json: AsJson = False) -> None:
    """List workers and when each was last seen."""

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from silkline.cli import output

        found = await rpc.list_crawl_workers()
        output.print_result(found, output.print_workers, as_json=as_json)
        return ExitCode.OK

    run(work)


@commands.command()
def doctor(as_json: AsJson = False) -> None:
    """Check the queue for problems and say how to fix them.

    Exits with 1 if something is broken.
    """

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from silkline.cli import output

        checks = await rpc.crawl_doctor()
        output.print_result(checks, output.print_checks, as_json=as_json)
        is_broken = any(check.status == 'error' for check in checks)
        return ExitCode.REFUSED if is_broken else ExitCode.OK

    run(work)


@commands.command()
def install(
    project: Annotated[
        Path,
        typer.Argument(metavar='DIRECTORY', help='Root of your Supabase project.', file_okay=False),
    ] = Path(),
) -> None:
    """Copy the queue's migrations into a Supabase project.

    Says how to apply them. Existing files are not overwritten.
    """
    from silkline.cli.wording import counted

    if not (project / 'supabase').is_dir():
        print_message(
            f'silkline: {project.absolute()} has no supabase directory: run supabase init there,'
            ' or pass the root of your project'
        )
        raise typer.Exit(ExitCode.USAGE)
    target = project / 'supabase/migrations'
    added, differing = copy_migrations(migrations_directory(), target)
    print_message(f'silkline: {counted(len(added), "migration")} added to {target}')
    for name in differing:
        print_message(f'  {name} exists with different contents and was not overwritten')
    if differing:
        print_message(
            'Remove these copies and run silkline install again, unless you changed them on purpose'
        )
        raise typer.Exit(ExitCode.REFUSED)
    print_message(f'Next: {push_command(target)}, if not done yet; then silkline doctor')


@commands.command()
def migrations() -> None:
    """Print the path of the queue's migrations."""
    typer.echo(migrations_directory())


def push_command(target: Path) -> str:
    """How to apply the migrations: the CLI refuses those older than the last one applied."""
    ours = {path.name for path in migrations_directory().glob('*.sql')}
    others = {path.name for path in target.glob('[0-9]*_*.sql')} - ours
    is_older = bool(others) and min(ours) < max(others)
    return 'supabase db push --include-all' if is_older else 'supabase db push'


def copy_migrations(source: Path, target: Path) -> tuple[list[str], list[str]]:
    """Copy missing files; return the names that were added, and those whose contents differ."""
    target.mkdir(exist_ok=True)
    added: list[str] = []
    differing: list[str] = []
    for path in sorted(source.glob('*.sql')):
        copy = target / path.name
        if not copy.exists():
            shutil.copyfile(path, copy)
            added.append(path.name)
        elif copy.read_bytes() != path.read_bytes():
            differing.append(path.name)
    return added, differing
