"""A generated site, which all crawlers crawl: which pages there are, and how they are linked.

The texts and links of its pages are the same in every run; `guide.py` and `manual.py` have the
templates of two such sites, and `site_server.py` serves them. Page 0 is the root; page n links to
pages 4n+1 to 4n+4, so every page can be reached; its other links are random. Pages are stored
compressed, as a well-run site stores them.
"""

import gzip
import random
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.crawl.words import ADJECTIVES, ADVERBS, NOUNS, OUTSIDE, SECTIONS, SHAPES, VERBS

SEED = 20261115
CHILDREN = 4
# One page in so many has the property.
MOVED = 67
GONE = 100
PRIVATE = 200
# Replaced by the host of the request.
PLACEHOLDER = 'http://site.example'

_TAG = re.compile(r'</?[a-z]')


@dataclass(frozen=True, slots=True)
class Facts:
    """What a crawler that obeys robots.txt must find, and what it must not fetch."""

    paths: Sequence[str]
    private_paths: Sequence[str]
    moved: int
    gone: int
    median_bytes: int
    median_links: int
    # Start tags and end tags.
    median_tags: int


def write_site(root: Path, pages: int, write_page: 'WritePage') -> Facts:
    """Write the site below `root`: .gz files only, and sitemap.xml."""
    site = Site(pages)
    sizes: list[int] = []
    links: list[int] = []
    tags: list[int] = []
    for section in (*SECTIONS, 'private'):
        (root / section).mkdir(parents=True)
    for number, path in site.files():
        html = write_page(site, number, path)
        body = html.encode()
        sizes.append(len(body))
        links.append(html.count('<a '))
        tags.append(len(_TAG.findall(html)))
        name = '/index.html' if path == '/' else path
        (root / f'{name[1:]}.gz').write_bytes(gzip.compress(body, 5, mtime=0))
    (root / 'sitemap.xml').write_text(site.sitemap())
    return Facts(
        paths=site.paths,
        private_paths=[private_path(number) for number in range(pages) if is_nth(number, PRIVATE)],
        moved=sum(is_nth(number, MOVED) for number in range(pages)),
        gone=sum(is_nth(number, GONE) for number in range(pages)),
        median_bytes=statistics.median_high(sizes),
        median_links=statistics.median_high(links),
        median_tags=statistics.median_high(tags),
    )


def is_nth(number: int, every: int) -> bool:
    return number % every == every // 2


def private_path(number: int) -> str:
    return f'/private/record-{number}.html'


class Site:
    def __init__(self, pages: int) -> None:
        dice = random.Random(SEED)
        self.pages = pages
        self.titles = [make_title(dice) for _ in range(pages)]
        self.paths = [
            f'/{SECTIONS[number % len(SECTIONS)]}/{title.lower().replace(" ", "-")}-{number}.html'
            for number, title in enumerate(self.titles)
        ]
        self.paths[0] = '/'
        self.sentences = [make_sentence(dice) for _ in range(12_000)]
        self.outside = [fill(dice, dice.choice(OUTSIDE)) for _ in range(600)]

    def files(self) -> Iterator[tuple[int, str]]:
        """The number and the path of each page, and of the private copies of some."""
        for number in range(self.pages):
            yield number, self.paths[number]
            if is_nth(number, PRIVATE):
                yield number, private_path(number)

    def sitemap(self) -> str:
        entries = ''.join(
            f'<url><loc>{PLACEHOLDER}{path}</loc><lastmod>2026-10-{number % 28 + 1:02}</lastmod>'
            '</url>\n'
            for number, path in enumerate(self.paths)
        )
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{entries}</urlset>\n'
        )


# Returns the HTML of the page with this number, at this path.
WritePage = Callable[[Site, int, str], str]


def make_title(dice: random.Random) -> str:
    words = [dice.choice(ADJECTIVES), *dice.choices(NOUNS, k=dice.randint(1, 3))]
    return ' '.join(words).capitalize()


def make_sentence(dice: random.Random) -> str:
    return fill(dice, dice.choice(SHAPES))


def fill(dice: random.Random, shape: str) -> str:
    """Fill each gap with its own random word."""
    lists = {'n': NOUNS, 'v': VERBS, 'a': ADJECTIVES, 'd': ADVERBS}
    parts: list[str] = []
    for text, gap in pieces(shape):
        parts.append(text)
        if gap == 'i':
            parts.append(str(dice.randrange(2, 10_000)))
        elif gap == 'j':
            parts.append(str(dice.randrange(2, 13)))
        elif gap == 'N':
            parts.append(dice.choice(NOUNS).capitalize())
        elif gap:
            parts.append(dice.choice(lists[gap]))
    return ''.join(parts)


def pieces(shape: str) -> Iterator[tuple[str, str]]:
    parts = [*shape.replace('}', '{').split('{'), '']
    return zip(parts[::2], parts[1::2], strict=True)
