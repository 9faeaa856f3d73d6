"""Reading the URLs of a job from the API, batch by batch.

A large job takes no more memory than a small one. Printing and exporting are left to the callers.
"""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Literal
from uuid import UUID

if TYPE_CHECKING:
    from silkline.queue.rows import PageRow
    from silkline.queue.rpc import Rpc

# Rows per request. The database returns fewer if their content is large, so only an empty answer is
# the last one.
ROWS = 1000

FinishedStatus = Literal['done', 'error', 'skipped']


async def each_page(
    rpc: 'Rpc', job_id: UUID, *, status: FinishedStatus, with_content: bool = False
) -> 'AsyncGenerator[PageRow]':
    async for rows in each_batch(rpc, job_id, status=status, with_content=with_content):
        for row in rows:
            yield row


async def each_batch(
    rpc: 'Rpc', job_id: UUID, *, status: FinishedStatus, with_content: bool = False
) -> 'AsyncGenerator[list[PageRow]]':
    after: UUID | None = None
    while rows := await rpc.crawl_job_pages(
        job_id,
        status=status,
        with_content=with_content,
        after=after,
        limit=ROWS,
    ):
        after = rows[-1].url_key
        yield rows
