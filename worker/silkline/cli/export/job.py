"""Exporting the pages of one job, and reporting what changed.

Owns which files of an earlier export are removed. How files are written is `directory.py`'s.
"""

from pathlib import Path
from uuid import UUID

from silkline.cli.export.directory import Export, ExportCounts
from silkline.cli.job_pages import FinishedStatus, each_page
from silkline.cli.runtime import print_message
from silkline.errors import SettingsError
from silkline.queue.rows import PageRow
from silkline.queue.rpc import Rpc

UNSTORED: tuple[FinishedStatus, ...] = ('error', 'skipped')
# Not Found, Gone.
GONE = (404, 410)


async def export_pages(rpc: Rpc, job_id: UUID, directory: Path) -> None:
    """Write the pages of a job as files and print what changed."""
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
    print_message(describe_export(counts, directory))


async def find_unseen(rpc: Rpc, job_id: UUID, files: dict[str, str | None]) -> set[str]:
    """The files whose pages may still exist, although this job did not store them.

    A job that was cut short does not prove that a page is gone. Nor does a job that could not
    fetch some page: that page may be the one that links to it.
    """
    if not files:
        return set()
    progress = await rpc.crawl_progress(job_id)
    has_seen_all = progress.status == 'completed' and progress.pages_done > 0
    urls = set(files.values())
    gone: set[str] = set()
    for status in UNSTORED:
        async for row in each_page(rpc, job_id, status=status):
            if may_exist(row):
                has_seen_all = False
            elif row.url in urls:
                gone.add(row.url)
    return set() if has_seen_all else {path for path, url in files.items() if url not in gone}


def may_exist(row: PageRow) -> bool:
    """Whether the next crawl may store a URL that this one did not."""
    if row.skip_reason is None:
        return row.http_status not in GONE
    return row.skip_reason in ('budget', 'host_unavailable')


def describe_export(counts: ExportCounts, directory: Path) -> str:
    parts = [
        f'{count} {word}'
        for count, word in (
            (counts.new, 'new'),
            (counts.changed, 'changed'),
            (counts.unchanged, 'unchanged'),
            (counts.removed, 'removed'),
            (counts.unseen, 'kept: not seen by this crawl'),
            (counts.edited, 'kept: edited by hand'),
        )
        if count
    ]
    return f'{directory}: {", ".join(parts) or "no pages to write"}'
