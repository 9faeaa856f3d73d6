"""Scrapy as in its tutorial: a CrawlSpider that follows all links of the host.

With a third argument its queue is stored in that directory (JOBDIR). Obeys robots.txt. Protocol:
see `__init__.py`.
"""

# The packages are in .venv-bench-crawl, which the type checker does not see.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

import sys
from typing import Any, ClassVar
from urllib.parse import urlsplit

from crawl_result import CONCURRENCY, write_result
from scrapy.crawler import CrawlerProcess
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

titles: dict[str, str | None] = {}


class Spider(CrawlSpider):
    name = 'site'
    rules: ClassVar[tuple[Rule, ...]] = (Rule(LinkExtractor(), callback='record', follow=True),)

    def parse_start_url(self, response: Any, **_: Any) -> None:
        self.record(response)

    def record(self, response: Any) -> None:
        titles[response.url] = response.css('title::text').get()


def main() -> None:
    start, output, *directory = sys.argv[1:]
    settings = {
        'CONCURRENT_REQUESTS': CONCURRENCY,
        'CONCURRENT_REQUESTS_PER_DOMAIN': CONCURRENCY,
        'DOWNLOAD_DELAY': 0,
        'ROBOTSTXT_OBEY': True,
        'LOG_LEVEL': 'ERROR',
        'TELNETCONSOLE_ENABLED': False,
    }
    if directory:
        settings['JOBDIR'] = directory[0]
    process = CrawlerProcess(settings)
    host = urlsplit(start).hostname
    process.crawl(Spider, start_urls=[start], allowed_domains=[host])
    process.start()
    write_result(output, titles)


main()
