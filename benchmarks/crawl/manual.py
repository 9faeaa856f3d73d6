"""The template of a reference manual: definitions, tables, nested lists and highlighted code.

Its pages have many tags for their size, like those of real documentation generators.
"""

from collections.abc import Callable
from html import escape

from benchmarks.crawl.draft import Draft
from benchmarks.crawl.site import Site
from benchmarks.crawl.words import ADJECTIVES, KEYWORDS, NOUNS


def write_manual_page(site: Site, number: int, path: str) -> str:
    return ManualPage(Draft(site, number)).write(path)


class ManualPage:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.dice = draft.dice

    def write(self, path: str) -> str:
        draft, title = self.draft, self.draft.title
        body = self.body()
        return f"""<!doctype html>
<html lang="en" data-content_root="./">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} &#8212; Example 4.2 manual</title>
<link rel="stylesheet" type="text/css" href="/static/highlight.css?v=80d5e7a1">
<link rel="stylesheet" type="text/css" href="/static/manual.css?v=4825356b">
<script src="/static/options.js?v=4621528c"></script>
<link rel="canonical" href="{path}">
{self.relations()}
</head>
<body>
<div class="related" role="navigation" aria-label="Related"><h3>Navigation</h3>
<ul>{self.neighbours()}<li class="nav-item"><a href="/">Example manual</a> &#187;</li>
<li class="nav-item">{draft.crumb()} &#187;</li></ul></div>
<div class="document"><div class="documentwrapper"><div class="bodywrapper">
<div class="body" role="main">
<section id="{draft.number}-top">
<h1>{title}<a class="headerlink" href="#{draft.number}-top" title="Link to this heading">¶</a></h1>
<p>{draft.sentence()} {draft.sentence()}</p>
{body}
</section>
</div></div></div>
<div class="sidebar" role="navigation" aria-label="Main"><div class="sidebar-wrapper">
<div><h3><a href="/">Table of contents</a></h3>
<ul>
{draft.contents()}
</ul></div>
<h3>Chapters</h3>
<ul class="current">
{draft.items(draft.top_pages(), 'toctree-l1')}
<li class="toctree-l1 current"><span>{title}</span><ul>
{draft.items(draft.near_pages(), 'toctree-l2')}
</ul></li>
</ul>
<div class="searchbox"><form action="/search" method="get"><input name="q"></form></div>
</div></div>
<div class="clearer"></div></div>
<div class="footer" role="contentinfo">&#169; Copyright, the authors of the example.
{escape(draft.sentence())}</div>
</body>
</html>
"""

    # Links

    def relations(self) -> str:
        return '\n'.join(
            f'<link rel="{word}" href="{self.draft.site.paths[number]}">'
            for word, number in self.draft.neighbours()
        )

    def neighbours(self) -> str:
        return ''.join(
            f'<li class="right"><a href="{self.draft.site.paths[number]}" accesskey="{word[0]}">'
            f'{word}</a> |</li>\n'
            for word, number in self.draft.neighbours()
        )

    # Text

    def body(self) -> str:
        tags = int(self.dice.triangular(400, 1_400, 850))
        # The number of links in the text, however long it becomes.
        linked = 24 + self.dice.randrange(-6, 7)
        blocks: list[str] = []
        while tags > 0:
            if not blocks or (self.dice.random() < 0.2 and len(self.draft.headings) < 14):
                blocks.append(self.heading())
            write: Callable[[], str] = self.dice.choices(
                (self.paragraph, self.bullets, self.code, self.table, self.definitions, self.note),
                (45, 10, 14, 13, 12, 6),
            )[0]
            block = write()
            if linked > 0 and write == self.paragraph:
                linked -= 1
                block = block.replace('</p>', f' See {self.draft.link()}.</p>')
            blocks.append(block)
            tags -= block.count('<')
        while self.draft.due or linked > 0:
            linked -= 1
            blocks.append(f'<p>See also {self.draft.link()}: {escape(self.draft.sentence())}</p>')
        return '\n'.join(blocks)

    def heading(self) -> str:
        mark = f'<a class="headerlink" href="#part-{len(self.draft.headings)}" title="Link">¶</a>'
        return self.draft.heading().replace('</h', f'{mark}</h')

    def paragraph(self) -> str:
        sentences = self.dice.choices(self.draft.site.sentences, k=self.dice.randint(1, 4))
        if self.dice.random() < 0.6:
            sentences.append(f'It returns {self.literal()} unless {self.literal()} is set.')
        return f'<p>{" ".join(sentences)}</p>'

    def literal(self) -> str:
        name = '_'.join(self.dice.choices(NOUNS, k=2))
        return f'<code class="literal notranslate"><span class="pre">{name}</span></code>'

    def bullets(self) -> str:
        return self.list_of(self.dice.randint(3, 6), is_nested=self.dice.random() < 0.4)

    def list_of(self, count: int, *, is_nested: bool) -> str:
        items = [f'<li><p>{self.literal()}: {self.draft.sentence()}</p></li>' for _ in range(count)]
        if is_nested:
            items[0] = items[0].replace('</li>', f'\n{self.list_of(3, is_nested=False)}</li>')
        return '<ul class="simple">\n' + '\n'.join(items) + '\n</ul>'

    def note(self) -> str:
        kind = self.dice.choice(('note', 'tip', 'warning'))
        return (
            f'<div class="admonition {kind}"><p class="admonition-title">{kind.capitalize()}</p>'
            f'{self.paragraph()}</div>'
        )

    def definitions(self) -> str:
        name, first, second = self.dice.choices(NOUNS, k=3)
        arguments = ', '.join(
            f'<em class="parameter"><span class="n">{word}</span></em>' for word in (first, second)
        )
        return (
            f'<dl class="py function"><dt class="signature"><span class="name">{name}</span>'
            f'<span class="paren">(</span>{arguments}<span class="paren">)</span></dt>\n'
            f'<dd><p>{self.draft.sentence()}</p>\n<dl class="field-list">'
            f'<dt>Parameters</dt><dd>{self.list_of(2, is_nested=False)}</dd>'
            f'<dt>Returns</dt><dd><p>{self.draft.sentence()}</p></dd></dl></dd></dl>'
        )

    def table(self) -> str:
        head = ''.join(f'<th class="head"><p>{self.dice.choice(NOUNS)}</p></th>' for _ in range(3))
        rows = '\n'.join(
            f'<tr class="row-{("even", "odd")[nth % 2]}"><td><p>{self.literal()}</p></td>'
            f'<td><p>{self.dice.choice(ADJECTIVES)}</p></td>'
            f'<td><p>{self.draft.sentence()}</p></td></tr>'
            for nth in range(self.dice.randint(3, 8))
        )
        return (
            f'<table class="docutils align-default"><thead>\n<tr>{head}</tr>\n</thead>\n'
            f'<tbody>\n{rows}\n</tbody>\n</table>'
        )

    def code(self) -> str:
        lines = '\n'.join(self.line() for _ in range(self.dice.randint(4, 12)))
        return (
            '<div class="highlight-python notranslate"><div class="highlight">'
            f'<pre><span></span>{lines}\n</pre></div></div>'
        )

    def line(self) -> str:
        """A line of code as a highlighter writes it: a span for each token."""
        name, other, third = self.dice.choices(NOUNS, k=3)
        count = self.dice.randrange(9999)
        keyword = self.dice.choice(KEYWORDS)
        return ' ' * 4 * self.dice.randint(0, 2) + self.dice.choice(
            (
                f'{token("n", name)} {token("o", "=")} {token("n", other)}{token("o", ".")}'
                f'{token("n", third)}{token("p", "(")}{token("mi", str(count))}{token("p", ")")}',
                f'{token("k", keyword)} {token("n", name)} {token("o", "&lt;")}'
                f' {token("n", other)}{token("p", ":")}',
                token('c1', f'# {self.draft.words(5)}'),
                f'{token("nd", "@" + name)}{token("p", "(")}{token("s1", f"&#39;{other}&#39;")}'
                f'{token("p", ")")}',
            )
        )


def token(kind: str, text: str) -> str:
    return f'<span class="{kind}">{text}</span>'
