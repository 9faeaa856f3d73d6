"""The command `silkline pages`: the pages of a job, and why other URLs were not stored.

Owns the choice of list and form: a table, JSON lines, or Markdown files (`export/`).
"""

from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from uuid import UUID

import typer

from silkline.cli.arguments import LAST, find_job_id
from silkline.cli.job_pages import FinishedStatus, each_batch, each_page
from silkline.cli.runtime import JobArgument, print_message, run
from silkline.errors import ExitCode, SettingsError
from silkline.settings import Project

if TYPE_CHECKING:
    from silkline.queue.rows import Progress
    from silkline.queue.rpc import Rpc

commands = typer.Typer()


@commands.command()
def pages(
    job: JobArgument = LAST,
    failed: Annotated[
        bool, typer.Option('--failed', help='List the URLs that failed, and why.')
    ] = False,
    skipped: Annotated[
        bool, typer.Option('--skipped', help='List the URLs that were skipped, and why.')
    ] = False,
    warnings: Annotated[
        bool,
        typer.Option('--warnings', help='List the stored pages that may lack content, and why.'),
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar='DIR',
            help='Write one Markdown file per page to DIR, or update an earlier export there.',
            show_default=False,
        ),
    ] = None,
    jsonl: Annotated[
        bool,
        typer.Option(
            '--jsonl', '--json', help='Print one JSON object per line, with text and links.'
        ),
    ] = False,
) -> None:
    """List the pages that a job stored, or the URLs that it did not."""

    async def work(rpc: 'Rpc', project: Project) -> ExitCode:
        if failed + skipped + warnings > 1:
            raise SettingsError('--failed, --skipped and --warnings cannot be combined: choose one')
        if export is not None and (failed or skipped or warnings or jsonl):
            raise SettingsError(
                '--export writes all stored pages: leave out --failed, --skipped, --warnings and'
                ' --jsonl'
            )
        status: FinishedStatus = 'error' if failed else 'skipped' if skipped else 'done'
        job_id = await find_job_id(rpc, job)
        if export is not None:
            from silkline.cli.export.job import export_pages

            await export_pages(rpc, job_id, export)
        elif jsonl:
            await print_json_lines(rpc, job_id, status, only_warnings=warnings)
        else:
            # As the user typed it: "last" needs no id.
            words = ('silkline', 'pages') if job == LAST else ('silkline', 'pages', str(job_id))
            await print_tables(rpc, job_id, status, only_warnings=warnings, command=' '.join(words))
        return ExitCode.OK

    run(work)


async def print_json_lines(
    rpc: 'Rpc', job_id: UUID, status: FinishedStatus, *, only_warnings: bool
) -> None:
    from silkline.cli import output

    async with aclosing(each_page(rpc, job_id, status=status, with_content=True)) as rows:
        async for row in rows:
            if row.warnings or not only_warnings:
                output.print_json(row)


async def print_tables(
    rpc: 'Rpc', job_id: UUID, status: FinishedStatus, *, only_warnings: bool, command: str
) -> None:
    from silkline.cli import output

    progress = await rpc.crawl_progress(job_id)
    with_warnings = progress.pages_with_warnings > 0
    is_first = True
    async for rows in each_batch(rpc, job_id, status=status):
        listed = [row for row in rows if row.warnings] if only_warnings else rows
        if not listed:
            continue
        # Sorted within a batch only: sorting all would take all rows into memory.
        listed.sort(key=lambda row: row.url)
        if only_warnings:
            output.print_warnings(listed, with_head=is_first)
        elif status == 'done':
            output.print_pages(listed, with_head=is_first, with_warnings=with_warnings)
        else:
            output.print_unstored(listed, with_head=is_first)
        is_first = False
    print_message(describe_lists(progress, 'warnings' if only_warnings else status, command))


def describe_lists(
    progress: 'Progress', shown: FinishedStatus | Literal['warnings'], command: str
) -> str:
    """The size of each list, and the commands that print the others."""
    lists = (
        ('done', progress.pages_done, 'stored', ''),
        ('warnings', progress.pages_with_warnings, 'with warnings', ' --warnings'),
        ('error', progress.pages_failed, 'failed', ' --failed'),
        ('skipped', progress.pages_skipped, 'skipped', ' --skipped'),
    )
    parts = [
        f'{count} {word}' + (f' ({command}{flag})' if count and name != shown else '')
        for name, count, word, flag in lists
        if count or name == shown
    ]
    if not progress.has_ended:
        parts.append(f'the job is {progress.status}')
    return ', '.join(parts)
