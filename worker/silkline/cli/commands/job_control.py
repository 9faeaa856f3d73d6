"""The commands that change jobs: pause, resume, stop, cancel, retry.

Each takes one job, or `--all` and a filter. Jobs that match are counted first, then changed in
slices, each one short call, until as many have changed as were counted. Imports the API only when a
command runs, to keep `--help` fast.
"""

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal
from uuid import UUID

import typer

from silkline.cli.arguments import find_job_id, read_statuses, read_time
from silkline.cli.runtime import JOB_HELP, AsJson, ask, exit_on_error, print_message, run
from silkline.errors import ExitCode, SettingsError, SilklineError
from silkline.settings import Project

if TYPE_CHECKING:
    from silkline.queue.rows import BulkChange, Job
    from silkline.queue.rpc import JobFilter, Rpc

commands = typer.Typer()

SLICE_JOBS = 1000

OneJob = Annotated[str | None, typer.Argument(metavar='JOB', help=JOB_HELP, show_default=False)]
EveryJob = Annotated[bool, typer.Option('--all', help='All jobs that match, instead of one.')]
OnlyHost = Annotated[
    str | None, typer.Option('--host', help='With --all: of this host; with its port, if any.')
]
OnlyStatus = Annotated[
    list[str] | None, typer.Option('--status', help='With --all: with this status; repeatable.')
]
OnlySource = Annotated[str | None, typer.Option('--source', help='With --all: of this source.')]
OnlyKind = Annotated[str | None, typer.Option('--kind', help='With --all: of this kind.')]
CreatedBefore = Annotated[
    str | None,
    typer.Option('--created-before', metavar='TIME', help='With --all: created before this time.'),
]
CreatedAfter = Annotated[
    str | None,
    typer.Option('--created-after', metavar='TIME', help='With --all: created after this time.'),
]
Yes = Annotated[bool, typer.Option('--yes', '-y', help='With --all: do not ask.')]


@dataclass(frozen=True, slots=True)
class Action:
    """What a command does to jobs: in words, and by which calls."""

    verb: str
    participle: str
    change_one: 'Callable[[Rpc, UUID], Awaitable[Job]]'
    # The number is the most to change; 0 only counts.
    change_many: 'Callable[[Rpc, JobFilter, int], Awaitable[BulkChange]]'


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The jobs to change, as typed."""

    job: str | None
    is_all: bool
    host: str | None
    statuses: list[str] | None
    source: str | None
    kind: str | None
    created_before: str | None
    created_after: str | None

    def read_filter(self) -> dict[str, object]:
        """The filter of the bulk functions; raise `SettingsError` if a value is wrong."""
        given: dict[str, object] = {}
        for name, value in (
            ('host', self.host),
            ('status', read_statuses(self.statuses) if self.statuses else None),
            ('source_id', self.source),
            ('kind', self.kind),
        ):
            if value is not None:
                given[name] = value
        for name, text in (
            ('created_before', self.created_before),
            ('created_after', self.created_after),
        ):
            if text is not None:
                option = f'--{name.replace("_", "-")}'
                given[name] = read_time(text, option=option).isoformat()
        return given


def add_command(action: Action, description: str) -> None:
    @commands.command(action.verb, help=description)
    def command(  # pyright: ignore[reportUnusedFunction] - typer calls it
        job: OneJob = None,
        is_all: EveryJob = False,
        host: OnlyHost = None,
        status: OnlyStatus = None,
        source: OnlySource = None,
        kind: OnlyKind = None,
        created_before: CreatedBefore = None,
        created_after: CreatedAfter = None,
        yes: Yes = False,
        as_json: AsJson = False,
    ) -> None:
        selection = Selection(
            job=job,
            is_all=is_all,
            host=host,
            statuses=status,
            source=source,
            kind=kind,
            created_before=created_before,
            created_after=created_after,
        )
        change(action, selection, is_confirmed=yes, as_json=as_json)


add_command(
    Action(
        'pause',
        'paused',
        lambda rpc, job_id: rpc.pause_crawl_job(job_id),
        lambda rpc, chosen, limit: rpc.pause_crawl_jobs(chosen, limit=limit),
    ),
    'Pause a job until it is resumed, even across restarts.',
)
add_command(
    Action(
        'resume',
        'resumed',
        lambda rpc, job_id: rpc.resume_crawl_job(job_id),
        lambda rpc, chosen, limit: rpc.resume_crawl_jobs(chosen, limit=limit),
    ),
    'Continue a paused or stopped job where it left off.',
)
add_command(
    Action(
        'stop',
        'stopped',
        lambda rpc, job_id: rpc.stop_crawl_job(job_id),
        lambda rpc, chosen, limit: rpc.stop_crawl_jobs(chosen, limit=limit),
    ),
    'End a job early; its pages are kept and it can be resumed.',
)
add_command(
    Action(
        'cancel',
        'cancelled',
        lambda rpc, job_id: rpc.cancel_crawl_job(job_id),
        lambda rpc, chosen, limit: rpc.cancel_crawl_jobs(chosen, limit=limit),
    ),
    'End a job for good; it cannot be resumed.',
)


@commands.command()
def retry(
    job: OneJob = None,
    is_all: EveryJob = False,
    host: OnlyHost = None,
    status: OnlyStatus = None,
    source: OnlySource = None,
    kind: OnlyKind = None,
    created_before: CreatedBefore = None,
    created_after: CreatedAfter = None,
    urls: Annotated[
        Literal['failed', 'all'], typer.Option(help='Fetch only the URLs that failed, or all.')
    ] = 'failed',
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Run an ended job again."""
    selection = Selection(
        job=job,
        is_all=is_all,
        host=host,
        statuses=status,
        source=source,
        kind=kind,
        created_before=created_before,
        created_after=created_after,
    )
    action = Action(
        'retry',
        'retried',
        lambda rpc, job_id: rpc.retry_crawl_job(job_id, urls=urls),
        lambda rpc, chosen, limit: rpc.retry_crawl_jobs(chosen, urls=urls, limit=limit),
    )
    change(action, selection, is_confirmed=yes, as_json=as_json)


