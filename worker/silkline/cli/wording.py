"""Times, sizes, counts, jobs and reasons in words.

Owns the phrases that several commands print. `output.py` decides what is printed and where.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast
from uuid import UUID

from silkline.cli.terminal import printable
from silkline.protocol import PageWarning, SkipReason
from silkline.queue.rows import BulkChange, JobStatus, PageRow, Progress, Reason, UrlRow, Workers

# Why a URL was not fetched, or its page not stored.
SKIP_REASONS: dict[SkipReason, str] = {
    'robots': 'disallowed by robots.txt',
    'out_of_scope': 'outside the scope of the job',
    'excluded': 'ruled out by include or exclude',
    'too_deep': 'more than max_depth links from the start',
    'budget': 'max_pages was reached first',
    'content_type': 'not a page: neither HTML nor text',
    'too_large': 'larger than max_page_bytes',
    'redirect': 'redirects to another URL',
    'canonical': 'names another URL as its canonical',
    'noindex': 'the page says noindex',
    'trap': 'looks like an endless set of URLs',
    'invalid_url': 'not a URL that can be fetched',
    'forbidden_address': 'in a network that crawls may not reach',
    'host_unavailable': 'the host does not answer',
}

# What may be wrong with the Markdown of a stored page.
PAGE_WARNINGS: dict[PageWarning, str] = {
    'cut': 'longer than max_markdown_chars, its end is missing',
    'needs_browser': 'scripts draw the page: crawl it with -o fetcher=browser',
    'nothing_kept': 'the page has text, but its Markdown has none',
    'little_kept': 'much of the page may be missing',
    'headings_lost': 'headings are missing',
    'code_lost': 'code blocks are missing',
}


def describe_job(progress: Progress) -> str:
    return f'{progress.kind} of {progress.url or progress.host}'


def page_counts(progress: Progress) -> str:
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


def refused_links(progress: Progress) -> str:
    """How many links were not followed, and why."""
    return ', '.join(
        f'{counted(count, "link")} {SKIP_REASONS.get(cast(SkipReason, reason), reason)}'
        for reason, count in progress.links_refused.items()
    )


def page_warnings(progress: Progress) -> str:
    """How many stored pages have warnings, and of which kinds."""
    most_first = sorted(progress.page_warnings.items(), key=lambda kind: (-kind[1], kind[0]))
    kinds = ', '.join(f'{count} {kind}' for kind, count in most_first)
    return f'{counted(progress.pages_with_warnings, "page")}: {kinds}'


def describe_warnings(row: PageRow) -> str:
    """What may be wrong with the Markdown of a page."""
    # A newer database may have warnings that this version does not know.
    meanings = [(kind, PAGE_WARNINGS.get(cast(PageWarning, kind))) for kind in row.warnings]
    return '; '.join(f'{kind}: {meaning}' if meaning else kind for kind, meaning in meanings)


def describe_attempts(progress: Progress) -> str:
    """Names `max_retries` only once a retry was used."""
    if progress.attempt == 0:
        return 'none yet'
    if progress.retry_count == 0:
        return str(progress.attempt)
    retries = counted(progress.max_retries, 'retry', 'retries')
    return f'{progress.attempt}, {progress.retry_count} of {retries} used'


def describe_wait(progress: Progress) -> str | None:
    """What a job waits for, and until when."""
    wait = progress.wait
    if wait is None:
        return None
    if wait.until is None:
        return f'one request to {progress.host} every {wait.seconds:g} s'
    until = clock_time(wait.until, now=progress.now)
    if wait.reason == 'host':
        return f'no requests to {progress.host} until {until}'
    if wait.reason == 'retry':
        return f'next retry at {until} ({printable(wait.error or "the fetch failed")})'
    return f'not before {until}'


def describe_due_time(moment: datetime) -> str:
    local = f'{moment.astimezone():%Y-%m-%d %H:%M:%S}'
    has_passed = moment <= datetime.now(UTC)
    return f'{local} is in the past: runs now' if has_passed else f'not before {local}'


def describe_no_match(statuses: Sequence[JobStatus], host: str | None) -> str:
    """The message for filters that match no job."""
    parts = ['no', ' or '.join(statuses), 'jobs', f'for host {host}' if host is not None else '']
    text = ' '.join(filter(None, parts))
    return text if host is None else f'{text}; include the port if its URLs have one'


def describe_workers(workers: Workers) -> str:
    if not workers.live and not workers.late:
        return 'none: start one with silkline worker'
    late = f', {workers.late} late' if workers.late else ''
    slots = f'; {workers.busy_slots} of {counted(workers.slots, "slot")} busy'
    return f'{workers.live} live{late}{slots if workers.live else ""}'


def describe_failure(row: UrlRow) -> str:
    """Why a URL failed or was skipped."""
    if row.skip_reason is None:
        tries = f' (tried {row.attempts} times)' if row.attempts > 1 else ''
        return f'{row.last_error or "failed, no error recorded"}{tries}'
    # A newer database may have reasons that this version does not know.
    meaning = SKIP_REASONS.get(cast(SkipReason, row.skip_reason))
    text = row.last_error or meaning
    return f'{row.skip_reason}: {text}' if text else row.skip_reason


def with_advice(reason: Reason, job_id: UUID) -> str:
    """Why a job is not running, and the command that helps."""
    text = printable(reason.text)
    advice = {
        'no_worker': 'silkline worker',
        'paused': f'silkline resume {job_id}',
        'stopped': f'silkline resume {job_id}',
    }
    command = advice.get(reason.code)
    return f'{text.removesuffix(".")}: {command}' if command else text


def clock_time(moment: datetime, *, now: datetime) -> str:
    """Local time; with the date, unless that is today."""
    local = moment.astimezone()
    is_today = local.date() == now.astimezone().date()
    return f'{local:%H:%M:%S}' if is_today else f'{local:%Y-%m-%d %H:%M:%S}'


def time_since(moment: datetime) -> str:
    return f'{duration((datetime.now(UTC) - moment).total_seconds())} ago'


def duration(seconds: float) -> str:
    whole = max(0, int(seconds))
    for size, unit in ((86400, 'd'), (3600, 'h'), (60, 'min')):
        if whole >= 2 * size:
            return f'{whole // size} {unit}'
    return f'{whole} s'


def byte_size(size: int) -> str:
    value = float(size)
    for unit in ('B', 'KB', 'MB'):
        if value < 1000:
            return f'{value:.3g} {unit}'
        value /= 1000
    return f'{value:.3g} GB'


def counted(count: int, word: str, plural: str | None = None) -> str:
    return f'{count} {word if count == 1 else plural or f"{word}s"}'


def matched_jobs(change: BulkChange) -> str:
    count = capped_count(change.matched, change.count_limit)
    return f'{count} {"job" if change.matched == 1 else "jobs"}'


def capped_count(count: int, limit: int) -> str:
    return f'{count}' if count < limit else f'{limit} or more'
