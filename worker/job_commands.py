"""The commands about jobs: enqueue, watch, list, show, explain, and the buttons.

Owns their words. Imports the API only when a command runs, so that help is quick.
"""

import json
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast
from uuid import UUID, uuid4

import typer

from worker.errors import ExitCode, NoSuchJob, SettingsError, SilklineError
from worker.settings import Project, read_project

if TYPE_CHECKING:
    from worker.answers import Job, JobStatus, Progress
    from worker.rpc import Rpc

T = TypeVar('T')

commands = typer.Typer()

# Somebody sits before it.
PATIENCE_SECONDS = 4.0
LAST = 'last'
# Ids begin with their time, so that it is the end in which those of one day differ.
PART_OF_ID = re.compile(r'[0-9a-f-]{6,35}')
# Among which a part of an id is looked for, and of which so many are listed.
SEARCHED_JOBS = 1000
LISTED_JOBS = 10
STATUSES = ('pending', 'processing', 'paused', 'completed', 'failed', 'stopped', 'cancelled')

# A host, perhaps a port and a path: what people type.
WITHOUT_SCHEME = re.compile(r'([\w.-]+)(:\d+)?([/?#].*)?$')

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
        int | None, typer.Option(help='How many pages are fetched at most.')
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
            '--option', '-o', metavar='KEY=VALUE', help='Any other option (docs/options.md).'
        ),
    ] = None,
    priority: Annotated[int | None, typer.Option(help='Higher runs sooner.')] = None,
    source: Annotated[str | None, typer.Option(help='What the pages belong to.')] = None,
    run_after: Annotated[
        str | None, typer.Option(metavar='TIME', help='Not before, e.g. 2026-12-24T18:00:00Z.')
    ] = None,
    user: Annotated[UUID | None, typer.Option(help='Whose job it is to be.')] = None,
    key: Annotated[
        str | None, typer.Option(help='The same key answers the same job, instead of another.')
    ] = None,
    watch: Annotated[bool, typer.Option('--watch', '-w', help='Follow it to its end.')] = False,
    as_json: AsJson = False,
) -> None:
    """Enqueue a crawl, and print the id of its job."""
    from worker import console

    payload: dict[str, object] = {'url': with_scheme(url)}
    for name, value in (('max_pages', max_pages), ('max_depth', max_depth), ('strategy', strategy)):
        if value is not None:
            payload[name] = value

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        payload.update(read_options(option or []))
        job = await rpc.enqueue_crawl_job(
            payload,
            kind=kind,
            # Without one, a call that is repeated on the way would enqueue twice.
            idempotency_key=key or str(uuid4()),
            priority=priority,
            source_id=source,
            run_after=run_after,
            user_id=user,
        )
        if watch:
            return await follow(rpc, project, job.id, as_json=as_json)
        console.print_answer(job, console.print_id, as_json=as_json)
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
        from worker import console

        for word in status or []:
            if word not in STATUSES:
                raise SettingsError(f'{word!r} is no status: there are {", ".join(STATUSES)}')
        statuses = cast('list[JobStatus]', status or [])
        found = await rpc.list_jobs(statuses=statuses, host=host, limit=limit)
        console.print_answer(found, console.print_jobs, as_json=as_json)
        return ExitCode.OK

    run(work)


@commands.command()
def show(job: JobArgument = LAST, as_json: AsJson = False) -> None:
    """Show a job: how far it is, and its history."""

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from worker import console
        from worker.answers import ShownJob

        job_id = await find_id(rpc, job)
        progress = await rpc.crawl_progress(job_id)
        shown_job = ShownJob(**dict(progress), history=await rpc.list_events(job_id))
        console.print_answer(shown_job, console.print_shown, as_json=as_json)
        return ExitCode.OK

    run(work)


@commands.command()
def why(job: JobArgument = LAST, as_json: AsJson = False) -> None:
    """Tell why a job is not running."""

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from worker import console

        explanation = await rpc.explain_crawl_job(await find_id(rpc, job))
        console.print_answer(explanation, console.print_explanation, as_json=as_json)
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
        from worker import console

        changed = await button(rpc, await find_id(rpc, job))
        console.print_answer(changed, console.print_status, as_json=as_json)
        return ExitCode.OK

    run(work)


