"""What commands print: tables and sentences for people, JSON for programs.

Data goes to stdout, what is said about it to stderr. Owns the wording of times and amounts. How a
table fits a terminal is `terminal.py`'s.
"""

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar, cast
from uuid import UUID

import typer
from pydantic import BaseModel, TypeAdapter
from rich.cells import cell_len
from rich.text import Text

from silkline.cli.terminal import console, plain, print_table, shortened, terminal_width
from silkline.protocol import SkipReason
from silkline.queue.rows import (
    Check,
    Explanation,
    Job,
    JobStatus,
    PageRow,
    Progress,
    QueueStats,
    Reason,
    ShownJob,
    WorkerInfo,
    Workers,
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
    'noindex': 'it asks not to be kept',
    'trap': 'it looks like an endless space of URLs',
    'invalid_url': 'it is no URL that can be fetched',
    'forbidden_address': 'it lies in a network that crawls may not reach',
    'host_unavailable': 'its host does not answer',
}


# What a pending job waits for, as the queue calls it.
WAITS = {
    'in_line': 'in line',
    'time': 'not due yet',
    'host': 'behind another of the same host',
    'owner': 'over the limit of an owner',
}
# They can be typed instead of the whole.
SHOWN_OF_ID = 12
ENDED_IN_ORDER: tuple[JobStatus, ...] = ('completed', 'failed', 'stopped', 'cancelled')


def say(text: str) -> None:
    # By its name: a bar that is being drawn stands in for it, and puts the text above itself.
    typer.echo(text, err=True, file=sys.stderr)


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
    """On a terminal, with as much of an id as is typed, and without what is the same for all."""
    if not jobs:
        say('there is no job yet: silkline crawl URL makes one')
        return
    is_terminal = terminal_width() is not None
    columns: dict[str, Callable[[Job], str | Text]] = {
        'job': lambda job: str(job.id)[-SHOWN_OF_ID:] if is_terminal else str(job.id),
        'status': status_of,
        'done': lambda job: f'{job.progress_percentage} %',
        'enqueued': lambda job: ago(job.created_at),
        'kind': lambda job: job.kind,
        'url': lambda job: job.url,
    }
    if is_terminal and all(job.kind == 'crawl' for job in jobs):
        del columns['kind']
    rows = [[cell_of(job) for cell_of in columns.values()] for job in jobs]
    print_table(tuple(columns), rows)


def status_of(job: Job) -> Text:
    now = datetime.now(UTC)
    is_early = job.status == 'pending' and job.run_after > now
    wait = f' (not before {clock_time(job.run_after, now=now)})' if is_early else ''
    return coloured(f'{job.status}{wait}', job.status)


def about_no_job(statuses: Sequence[JobStatus], host: str | None) -> str:
    """That no job is as it was asked for."""
    is_so = f' is {" or ".join(statuses)}' if statuses else ''
    if host is None:
        return f'no job{is_so}'
    of_host = f'no job of the host {host}{is_so}' if statuses else f'no job has the host {host}'
    return f'{of_host}; a host is written with its port, if its URLs have one'


def print_shown(shown: ShownJob) -> None:
    lines = [
        ('job', f'{shown.job_id} ({about(shown)})'),
        ('status', f'{shown.status}{" (its worker is saving)" if shown.is_saving else ""}'),
        ('pages', pages(shown)),
        ('read', amount(shown.bytes)),
        ('attempt', attempts(shown)),
    ]
    if wait := about_wait(shown):
        lines.append(('waits', wait))
    if shown.current_url:
        lines.append(('at', shown.current_url))
    if shown.eta_seconds is not None:
        lines.append(('ready in', duration(shown.eta_seconds)))
    if shown.error_code:
        lines.append(('error', f'{shown.error_code}: {shown.error_message or ""}'))
    for name, text in lines:
        typer.echo(f'{name:9} {plain(text)}')
    for event in shown.history:
        change = f'{event.from_status or "":>10} -> {event.to_status:<10}'
        typer.echo(f'{event.at:%Y-%m-%d %H:%M:%S}  {change} {event.reason} by {event.actor}')


def attempts(progress: Progress) -> str:
    """`max_retries` is told where it begins to matter."""
    if progress.attempt == 0:
        return 'none yet'
    if progress.retry_count == 0:
        return str(progress.attempt)
    retries = counted(progress.max_retries, 'retry', 'retries')
    return f'{progress.attempt}, with {progress.retry_count} of {retries} spent'


def print_explanation(explanation: Explanation) -> None:
    for reason in explanation.reasons:
        typer.echo(f'{reason.code}: {with_advice(reason, explanation.job_id)}')
    if not explanation.reasons:
        typer.echo(explanation.status)


def with_advice(reason: Reason, job_id: UUID) -> str:
    """Why a job does not run, and what helps."""
    text = plain(reason.text)
    advice = {
        'no_worker': 'silkline worker',
        'paused': f'silkline resume {job_id}',
        'stopped': f'silkline resume {job_id}',
    }
    command = advice.get(reason.code)
    return f'{text.removesuffix(".")}: {command}' if command else text