def change(action: Action, selection: Selection, *, is_confirmed: bool, as_json: bool) -> None:
    with exit_on_error():
        job_filter = selection.read_filter()
        if selection.job is not None and (selection.is_all or job_filter):
            raise SettingsError('--all and its filters cannot be used with a job')
        if selection.job is None and not selection.is_all:
            raise SettingsError(
                f'add --all to {action.verb} all jobs that match'
                if job_filter
                else f'which job? silkline jobs lists ids; --all would {action.verb} all jobs'
            )
    if selection.job is not None:
        change_one(action, selection.job, as_json=as_json)
    else:
        chosen = job_filter or {'all': True}
        change_all(action, chosen, is_confirmed=is_confirmed, as_json=as_json)


def change_one(action: Action, job: str, *, as_json: bool) -> None:
    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from silkline.cli import output

        changed = await action.change_one(rpc, await find_job_id(rpc, job))
        output.print_result(changed, output.print_status, as_json=as_json)
        return ExitCode.OK

    run(work)


def change_all(action: Action, chosen: 'JobFilter', *, is_confirmed: bool, as_json: bool) -> None:
    """Count the jobs, ask, and change them; exit with 1 if some are left."""

    async def count(rpc: 'Rpc', project: Project) -> 'BulkChange':
        return await action.change_many(rpc, chosen, 0)

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        from silkline.cli import output

        result = await change_in_slices(rpc, action, chosen, counted)
        output.print_result(result, lambda one: print_changed(action, one), as_json=as_json)
        if not result.left:
            return ExitCode.OK
        print_message(f'silkline: {result.left} more match: run the command again')
        return ExitCode.REFUSED

    counted = ask(count)
    if counted.matched:
        # Outside of the event loop, which would hold back Ctrl-C until the question is answered.
        report_or_confirm(action, counted, is_confirmed=is_confirmed)
    run(work)


def report_or_confirm(action: Action, counted: 'BulkChange', *, is_confirmed: bool) -> None:
    from silkline.cli.wording import matched_jobs

    if is_confirmed:
        print_message(f'silkline: {matched_jobs(counted)} to {action.verb}')
    elif not confirm(f'{action.verb.capitalize()} {matched_jobs(counted)}?'):
        print_message(f'no job was {action.participle} (--yes skips the question)')
        raise typer.Exit(ExitCode.REFUSED)


def confirm(question: str) -> bool:
    # Not `typer.confirm`: it writes a space to stdout, which is for data.
    typer.echo(f'{question} [y/N] ', nl=False, err=True)
    try:
        typed = sys.stdin.readline()
    except KeyboardInterrupt:
        typed = ''
    if not typed.endswith('\n'):
        # No terminal, or Ctrl-C: the cursor is still behind the question.
        typer.echo(err=True)
    return typed.strip().lower() in ('y', 'yes')


async def change_in_slices(
    rpc: 'Rpc', action: Action, chosen: 'JobFilter', counted: 'BulkChange'
) -> 'BulkChange':
    """Change no more jobs than were counted: others may begin to match meanwhile, for ever."""
    from silkline.cli import wording

    changed, left = 0, counted.matched
    # Beyond the limit, it is not known how many there are.
    most = counted.matched if counted.matched < counted.count_limit else None
    while left and (most is None or changed < most):
        limit = SLICE_JOBS if most is None else min(SLICE_JOBS, most - changed)
        try:
            answer = await action.change_many(rpc, chosen, limit)
        except SilklineError:
            print_message(f'silkline: {action.participle} {wording.counted(changed, "job")}, then:')
            raise
        changed, left = changed + answer.changed, answer.left
        if not answer.changed:
            break
        if left:
            of = wording.matched_jobs(counted)
            print_message(f'silkline: {action.participle} {changed} of {of}')
    return counted.model_copy(update={'changed': changed, 'left': left})


def print_changed(action: Action, result: 'BulkChange') -> None:
    from silkline.cli.wording import counted

    typer.echo(f'{action.participle} {counted(result.changed, "job")}')