def with_scheme(url: str) -> str:
    """What somebody means who leaves out the scheme: https, and http for this machine."""
    match = WITHOUT_SCHEME.match(url)
    if match is None:
        return url
    is_local = match[1] == 'localhost' or re.fullmatch(r'[\d.]+', match[1])
    meant = f'{"http" if is_local else "https"}://{url}'
    typer.echo(f'silkline: {url} is taken for {meant}', err=True)
    return meant


def read_options(words: list[str]) -> dict[str, object]:
    """`KEY=VALUE`, the value as JSON if it is JSON, else as text. No option is null."""
    options: dict[str, object] = {}
    for word in words:
        name, sign, text = word.partition('=')
        if not name or not sign:
            raise SettingsError(f'--option {word} is not of the form KEY=VALUE')
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        options[name] = text if value is None else value
    return options


async def find_id(rpc: 'Rpc', job: str) -> UUID:
    if job == LAST:
        newest = await rpc.list_jobs(statuses=[], host=None, limit=1)
        if not newest:
            raise SettingsError('there is no job yet: silkline crawl URL makes one')
        return newest[0].id
    try:
        return UUID(job)
    except ValueError:
        return await find_by_part(rpc, job.lower())


async def find_by_part(rpc: 'Rpc', part: str) -> UUID:
    """The one job among the newest whose id begins or ends so."""
    if not PART_OF_ID.fullmatch(part):
        raise SettingsError(
            f'{part!r} is no id of a job, nor six characters of one or more, from its end or its'
            ' beginning: silkline jobs lists them'
        )
    newest = await rpc.list_jobs(statuses=[], host=None, limit=SEARCHED_JOBS)
    found = [job for job in newest if str(job.id).startswith(part) or str(job.id).endswith(part)]
    if not found:
        which = (
            'no job' if len(newest) < SEARCHED_JOBS else f'none of the newest {len(newest)} jobs'
        )
        raise NoSuchJob(f'{which} begins or ends with {part!r}: silkline jobs lists them')
    if len(found) > 1:
        listed = ''.join(f'\n  {job.id}  {job.status}  {job.url}' for job in found[:LISTED_JOBS])
        more = f'\n  and {len(found) - LISTED_JOBS} older ones' * (len(found) > LISTED_JOBS)
        raise NoSuchJob(
            f'{len(found)} jobs begin or end with {part!r}: type more, best from the end'
            f'{listed}{more}'
        )
    return found[0].id


async def follow(rpc: 'Rpc', project: Project, job_id: UUID, *, as_json: bool) -> ExitCode:
    from worker import console
    from worker.watch import watch as watch_job

    first = await rpc.crawl_progress(job_id)
    console.say(f'silkline: job {job_id}, {console.about(first)}')
    if first.status in ('pending', 'paused'):
        explanation = await rpc.explain_crawl_job(job_id)
        for reason in explanation.reasons:
            console.say(f'silkline: {console.with_advice(reason, job_id)}')
    with shown(as_json=as_json) as show:
        last = await watch_job(rpc, project, job_id, show)
    if last.status == 'completed':
        return ExitCode.OK
    console.say(f'{last.status}{f": {last.error_code}" if last.error_code else ""}')
    return ExitCode.NOT_COMPLETED


@contextmanager
def shown(*, as_json: bool, as_data: bool = True) -> 'Generator[Callable[[Progress], None]]':
    """A bar on a terminal, a line per change elsewhere, JSON lines for programs.

    The lines go to stdout if they are what the command is for, else to stderr.
    """
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.text import Text

    from worker import console

    if as_json:
        yield console.print_json
        return
    if not sys.stderr.isatty():
        yield lambda progress: typer.echo(
            f'{progress.status}  {", ".join(console.told(progress))}', err=not as_data
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
            pages, *wait = console.told(progress)
            bar.update(
                task,
                completed=progress.progress_percentage,
                status=progress.status,
                pages=pages,
            )
            # In a line of its own: beside the bar there is no room for it.
            live.update(Group(bar, *map(Text, wait)))

        yield draw


def run(work: 'Callable[[Rpc, Project], Coroutine[Any, Any, ExitCode]]') -> None:
    """Do what a command does, and end as `errors.py` says."""
    import asyncio

    from worker import console
    from worker.rpc import Rpc

    async def enter() -> ExitCode:
        project = read_project()
        async with Rpc(project, patience_seconds=PATIENCE_SECONDS) as rpc:
            return await work(rpc, project)

    try:
        code = asyncio.run(enter())
    except SilklineError as error:
        console.say(f'silkline: {error}')
        code = error.exit_code
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    raise typer.Exit(code)