def print_stats(stats: QueueStats) -> None:
    at_most = stats.count_limit
    waiting = [
        f'{up_to(stats.pending[name], at_most)} {meaning}'
        for name, meaning in WAITS.items()
        if stats.pending.get(name)
    ]
    ended = [
        f'{stats.ended_in_24_hours[status]} {status}'
        for status in ENDED_IN_ORDER
        if stats.ended_in_24_hours.get(status)
    ]
    pending = up_to(stats.open.get('pending', 0), at_most)
    facts = [
        ('pending', f'{pending} ({", ".join(waiting)})' if waiting else pending),
        ('processing', up_to(stats.open.get('processing', 0), at_most)),
        ('paused', up_to(stats.open.get('paused', 0), at_most)),
        ('ended', f'{", ".join(ended) or "none"} in the last 24 hours'),
        ('workers', about_workers(stats.workers)),
    ]
    if stats.oldest_in_line_seconds is not None:
        facts.append(('waiting', f'{duration(stats.oldest_in_line_seconds)}, the first in line'))
    for name, text in facts:
        typer.echo(f'{name:10}  {text}')


def about_workers(workers: Workers) -> str:
    if not workers.live and not workers.late:
        return 'none: silkline worker starts one'
    late = f', {workers.late} late' if workers.late else ''
    slots = f'; {workers.busy_slots} of {counted(workers.slots, "slot")} busy'
    return f'{workers.live} live{late}{slots if workers.live else ""}'


def print_workers(workers: Sequence[WorkerInfo]) -> None:
    if not workers:
        say('no worker is alive: silkline worker starts one')
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
            typer.echo(f'        {plain(check.hint)}')


def print_pages(rows: Sequence[PageRow], *, with_head: bool) -> None:
    """What was stored. Titles are the one thing that is shortened, to keep a page on a line."""
    longest = longest_title(max((cell_len(row.url) for row in rows), default=0))
    cells = [
        (
            coloured(row.change or ''),
            str(row.http_status or ''),
            shortened(row.title or '', longest),
            row.url,
        )
        for row in rows
    ]
    print_table(('change', 'http', 'title', 'url'), cells, with_head=with_head)


def longest_title(url_width: int) -> int | None:
    """Into a pipe, whole."""
    width = terminal_width()
    if width is None:
        return None
    # Beside it stand what changed, the status, and the URL.
    return min(40, max(15, width - len('unchanged  http    ') - url_width))


def print_unstored(rows: Sequence[PageRow], *, with_head: bool) -> None:
    """What failed or was skipped, and why."""
    cells = [(row.url, str(row.http_status or ''), why(row)) for row in rows]
    print_table(('url', 'http', 'why'), cells, with_head=with_head)


def why(row: PageRow) -> str:
    if row.skip_reason is None:
        tries = f' (tried {row.attempts} times)' if row.attempts > 1 else ''
        return f'{row.last_error or "failed without a reason"}{tries}'
    # A newer database may know reasons that this program does not.
    meaning = SKIP_REASONS.get(cast(SkipReason, row.skip_reason))
    said = row.last_error or meaning
    return f'{row.skip_reason}: {said}' if said else row.skip_reason


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
    if progress.pages_per_second and progress.status == 'processing':
        parts.append(f'{progress.pages_per_second:g}/s')
    return ', '.join(parts)


def told(progress: Progress) -> list[str]:
    """How far a job is, and what it waits for, if it does."""
    return [pages(progress), *filter(None, [about_wait(progress)])]


def about_wait(progress: Progress) -> str | None:
    """What a job waits for, and until when."""
    wait = progress.wait
    if wait is None:
        return None
    if wait.until is None:
        return f'{progress.host} gets one request in {wait.seconds:g} s'
    until = clock_time(wait.until, now=progress.now)
    if wait.reason == 'host':
        return f'{progress.host} is left alone until {until}'
    if wait.reason == 'retry':
        return f'the next try is at {until} ({plain(wait.error or "it failed")})'
    return f'not before {until}'


def clock_time(moment: datetime, *, now: datetime) -> str:
    """As the clock on the wall shows it; with its day, unless that is today."""
    local = moment.astimezone()
    is_today = local.date() == now.astimezone().date()
    return f'{local:%H:%M:%S}' if is_today else f'{local:%Y-%m-%d %H:%M:%S}'


def about_due(moment: datetime) -> str:
    local = f'{moment.astimezone():%Y-%m-%d %H:%M:%S}'
    has_passed = moment <= datetime.now(UTC)
    return f'{local} has passed: it runs at once' if has_passed else f'not before {local}'


def about(progress: Progress) -> str:
    return f'{progress.kind} of {progress.url or progress.host}'


def up_to(count: int, limit: int) -> str:
    return f'{count}' if count < limit else f'{limit} or more'


def counted(count: int, word: str, plural: str | None = None) -> str:
    return f'{count} {word if count == 1 else plural or f"{word}s"}'


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
