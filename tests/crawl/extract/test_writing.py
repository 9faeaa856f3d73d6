"""What the caller of the writers decides: how links are written, and how much."""

import pytest
from markdown_it import MarkdownIt

from silkline.crawl.extract.markdown.document import Written, write_markdown
from silkline.crawl.extract.markdown.inline import InlineWriter
from silkline.crawl.extract.markdown.links import LinkResolver
from silkline.crawl.extract.measure import measure
from silkline.crawl.extract.parser import build_tree, parse_html, release
from silkline.crawl.options import LinkStyle


def write(
    body: str, *, links: LinkStyle = 'inline', limit: int = 2_000_000, is_main: bool = False
) -> Written:
    document = parse_html(f'<html><body>{body}</body></html>')
    nodes = build_tree(document, has_navigation=True).nodes
    measure(nodes)
    inline = InlineWriter(LinkResolver('https://example.org/a/b', None), html=body, links=links)
    try:
        return write_markdown(nodes[0], inline, limit=limit, is_main=is_main)
    finally:
        release(nodes)


@pytest.mark.parametrize(
    ('html', 'markdown'),
    [
        ('<code><a href="/x">put</a></code>', '[`put`](https://example.org/x)'),
        (
            'a <code>Map&lt;<a href="/k">K</a>, <a href="/v">V</a>&gt;</code> b',
            'a `Map<`[`K`](https://example.org/k)`,` [`V`](https://example.org/v)`>` b',
        ),
        (
            '<tt><span><a href="/x"><b>a[0]</b></a></span></tt>!',
            '[`a[0]`](https://example.org/x)!',
        ),
        ('wow!<code><a href="/x">y</a></code>', r'wow\![`y`](https://example.org/x)'),
        ('<a href="/x"><code>put</code></a>', '[`put`](https://example.org/x)'),
        ('<code>put<a class="headerlink" href="#put">¶</a></code>', '`put`'),
        ('<code><a name="put">put</a></code>', '`put`'),
    ],
)
def test_a_link_inside_code_is_kept(html: str, markdown: str) -> None:
    assert write(f'<p>{html}</p>').text == f'{markdown}\n'


def test_a_link_after_an_exclamation_mark_is_not_read_as_an_image() -> None:
    assert write('<p>wow!<a href="/x">y</a></p>').text == 'wow\\![y](https://example.org/x)\n'
    # The emphasis cannot be written.
    html = '<p>a<i>: wow!</i><a href="/x">y</a></p>'
    assert write(html).text == 'a: wow\\![y](https://example.org/x)\n'


def test_links_can_be_left_out() -> None:
    written = write(
        '<h2><a href="/h">Head</a></h2><p>See <a href="/x">the [x] page</a>, '
        '<code>a<a href="/y">b</a></code> and <a href="/i"><img src="/i.png" alt="a picture"></a>.'
        '</p><p><a href="/a">one</a><a href="/b">two</a></p>'
        '<p><code>c</code><a href="/c"><code>d</code></a></p><p><a href="/n">1. not a list</a></p>'
        '<a href="/t"><h3>Block</h3><p>Text.</p></a>',
        links='none',
    )
    assert written.text == (
        '## Head\n\nSee the [x] page, `ab` and a picture .\n\none two\n\n`c` `d`\n\n'
        '1\\. not a list\n\n### Block\n\nText.\n'
    )


def test_links_can_be_references_with_one_number_for_each_target() -> None:
    written = write(
        '<p>See <a href="/x">x</a> and <a href="/y">y</a>, again <a href="/x">x [2]</a>.</p>'
        '<p>A citation [1] and code <code>a[1]</code>, <img src="/i.png" alt="a picture"></p>',
        links='references',
    )
    assert written.text == (
        'See [x][1] and [y][2], again [x \\[2\\]][1].\n\n'
        'A citation \\[1] and code `a[1]`, ![a picture][3]\n\n'
        '[1]: https://example.org/x\n[2]: https://example.org/y\n[3]: https://example.org/i.png\n'
    )


def test_references_are_read_as_the_same_links_as_inline_links() -> None:
    html = (
        '<p><a href="/x">x</a>[1]<a href="/y">[y]</a>(z) [2] <i>[1]</i>: <a href="/x">x</a>'
        '<a href="/z">z</a> <code><a href="/c">c</a>[3]</code></p><ul><li>[1]: no</li></ul>'
        '<a href="/t"><h3>Block [1]</h3><p>Text [2].</p></a>'
        '<p><a>[1]</a><a href="data:x">[2]</a></p>'
    )
    inline, references = write(html), write(html, links='references')
    assert rendered(references.text) == rendered(inline.text)


