"""What commands print: tables and sentences for people, JSON for programs.

Data goes to stdout, what is said about it to stderr. Owns the wording of times and amounts.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeVar, cast

import typer
from pydantic import BaseModel, TypeAdapter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from worker.answers import (
    Check,
    Event,
    Explanation,
    Job,
    PageRow,
    Progress,
    QueueStats,
    WorkerInfo,
)
from worker.pipe import SkipReason

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

# Why a URL was not fetched, or not kept.
SKIP_REASONS: dict[SkipReason, str] = {
    'robots': 'robots.txt does not allow it',
    'out_of_scope': 'it is outside of the scope of the job',
    'excluded': 'include or exclude rules it out',
    'too_deep': 'it is more than max_depth links away',
    'budget': 'max_pages was reached before',
    'content_type': 'it is no page: neither HTML nor text',
    'too_large': 'it is larger than max_page_bytes',
    'redirect': 'it leads to another URL',
    'canonical': 'it names another URL as the original',
    'duplicate': 'another URL has the same content',
    'noindex': 'it asks not to be kept',
    'nofollow': 'only links marked nofollow lead there',
    'trap': 'it looks like an endless space of URLs',
    'invalid_url': 'it is no URL that can be fetched',
    'forbidden_address': 'it lies in a network that crawls may not reach',
    'host_unavailable': 'its host does not answer',
}


def say(text: str) -> None:
    typer.echo(text, err=True)


def print_answer(value: T, as_text: Callable[[T], None], *, as_json: bool) -> None:
    if as_json:
        print_json(value)
    else:
        as_text(value)


def print_json(value: BaseModel | Sequence[BaseModel]) -> None:
    """One line, so that it can be read line by line."""
    typer.echo(TypeAdapter(object).dump_json(value))


def print_id(job: Job) -> None:
    typer.echo(job.id)


def print_status(job: Job) -> None:
    typer.echo(f'{job.id} {job.status}')


def print_jobs(jobs: Sequence[Job]) -> None:
    if not jobs:
        say('there are no such jobs')
        return
    rows = [
        (
            str(job.id),
            coloured(job.status),
            f'{job.progress_percentage} %',
            ago(job.created_at),
            job.kind,
            job.url,
        )
        for job in jobs
    ]
    print_table(('job', 'status', 'done', 'enqueued', 'kind', 'url'), rows)


def print_progress(progress: Progress, events: Iterable[Event]) -> None:
    lines = [
        ('job', f'{progress.job_id} ({progress.kind} of {progress.host})'),
        ('status', f'{progress.status}{" (its worker is saving)" if progress.is_saving else ""}'),
        ('pages', pages(progress)),
        ('read', amount(progress.bytes)),
        ('attempt', f'{progress.attempt}, retries {progress.retry_count}/{progress.max_retries}'),
    ]
    if progress.current_url:
        lines.append(('at', progress.current_url))
    if progress.eta_seconds is not None:
        lines.append(('ready in', duration(progress.eta_seconds)))
    if progress.error_code:
        lines.append(('error', f'{progress.error_code}: {progress.error_message or ""}'))
    for name, text in lines:
        typer.echo(f'{name:9} {plain(text)}')
    for event in events:
        change = f'{event.from_status or "":>10} -> {event.to_status:<10}'
        typer.echo(f'{event.at:%Y-%m-%d %H:%M:%S}  {change} {event.reason} by {event.actor}')


def print_explanation(explanation: Explanation) -> None:
    for reason in explanation.reasons:
        typer.echo(f'{reason.code}: {plain(reason.text)}')
    if not explanation.reasons:
        typer.echo(explanation.status)


def print_stats(stats: QueueStats) -> None:
    limit = stats.count_limit
    rows = [
        *((f'{name}', counted(count, limit)) for name, count in stats.open.items()),
        *((f'pending, {name}', counted(count, limit)) for name, count in stats.pending.items()),
        *((f'{name}, last 24 h', str(count)) for name, count in stats.ended_in_24_hours.items()),
        ('workers', f'{stats.workers.live} live, {stats.workers.late} late'),
        ('slots', f'{stats.workers.busy_slots} of {stats.workers.slots} busy'),
        ('longest in line', duration(stats.oldest_in_line_seconds or 0)),
    ]
    print_table(('what', 'now'), rows)


def print_workers(workers: Sequence[WorkerInfo]) -> None:
    if not workers:
        say('no worker has ever reported')
        return
    rows = [
        (
            str(worker.id),
            coloured(worker.state),
            worker.hostname or '',
            worker.version or '',
            f'{worker.busy_slots} of {worker.slots or 0}',
            ago(worker.last_seen_at),
        )
        for worker in workers
    ]
    print_table(('worker', 'state', 'host', 'version', 'busy', 'seen'), rows)


def print_checks(checks: Sequence[Check]) -> None:
    for check in checks:
        console().print(coloured(f'{check.status:8}', check.status), end='')
        typer.echo(f'{check.check_name}: {plain(check.detail)}')
        if check.status != 'ok':
            typer.echo(f'        {check.hint}')


def print_pages(rows: Sequence[PageRow], *, with_head: bool) -> None:
    """What was stored. Titles leave room for the URL, but only where lines are short."""
    cells = [
        (
            coloured(row.change or ''),
            str(row.http_status or ''),
            shortened(row.title or '', 40),
            row.url,
        )
        for row in rows
    ]
    print_table(('change', 'http', 'title', 'url'), cells, with_id=False, with_head=with_head)


def print_unstored(rows: Sequence[PageRow], *, with_head: bool) -> None:
    """What failed or was skipped, and why."""
    cells = [(row.url, str(row.http_status or ''), why(row)) for row in rows]
    print_table(('url', 'http', 'why'), cells, with_id=False, with_head=with_head)


def why(row: PageRow) -> str:
    if row.skip_reason is None:
        tries = f' (tried {row.attempts} times)' if row.attempts > 1 else ''
        return f'{row.last_error or "failed without a reason"}{tries}'
    # A newer database may know reasons that this program does not.
    meaning = SKIP_REASONS.get(cast(SkipReason, row.skip_reason))
    said = row.last_error or meaning
    return f'{row.skip_reason}: {said}' if said else row.skip_reason


def shortened(text: str, length: int) -> str:
    if len(text) <= length or not sys.stdout.isatty():
        return text
    return f'{text[: length - 1]}…'


def print_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    with_id: bool = True,
    with_head: bool = True,
) -> None:
    table = Table(box=None, pad_edge=False, header_style='bold', show_header=with_head)
    for nth, name in enumerate(head):
        # The first is an id, to be copied whole; the last is the longest.
        is_id = with_id and nth == 0 and len(head) > 2
        table.add_column(name, no_wrap=True, min_width=36 if is_id else None)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(plain(cell)) for cell in row))
    console().print(table)


def console() -> Console:
    # Into a pipe, nothing is cut.
    return Console(width=None if sys.stdout.isatty() else 10_000, highlight=False)


def plain(text: str) -> str:
    """Without what would steer a terminal: texts of errors may come from a crawled site."""
    return ''.join(
        char if char.isprintable() or char in '\n\t' else repr(char)[1:-1] for char in text
    )


def coloured(text: str, word: str | None = None) -> Text:
    return Text(text, style=COLOURS.get(word or text, ''))


def pages(progress: Progress) -> str:
    parts = [f'{progress.pages_done} done']
    for count, word in (
        (progress.pages_failed, 'failed'),
        (progress.pages_skipped, 'skipped'),
        (progress.pages_in_progress + progress.pages_pending, 'left'),
    ):
        if count:
            parts.append(f'{count} {word}')
    if progress.pages_per_second:
        parts.append(f'{progress.pages_per_second:g}/s')
    return ', '.join(parts)


def counted(count: int, limit: int) -> str:
    return f'{count}' if count < limit else f'{limit} or more'


def ago(moment: datetime) -> str:
    return f'{duration((datetime.now(UTC) - moment).total_seconds())} ago'


def duration(seconds: float) -> str:
    whole = max(0, int(seconds))
    for size, unit in ((86400, 'd'), (3600, 'h'), (60, 'min')):
        if whole >= 2 * size:
            return f'{whole // size} {unit}'
    return f'{whole} s'


def amount(size: int) -> str:
    value = float(size)
    for unit in ('B', 'KB', 'MB'):
        if value < 1000:
            return f'{value:.3g} {unit}'
        value /= 1000
    return f'{value:.3g} GB'
