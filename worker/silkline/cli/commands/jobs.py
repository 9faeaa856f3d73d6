"""The commands about jobs: enqueue, watch, list, show, explain, and the buttons.

Owns their words. Imports the API only when a command runs, so that help is quick.
"""

import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast
from uuid import UUID, uuid4

import typer

from silkline.cli.arguments import LAST, find_id, read_options, read_time, refuse_port, with_scheme
from silkline.errors import ExitCode, SettingsError, SilklineError
from silkline.settings import Project, read_project

if TYPE_CHECKING:
    from silkline.queue.rows import Job, JobStatus, Progress
    from silkline.queue.rpc import Rpc

T = TypeVar('T')

commands = typer.Typer()

# Somebody sits before it.
PATIENCE_SECONDS = 4.0
STATUSES = ('pending', 'processing', 'paused', 'completed', 'failed', 'stopped', 'cancelled')

# What the queue calls a thing in its hints, and what it is called here.
COMMANDS_OF = {
    'Use resume_crawl_job': 'Use silkline resume',
    'Use retry_crawl_job': 'Use silkline retry',
    'Use p_urls all': 'Use --all',
    'Leave p_user_id': 'Leave --user',
    'p_user_id is': '--user is',
}

UrlArgument = Annotated[str, typer.Argument(metavar='URL', help='Where to begin.')]
JobArgument = Annotated[
    str,
    typer.Argument(
        metavar='JOB', help='Its id, six or more of its last characters, or "last" for the newest.'
    ),
]
AsJson = Annotated[bool, typer.Option('--json', help='Print JSON, for programs.')]


@commands.command()
def enqueue(
    url: UrlArgument,
    kind: Annotated[str, typer.Option(help='crawl, audit, or the kind of a plugin.')] = 'crawl',
    max_pages: Annotated[
        int | None,
        typer.Option('--max-pages', '--pages', help='How many pages are fetched at most.'),
    ] = None,
    max_depth: Annotated[
        int | None, typer.Option(help='How many links away from the start.')
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(help='page, site, sitemap, list or llms_txt.')
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            '--option',
            '-o',
            metavar='KEY=VALUE',
            help='Any other option (docs/reference/options.md).',
        ),
    ] = None,
    priority: Annotated[int | None, typer.Option(help='Higher runs sooner.')] = None,
    source: Annotated[str | None, typer.Option(help='What the pages belong to.')] = None,
    run_after: Annotated[
        str | None,
        typer.Option(
            metavar='TIME', help='Not before, e.g. 2026-12-24T18:00; local, without a zone.'
        ),
    ] = None,
    user: Annotated[UUID | None, typer.Option(help='Whose job it is to be.')] = None,
    key: Annotated[
        str | None, typer.Option(help='The same key answers the same job, instead of another.')
    ] = None,
    watch: Annotated[bool, typer.Option('--watch', '-w', help='Follow it to its end.')] = False,
    as_json: AsJson = False,
) -> None:
    """Enqueue a crawl, and print the id of its job."""
    from silkline.cli import output

    address = with_scheme(url)
    payload: dict[str, object] = {'url': address}
    for name, value in (('max_pages', max_pages), ('max_depth', max_depth), ('strategy', strategy)):
        if value is not None:
            payload[name] = value

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        refuse_port(address)
        payload.update(read_options(option or []))
        due = None if run_after is None else read_time(run_after)
        job = await rpc.enqueue_crawl_job(
            payload,
            kind=kind,
            # Without one, a call that is repeated on the way would enqueue twice.
            idempotency_key=key or str(uuid4()),
            priority=priority,
            source_id=source,
            run_after=None if due is None else due.isoformat(),
            user_id=user,
        )
        if due is not None:
            output.say(f'silkline: {output.about_due(due)}')
        if watch:
            return await follow(rpc, project, job.id, as_json=as_json)
        output.print_answer(job, output.print_id, as_json=as_json)
        return ExitCode.OK

    run(work)


@commands.command()
def watch(job: JobArgument = LAST, as_json: AsJson = False) -> None:
    """Follow a job to its end. Ctrl-C ends the watching, not the job."""

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        return await follow(rpc, project, await find_id(rpc, job), as_json=as_json)

    run(work)


@commands.command()
def jobs(
    status: Annotated[
        list[str] | None, typer.Option(help=f'Only these: {", ".join(STATUSES)}.')
    ] = None,
    host: Annotated[
        str | None, typer.Option(help='Only of this host, with the port if its URLs have one.')
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help='How many, the newest first.')] = 20,
    as_json: AsJson = False,
) -> None:
    """List jobs, the newest first."""

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from silkline.cli import output

        for word in status or []:
            if word not in STATUSES:
                raise SettingsError(f'{word!r} is no status: there are {", ".join(STATUSES)}')
        statuses = cast('list[JobStatus]', status or [])
        found = await rpc.list_jobs(statuses=statuses, host=host, limit=limit)
        if not found and (statuses or host is not None) and not as_json:
            output.say(output.about_no_job(statuses, host))
        else:
            output.print_answer(found, output.print_jobs, as_json=as_json)
        return ExitCode.OK

    run(work)


