"""The lower bound: a bare loop that fetches, decodes, lists links and remembers seen URLs.

No robots.txt, no checks, nothing stored about a page but its URL and title, nothing on disk.
Protocol: see `__init__.py`.
"""

# The packages are in .venv-bench-crawl, which the type checker does not see.
# pyright: reportMissingImports=false

import asyncio
import sys
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
import turbohtml
import uvloop
from crawl_result import CONCURRENCY, write_result


async def crawl(start: str) -> dict[str, str]:
    parts = urlsplit(start)
    origin = f'{parts.scheme}://{parts.netloc}'
    prefix = f'{origin}/'
    seen = {start}
    titles: dict[str, str] = {}
    ready: asyncio.Queue[str] = asyncio.Queue()
    ready.put_nowait(start)

    async def work(session: aiohttp.ClientSession) -> None:
        while True:
            url = await ready.get()
            async with session.get(url) as response:
                if response.status == 200:
                    # The URL after redirects.
                    url = str(response.url)
                    seen.add(url)
                    html = await response.text('utf-8')
                    document: Any = turbohtml.parse(html, positions=False)
                    titles[url] = document.find('title').text
                    # Distinct links only: every further step costs time per link.
                    for href in set(document.xpath('//a/@href')):
                        link = href.partition('#')[0]
                        if link.startswith('/'):
                            link = origin + link
                        elif not link.startswith('http'):
                            link = urljoin(url, link)
                        if link.startswith(prefix) and link not in seen:
                            seen.add(link)
                            ready.put_nowait(link)
            ready.task_done()

    connector = aiohttp.TCPConnector(limit=CONCURRENCY)
    async with aiohttp.ClientSession(connector=connector) as session:
        workers = [asyncio.ensure_future(work(session)) for _ in range(CONCURRENCY)]
        everything = asyncio.ensure_future(ready.join())
        # If one worker fails, all end: join() would wait forever for its URL.
        done, _ = await asyncio.wait([*workers, everything], return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            future.result()
        for worker in workers:
            worker.cancel()
    return titles


def main() -> None:
    start, output = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        titles = runner.run(crawl(start))
    write_result(output, titles)


main()
