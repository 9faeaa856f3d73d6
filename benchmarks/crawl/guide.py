"""The template of a guide: mostly prose, with some lists, code and tables."""

from collections.abc import Callable
from html import escape

from benchmarks.crawl.draft import Draft
from benchmarks.crawl.site import Site
from benchmarks.crawl.words import ADJECTIVES, KEYWORDS, NOUNS

# One page in so many is large.
LARGE = 2000
LARGE_BYTES = 1_200_000


def write_guide_page(site: Site, number: int, path: str) -> str:
    return GuidePage(Draft(site, number)).write(path)


class GuidePage:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.dice = draft.dice

    def write(self, path: str) -> str:
        draft, title = self.draft, self.draft.title
        article = self.article()
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title} - Example Documentation</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="description" content="{escape(draft.sentence(), quote=True)}">
<meta property="og:title" content="{title}">
<link rel="canonical" href="{path}">
<link rel="stylesheet" href="/assets/site.css?v=31">
<script>window.site = {{"page": {draft.number}, "search": "/assets/search.json"}};</script>
<style>.layout {{ display: grid; grid-template-columns: 16rem 1fr 14rem; }}</style>
</head>
<body class="docs page-{draft.number}">
<a class="skip-link" href="#content">Skip to content</a>
<header class="site-header" role="banner">
<a class="logo" href="/"><img src="/assets/logo.svg" alt="Example" width="96" height="24"></a>
<nav class="top-nav" aria-label="Main"><ul>
{draft.items(draft.top_pages(), 'top-nav__item')}
</ul></nav>
<form class="search" action="/search" role="search"><input type="search" name="q"></form>
</header>
<div class="layout">
<aside class="sidebar" id="sidebar"><div class="sidebar__scroll">
<p class="sidebar__title">In this section</p>
<ul class="sidebar__list">
{draft.items(draft.near_pages(), 'sidebar__item')}
</ul></div></aside>
<main id="content" class="content" role="main">
<nav class="breadcrumbs" aria-label="Breadcrumbs"><a href="/">Home</a> / {draft.crumb()}</nav>
<article class="article">
<h1>{title}</h1>
<p class="article__meta">Updated on <time>2026-10-{draft.number % 28 + 1:02}</time></p>
{article}
</article>
<nav class="pager">{self.pager()}</nav>
</main>
<aside class="toc"><p class="toc__title">On this page</p><ul>
{draft.contents()}
</ul></aside>
</div>
<footer class="site-footer" role="contentinfo">
<div class="site-footer__columns"><ul>
{draft.items(draft.top_pages()[:6], 'site-footer__item')}
</ul></div>
<p class="site-footer__legal">Example Documentation. {escape(draft.sentence())}</p>
</footer>
</body>
</html>
"""

    def pager(self) -> str:
        return ' '.join(
            f'<a class="pager__{word}" rel="{word}" href="{self.draft.site.paths[number]}">'
            f'{escape(self.draft.site.titles[number])}</a>'
            for word, number in self.draft.neighbours()
        )

    def article(self) -> str:
        is_large = self.draft.number % LARGE == LARGE - 1
        wanted = LARGE_BYTES if is_large else int(self.dice.triangular(12_000, 52_000, 33_000))
        # The number of links in the text, however long it becomes.
        linked = 24 + self.dice.randrange(-6, 7)
        blocks: list[str] = []
        size = 0
        while size < wanted:
            if not blocks or (self.dice.random() < 0.12 and len(self.draft.headings) < 14):
                blocks.append(self.draft.heading())
            write: Callable[[], str] = self.dice.choices(
                (self.paragraph, self.bullets, self.code, self.table, self.note),
                (70, 9, 9, 5, 7),
            )[0]
            block = write()
            if linked > 0 and write == self.paragraph:
                linked -= 1
                block = block.replace('</p>', f' See {self.draft.link()}.</p>')
            blocks.append(block)
            size += len(block)
        while self.draft.due or linked > 0:
            linked -= 1
            blocks.append(f'<p>See also {self.draft.link()}: {escape(self.draft.sentence())}</p>')
        return '\n'.join(blocks)

    def paragraph(self) -> str:
        text = ' '.join(self.dice.choices(self.draft.site.sentences, k=self.dice.randint(2, 7)))
        style = self.dice.random()
        if style < 0.3:
            text += f' The option <code>{self.dice.choice(NOUNS)}_{self.dice.choice(NOUNS)}</code>'
            text += f' is <em>{self.dice.choice(ADJECTIVES)}</em>.'
        elif style < 0.5:
            text = f'<strong>{self.draft.words(2).capitalize()}.</strong> {text}'
        return f'<p>{text}</p>'

    def bullets(self) -> str:
        items = ''.join(
            f'<li>{self.draft.sentence()}</li>\n' for _ in range(self.dice.randint(3, 7))
        )
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
                        f'{indent}# {self.draft.words(5)}',
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
        return f'{self.dice.choice(ADJECTIVES)} {self.draft.words(self.dice.randint(1, 3))}'
