"""Random pages: reading one raises nothing, keeps the words, and its Markdown means the same.

For the last claim, an independent CommonMark parser reads the Markdown: text of the page must come
out as text, not as a heading, a list, a mark or a link.
"""

import random
from collections.abc import Iterator
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from silkline.crawl.extract import read_html

TAGS = (
    'a b i p br hr h1 h2 ul ol li dl dt dd table thead tbody tr td th pre code blockquote div span'
    ' img input details summary section article main aside nav header footer form figure math sup'
    ' q label body html svg title caption select option template font'.split()
)
ATTRIBUTES = (
    '|class="admonition note"|class="sidebar"|class="lang"|hidden|href="../x"|href="#a"|role="main"'
    '|colspan=3 rowspan=2|start=7|src=x alt=y|class="highlight-python sig"|style="display:none"'
    '|type=checkbox disabled'.split('|')
)
TEXTS = ['word ', '*_`[](', '|', '\n', '  ', '# ', '1. ', '&lt;', '中文', '<!--', '\x01']
PIECES = st.one_of(
    st.builds('<{} {}>'.format, st.sampled_from(TAGS), st.sampled_from(ATTRIBUTES)),
    st.builds('</{}>'.format, st.sampled_from(TAGS)),
    st.sampled_from(TEXTS),
)


@given(st.lists(PIECES, max_size=60).map(''.join))
def test_no_random_html_is_an_error(html: str) -> None:
    for mode in ('main', 'full'):
        page = read_html(html, url='https://example.org/a/', markdown=mode)
        assert page.error is None
        assert page.markdown is not None
        assert '\x01' not in page.markdown.split('```')[0]
        again = read_html(html, url='https://example.org/a/', markdown=mode)
        assert again.markdown == page.markdown


WORDS = st.text('abcdefgh', min_size=1, max_size=8)
# Elements that hold text and drop none of it.
KEEPING = st.sampled_from('b i em p div span section h2 h3 li ul ol blockquote td dd sup q'.split())


@given(st.lists(st.tuples(KEEPING, WORDS), min_size=1, max_size=30))
def test_a_full_page_loses_no_word(pieces: list[tuple[str, str]]) -> None:
    html = ''.join(f'<{tag}>{word} </{tag}>' for tag, word in pieces)
    page = read_html(f'<body>{html}', url='https://example.org/a/', markdown='full')
    assert page.markdown is not None
    for _, word in pieces:
        assert word in page.markdown


# Text with a meaning in Markdown, which any page may contain.
MEANINGFUL = [
    *('| a | b |', '|---|---|', '--- | ---', '|', '==='),
    *(
        'word|*star*|**b**|_u_|__init__|`tick`|``|```|~~~|~~x~~|# h|#|- item|-|+ x|1. one|1)|> q|>'
        '|---|***|[a](b)|[a]|[x]: y|](|(u)|![i](j)|!|<b>|<script>|</p>|<!-- c|&amp;|&lt;|&#35;|&'
        '|\\|\\*|$x$|a_b_c|x.y/a_b|"q"|(p)|中文|\uff08中\uff09|😀|[|]|<|:|a*b|x**y|=|C#|snake_|_x|*'
    ).split('|'),
]
INLINE = 'b i em strong code a span sup kbd u'.split()
BLOCK = 'p div h1 h2 h3 ul ol blockquote pre table section details'.split()


class Page:
    """A page made from a seed, and the text that a reader sees, apart from white space."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seen: list[str] = []
        self.html = ''.join(self.block(0) for _ in range(self.random.randint(1, 3)))

    def text(self) -> str:
        words = [self.random.choice(MEANINGFUL) for _ in range(self.random.randint(1, 4))]
        self.seen += words
        return escape(' '.join(words), quote=False)

    def inline(self, depth: int = 0) -> str:
        pieces: list[str] = []
        for _ in range(self.random.randint(1, 3)):
            tag = self.random.choice(INLINE)
            if depth > 1 or self.random.random() < 0.6:
                pieces.append(self.text())
            elif self.random.random() < 0.1:
                pieces.append('<br>')
            else:
                # No link in a link: a parser would not nest them.
                tag = 'i' if tag == 'a' and depth else tag
                pieces.append(f'<{tag} href="/x y)z">{self.inline(depth + 1)}</{tag}>')
            pieces.append(self.random.choice(('', ' ')))
        return ''.join(pieces)

    def block(self, depth: int) -> str:
        tag = self.random.choice(BLOCK) if depth < 3 else 'p'
        times = range(self.random.randint(1, 3))
        if tag in ('p', 'h1', 'h2', 'h3'):
            return f'<{tag}>{self.inline()}</{tag}>'
        if tag == 'pre':
            return f'<pre><code>{chr(10).join(self.text() for _ in times)}</code></pre>'
        if tag == 'table':
            row = [f'<tr><td>{self.inline()}</td><td>{self.inline()}</td></tr>' for _ in times]
            return f'<table>{"".join(row)}</table>'
        if tag == 'details':
            return f'<details><summary>{self.inline()}</summary>{self.block(depth + 1)}</details>'
        if tag in ('ul', 'ol'):
            items = (f'<li>{self.inline()}{self.block(depth + 1)}</li>' for _ in times)
            return f'<{tag}>{"".join(items)}</{tag}>'
        return f'<{tag}>{"".join(self.block(depth + 1) for _ in times)}</{tag}>'


def read_back(markdown: str) -> Iterator[str]:
    """Yield the text of Markdown as CommonMark, with tables and strikethrough, reads it."""
    reader = MarkdownIt('commonmark').enable(['table', 'strikethrough'])
    for token in reader.parse(markdown):
        if token.type in ('fence', 'code_block'):
            yield token.content
        assert token.type != 'html_block', token.content
        for part in token.children or ():
            if part.type == 'html_inline':
                assert part.content in ('<sup>', '</sup>', '<br>')
            yield part.content if part.type in ('text', 'code_inline', 'text_special') else ''


@pytest.mark.parametrize('first', range(0, 600, 100))
def test_text_of_a_page_is_read_back_from_its_markdown_as_text(first: int) -> None:
    for seed in range(first, first + 100):
        page = Page(seed)
        read = read_html(f'<body>{page.html}', url='https://example.org/a/', markdown='full')
        assert read.markdown is not None
        text = ''.join(''.join(read_back(read.markdown)).split())
        assert text == ''.join(''.join(page.seen).split()), (seed, page.html, read.markdown)
