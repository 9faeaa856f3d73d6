"""What the pages of a site are made of, whatever their template: links, sentences, words."""

import random
from collections.abc import Sequence
from html import escape

from benchmarks.crawl.site import (
    CHILDREN,
    GONE,
    MOVED,
    PRIVATE,
    SEED,
    Site,
    is_nth,
    make_title,
    private_path,
)
from benchmarks.crawl.words import NOUNS, SECTIONS


class Draft:
    """One page to be. Everything random in it depends only on the number of the page."""

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

    @property
    def title(self) -> str:
        return escape(self.site.titles[self.number])

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

    def crumb(self) -> str:
        """A link to the page above."""
        parent = max(0, (self.number - 1) // CHILDREN)
        section = SECTIONS[self.number % len(SECTIONS)].replace('-', ' ').capitalize()
        return f'<a href="{self.site.paths[parent]}">{section}</a>'

    def neighbours(self) -> Sequence[tuple[str, int]]:
        """The numbers of the pages before and after, by `rel`."""
        return (
            ('prev', max(0, self.number - 1)),
            ('next', min(self.site.pages - 1, self.number + 1)),
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

    def heading(self) -> str:
        heading = make_title(self.dice)
        level = 2 if not self.headings or self.dice.random() < 0.6 else 3
        self.headings.append(heading)
        return f'<h{level} id="part-{len(self.headings) - 1}">{escape(heading)}</h{level}>'

    def sentence(self) -> str:
        return self.dice.choice(self.site.sentences)

    def words(self, count: int) -> str:
        return ' '.join(self.dice.choices(NOUNS, k=count))