def rendered(markdown: str) -> str:
    return MarkdownIt('commonmark').render(markdown)


@pytest.mark.parametrize('links', ['inline', 'none', 'references'])
def test_links_to_other_pages_at_the_end_are_dropped_however_links_are_written(
    links: LinkStyle,
) -> None:
    html = '<h1>Title</h1><p>One.</p><p>Two.</p><p>Three.</p><p><a href="/x">x</a></p>'
    ending = '<p><a href="/p">Previous</a> <a href="/n">Next</a></p>'
    assert 'Three' in write(html + ending, links=links, is_main=True).text
    assert 'Next' not in write(html + ending, links=links, is_main=True).text
    assert 'Next' in write(html + ending, links=links).text


@pytest.mark.parametrize(
    'heading',
    ['', ' &nbsp; ', '<a name="x"></a>', '<a href="#x">¶</a>', '&#8203;', '<span></span>', '<br>'],
)
def test_an_empty_heading_is_left_out(heading: str) -> None:
    written = write(f'<p>One.</p><h2>{heading}</h2><p>Two.</p>')
    assert written == Written('One.\n\nTwo.\n', headings=0, code_blocks=0, is_cut=False)


def test_an_image_without_a_description_is_not_a_heading() -> None:
    written = write('<h1><img src="/logo.png" alt=""></h1><p>Text.</p>')
    assert written.text == '![](https://example.org/logo.png)\n\nText.\n'


def test_links_to_the_source_are_left_out() -> None:
    assert write('<p>put <a href="/s">[src]</a></p>').text == 'put\n'
    assert write('<p>put <a class="srclink" href="/s">source</a></p>').text == 'put\n'


def test_headings_and_blocks_of_code_are_counted() -> None:
    written = write(
        '<h1>A</h1><ul><li><h2>B</h2><pre>1\n2</pre></li></ul><div class="note"><h3>C</h3>'
        '<pre>x</pre></div><table><tr><th>D</th></tr><tr><td><h5>E</h5><pre>y</pre></td></tr></table>'
    )
    assert (written.headings, written.code_blocks, written.is_cut) == (4, 3, False)


def test_a_text_of_exactly_the_limit_is_whole() -> None:
    assert write('<p>word</p>', limit=5) == Written('word\n', 0, 0, is_cut=False)
    assert write('<p>word</p>', limit=4).is_cut


def test_what_is_longer_than_the_limit_is_cut_after_a_block_and_reported() -> None:
    section = '<h2>Part</h2><p>Some words of this part.</p><pre>a\n\nb</pre>'
    written = write(section * 1000, limit=5_000)
    assert written.is_cut
    assert 4_500 < len(written.text) <= 5_000
    assert written.text.endswith(('Part\n', 'part.\n', '```\n'))
    assert written.headings == written.text.count('## Part')
    assert written.code_blocks * 2 == written.text.count('```')


def test_a_fence_that_is_cut_is_closed() -> None:
    lines = '\n'.join(f'line {number}' for number in range(1000))
    written = write(f'<ul><li><p>Code:</p><pre>{lines}</pre></li></ul>', limit=2_000)
    assert 1_500 < len(written.text) <= 2_000
    *_, last, closing = written.text.rstrip('\n').split('\n')
    assert closing == '  ```'
    assert last.startswith('  line ')
    assert last.removeprefix('  ') in lines.split('\n')
    assert written == Written(written.text, 0, 1, is_cut=True)


def test_a_single_text_that_is_too_long_is_reported_as_cut() -> None:
    written = write(f'<p>{"word " * 1000}</p>', limit=1_000)
    assert written.is_cut
    assert 500 < len(written.text) <= 1_000


def test_references_are_part_of_the_limit_and_stay_complete() -> None:
    links = ''.join(f'<p><a href="/page/{number}">page</a></p>' for number in range(500))
    written = write(links, limit=4_000, links='references')
    assert written.is_cut
    assert 2_000 < len(written.text) <= 4_000
    count = written.text.count('[page][')
    assert written.text.count(']: https://example.org/page/') == count > 50


def test_a_large_table_is_cut_between_its_rows() -> None:
    rows = ''.join(f'<tr><td>{number}</td><td>value</td></tr>' for number in range(10_000))
    written = write(f'<table><tr><th>a</th><th>b</th></tr>{rows}</table>', limit=10_000)
    assert written.is_cut
    assert 5_000 < len(written.text) <= 10_000
    assert written.text.endswith('| value |\n')


def test_no_cell_of_a_wide_table_is_lost() -> None:
    cells = ''.join(f'<td>c{number}</td>' for number in range(100))
    written = write(f'<table><tr>{cells}</tr><tr>{cells}</tr></table>')
    assert written.text.count('c99') == 2
