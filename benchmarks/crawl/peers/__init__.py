"""Other crawlers on the same site, each in its own process on the crawler's core.

A `run_*.py` program gets the start URL and a file, crawls with 16 requests at a time and no delay,
and writes `{"urls", "peak_kilobytes"}` to the file: the pages it found, by their URLs after
redirects. It is timed from outside, from the start of the process to its end. The programs run in
`.venv-bench-crawl`, which `run.sh` creates.
"""

import json
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.shared.server import ROOT

HERE = Path(__file__).parent
ENVIRONMENT = ROOT / '.venv-bench-crawl'
PYTHON = ENVIRONMENT / 'bin/python'


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    package: str
    how: str
    program: str
    # How often it is run without --quick; slow ones less often.
    rounds: int
    keeps_queue: bool = False


SCRAPY = Peer('Scrapy', 'scrapy', 'CrawlSpider, LinkExtractor', 'run_scrapy.py', rounds=2)
SCRAPY_JOBDIR = Peer(
    'Scrapy + JOBDIR', 'scrapy', 'its queue on disk', 'run_scrapy.py', rounds=1, keeps_queue=True
)
CRAWLEE = Peer('Crawlee', 'crawlee', 'ParselCrawler, all in memory', 'run_crawlee.py', rounds=2)
LOOP = Peer(
    'bare loop',
    'aiohttp',
    'aiohttp, uvloop, turbohtml; nothing else',
    'run_loop.py',
    rounds=3,
)
PEERS = (SCRAPY, SCRAPY_JOBDIR, CRAWLEE, LOOP)


@dataclass(frozen=True, slots=True)
class PeerRun:
    paths: frozenset[str]
    seconds: float
    # Processor time.
    crawler_seconds: float
    peak_megabytes: float

    @property
    def rate(self) -> float:
        return len(self.paths) / self.seconds


def is_installed() -> bool:
    return (ENVIRONMENT / '.peers').exists()


def version_of(package: str) -> str:
    """The installed version."""
    code = f'import importlib.metadata as m; print(m.version({package!r}))'
    shown = subprocess.run([PYTHON, '-c', code], capture_output=True, text=True, check=True)
    return shown.stdout.strip()


def run_peer(peer: Peer, url: str, *, directory: Path, core: int) -> PeerRun:
    """Crawl with a peer, on one core; `directory` must not exist yet."""
    directory.mkdir()
    output = directory / 'result.json'
    words = [str(directory / 'queue')] if peer.keeps_queue else []
    with (directory / 'errors').open('wb') as errors:
        began_at = time.perf_counter()
        process = subprocess.Popen(
            ['taskset', '-c', str(core), PYTHON, HERE / peer.program, url, output, *words],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
        )
        # Not wait(): only this call returns the processor time of a single child.
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began_at
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or not output.exists():
        output_tail = (directory / 'errors').read_text()[-2000:]
        raise RuntimeError(f'{peer.name} exited with {process.returncode}:\n{output_tail}')
    result = json.loads(output.read_text())
    return PeerRun(
        paths=paths_of(result['urls']),
        seconds=seconds,
        crawler_seconds=usage.ru_utime + usage.ru_stime,
        peak_megabytes=result['peak_kilobytes'] / 1024,
    )


def paths_of(urls: Sequence[str]) -> frozenset[str]:
    """URLs without their host, which differs from run to run."""
    return frozenset(urlsplit(url).path for url in urls)
