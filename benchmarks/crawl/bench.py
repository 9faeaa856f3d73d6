"""The crawls of one run: starts the sites and silkline, then crawls in turn.

Owns the order of the crawls and keeps their results. `claims.py` compares them with the targets.
"""

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from benchmarks.crawl.guide import write_guide_page
from benchmarks.crawl.manual import write_manual_page
from benchmarks.crawl.ours import OurRun, Silkline, run_silkline
from benchmarks.crawl.peers import SCRAPY, Peer, PeerRun, run_peer
from benchmarks.crawl.site import Facts, WritePage, write_site
from benchmarks.crawl.site_server import Server, run_server
from benchmarks.shared.report import number

CONCURRENCY = 16
MAX_PAGES = 200_000
Markdown = Literal['none', 'main']
TEMPLATES: Mapping[str, WritePage] = {'guide': write_guide_page, 'manual': write_manual_page}


@dataclass(frozen=True, slots=True)
class Size:
    pages: int
    rounds: int
    has_tree: bool


FULL = Size(pages=3000, rounds=3, has_tree=True)
QUICK = Size(pages=300, rounds=1, has_tree=False)


@dataclass(slots=True)
class SiteRuns:
    """One of the sites, and the results of its crawls."""

    name: str
    # Its number on the server.
    number: int
    facts: Facts
    hosts: int = 0
    ours: dict[Markdown, list[OurRun]] = field(default_factory=dict[Markdown, list[OurRun]])
    peers: dict[str, list[PeerRun]] = field(default_factory=dict[str, list[PeerRun]])
    requests: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(slots=True)
class Bench:
    """The sites, silkline, and the results of each crawl."""

    size: Size
    directory: Path
    server: Server
    guide: SiteRuns
    manual: SiteRuns
    silkline: Silkline
    # The core of the crawler.
    core: int
    tree: OurRun | None = None

    def run(self, peers: Sequence[Peer]) -> None:
        """Crawl in turn, so that a slow minute of the machine affects all crawlers."""
        self.warm_up()
        for nth in range(self.size.rounds):
            self.crawl(self.guide, 'none')
            for peer in peers:
                if nth < peer.rounds:
                    self.crawl_with(self.guide, peer)
            self.crawl(self.guide, 'main')
            self.crawl(self.manual, 'main')
            if SCRAPY in peers and nth < SCRAPY.rounds:
                self.crawl_with(self.manual, SCRAPY)
        if self.size.has_tree:
            self.crawl_tree()

    def warm_up(self) -> None:
        """Crawl one page: then the worker has started, and its statements are planned."""
        self.silkline.crawl(self.next_url(self.guide), fetcher='http', strategy='page')

    def next_url(self, site: SiteRuns, path: str = '/') -> str:
        site.hosts += 1
        return self.server.url(site.number, site.hosts, path)

    def crawl(
        self,
        site: SiteRuns,
        markdown: Markdown,
        *,
        on_runner: Callable[[int], None] | None = None,
    ) -> OurRun:
        run = self.silkline.crawl(
            self.next_url(site),
            on_runner=on_runner,
            fetcher='http',
            concurrency=CONCURRENCY,
            max_pages=MAX_PAGES,
            markdown=markdown,
        )
        site.ours.setdefault(markdown, []).append(run)
        self.report(site, our_name(markdown), run)
        return run

    def crawl_with(self, site: SiteRuns, peer: Peer) -> None:
        url = self.next_url(site)
        directory = self.directory / f'{site.name}-peer-{site.hosts}'
        run = run_peer(peer, url, directory=directory, core=self.core)
        site.peers.setdefault(peer.name, []).append(run)
        self.report(site, peer.name, run)

    def crawl_tree(self) -> None:
        """Crawl many small pages, to measure the memory, not the speed."""
        self.tree = self.silkline.crawl(
            self.next_url(self.guide, '/tree/'),
            fetcher='http',
            concurrency=CONCURRENCY,
            max_pages=MAX_PAGES,
        )

    def report(self, site: SiteRuns, name: str, run: OurRun | PeerRun) -> None:
        site.requests[name] = self.server.requests(site.number, site.hosts).total()
        print(
            f'       {site.name}, {name}: {len(run.paths)} pages in {number(run.seconds, "s")},'
            f' {number(run.rate, "pages/s")}',
            flush=True,
        )


@contextmanager
def prepare(size: Size) -> Generator[Bench]:
    """Start the sites and silkline, on another core than the crawler's if there are two."""
    cores = sorted(os.sched_getaffinity(0))
    crawler, rest = cores[0], cores[1:2] or cores
    os.sched_setaffinity(0, rest)
    with TemporaryDirectory(prefix='silkline-bench-') as name:
        directory = Path(name)
        directory.chmod(0o711)
        with run_server(directory / 'sites') as server:
            guide, manual = (
                SiteRuns(name, nth, write_site(server.root(nth), size.pages, write_page))
                for nth, (name, write_page) in enumerate(TEMPLATES.items())
            )
            with run_silkline(directory, nginx=server.process, core=crawler) as silkline:
                yield Bench(size, directory, server, guide, manual, silkline, crawler)


def our_name(markdown: Markdown) -> str:
    return 'silkline, no Markdown' if markdown == 'none' else 'silkline, main Markdown'
