"""Crawlee's ParselCrawler with everything in memory. Obeys robots.txt.

Protocol: see `__init__.py`.
"""

# The packages are in .venv-bench-crawl, which the type checker does not see.
# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownParameterType=false

import asyncio
import logging
import sys
from typing import Any

from crawl_result import CONCURRENCY, write_result
from crawlee import ConcurrencySettings
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.storage_clients import MemoryStorageClient


async def crawl(start: str) -> dict[str, str | None]:
    titles: dict[str, str | None] = {}
    crawler: Any = ParselCrawler(
        storage_client=MemoryStorageClient(),
        concurrency_settings=ConcurrencySettings(
            min_concurrency=CONCURRENCY,
            max_concurrency=CONCURRENCY,
            desired_concurrency=CONCURRENCY,
        ),
        respect_robots_txt_file=True,
        configure_logging=False,
    )

    @crawler.router.default_handler
    async def record(context: ParselCrawlingContext) -> None:
        titles[context.request.loaded_url or context.request.url] = context.selector.css(
            'title::text'
        ).get()
        await context.enqueue_links()

    await crawler.run([start])
    return titles


def main() -> None:
    start, output = sys.argv[1:]
    logging.disable(logging.ERROR)
    titles = asyncio.run(crawl(start))
    write_result(output, titles)


main()
