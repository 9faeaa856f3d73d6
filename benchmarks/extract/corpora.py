"""Real pages with their main content, which are not part of the repository.

Owns where they are and how their files are read. Scores are left to `scores.py`. The texts belong
to their sites: nothing of them may be printed or written.
"""

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.shared.server import ROOT

SHARED = ROOT.parent / 'shared'
ARTICLES = SHARED / 'data/articles'
WCXB = SHARED / 'data/wcxb-dev'
DOCS_EXTRACT = SHARED / 'tools/docs-extract'


@dataclass(frozen=True, slots=True)
class Page:
    file: Path
    url: str
    kind: str
    truth: str
    # Short texts that must be found, and those of boilerplate that must not.
    wanted: Sequence[str] = ()
    unwanted: Sequence[str] = ()

    def read(self) -> str:
        with gzip.open(self.file) as file:
            return file.read().decode('utf-8', 'replace')


def find_articles(directory: Path) -> list[Page]:
    """The pages of scrapinghub/article-extraction-benchmark; none if they are not there."""
    path = directory / 'ground-truth.json'
    if not path.exists():
        return []
    return [
        Page(directory / f'{key}.html.gz', entry['url'], 'article', entry['articleBody'])
        for key, entry in sorted(json.loads(path.read_text()).items())
    ]


def find_wcxb(directory: Path) -> list[Page]:
    """The pages of the Web Content eXtraction Benchmark; none if they are not there."""
    path = directory / 'ground-truth.json.gz'
    if not path.exists():
        return []
    with gzip.open(path) as file:
        entries = json.load(file)
    return [
        Page(
            directory / f'html/{key}.html.gz',
            entry['url'],
            entry['page_type'],
            entry['main_content'],
            wanted=entry['with'],
            unwanted=entry['without'],
        )
        for key, entry in sorted(entries.items())
    ]


def sample(pages: Sequence[Page], count: int) -> Sequence[Page]:
    """At most `count` pages, evenly over all of them."""
    if len(pages) <= count:
        return pages
    return [pages[nth * len(pages) // count] for nth in range(count)]
