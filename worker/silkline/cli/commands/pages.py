"""The command `silkline pages`: what a job brought home, and why the rest is not there.

Owns the forms: a table, JSON lines, Markdown files (`export.py`). Pages come from the API some at a
time, so that a large job takes no more memory than a small one.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from uuid import UUID

import typer

from silkline.cli.arguments import LAST, find_id
from silkline.cli.commands.jobs import JobArgument, run
from silkline.errors import ExitCode, SettingsError
from silkline.settings import Project

if TYPE_CHECKING:
    from silkline.cli.export import Counts
    from silkline.queue.rows import PageRow, Progress
    from silkline.queue.rpc import Rpc

commands = typer.Typer()

# How many are asked for at a time; with their text, a page may have megabytes.
ROWS = 1000
ROWS_WITH_CONTENT = 50

TaskStatus = Literal['done', 'error', 'skipped']
UNSTORED: tuple[TaskStatus, ...] = ('error', 'skipped')
# Not Found, and Gone.
GONE = (404, 410)


@commands.command()
def pages(
    job: JobArgument = LAST,
    failed: Annotated[
        bool, typer.Option('--failed', help='The URLs that failed instead, and why.')
    ] = False,
    skipped: Annotated[
        bool, typer.Option('--skipped', help='The URLs that were skipped instead, and why.')
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar='DIR',
            help='Write a Markdown file per page into this directory, or update it.',
            show_default=False,
        ),
    ] = None,
    jsonl: Annotated[
        bool,
        typer.Option(
            '--jsonl', '--json', help='Print a JSON object per line, text and links included.'
        ),
    ] = False,
) -> None:
    """List what a job stored; or what it did not, and why."""

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        if failed and skipped:
            raise SettingsError('--failed and --skipped are two lists: choose one')
        if export is not None and (failed or skipped or jsonl):
            raise SettingsError('--export writes the pages that were stored, and nothing else')
        status: TaskStatus = 'error' if failed else 'skipped' if skipped else 'done'
        job_id = await find_id(rpc, job)
        if export is not None:
            await export_pages(rpc, job_id, export)
        elif jsonl:
            await print_lines(rpc, job_id, status)
        else:
            # As it was asked for: "last" needs no id.
            words = ('silkline', 'pages') if job == LAST else ('silkline', 'pages', str(job_id))
            await print_list(rpc, job_id, status, command=' '.join(words))
        return ExitCode.OK

    run(work)


async def each_page(
    rpc: 'Rpc', job_id: UUID, *, status: TaskStatus, with_content: bool = False
) -> 'AsyncGenerator[PageRow]':
    async for rows in each_batch(rpc, job_id, status=status, with_content=with_content):
        for row in rows:
            yield row


async def each_batch(
    rpc: 'Rpc', job_id: UUID, *, status: TaskStatus, with_content: bool = False
) -> 'AsyncGenerator[list[PageRow]]':
    after: UUID | None = None
    while rows := await rpc.crawl_job_pages(
        job_id,
        status=status,
        with_content=with_content,
        after=after,
        limit=ROWS_WITH_CONTENT if with_content else ROWS,
    ):
        after = rows[-1].url_key
        yield rows


async def print_lines(rpc: 'Rpc', job_id: UUID, status: TaskStatus) -> None:
    from silkline.cli import output

    async with aclosing(each_page(rpc, job_id, status=status, with_content=True)) as rows:
        async for row in rows:
            output.print_json(row)


async def print_list(rpc: 'Rpc', job_id: UUID, status: TaskStatus, *, command: str) -> None:
    from silkline.cli import output

    progress = await rpc.crawl_progress(job_id)
    is_first = True
    async for rows in each_batch(rpc, job_id, status=status):
        # Within a portion only: all at once would be all in memory.
        rows.sort(key=lambda row: row.url)
        print_rows = output.print_pages if status == 'done' else output.print_unstored
        print_rows(rows, with_head=is_first)
        is_first = False
    output.say(about_lists(progress, status, command))


def about_lists(progress: 'Progress', shown: TaskStatus, command: str) -> str:
    """How many there are of each, and how to see the others."""
    lists: tuple[tuple[TaskStatus, int, str, str], ...] = (
        ('done', progress.pages_done, 'stored', ''),
        ('error', progress.pages_failed, 'failed', ' --failed'),
        ('skipped', progress.pages_skipped, 'skipped', ' --skipped'),
    )
    parts = [
        f'{count} {word}' + (f' ({command}{flag})' if count and status != shown else '')
        for status, count, word, flag in lists
        if count or status == shown
    ]
    if not progress.has_ended:
        parts.append(f'the job is {progress.status}')
    return ', '.join(parts)


async def export_pages(rpc: 'Rpc', job_id: UUID, directory: Path) -> None:
    """Write the pages of a job as files, and say what changed."""
    from silkline.cli import output
    from silkline.cli.export import Export

    progress = await rpc.crawl_progress(job_id)
    export = Export(directory, progress.host or progress.kind)
    try:
        export.plan([(row.url_key, row.url) async for row in each_page(rpc, job_id, status='done')])
        async for page in each_page(rpc, job_id, status='done', with_content=True):
            export.write(page)
        unseen = await find_unseen(rpc, job_id, export.unwritten())
        counts = export.finish(unseen=unseen)
    except OSError as error:
        raise SettingsError(f'{error.filename or directory}: {error.strerror}') from error
    output.say(about_export(counts, directory))


async def find_unseen(rpc: 'Rpc', job_id: UUID, files: dict[str, str | None]) -> set[str]:
    """The files whose pages may be there still: a job that was cut short is no proof of absence.

    Nor is one that could not fetch a page, which may be what links to them.
    """
    if not files:
        return set()
    progress = await rpc.crawl_progress(job_id)
    has_seen_all = progress.status == 'completed' and progress.pages_done > 0
    urls = set(files.values())
    gone: set[str] = set()
    for status in UNSTORED:
        async for row in each_page(rpc, job_id, status=status):
            if may_be_there(row):
                has_seen_all = False
            elif row.url in urls:
                gone.add(row.url)
    return set() if has_seen_all else {path for path, url in files.items() if url not in gone}


def may_be_there(row: 'PageRow') -> bool:
    """Whether a page that was not stored may be stored by the next crawl, as it is."""
    if row.skip_reason is None:
        return row.http_status not in GONE
    return row.skip_reason in ('budget', 'host_unavailable')


def about_export(counts: 'Counts', directory: Path) -> str:
    parts = [
        f'{count} {word}'
        for count, word in (
            (counts.new, 'new'),
            (counts.changed, 'changed'),
            (counts.unchanged, 'as they were'),
            (counts.removed, 'removed'),
            (counts.unseen, 'left alone, not seen by this crawl'),
            (counts.kept, 'left alone, changed by hand'),
        )
        if count
    ]
    return f'{directory}: {", ".join(parts) or "no page to write"}'
