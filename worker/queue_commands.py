"""The commands about the queue as a whole: stats, workers, doctor, install, migrations."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from worker.errors import ExitCode
from worker.job_commands import AsJson, run
from worker.paths import migrations_directory
from worker.settings import Project

if TYPE_CHECKING:
    from worker.rpc import Rpc

commands = typer.Typer()


@commands.command()
def stats(as_json: AsJson = False) -> None:
    """Show the queue in numbers."""

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from worker import console

        found = await rpc.crawl_queue_stats()
        console.print_answer(found, console.print_stats, as_json=as_json)
        return ExitCode.OK

    run(work)


@commands.command()
def workers(as_json: AsJson = False) -> None:
    """List the workers, and when each was last seen."""

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from worker import console

        found = await rpc.list_crawl_workers()
        console.print_answer(found, console.print_workers, as_json=as_json)
        return ExitCode.OK

    run(work)


@commands.command()
def doctor(as_json: AsJson = False) -> None:
    """Say what is wrong with the queue, and what to do about it.

    Ends with 1 if something is broken.
    """

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from worker import console

        checks = await rpc.crawl_doctor()
        console.print_answer(checks, console.print_checks, as_json=as_json)
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
    from worker import console

    if not (project / 'supabase').is_dir():
        typer.echo(
            f'silkline: {project.absolute()} has no directory supabase: run supabase init there,'
            ' or name the directory of your project',
            err=True,
        )
        raise typer.Exit(ExitCode.USAGE)
    target = project / 'supabase/migrations'
    added, differing = copy_migrations(migrations_directory(), target)
    console.say(f'silkline: {console.counted(len(added), "migration")} added to {target}')
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