@commands.command()
def show(job: JobArgument = LAST, as_json: AsJson = False) -> None:
    """Show a job: how far it is, and its history."""

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from silkline.cli import output
        from silkline.queue.rows import ShownJob

        job_id = await find_id(rpc, job)
        progress = await rpc.crawl_progress(job_id)
        shown_job = ShownJob(**dict(progress), history=await rpc.list_events(job_id))
        output.print_answer(shown_job, output.print_shown, as_json=as_json)
        return ExitCode.OK

    run(work)


@commands.command()
def why(job: JobArgument = LAST, as_json: AsJson = False) -> None:
    """Tell why a job is not running."""

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from silkline.cli import output

        explanation = await rpc.explain_crawl_job(await find_id(rpc, job))
        output.print_answer(explanation, output.print_explanation, as_json=as_json)
        return ExitCode.OK

    run(work)


@commands.command()
def pause(job: JobArgument, as_json: AsJson = False) -> None:
    """Pause a job until it is resumed, whatever restarts meanwhile."""
    press(job, lambda rpc, job_id: rpc.pause_crawl_job(job_id), as_json=as_json)


@commands.command()
def resume(job: JobArgument, as_json: AsJson = False) -> None:
    """Go on with a paused or stopped job, where it was."""
    press(job, lambda rpc, job_id: rpc.resume_crawl_job(job_id), as_json=as_json)


@commands.command()
def stop(job: JobArgument, as_json: AsJson = False) -> None:
    """End a job early and keep its results."""
    press(job, lambda rpc, job_id: rpc.stop_crawl_job(job_id), as_json=as_json)


@commands.command()
def cancel(job: JobArgument, as_json: AsJson = False) -> None:
    """End a job for good."""
    press(job, lambda rpc, job_id: rpc.cancel_crawl_job(job_id), as_json=as_json)


@commands.command()
def retry(
    job: JobArgument,
    everything: Annotated[
        bool, typer.Option('--all', help='All URLs; otherwise only those that failed.')
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run an ended job again."""
    urls = 'all' if everything else 'failed'
    press(job, lambda rpc, job_id: rpc.retry_crawl_job(job_id, urls=urls), as_json=as_json)


def press(job: str, button: 'Callable[[Rpc, UUID], Awaitable[Job]]', *, as_json: bool) -> None:
    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from silkline.cli import output

        changed = await button(rpc, await find_id(rpc, job))
        output.print_answer(changed, output.print_status, as_json=as_json)
        return ExitCode.OK

    run(work)


async def follow(rpc: 'Rpc', project: Project, job_id: UUID, *, as_json: bool) -> ExitCode:
    from silkline.cli import output
    from silkline.cli.watch import watch as watch_job

    first = await rpc.crawl_progress(job_id)
    output.say(f'silkline: job {job_id}, {output.about(first)}')
    if first.status in ('pending', 'paused'):
        explanation = await rpc.explain_crawl_job(job_id)
        for reason in explanation.reasons:
            output.say(f'silkline: {output.with_advice(reason, job_id)}')
    with shown(as_json=as_json) as show:
        last = await watch_job(rpc, project, job_id, show)
    if last.status == 'completed':
        return ExitCode.OK
    output.say(f'{last.status}{f": {last.error_code}" if last.error_code else ""}')
    return ExitCode.NOT_COMPLETED


@contextmanager
def shown(*, as_json: bool, as_data: bool = True) -> 'Generator[Callable[[Progress], None]]':
    """A bar on a terminal, a line per change elsewhere, JSON lines for programs.

    The lines go to stdout if they are what the command is for, else to stderr.
    """
    from rich.console import Console, Group
    from rich.constrain import Constrain
    from rich.live import Live
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.text import Text

    from silkline.cli import output

    if as_json:
        yield output.print_json
        return
    if not sys.stderr.isatty():
        yield lambda progress: typer.echo(
            f'{progress.status}  {", ".join(output.told(progress))}', err=not as_data
        )
        return
    columns = (
        TextColumn('{task.fields[status]:10}'),
        BarColumn(),
        TextColumn('{task.fields[pages]}'),
        TimeElapsedColumn(),
    )
    bar = Progress(*columns)
    task = bar.add_task('', total=100, status='', pages='')
    with Live(bar, console=Console(stderr=True)) as live:

        def draw(progress: 'Any') -> None:
            pages, *wait = output.told(progress)
            bar.update(
                task,
                completed=progress.progress_percentage,
                status=progress.status,
                pages=pages,
            )
            # The wait in a line of its own: beside the bar there is no room for it. At their ends
            # there is some for the ^C of the terminal, which would begin a line otherwise.
            lines = Group(bar, *map(Text, wait))
            live.update(Constrain(lines, live.console.width - len('^C')))

        yield draw


def run(work: 'Callable[[Rpc, Project], Coroutine[Any, Any, ExitCode]]') -> None:
    """Do what a command does, and end as `errors.py` says."""
    import asyncio

    from silkline.cli import output
    from silkline.queue.rpc import Rpc

    async def enter() -> ExitCode:
        project = read_project()
        async with Rpc(project, patience_seconds=PATIENCE_SECONDS) as rpc:
            return await work(rpc, project)

    try:
        code = asyncio.run(enter())
    except SilklineError as error:
        output.say(f'silkline: {in_commands(str(error))}')
        code = error.exit_code
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    raise typer.Exit(code)


def in_commands(text: str) -> str:
    """What the queue says of its functions and their parameters, for somebody at a shell."""
    for name, command in COMMANDS_OF.items():
        text = text.replace(name, command)
    return text
