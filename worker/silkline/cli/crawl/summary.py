"""How a crawl ended, in a few lines: what was stored, what was not and why, where it is.

Owns these words, and the advice for the mistakes that are made most: an address of this machine, a
site that forbids crawlers, a start URL that does not answer.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer

from silkline.queue.rows import Answer, PageRow, Progress

if TYPE_CHECKING:
    from silkline.cli.commands.pages import TaskStatus
    from silkline.queue.rpc import Rpc

# Of a crawl with more, the reasons of so many are counted.
COUNTED_ROWS = 20_000
# Skip reasons are few; errors may be many.
SHOWN_ERRORS = 4
TOLD_FAILURES = 100

ADVICE = {
    'robots': 'If the site is yours: -o obey_robots=false',
    'noindex': 'To keep such pages: -o keep_noindex=true',
    'redirect': 'It leads out of the scope of the crawl: begin there, or -o scope=domain',
    'canonical': 'Begin with the URL that it names as the original.',
    'host_unavailable': 'Is the URL right? If its host is only away: the same again, later.',
    'too_large': 'To take larger pages: -o max_page_bytes=50000000',
}


@dataclass(slots=True)
class Reasons:
    """Why URLs of one status are not stored, the most frequent first."""

    counts: Counter[str] = field(default_factory=Counter[str])
    starts: list[PageRow] = field(default_factory=list[PageRow])
    first_rows: list[PageRow] = field(default_factory=list[PageRow])
    is_cut: bool = False

    def text(self, shown: int | None = None) -> str:
        most = self.counts.most_common(shown)
        others = self.counts.total() - sum(count for _, count in most)
        parts = [f'{count} {reason}' for reason, count in most]
        if others:
            parts.append(f'{others} for other reasons')
        if self.is_cut:
            parts.append(f'and more than these {COUNTED_ROWS}')
        return ', '.join(parts)


class Failure(Answer):
    url: str
    http_status: int | None
    error: str | None


class Summary(Progress):
    """The last snapshot of a job, why the rest is not stored, and where the pages are.

    `failures` are the first of them.
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
    """Tell the end of a job to stdout."""
    from silkline.cli import output

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
    from silkline.cli import output
    from silkline.cli.terminal import plain

    lines = [
        f'{last.status}{took(last)}: {output.counted(last.pages_done, "page")},'
        f' {output.amount(last.bytes)} read'
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
    if last.pages_failed:
        lines.append(f'  failed   {failed.text(SHOWN_ERRORS)}')
    if last.pages_skipped:
        lines.append(f'  skipped  {skipped.text()}')
    if skipped.counts['budget']:
        lines.append('           (budget: --pages was reached; to have them, crawl with more)')
    left = last.pages_pending + last.pages_in_progress
    if left:
        lines.append(f'  left     {output.counted(left, "URL")}')
    typer.echo(plain('\n'.join(lines)))
    for row in [*failed.starts, *skipped.starts] if not last.pages_done else []:
        typer.echo(plain(about_start(row)))
    steps = next_steps(
        last, can_go_on=left > 0, is_exported=is_exported, allow_networks=allow_networks
    )
    for step in steps:
        typer.echo(step)


async def read_reasons(rpc: 'Rpc', last: Progress, status: 'TaskStatus') -> Reasons:
    from silkline.cli.commands.pages import each_page

    reasons = Reasons()
    if not (last.pages_failed if status == 'error' else last.pages_skipped):
        return reasons
    async for row in each_page(rpc, last.job_id, status=status):
        reasons.counts[reason_of(row)] += 1
        if row.depth == 0:
            reasons.starts.append(row)
        if len(reasons.first_rows) < TOLD_FAILURES:
            reasons.first_rows.append(row)
        if reasons.counts.total() >= COUNTED_ROWS:
            reasons.is_cut = True
            break
    return reasons


def reason_of(row: PageRow) -> str:
    """Short, and the same for URLs that failed alike."""
    if row.skip_reason is not None:
        return row.skip_reason
    if row.http_status is not None and row.http_status >= 400:
        return f'HTTP {row.http_status}'
    # What differs from URL to URL is the URL.
    text = (row.last_error or 'failed').replace(row.url, 'it')
    host = urlsplit(row.url).hostname
    return (text.replace(host, 'the host') if host else text)[:100]


def about_start(row: PageRow) -> str:
    """Why nothing came of the URL that the crawl began with, and what to do about it."""
    from silkline.cli import output
    from silkline.crawl.net.addresses import BAD_PORTS

    if row.skip_reason == 'forbidden_address' and urlsplit(row.url).port in BAD_PORTS:
        return f'Nothing was stored: {row.url}: browsers refuse this port, and so do crawls'
    said = f'Nothing was stored: {row.url}: {output.why(row)}'
    if row.skip_reason == 'forbidden_address':
        return f'{said}\nIf you mean it, allow its network: {allowance(row.url)}'
    advice = ADVICE.get(row.skip_reason or '')
    return f'{said}\n{advice}' if advice else said


def allowance(url: str) -> str:
    """The words that let a crawl reach the address of a URL."""
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
    last: Progress, *, can_go_on: bool, is_exported: bool, allow_networks: Sequence[str]
) -> list[str]:
    """Commands to copy, each in a line of a narrow terminal."""
    lists = (
        (last.pages_done, ''),
        (last.pages_failed, ' --failed'),
        (last.pages_skipped, ' --skipped'),
        (last.pages_done and not is_exported, ' --export DIR'),
    )
    steps = [f'  silkline pages {last.job_id}{flag}' for count, flag in lists if count]
    if steps:
        steps.insert(0, 'To see them:')
    if can_go_on:
        allowed = ''.join(f' --allow-network {network}' for network in allow_networks)
        steps += [
            'To go on:',
            f'  silkline resume {last.job_id}',
            f'  silkline worker --burst{allowed}',
        ]
    return steps


def took(last: Progress) -> str:
    """In which time, and how fast; nothing for a job that never ran."""
    if last.started_at is None or last.completed_at is None:
        return ''
    seconds = (last.completed_at - last.started_at).total_seconds()
    speed = f' ({last.pages_done / seconds:.3g} pages/s)' if last.pages_done and seconds else ''
    return f' in {seconds:.1f} s{speed}'
