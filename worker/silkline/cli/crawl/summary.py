"""How a crawl ended, in a few lines: what was stored, what was not and why, what to do next.

Owns the advice for the most common mistakes: an address of this machine, a site that disallows
crawlers, a start URL that does not answer.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer

from silkline.cli import output, wording
from silkline.cli.job_pages import FinishedStatus, each_page
from silkline.cli.terminal import printable
from silkline.queue.rows import PageRow, Progress, Row

if TYPE_CHECKING:
    from silkline.queue.rpc import Rpc

# The reasons of the first URLs are counted, up to this many.
COUNTED_ROWS = 20_000
# There are few skip reasons; there may be many errors.
SHOWN_ERRORS = 4
LISTED_FAILURES = 100

ADVICE = {
    'robots': 'If the site is yours, add -o obey_robots=false',
    'noindex': 'To store such pages, add -o keep_noindex=true',
    'redirect': 'It redirects out of scope: start from its target, or add -o scope=domain',
    'canonical': 'Start from the canonical URL that it names.',
    'host_unavailable': 'Check the URL. If the host is down, try again later.',
    'too_large': 'To store larger pages, add -o max_page_bytes=50000000',
}


@dataclass(slots=True)
class Reasons:
    """Why URLs failed, or were skipped: how often each reason occurs."""

    counts: Counter[str] = field(default_factory=Counter[str])
    starts: list[PageRow] = field(default_factory=list[PageRow])
    first_rows: list[PageRow] = field(default_factory=list[PageRow])
    is_truncated: bool = False

    def text(self, shown: int | None = None) -> str:
        most = self.counts.most_common(shown)
        others = self.counts.total() - sum(count for _, count in most)
        parts = [f'{count} {reason}' for reason, count in most]
        if others:
            parts.append(f'{others} for other reasons')
        if self.is_truncated:
            parts.append(f'only the first {COUNTED_ROWS} were counted')
        return ', '.join(parts)


class Failure(Row):
    url: str
    http_status: int | None
    error: str | None


class Summary(Progress):
    """The last snapshot of a job, why other URLs were not stored, and where the pages are.

    `failures` lists the first `LISTED_FAILURES`.
    """

    project_url: str
    export: Path | None
    failed: dict[str, int]
    skipped: dict[str, int]
    failures: list[Failure]


async def print_summary(
    rpc: 'Rpc',
    last: Progress,
    *,
    project_url: str,
    export: Path | None,
    allow_networks: Sequence[str] = (),
    as_json: bool = False,
) -> None:
    """Print on stdout how a job ended."""
    failed = await read_reasons(rpc, last, 'error')
    skipped = await read_reasons(rpc, last, 'skipped')
    if as_json:
        summary = summary_of(last, failed, skipped, project_url=project_url, export=export)
        output.print_json(summary)
    else:
        print_lines(last, failed, skipped, is_exported=bool(export), allow_networks=allow_networks)


def summary_of(
    last: Progress, failed: Reasons, skipped: Reasons, *, project_url: str, export: Path | None
) -> Summary:
    return Summary(
        **dict(last),
        project_url=project_url,
        export=export and export.absolute(),
        failed=failed.counts,
        skipped=skipped.counts,
        failures=[
            Failure(url=row.url, http_status=row.http_status, error=row.last_error)
            for row in failed.first_rows
        ],
    )


def print_lines(
    last: Progress,
    failed: Reasons,
    skipped: Reasons,
    *,
    is_exported: bool,
    allow_networks: Sequence[str],
) -> None:
    lines = [
        f'{last.status}{describe_speed(last)}: {wording.counted(last.pages_done, "page")},'
        f' {wording.byte_size(last.bytes)} read'
    ]
    if last.error_code:
        lines.append(f'  error    {last.error_code}: {last.error_message or ""}')
    if last.pages_done:
        changes = (
            (last.pages_new, 'new'),
            (last.pages_changed, 'changed'),
            (last.pages_unchanged, 'unchanged'),
        )
        lines.append(
            f'  stored   {", ".join(f"{count} {word}" for count, word in changes if count)}'
        )
    if last.pages_with_warnings:
        lines.append(f'  warnings {wording.page_warnings(last)}')
    if last.pages_failed:
        lines.append(f'  failed   {failed.text(SHOWN_ERRORS)}')
    if last.pages_skipped:
        lines.append(f'  skipped  {skipped.text()}')
    if skipped.counts['budget']:
        lines.append('           (budget: --pages was reached; raise it to fetch these)')
    if last.links_refused:
        lines.append(f'  refused  {wording.refused_links(last)}')
    left = last.pages_pending + last.pages_in_progress
    if left:
        lines.append(f'  left     {wording.counted(left, "URL")}')
    typer.echo(printable('\n'.join(lines)))
    for row in [*failed.starts, *skipped.starts] if not last.pages_done else []:
        typer.echo(printable(explain_start(row)))
    steps = next_steps(
        last, can_resume=left > 0, is_exported=is_exported, allow_networks=allow_networks
    )
    for step in steps:
        typer.echo(step)


async def read_reasons(rpc: 'Rpc', last: Progress, status: FinishedStatus) -> Reasons:
    reasons = Reasons()
    if not (last.pages_failed if status == 'error' else last.pages_skipped):
        return reasons
    async for row in each_page(rpc, last.job_id, status=status):
        reasons.counts[short_reason(row)] += 1
        if row.depth == 0:
            reasons.starts.append(row)
        if len(reasons.first_rows) < LISTED_FAILURES:
            reasons.first_rows.append(row)
        if reasons.counts.total() >= COUNTED_ROWS:
            reasons.is_truncated = True
            break
    return reasons


def short_reason(row: PageRow) -> str:
    """A short reason, the same for all URLs that failed in the same way."""
    if row.skip_reason is not None:
        return row.skip_reason
    if row.http_status is not None and row.http_status >= 400:
        return f'HTTP {row.http_status}'
    # Errors that differ only in their URL are the same reason.
    text = (row.last_error or 'failed').replace(row.url, 'the URL')
    host = urlsplit(row.url).hostname
    return (text.replace(host, 'the host') if host else text)[:100]


def explain_start(row: PageRow) -> str:
    """Why the start URL was not stored, and what to do about it."""
    from silkline.crawl.urls import BAD_PORTS

    if row.skip_reason == 'forbidden_address' and urlsplit(row.url).port in BAD_PORTS:
        return f'Nothing was stored: {row.url}: browsers refuse this port, and so does Silkline'
    text = f'Nothing was stored: {row.url}: {wording.describe_failure(row)}'
    if row.skip_reason == 'forbidden_address':
        return f'{text}\nTo allow its network, add {allow_network_option(row.url)}'
    advice = ADVICE.get(row.skip_reason or '')
    return f'{text}\n{advice}' if advice else text


def allow_network_option(url: str) -> str:
    """The option that lets a crawl reach the host of a URL."""
    host = urlsplit(url).hostname or ''
    if host == 'localhost' or host.endswith('.localhost'):
        return '--allow-network 127.0.0.0/8 --allow-network ::1/128'
    try:
        address = ip_address(host)
    except ValueError:
        return '--allow-network CIDR'
    if address.version == 4 and address.is_loopback:
        return '--allow-network 127.0.0.0/8'
    return f'--allow-network {address}/{address.max_prefixlen}'


def next_steps(
    last: Progress, *, can_resume: bool, is_exported: bool, allow_networks: Sequence[str]
) -> list[str]:
    """Commands to copy, each short enough for a line of a narrow terminal."""
    lists = (
        (last.pages_done, ''),
        (last.pages_with_warnings, ' --warnings'),
        (last.pages_failed, ' --failed'),
        (last.pages_skipped, ' --skipped'),
        (last.pages_done and not is_exported, ' --export DIR'),
    )
    steps = [f'  silkline pages {last.job_id}{flag}' for count, flag in lists if count]
    if steps:
        steps.insert(0, 'To list them:')
    if can_resume:
        allowed = ''.join(f' --allow-network {network}' for network in allow_networks)
        steps += [
            'To resume:',
            f'  silkline resume {last.job_id}',
            f'  silkline worker --burst{allowed}',
        ]
    return steps


def describe_speed(last: Progress) -> str:
    """The duration and speed of a job; empty if it never ran."""
    if last.started_at is None or last.completed_at is None:
        return ''
    seconds = (last.completed_at - last.started_at).total_seconds()
    speed = f' ({last.pages_done / seconds:.3g} pages/s)' if last.pages_done and seconds else ''
    return f' in {seconds:.1f} s{speed}'
