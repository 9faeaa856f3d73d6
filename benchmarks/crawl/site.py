"""A generated documentation site, which all crawlers crawl.

Owns the text and the links of its pages, which are the same in every run. `site_server.py` serves
them. Page 0 is the root; page n links to pages 4n+1 to 4n+4, so every page can be reached; its
other links are random. Pages are stored compressed, as a well-run site stores them.
"""

import gzip
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from benchmarks.crawl.words import (
    ADJECTIVES,
    ADVERBS,
    KEYWORDS,
    NOUNS,
    OUTSIDE,
    SECTIONS,
    SHAPES,
    VERBS,
)

SEED = 20261115
CHILDREN = 4
# One page in so many has the property.
MOVED = 67
GONE = 100
PRIVATE = 200
LARGE = 2000
LARGE_BYTES = 1_200_000
# Replaced by the host of the request.
PLACEHOLDER = 'http://site.example'


@dataclass(frozen=True, slots=True)
class Facts:
    """What a crawler that obeys robots.txt must find, and what it must not fetch."""

    paths: Sequence[str]
    private_paths: Sequence[str]
    moved: int
    gone: int
    median_bytes: int
    median_links: int


def write_site(root: Path, pages: int) -> Facts:
    """Write the site below `root`: .gz files only, and sitemap.xml."""
    site = Site(pages)
    sizes: list[int] = []
    links: list[int] = []
    for section in (*SECTIONS, 'private'):
        (root / section).mkdir(parents=True)
    for path, html in site.files():
        body = html.encode()
        sizes.append(len(body))
        links.append(html.count('<a '))
        name = '/index.html' if path == '/' else path
        (root / f'{name[1:]}.gz').write_bytes(gzip.compress(body, 5, mtime=0))
    (root / 'sitemap.xml').write_text(site.sitemap())
    return Facts(
        paths=site.paths,
        private_paths=[private_path(number) for number in range(pages) if is_nth(number, PRIVATE)],
        moved=sum(is_nth(number, MOVED) for number in range(pages)),
        gone=sum(is_nth(number, GONE) for number in range(pages)),
        median_bytes=sorted(sizes)[len(sizes) // 2],
        median_links=sorted(links)[len(links) // 2],
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

    def files(self) -> Iterator[tuple[str, str]]:
        for number in range(self.pages):
            yield self.paths[number], Writer(self, number).page(self.paths[number])
            if is_nth(number, PRIVATE):
                path = private_path(number)
                yield path, Writer(self, number).page(path)

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


class Writer:
    """Writes one page. Everything random in it depends only on the number of the page."""

    def __init__(self, site: Site, number: int) -> None:
        self.site = site
        self.number = number
        self.dice = random.Random(SEED + number)
        self.headings: list[str] = []
        # Links that the text must contain, before any random ones.
        self.due = self.due_links()

    def due_links(self) -> list[str]:
        links: list[str] = []
        after = self.number + 1
        if after < self.site.pages and is_nth(after, MOVED):
            links.append(f'/moved{self.site.paths[after]}')
        if is_nth(self.number, GONE):
            links.append(f'/gone/page-{self.number}.html')
        if is_nth(self.number, PRIVATE):
            links.append(private_path(self.number))
        return links

    def page(self, path: str) -> str:
        title = escape(self.site.titles[self.number])
        article = self.article()
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title} - Example Documentation</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="description" content="{escape(self.sentence(), quote=True)}">
<meta property="og:title" content="{title}">
<link rel="canonical" href="{path}">
<link rel="stylesheet" href="/assets/site.css?v=31">
<script>window.site = {{"page": {self.number}, "search": "/assets/search.json"}};</script>
<style>.layout {{ display: grid; grid-template-columns: 16rem 1fr 14rem; }}</style>
</head>
<body class="docs page-{self.number}">
<a class="skip-link" href="#content">Skip to content</a>
<header class="site-header" role="banner">
<a class="logo" href="/"><img src="/assets/logo.svg" alt="Example" width="96" height="24"></a>
<nav class="top-nav" aria-label="Main"><ul>
{self.items(self.top_pages(), 'top-nav__item')}
</ul></nav>
<form class="search" action="/search" role="search"><input type="search" name="q"></form>
</header>
<div class="layout">
<aside class="sidebar" id="sidebar"><div class="sidebar__scroll">
<p class="sidebar__title">In this section</p>
<ul class="sidebar__list">
{self.items(self.near_pages(), 'sidebar__item')}
</ul></div></aside>
<main id="content" class="content" role="main">
<nav class="breadcrumbs" aria-label="Breadcrumbs"><a href="/">Home</a> / {self.crumbs()}</nav>
<article class="article">
<h1>{title}</h1>
<p class="article__meta">Updated on <time>2026-10-{self.number % 28 + 1:02}</time></p>
{article}
</article>
<nav class="pager">{self.pager()}</nav>
</main>
<aside class="toc"><p class="toc__title">On this page</p><ul>
{self.contents()}
</ul></aside>
</div>
<footer class="site-footer" role="contentinfo">
<div class="site-footer__columns"><ul>
{self.items(self.top_pages()[:6], 'site-footer__item')}
</ul></div>
<p class="site-footer__legal">Example Documentation. {escape(self.sentence())}</p>
</footer>
</body>
</html>
"""

    # Links

    def items(self, numbers: Sequence[int], name: str) -> str:
        return '\n'.join(
            f'<li class="{name}"><a class="{name}-link" href="{self.site.paths[number]}">'
            f'{escape(self.site.titles[number])}</a></li>'
            for number in numbers
        )

    def top_pages(self) -> list[int]:
        """The first page of some sections."""
        return list(range(1, min(9, self.site.pages)))

    def near_pages(self) -> list[int]:
        pages = self.site.pages
        first = self.number * CHILDREN + 1
        children = range(first, min(first + CHILDREN, pages))
        start = max(0, min(self.number - 8, pages - 17))
        return [*children, *range(start, min(start + 17, pages))]

    def crumbs(self) -> str:
        parent = max(0, (self.number - 1) // CHILDREN)
        section = SECTIONS[self.number % len(SECTIONS)].replace('-', ' ').capitalize()
        return f'<a href="{self.site.paths[parent]}">{section}</a>'

    def pager(self) -> str:
        numbers = (max(0, self.number - 1), min(self.site.pages - 1, self.number + 1))
        return ' '.join(
            f'<a class="pager__{word}" rel="{word}" href="{self.site.paths[number]}">'
            f'{escape(self.site.titles[number])}</a>'
            for word, number in zip(('prev', 'next'), numbers, strict=True)
        )

    def contents(self) -> str:
        return '\n'.join(
            f'<li><a href="#part-{nth}">{escape(heading)}</a></li>'
            for nth, heading in enumerate(self.headings)
        )

    def link(self) -> str:
        if self.due:
            return f'<a href="{self.due.pop()}">{escape(make_title(self.dice))}</a>'
        if self.dice.random() < 0.3:
            address = escape(self.dice.choice(self.site.outside))
            return f'<a class="external" rel="noopener" href="{address}">{self.words(2)}</a>'
        number = self.dice.randrange(self.site.pages)
        path = self.site.paths[number]
        if self.dice.random() < 0.1:
            path += f'#part-{self.dice.randrange(5)}'
        return f'<a href="{path}">{escape(self.site.titles[number])}</a>'

    # Text

    def article(self) -> str:
        is_large = self.number % LARGE == LARGE - 1
        wanted = LARGE_BYTES if is_large else int(self.dice.triangular(12_000, 52_000, 33_000))
        # The number of links in the text, however long it becomes.
        linked = 24 + self.dice.randrange(-6, 7)
        blocks: list[str] = []
        size = 0
        while size < wanted:
            if not blocks or (self.dice.random() < 0.12 and len(self.headings) < 14):
                blocks.append(self.heading())
            write: Callable[[], str] = self.dice.choices(
                (self.paragraph, self.bullets, self.code, self.table, self.note),
                (70, 9, 9, 5, 7),
            )[0]
            block = write()
            if linked > 0 and write == self.paragraph:
                linked -= 1
                block = block.replace('</p>', f' See {self.link()}.</p>')
            blocks.append(block)
            size += len(block)
        while self.due or linked > 0:
            linked -= 1
            blocks.append(f'<p>See also {self.link()}: {escape(self.sentence())}</p>')
        return '\n'.join(blocks)

    def heading(self) -> str:
        heading = make_title(self.dice)
        level = 2 if not self.headings or self.dice.random() < 0.6 else 3
        self.headings.append(heading)
        return f'<h{level} id="part-{len(self.headings) - 1}">{escape(heading)}</h{level}>'

    def sentence(self) -> str:
        return self.dice.choice(self.site.sentences)

    def words(self, count: int) -> str:
        return ' '.join(self.dice.choices(NOUNS, k=count))

    def paragraph(self) -> str:
        text = ' '.join(self.dice.choices(self.site.sentences, k=self.dice.randint(2, 7)))
        style = self.dice.random()
        if style < 0.3:
            text += f' The option <code>{self.dice.choice(NOUNS)}_{self.dice.choice(NOUNS)}</code>'
            text += f' is <em>{self.dice.choice(ADJECTIVES)}</em>.'
        elif style < 0.5:
            text = f'<strong>{self.words(2).capitalize()}.</strong> {text}'
        return f'<p>{text}</p>'

    def bullets(self) -> str:
        items = ''.join(f'<li>{self.sentence()}</li>\n' for _ in range(self.dice.randint(3, 7)))
        kind = 'ol' if self.dice.random() < 0.3 else 'ul'
        return f'<{kind}>\n{items}</{kind}>'

    def note(self) -> str:
        kind = self.dice.choice(('note', 'tip', 'warning'))
        return (
            f'<div class="admonition {kind}"><p class="admonition__title">{kind.capitalize()}</p>'
            f'{self.paragraph()}</div>'
        )

    def code(self) -> str:
        lines: list[str] = []
        for _ in range(self.dice.randint(4, 16)):
            name, other, third = self.dice.choices(NOUNS, k=3)
            indent = ' ' * 4 * self.dice.randint(0, 3)
            lines.append(
                self.dice.choice(
                    (
                        f'{indent}{name} = {other}.{third}({self.dice.randrange(9999)})',
                        f'{indent}{self.dice.choice(KEYWORDS)} {name} &lt; {other}_{third}:',
                        f'{indent}# {self.words(5)}',
                        f'$ {name} --{other}={third} &amp;&amp; echo "{other}"',
                        f'{indent}"{name}": {{"{other}": "{third}-{self.dice.randrange(99)}"}},',
                    )
                )
            )
        text = '\n'.join(lines)
        return f'<pre class="highlight"><code class="language-text">{text}\n</code></pre>'

    def table(self) -> str:
        columns = self.dice.randint(2, 5)
        head = ''.join(f'<th>{self.dice.choice(NOUNS)}</th>' for _ in range(columns))
        rows = '\n'.join(
            '<tr>' + ''.join(f'<td>{self.cell()}</td>' for _ in range(columns)) + '</tr>'
            for _ in range(self.dice.randint(3, 12))
        )
        head = f'<thead><tr>{head}</tr></thead>'
        return f'<table class="table">{head}\n<tbody>\n{rows}\n</tbody></table>'

    def cell(self) -> str:
        if self.dice.random() < 0.4:
            return str(self.dice.randrange(100_000))
        return f'{self.dice.choice(ADJECTIVES)} {self.words(self.dice.randint(1, 3))}'


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
