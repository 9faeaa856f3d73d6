"""Why a URL was not crawled: its row in the job, or else what the rules of the job say about it.

The only module of the commands that applies the rules of a crawl (`crawl/engine/scope.py`) without
crawling. Two rules are left out: robots.txt, which is not fetched here, and `max_depth`, because
the depth of a URL that no page links to is not known.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

import typer
from pydantic import BaseModel

from silkline.cli import wording
from silkline.cli.terminal import printable
from silkline.crawl.engine.frontier import start_of
from silkline.crawl.engine.scope import Scope, compile_patterns
from silkline.crawl.options import CrawlOptions
from silkline.crawl.urls import host_of
from silkline.queue.rows import ENDED, Job, UrlRow
from silkline.queue.rpc import Rpc

# Of many places or patterns, this many are named.
MOST_NAMED = 5
# Strategies that fetch exactly the URLs that the user gave, or begin with them.
STARTS_WITH_ITS_URLS = ('page', 'list', 'site')


class UrlExplanation(BaseModel):
    """`row` and `found_on` are null if the job has no row for the URL."""

    job_id: UUID
    url: str
    code: str
    text: str
    row: UrlRow | None = None
    # The page that it was found on.
    found_on: str | None = None


class Verdict(NamedTuple):
    code: str
    text: str


async def explain_url(rpc: Rpc, job_id: UUID, url: str) -> UrlExplanation:
    typed = start_of(url)
    rows = await rpc.find_urls(job_id, [typed.url_key])
    if rows:
        row = rows[0]
        verdict = verdict_of_row(row)
        pages = await rpc.find_urls(job_id, [row.found_on]) if row.found_on else []
        return UrlExplanation(
            job_id=job_id,
            url=row.url,
            code=verdict.code,
            text=verdict.text,
            row=row,
            found_on=pages[0].url if pages else None,
        )
    job = await rpc.find_job(job_id)
    if typed.skip_reason is not None:
        verdict = Verdict('invalid_url', wording.SKIP_REASONS['invalid_url'])
    elif job.kind != 'crawl':
        verdict = Verdict(
            'not_found', f'no row: which links a job of kind {job.kind} follows, its plugin decides'
        )
    else:
        redirected_starts = await rpc.list_redirected_starts(job_id)
        verdict = verdict_of_rules(job, redirected_starts, typed.url)
    return UrlExplanation(job_id=job_id, url=typed.url, code=verdict.code, text=verdict.text)


def print_url_explanation(explanation: UrlExplanation) -> None:
    typer.echo(f'{explanation.code}: {printable(explanation.text)}')
    if explanation.found_on is not None:
        typer.echo(f'found on {printable(explanation.found_on)}')


def verdict_of_row(row: UrlRow) -> Verdict:
    status = f' (HTTP {row.http_status})' if row.http_status else ''
    match row.status:
        case 'done':
            return Verdict('done', f'it was fetched{status}')
        case 'pending':
            error = f'; last error: {row.last_error}' if row.last_error else ''
            return Verdict('pending', f'it waits to be fetched{error}')
        case 'in_progress':
            return Verdict('in_progress', 'it is being fetched')
        case 'error':
            return Verdict('error', wording.describe_failure(row))
        case 'skipped':
            code = row.skip_reason or 'skipped'
            text = wording.describe_failure(row).removeprefix(f'{code}: ')
            return Verdict(code, f'{text}{status}')


def verdict_of_rules(job: Job, redirected_starts: Sequence[str], url: str) -> Verdict:
    """What the rules of a job say about a URL that it has no row for."""
    options = CrawlOptions.read(job.payload)
    scope = Scope.of_job(options, [*options.starts, *redirected_starts])
    refusal = options.policy.refusal(host_of(url))
    if refusal is not None:
        return Verdict('out_of_scope', refusal)
    if url in scope.starts and options.strategy in STARTS_WITH_ITS_URLS:
        return Verdict('start', f'the job starts with it, and is {job.status}')
    if options.strategy in ('page', 'list'):
        return Verdict(
            'not_found',
            f'with strategy {options.strategy}, the job fetches only the URLs it was given',
        )
    match scope.judge(url):
        case None:
            return Verdict('not_found', describe_allowed(job, options))
        case 'out_of_scope':
            return Verdict('out_of_scope', describe_scope(scope))
        case 'excluded':
            return Verdict('excluded', describe_exclusion(options, url))
        case reason:
            return Verdict(reason, wording.SKIP_REASONS[reason])


def describe_allowed(job: Job, options: CrawlOptions) -> str:
    so_far = '' if job.status in ENDED else ' so far'
    match options.strategy:
        case 'sitemap':
            return f'the rules allow it, but no sitemap that was read{so_far} names it'
        case 'llms_txt':
            return f'the rules allow it, but the llms.txt that was read{so_far} does not link to it'
        case _:
            text = f'the rules allow it, but no page that was read{so_far} links to it'
            return text if options.follow_nofollow else f'{text} (nofollow links do not count)'


def describe_scope(scope: Scope) -> str:
    if not scope.places:
        return 'the crawl may not fetch any of its start URLs'
    if scope.kind == 'prefix':
        paths = [f'{host}{path}' for host, paths in scope.places.items() for path in paths]
        return f'the crawl stays below {named(paths)}'
    return f'the crawl stays on {scope.kind} {named(scope.places)}'


def describe_exclusion(options: CrawlOptions, url: str) -> str:
    for pattern in options.exclude:
        matches = compile_patterns([pattern], name='exclude')
        if matches is not None and matches(url):
            return f'it matches the exclude pattern {pattern}'
    return f'it matches no include pattern: {named(options.include)}'


def named(words: Iterable[str]) -> str:
    listed = sorted(words)
    more = len(listed) - MOST_NAMED
    return ', '.join(listed[:MOST_NAMED]) + (f' and {more} more' if more > 0 else '')
