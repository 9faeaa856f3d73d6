"""The commands about the queue as a whole: stats, workers, doctor, install, migrations."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silkline.cli.commands.jobs import AsJson, run
from silkline.errors import ExitCode
from silkline.settings import Project, migrations_directory

if TYPE_CHECKING:
    from silkline.queue.rpc import Rpc

commands = typer.Typer()


@commands.command()
def stats(as_json: AsJson = False) -> None:
    """Show the queue in numbers."""

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from silkline.cli import output

        found = await rpc.crawl_queue_stats()
        output.print_answer(found, output.print_stats, as_json=as_json)
        return ExitCode.OK

    run(work)


@commands.command()
def workers(as_json: AsJson = False) -> None:
    """List the workers, and when each was last seen."""

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from silkline.cli import output

        found = await rpc.list_crawl_workers()
        output.print_answer(found, output.print_workers, as_json=as_json)
        return ExitCode.OK

    run(work)


@commands.command()
def doctor(as_json: AsJson = False) -> None:
    """Say what is wrong with the queue, and what to do about it.

    Ends with 1 if something is broken.
    """

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from silkline.cli import output

        checks = await rpc.crawl_doctor()
        output.print_answer(checks, output.print_checks, as_json=as_json)
        is_broken = any(check.status == 'error' for check in checks)
        return ExitCode.REFUSED if is_broken else ExitCode.OK

    run(work)


@commands.command()
def install(
    project: Annotated[
        Path,
        typer.Argument(metavar='DIRECTORY', help='That of your Supabase project.', file_okay=False),
    ] = Path(),
) -> None:
    """Put the queue's migrations into a Supabase project.

    `supabase db push` installs them there. A file that is there already is left as it is.
    """
    from silkline.cli import output

    if not (project / 'supabase').is_dir():
        typer.echo(
            f'silkline: {project.absolute()} has no directory supabase: run supabase init there,'
            ' or name the directory of your project',
            err=True,
        )
        raise typer.Exit(ExitCode.USAGE)
    target = project / 'supabase/migrations'
    added, differing = copy_migrations(migrations_directory(), target)
    output.say(f'silkline: {output.counted(len(added), "migration")} added to {target}')
    for name in differing:
        typer.echo(f'  {name} is there with other contents and was left alone', err=True)
    if added:
        typer.echo('Next: supabase db push', err=True)
    if differing:
        raise typer.Exit(ExitCode.REFUSED)


@commands.command()
def migrations() -> None:
    """Print the directory that holds the queue's migrations."""
    typer.echo(migrations_directory())


def copy_migrations(source: Path, target: Path) -> tuple[list[str], list[str]]:
    """Copy what is missing; answer what was added, and what is there but differs."""
    target.mkdir(exist_ok=True)
    added: list[str] = []
    differing: list[str] = []
    for path in sorted(source.glob('*.sql')):
        there = target / path.name
        if not there.exists():
            shutil.copyfile(path, there)
            added.append(path.name)
        elif there.read_bytes() != path.read_bytes():
            differing.append(path.name)
    return added, differing
