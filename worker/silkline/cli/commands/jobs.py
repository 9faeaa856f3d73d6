"""The commands about jobs: enqueue, watch, jobs, show, why.

The commands that change jobs are in `job_control.py`. Imports the API only when a command runs, to
keep `--help` fast.
"""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID, uuid4

import typer

from silkline.cli.arguments import (
    LAST,
    STATUSES,
    add_scheme,
    find_job_id,
    read_statuses,
    read_time,
)
from silkline.cli.job_options import (
    AnyOption,
    Depth,
    Exclude,
    Include,
    Pages,
    ScopeOption,
    StartUrl,
    StrategyOption,
    Urls,
    make_payload,
)
from silkline.cli.progress_bar import progress_display
from silkline.cli.runtime import AsJson, JobArgument, print_message, run
from silkline.errors import ExitCode
from silkline.settings import Project

if TYPE_CHECKING:
    from silkline.queue.rpc import Rpc

commands = typer.Typer()


@commands.command()
def enqueue(
    url: StartUrl = None,
    kind: Annotated[str, typer.Option(help='crawl, or a kind that a plugin adds.')] = 'crawl',
    urls: Urls = None,
    pages: Pages = None,
    depth: Depth = None,
    scope: ScopeOption = None,
    include: Include = None,
    exclude: Exclude = None,
    strategy: StrategyOption = None,
    option: AnyOption = None,
    priority: Annotated[
        int | None, typer.Option(help='Jobs with a higher priority run first.')
    ] = None,
    source: Annotated[
        str | None, typer.Option(help='Your own name for the source of the pages.')
    ] = None,
    run_after: Annotated[
        str | None,
        typer.Option(
            metavar='TIME',
            help='Earliest start, e.g. 2026-12-24T18:00 (local time) or 2026-12-24T18:00Z.',
        ),
    ] = None,
    user: Annotated[UUID | None, typer.Option(help='Id of the user who will own the job.')] = None,
    key: Annotated[
        str | None, typer.Option(help='Idempotency key: the same key returns the same job.')
    ] = None,
    watch: Annotated[
        bool, typer.Option('--watch', '-w', help='Follow the job until it ends.')
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Enqueue a crawl and print its job id."""

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from silkline.cli import output, wording

        payload = make_payload(
            url,
            urls=urls,
            pages=pages,
            depth=depth,
            scope=scope,
            include=include,
            exclude=exclude,
            strategy=strategy,
            option=option,
            kind=kind,
        )
        due = None if run_after is None else read_time(run_after, option='--run-after')
        job = await rpc.enqueue_crawl_job(
            payload,
            kind=kind,
            # Without a key, a call that is retried could enqueue twice.
            idempotency_key=key or str(uuid4()),
            priority=priority,
            source_id=source,
            run_after=None if due is None else due.isoformat(),
            user_id=user,
        )
        if due is not None:
            print_message(f'silkline: {wording.describe_due_time(due)}')
        if watch:
            return await follow_job(rpc, project, job.id, as_json=as_json)
        output.print_result(job, output.print_id, as_json=as_json)
        return ExitCode.OK

    run(work)


@commands.command()
def watch(job: JobArgument = LAST, as_json: AsJson = False) -> None:
    """Follow a job until it ends. Ctrl-C stops watching, not the job."""

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        return await follow_job(rpc, project, await find_job_id(rpc, job), as_json=as_json)

    run(work)


@commands.command()
def jobs(
    status: Annotated[
        list[str] | None,
        typer.Option(help=f'Only jobs with this status ({", ".join(STATUSES)}); may be repeated.'),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help='Only jobs of this host; include the port if its URLs have one.'),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help='Maximum number of jobs.')] = 20,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from silkline.cli import output, wording

        statuses = read_statuses(status or [])
        found = await rpc.list_jobs(statuses=statuses, host=host, limit=limit)
        if not found and (statuses or host is not None) and not as_json:
            print_message(wording.describe_no_match(statuses, host))
        else:
            output.print_result(found, output.print_jobs, as_json=as_json)
        return ExitCode.OK

    run(work)


@commands.command()
def show(job: JobArgument = LAST, as_json: AsJson = False) -> None:
    """Show the progress and history of a job."""

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from silkline.cli import output
        from silkline.queue.rows import ShownJob

        job_id = await find_job_id(rpc, job)
        progress = await rpc.crawl_progress(job_id)
        details = ShownJob(**dict(progress), history=await rpc.list_events(job_id))
        output.print_result(details, output.print_job_details, as_json=as_json)
        return ExitCode.OK

    run(work)


@commands.command()
def why(
    job: JobArgument = LAST,
    url: Annotated[
        str | None,
        typer.Argument(metavar='URL', help='A URL that the job did not crawl.', show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain why a job is not running or did not crawl a URL."""
    address = None if url is None else add_scheme(url)

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from silkline.cli import output

        if address is not None:
            from silkline.cli.why_url import explain_url, print_url_explanation

            found = await explain_url(rpc, await find_job_id(rpc, job), address)
            output.print_result(found, print_url_explanation, as_json=as_json)
            return ExitCode.OK
        explanation = await rpc.explain_crawl_job(await find_job_id(rpc, job))
        output.print_result(explanation, output.print_explanation, as_json=as_json)
        return ExitCode.OK

    run(work)


async def follow_job(rpc: 'Rpc', project: Project, job_id: UUID, *, as_json: bool) -> ExitCode:
    from silkline.cli import wording
    from silkline.cli.watch import watch as watch_job

    first = await rpc.crawl_progress(job_id)
    print_message(f'silkline: job {job_id}, {wording.describe_job(first)}')
    if first.status in ('pending', 'paused'):
        explanation = await rpc.explain_crawl_job(job_id)
        for reason in explanation.reasons:
            print_message(f'silkline: {wording.with_advice(reason, job_id)}')
    with progress_display(as_json=as_json) as show:
        last = await watch_job(rpc, project, job_id, show)
    if last.status == 'completed':
        return ExitCode.OK
    print_message(f'{last.status}{f": {last.error_code}" if last.error_code else ""}')
    return ExitCode.NOT_COMPLETED
