"""What commands print on stdout: tables for people, JSON for programs.

Owns which facts are printed and in which order. Phrases come from `wording.py`; `terminal.py` fits
tables to the terminal.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import typer
from pydantic import BaseModel, TypeAdapter
from rich.cells import cell_len
from rich.text import Text

from silkline.cli import wording
from silkline.cli.runtime import print_message
from silkline.cli.terminal import console, print_table, printable, shorten, terminal_width
from silkline.queue.rows import (
    Check,
    Explanation,
    Job,
    JobStatus,
    PageRow,
    QueueStats,
    ShownJob,
    WorkerInfo,
)

T = TypeVar('T', bound=BaseModel | Sequence[BaseModel])

COLOURS = {
    'completed': 'green',
    'ok': 'green',
    'live': 'green',
    'processing': 'cyan',
    'paused': 'yellow',
    'warning': 'yellow',
    'late': 'yellow',
    'failed': 'red',
    'error': 'red',
    'lost': 'red',
    'new': 'green',
    'changed': 'yellow',
    'broken': 'red',
}

# What pending jobs wait for: the queue's keys, in words.
WAITS = {
    'in_line': 'ready to run',
    'time': 'not due yet',
    'host': 'waiting for another job of the same host',
    'owner': "over an owner's limit",
}
# Long enough to be typed in place of the whole id.
SHOWN_ID_CHARACTERS = 12
ENDED_STATUSES: tuple[JobStatus, ...] = ('completed', 'failed', 'stopped', 'cancelled')


def print_result(value: T, as_text: Callable[[T], None], *, as_json: bool) -> None:
    if as_json:
        print_json(value)
    else:
        as_text(value)


def print_json(value: BaseModel | Sequence[BaseModel]) -> None:
    """Print on one line."""
    typer.echo(TypeAdapter(object).dump_json(value))


def print_id(job: Job) -> None:
    typer.echo(job.id)


def print_status(job: Job) -> None:
    typer.echo(f'{job.id} {job.status}')


def print_jobs(jobs: Sequence[Job]) -> None:
    """On a terminal, print the end of each id, and `kind` only if the kinds differ."""
    if not jobs:
        print_message('no jobs yet: silkline crawl URL starts one')
        return
    is_terminal = terminal_width() is not None
    columns: dict[str, Callable[[Job], str | Text]] = {
        'job': lambda job: str(job.id)[-SHOWN_ID_CHARACTERS:] if is_terminal else str(job.id),
        'status': job_status,
        'done': lambda job: f'{job.progress_percentage} %',
        'enqueued': lambda job: wording.time_since(job.created_at),
        'kind': lambda job: job.kind,
        'url': lambda job: job.url,
    }
    if is_terminal and all(job.kind == 'crawl' for job in jobs):
        del columns['kind']
    rows = [[make_cell(job) for make_cell in columns.values()] for job in jobs]
    print_table(tuple(columns), rows)


def job_status(job: Job) -> Text:
    now = datetime.now(UTC)
    is_early = job.status == 'pending' and job.run_after > now
    wait = f' (not before {wording.clock_time(job.run_after, now=now)})' if is_early else ''
    return coloured(f'{job.status}{wait}', job.status)


def print_job_details(job: ShownJob) -> None:
    lines = [
        ('job', f'{job.job_id} ({wording.describe_job(job)})'),
        ('status', f'{job.status}{" (its worker is saving)" if job.is_saving else ""}'),
        ('pages', wording.page_counts(job)),
        ('read', wording.byte_size(job.bytes)),
        *([('refused', wording.refused_links(job))] if job.links_refused else []),
        *([('warnings', wording.page_warnings(job))] if job.pages_with_warnings else []),
        ('attempt', wording.describe_attempts(job)),
    ]
    if wait := wording.describe_wait(job):
        lines.append(('waiting', wait))
    if job.current_url:
        lines.append(('fetching', job.current_url))
    if job.eta_seconds is not None:
        lines.append(('ready in', wording.duration(job.eta_seconds)))
    if job.error_code:
        lines.append(('error', f'{job.error_code}: {job.error_message or ""}'))
    for name, text in lines:
        typer.echo(f'{name:9} {printable(text)}')
    for event in job.history:
        change = f'{event.from_status or "":>10} -> {event.to_status:<10}'
        typer.echo(f'{event.at:%Y-%m-%d %H:%M:%S}  {change} {event.reason} by {event.actor}')


def print_explanation(explanation: Explanation) -> None:
    for reason in explanation.reasons:
        typer.echo(f'{reason.code}: {wording.with_advice(reason, explanation.job_id)}')
    if not explanation.reasons:
        typer.echo(explanation.status)


def print_stats(stats: QueueStats) -> None:
    limit = stats.count_limit
    waiting = [
        f'{wording.capped_count(stats.pending[name], limit)} {meaning}'
        for name, meaning in WAITS.items()
        if stats.pending.get(name)
    ]
    ended = [
        f'{stats.ended_in_24_hours[status]} {status}'
        for status in ENDED_STATUSES
        if stats.ended_in_24_hours.get(status)
    ]
    pending = wording.capped_count(stats.open.get('pending', 0), limit)
    facts = [
        ('pending', f'{pending} ({", ".join(waiting)})' if waiting else pending),
        ('processing', wording.capped_count(stats.open.get('processing', 0), limit)),
        ('paused', wording.capped_count(stats.open.get('paused', 0), limit)),
        ('ended', f'{", ".join(ended) or "none"} in the last 24 hours'),
        ('workers', wording.describe_workers(stats.workers)),
    ]
    if stats.oldest_in_line_seconds is not None:
        longest = wording.duration(stats.oldest_in_line_seconds)
        facts.append(('waiting', f'{longest}, the oldest job that is ready to run'))
    for name, text in facts:
        typer.echo(f'{name:10}  {text}')


def print_workers(workers: Sequence[WorkerInfo]) -> None:
    if not workers:
        print_message('no workers are running: silkline worker starts one')
        return
    rows = [
        (
            str(worker.id),
            coloured(worker.state),
            worker.hostname or '',
            worker.version or '',
            f'{worker.busy_slots} of {worker.slots or 0}',
            wording.time_since(worker.last_seen_at),
        )
        for worker in workers
    ]
    print_table(('worker', 'state', 'host', 'version', 'busy', 'seen'), rows)


def print_checks(checks: Sequence[Check]) -> None:
    for check in checks:
        console().print(coloured(f'{check.status:8}', check.status), end='')
        typer.echo(f'{check.check_name}: {printable(check.detail)}')
        if check.status != 'ok':
            typer.echo(f'        {printable(check.hint)}')


def print_pages(rows: Sequence[PageRow], *, with_head: bool, with_warnings: bool = False) -> None:
    """Print stored pages. Only titles are shortened, to keep each page on one line."""
    title_width = longest_title(max((cell_len(row.url) for row in rows), default=0))
    columns: dict[str, Callable[[PageRow], str | Text]] = {
        'change': lambda row: coloured(row.change or ''),
        'http': lambda row: str(row.http_status or ''),
        'title': lambda row: shorten(row.title or '', title_width),
        'url': lambda row: row.url,
        'warnings': lambda row: coloured(' '.join(row.warnings), 'warning'),
    }
    if not with_warnings:
        del columns['warnings']
    cells = [[make_cell(row) for make_cell in columns.values()] for row in rows]
    print_table(tuple(columns), cells, with_head=with_head)


def longest_title(url_width: int) -> int | None:
    """The room for a title on the line; in a pipe, titles are not shortened."""
    width = terminal_width()
    if width is None:
        return None
    return min(40, max(15, width - len('unchanged  http    ') - url_width))


def print_warnings(rows: Sequence[PageRow], *, with_head: bool) -> None:
    """Print stored pages whose Markdown may lack something, and what."""
    cells = [(row.url, share_kept(row), wording.describe_warnings(row)) for row in rows]
    print_table(('url', 'kept', 'warning'), cells, with_head=with_head)


def share_kept(row: PageRow) -> str:
    kept = (row.quality or {}).get('kept')
    return f'{100 * kept:.0f} %' if isinstance(kept, int | float) else ''


def print_unstored(rows: Sequence[PageRow], *, with_head: bool) -> None:
    """Print URLs that failed or were skipped, with the reason."""
    cells = [(row.url, str(row.http_status or ''), wording.describe_failure(row)) for row in rows]
    print_table(('url', 'http', 'reason'), cells, with_head=with_head)


def coloured(text: str, word: str | None = None) -> Text:
    return Text(text, style=COLOURS.get(word or text, ''))
