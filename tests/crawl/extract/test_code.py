"""Code as Markdown: every line and every space of it, and nothing that a highlighter adds."""

import pytest

from silkline.crawl.extract import read_html

PROSE = '<p>This is a sentence that is long enough to be taken for prose, with some words.</p>'


def markdown_of(body: str) -> str:
    """The Markdown of a page after its first two blocks, a heading and a paragraph."""
    html = f'<html><body><main><h1>Code</h1>{PROSE}{body}</main></body></html>'
    page = read_html(html, url='https://example.org/a/b', markdown='main')
    assert page.error is None
    assert page.markdown is not None
    return page.markdown.split('\n\n', 2)[2].rstrip('\n')


def fenced(*lines: str) -> str:
    return '\n'.join(['```', *lines, '```'])


def test_blocks_that_are_lines_of_code_become_a_fence_without_empty_lines_between_them() -> None:
    text = markdown_of(
        '<div class="fragment"><div class="line"><span class="keyword">class </span>A {</div>\n'
        '<div class="line">&#160;</div>\n<div class="line">  <span>int</span> b;</div>\n'
        '<div class="line">};</div>\n<div class="ttc" id="a1"><div class="ttname">A</div></div>\n'
        '</div>'
    )
    assert text == fenced('class A {', ' ', '  int b;', '};')


def test_numbered_lines_become_a_fence_without_their_numbers() -> None:
    text = markdown_of(
        '<div class="fragment"><div class="line"><a id="l00001" name="l00001"></a>'
        '<span class="lineno">    1</span>#pragma once</div>\n'
        '<div class="foldopen" id="foldopen00002" data-start="{" data-end="}">\n'
        '<div class="line"><a id="l00002"></a><span class="lineno"><a class="line" href="a.html#x">'
        '    2</a></span>struct A {</div>\n<div class="line"><span class="lineno">    3</span> '
        '</div>\n<div class="line"><span class="lineno">    4</span>};</div></div>\n</div>'
    )
    assert text == fenced('#pragma once', 'struct A {', ' ', '};')


def test_numbered_lines_are_code_whatever_the_names_of_their_blocks() -> None:
    text = markdown_of(
        '<div class="viewer"><div><span class="line-number">1</span>a</div>\n'
        '<div><span class="line-number">2</span>  b</div></div>'
    )
    assert text == fenced('a', '  b')


def test_a_poem_in_lines_is_not_code() -> None:
    text = markdown_of(
        '<div class="line-block"><div class="line">Roses</div>\n'
        '<div class="line">violets</div></div>'
    )
    assert text == 'Roses\n\nviolets'


@pytest.mark.parametrize(
    'number',
    [
        '<span class="lineno">{} </span>',
        '<span class="line-number" data-pseudo="{0}">{0}</span>',
        '<span class="linenos">{}</span>',
        '<span class="ln">{}</span>',
        '<span class="source-line-no">00{}</span>',
        '<span class="LineNr">  {} </span>',
        '<span data-line-number="{0}">{0}</span>',
        '<span style="white-space:pre;-webkit-user-select:none;user-select:none">{}</span>',
        '<span unselectable="on">{}</span>',
        '<a href="#{0}" id="{0}" data-nosnippet>{0}</a>',
        '<a id="L{0}" href="#L{0}">{0}</a>',
    ],
)
def test_line_numbers_are_not_code(number: str) -> None:
    lines = [f'{number.format(1)}<span class="k">if</span> x:', f'{number.format(2)}    return 3']
    text = markdown_of(f'<pre><code>{chr(10).join(lines)}</code></pre>')
    assert text == fenced('if x:', '    return 3')


def test_code_is_kept_where_its_own_name_speaks_of_line_numbers() -> None:
    text = markdown_of('<pre><code class="line-numbers">a = 1\nb = 2</code></pre>')
    assert text == fenced('a = 1', 'b = 2')
    text = markdown_of('<pre class="line-numbers"><code>1\na</code></pre>')
    assert text == fenced('1', 'a')


def test_numbers_in_code_are_kept() -> None:
    code = '<span class="mi">42</span>\n<a href="/answer">7</a> <span>8</span>'
    assert markdown_of(f'<pre>{code}</pre>') == fenced('42', '7 8')


def test_numbers_beside_the_code_are_left_out() -> None:
    code = '<pre class="rust"><code>fn a() {\n}</code></pre>'
    numbers = '<pre class="src-line-numbers"><a href="#1">1</a>\n<a href="#2">2</a></pre>'
    text = markdown_of(f'<div class="wrap">{numbers}{code}</div>')
    assert text == '```rust\nfn a() {\n}\n```'


@pytest.mark.parametrize(
    'table',
    [
        '<tr><td class="listing_lines"><pre>1\n2</pre></td><td><pre>a\n  b</pre></td></tr>',
        '<tr><td class="gutter"><div class="line number1">1</div><div class="line number2">2</div>'
        '</td><td class="code"><div class="container"><div class="line number1">a</div>\n'
        '<div class="line number2">  b</div></div></td></tr>',
        '<tr><td class="blob-num" data-line-number="1"></td><td class="blob-code">a</td></tr>\n'
        '<tr><td class="blob-num" data-line-number="2"></td><td class="blob-code">  b</td></tr>',
        '<tr><td data-line-number="1">1</td><td>a</td></tr>\n'
        '<tr><td data-line-number="2">2</td><td>  b</td></tr>',
    ],
)
def test_a_table_of_line_numbers_and_code_is_the_code(table: str) -> None:
    assert markdown_of(f'<table>{table}</table>') == fenced('a', '  b')


def test_code_that_a_style_hides_is_left_out() -> None:
    text = markdown_of('<pre>shown<span style="display: none">hidden</span>\nlast</pre>')
    assert text == fenced('shown', 'last')


def test_lines_of_code_in_a_table_are_written_below_the_heads_of_their_columns() -> None:
    text = markdown_of(
        '<table><thead><tr><th>Name</th><th>Old</th><th>New</th></tr></thead>'
        '<tr><td>one</td><td>a</td><td>b</td></tr>'
        '<tr><td>two</td><td><pre>for x:\n    y</pre></td><td><pre>y</pre></td></tr>'
        '<tr><td>three</td><td>c</td><td>d</td></tr></table>'
    )
    assert text == '\n\n'.join(
        [
            '| Name | Old | New |\n| --- | --- | --- |\n| one | a | b |',
            *('**Name**', 'two', '**Old**', fenced('for x:', '    y'), '**New**', fenced('y')),
            '| Name | Old | New |\n| --- | --- | --- |\n| three | c | d |',
        ]
    )


def test_a_cell_that_spans_a_row_with_code_keeps_its_column() -> None:
    text = markdown_of(
        '<table><tr><th>A</th><th>B</th></tr><tr><td rowspan="3">all</td><td>1</td></tr>'
        '<tr><td><pre>x\ny</pre></td></tr><tr><td>2</td></tr></table>'
    )
    assert text == '\n\n'.join(
        [
            '| A | B |\n| --- | --- |\n| all | 1 |',
            *('**A**', 'all', '**B**', fenced('x', 'y')),
            '| A | B |\n| --- | --- |\n| all | 2 |',
        ]
    )


def test_one_line_of_code_stays_in_the_cell_of_a_table() -> None:
    text = markdown_of(
        '<table><tr><th>A</th><th>B</th></tr><tr><td><pre>x = 1\n</pre></td><td>b</td></tr></table>'
    )
    assert text == '| A | B |\n| --- | --- |\n| `x = 1` | b |'


def test_lines_of_inline_code_stay_lines() -> None:
    assert markdown_of('<p><code>first<br>second</code></p>') == '`first`  \n`second`'
    table = '<tr><td>a</td><td><code>first<br>second</code></td></tr><tr><td>b</td><td>c</td></tr>'
    assert '| a | `first`<br>`second` |' in markdown_of(f'<table>{table}</table>')


def test_buttons_next_to_code_are_left_out() -> None:
    text = markdown_of(
        '<div class="example-wrap"><pre class="rust"><code>f();</code></pre>'
        '<a class="test-arrow" href="https://play.example.org/">Run</a></div>'
        '<div class="box"><span class="copy">Copy</span><a class="copy-btn" href="#">Copy</a>'
        '<pre>g();<span class="copy-code">Copy to clipboard</span></pre></div>'
    )
    assert text == '```rust\nf();\n```\n\n```\ng();\n```'
