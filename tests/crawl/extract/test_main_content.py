"""Where the main content of a page is: by structure, whatever ids, classes and footers say.

Each test builds the smallest page on which a rule matters. Whole pages of generators are in
`test_markdown.py` and `test_other_sites.py`; how content is written is tested beside its writer.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from silkline.crawl.extract import read_html

GOLDEN = Path(__file__).parents[2] / 'golden/extract'
SENTENCE = 'This is a sentence that is long enough to be taken for prose, with some words. '
PROSE = f'<p>{SENTENCE}</p>'
LEGAL = f'<p>Legal: {SENTENCE * 12}</p>'


def markdown_of(body: str, *, title: str = 'Looms', url: str = 'https://example.org/a/b') -> str:
    html = f'<html><head><title>{title}</title></head><body>{body}</body></html>'
    page = read_html(html, url=url, markdown='main')
    assert page.error is None
    assert page.markdown is not None
    return page.markdown


def headings_of(markdown: str) -> list[str]:
    return [line for line in markdown.split('\n') if line.startswith('#')]


def test_a_section_with_most_of_the_prose_does_not_replace_the_page() -> None:
    short = ''.join(
        f'<div class="sect1"><h2>Part {number}</h2><p>Short.</p></div>' for number in range(8)
    )
    long = f'<div class="sect1"><h2>Variables</h2>{PROSE * 40}</div>'
    text = markdown_of(f'<div id="content">{short}{long}<h2>Author</h2><p>Ann.</p></div>')
    assert headings_of(text) == [
        *(f'## Part {number}' for number in range(8)),
        '## Variables',
        '## Author',
    ]
    assert text.count('Short.') == 8


def test_code_and_tables_next_to_the_prose_are_kept() -> None:
    table = '<table><tr><th>Name</th></tr><tr><td>warp</td></tr></table>'
    text = markdown_of(
        '<div class="page"><div><pre>#include &lt;loom.h&gt;</pre></div>'
        f'<div><div>{PROSE * 30}</div></div><div>{table}</div></div>'
    )
    assert '#include <loom.h>' in text
    assert '| warp |' in text


@pytest.mark.parametrize(
    'page',
    [
        '<main role="main"><h1>Class Loom</h1><p>A loom.</p></main>'
        f'<footer role="contentinfo">{LEGAL}</footer>',
        '<main><h1>Class Loom</h1><p>A loom.</p></main><div role="contentinfo">' + LEGAL + '</div>',
        '<div class="body" role="main"><h1>Class Loom</h1><p>A loom.</p></div>'
        f'<div class="footer">{LEGAL}</div>',
        f'<div class="body"><h1>Class Loom</h1><p>A loom.</p></div><footer>{LEGAL}</footer>',
    ],
)
def test_a_footer_does_not_replace_the_content_however_long_it_is(page: str) -> None:
    assert markdown_of(page, title='Loom (API)') == '# Class Loom\n\nA loom.\n'


def test_an_index_of_links_is_not_replaced_by_a_footer_with_prose() -> None:
    links = ''.join(f'<li><a href="{number}.html">Entry {number}</a></li>' for number in range(30))
    text = markdown_of(
        f'<div class="body" role="main"><h1>Index</h1><table><tr><td><ul>{links}</ul></td></tr>'
        f'</table></div><div class="footer">{LEGAL}</div>',
        title='Index',
    )
    assert text.startswith('# Index\n')
    assert text.count('[Entry ') == 30
    assert 'Legal' not in text


@pytest.mark.parametrize(
    'identity',
    [
        'sql-for-update-share',
        'datatype-json-subscripting',
        'session-cookie-age',
        'login-url',
        'select-related',
        'the-navigation-menu',
        'footer-rows',
        'comment-thread',
    ],
)
def test_an_id_alone_drops_nothing(identity: str) -> None:
    text = markdown_of(
        f'<main><h1>Looms</h1>{PROSE * 10}<section id="{identity}"><h2>Kept</h2><p>Short.</p>'
        f'</section><dl><dt id="{identity}-x">term</dt><dd>meaning</dd></dl>'
        f'<div id="{identity}-y">A line.</div>{PROSE * 10}</main>'
    )
    for words in ('## Kept', 'Short.', 'term', 'meaning', 'A line.'):
        assert words in text


@pytest.mark.parametrize('identity', ['related-work', 'cookie-age', 'comments-in-code'])
def test_an_id_alone_drops_nothing_of_an_article(identity: str) -> None:
    html = (
        '<html><head><title>Looms</title><meta property="article:published_time" content="2026">'
        f'</head><body><article><h1>Looms</h1><div>{PROSE * 10}<div id="{identity}">'
        f'<p>The part with the name.</p></div>{PROSE * 10}</div></article></body></html>'
    )
    page = read_html(html, url='https://example.org/a/b', markdown='main')
    assert page.markdown is not None
    assert 'The part with the name.' in page.markdown


@pytest.mark.parametrize('names', ['related', 'sidebar', 'subscribe', 'cookie-settings', 'toc'])
def test_a_class_that_calls_a_part_clutter_does_not_drop_headings_with_prose(names: str) -> None:
    part = f'<h2>One</h2>{PROSE * 3}<h2>Two</h2>{PROSE * 3}'
    text = markdown_of(
        f'<main><h1>Looms</h1>{PROSE * 30}<div class="{names}">{part}</div>{PROSE * 30}</main>'
    )
    assert headings_of(text) == ['# Looms', '## One', '## Two']
    assert text.count('This is a sentence') == 66


@pytest.mark.parametrize('names', ['related', 'sidebar', 'breadcrumbs', 'newsletter'])
def test_a_class_drops_clutter_that_is_neither_headings_nor_prose(names: str) -> None:
    text = markdown_of(
        f'<main><h1>Looms</h1>{PROSE * 5}<div class="{names}"><a href="/x">Other</a></div></main>'
    )
    assert 'Other' not in text


@pytest.mark.parametrize('role', ['', ' role="doc-backlink"'])
def test_headings_that_link_back_to_a_table_of_contents_are_kept(role: str) -> None:
    sections = ''.join(
        f'<section id="q{number}"><h2><a class="toc-backref" href="#id{number}"{role}>Why {number}?'
        f'</a><a class="headerlink" href="#q{number}">¶</a></h2>{PROSE * 2}</section>'
        for number in range(3)
    )
    text = markdown_of(f'<div class="body" role="main"><h1>FAQ</h1>{sections}</div>', title='FAQ')
    assert headings_of(text) == ['# FAQ', '## Why 0?', '## Why 1?', '## Why 2?']


def test_a_title_that_is_not_a_heading_becomes_one() -> None:
    lines = ''.join(
        f'<div class="line"><span class="lineno">{number}</span>int x{number};</div>\n'
        for number in range(1, 4)
    )
    text = markdown_of(
        '<div id="top"><div id="projectname">Loom 1.0</div></div>'
        '<div class="header"><div class="headertitle"><div class="title">thread_queue.h</div></div>'
        f'</div><div class="contents"><div class="fragment">{lines}</div></div>',
        title='Loom: thread_queue.h Source File',
    )
    assert text == '# thread_queue.h\n\n```\nint x1;\nint x2;\nint x3;\n```\n'


@pytest.mark.parametrize('level', [1, 2])
@pytest.mark.parametrize(
    'banner',
    [
        '<div id="hd"><h1><a href="../index.html">Loom 3.2 documentation</a></h1></div>',
        '<header class="header"><div class="box"><h1>Loom 3.2 documentation</h1></div></header>',
    ],
)
def test_the_banner_of_a_site_is_not_the_first_heading(banner: str, level: int) -> None:
    text = markdown_of(
        f'<div class="page">{banner}<div id="bd"><h{level}>Warps</h{level}><div class="section">'
        f'<h3>Length</h3>{PROSE * 5}</div></div></div>',
        title='Warps | Loom 3.2 documentation',
    )
    assert headings_of(text) == [f'{"#" * level} Warps', '### Length']


def test_the_name_section_of_a_manual_page_is_kept() -> None:
    text = markdown_of(
        '<div id="header"><h1>loom-weave(1) Manual Page</h1><h2>NAME</h2>'
        '<div class="sectionbody"><p>loom-weave - weave rows</p></div></div>'
        f'<div id="content"><div class="sect1"><h2>DESCRIPTION</h2>{PROSE * 5}</div></div>',
        title='loom-weave(1)',
    )
    assert text.startswith('# loom-weave(1) Manual Page\n\n## NAME\n\nloom-weave - weave rows\n\n')


PAGING = (
    '<table width="100%"><tr><td><a accesskey="p" href="before.html">Prev</a></td>'
    '<td><a accesskey="u" href="up.html">Up</a></td><td><a accesskey="n" href="after.html">Next</a>'
    '</td></tr></table>'
)


def test_a_table_of_contents_that_is_all_of_a_page_is_kept() -> None:
    entries = ''.join(
        f'<dt><span class="sect1"><a href="part{number}.html">3.{number}. Part</a></span></dt>'
        for number in range(1, 10)
    )
    text = markdown_of(
        f'<div class="navheader">{PAGING}<hr></div><div class="chapter"><div class="titlepage">'
        '<h2 class="title">Chapter 3. Looms</h2></div><div class="toc"><p><b>Table of Contents</b>'
        f'</p><dl class="toc">{entries}</dl></div></div><div class="navfooter"><hr>{PAGING}</div>',
        title='Chapter 3. Looms',
    )
    assert headings_of(text) == ['## Chapter 3. Looms']
    assert text.count('https://example.org/a/part') == 9
    for words in ('Prev', 'Up', 'Next'):
        assert words not in text


@pytest.mark.parametrize('names', ['toc', 'contents', 'table-of-contents'])
def test_a_table_of_the_contents_of_the_same_page_is_left_out(names: str) -> None:
    entries = ''.join(f'<li><a href="#s{number}">Part {number}</a></li>' for number in range(3))
    sections = ''.join(f'<h2 id="s{number}">Part {number}</h2>{PROSE}' for number in range(3))
    text = markdown_of(
        f'<main><h1>Looms</h1><div class="{names}"><ul>{entries}</ul></div>{sections}</main>'
    )
    assert '(https://example.org/a/b#s' not in text
    assert headings_of(text) == ['# Looms', '## Part 0', '## Part 1', '## Part 2']


@pytest.mark.parametrize(
    'line',
    [
        '<div class="header"><p>Next: <a href="n.html" accesskey="n" rel="next">Threads</a>, '
        'Previous: <a href="p.html" accesskey="p" rel="prev">Concepts</a>, '
        'Up: <a href="u.html" accesskey="u" rel="up">Looms</a> &nbsp; '
        '[<a href="i.html" rel="contents">Contents</a>][<a href="x.html" rel="index">Index</a>]</p>'
        '</div>',
        '<p>Next: <a href="n.html" rel="next">Threads</a>, '
        'Previous: <a href="p.html" rel="prev">Concepts</a>, '
        'Up: <a href="u.html" rel="up">Looms</a></p>',
        f'<div>{PAGING}</div>',
    ],
)
def test_a_line_that_leads_to_the_next_page_is_left_out(line: str) -> None:
    text = markdown_of(f'{line}<h3>Making a loom</h3>{PROSE * 3}{line}', title='Making a loom')
    assert text == f'### Making a loom\n\n{(SENTENCE.strip() + chr(10) * 2) * 3}'.rstrip() + '\n'


def test_a_box_with_help_for_the_search_does_not_replace_the_content() -> None:
    box = f'<div class="search-help"><h2>Search</h2>{PROSE * 6}</div>'
    items = ''.join(f'<li><a href="{number}">loom_{number}</a></li>' for number in range(40))
    text = markdown_of(f'{box}<div class="page"><h1>Functions</h1><ul>{items}</ul></div>')
    assert '# Functions' in text
    assert text.count('[loom_') == 40


def post(author: str, day: int, text: str) -> str:
    return (
        f'<div id="p{day}" class="post"><div class="profile">'
        f'<a class="username" href="/u/{author}">{author}</a><dl><dt>Posts</dt><dd>421</dd></dl>'
        '</div><div class="postbody">'
        f'<p class="meta"><time datetime="2026-03-0{day}">March {day}, 2026</time></p>'
        f'<div class="content"><p>{text}</p></div><div class="signature">Looms forever.</div>'
        '<ul class="buttons"><li><a href="/quote">Quote</a></li></ul></div></div>'
    )


THREAD = (
    post('ann', 1, f'Why does it jam? {SENTENCE}')
    + post('ben', 2, 'Too dry.')
    + post('ann', 3, f'That was it, thank you. {SENTENCE}')
)


def test_a_forum_is_its_posts_with_authors_and_dates() -> None:
    text = markdown_of(f'<div id="wrap"><h2>It jams</h2>{THREAD}</div>', title='It jams - Forum')
    lines = [line for line in text.split('\n') if line]
    assert lines == [
        '## It jams',
        '[ann](https://example.org/u/ann)',
        'March 1, 2026',
        f'Why does it jam? {SENTENCE}'.strip(),
        '[ben](https://example.org/u/ben)',
        'March 2, 2026',
        'Too dry.',
        '[ann](https://example.org/u/ann)',
        'March 3, 2026',
        f'That was it, thank you. {SENTENCE}'.strip(),
    ]


def test_a_thread_that_only_browsers_without_scripts_show_is_read() -> None:
    text = markdown_of(
        f'<section id="main"></section><noscript><h1>It jams</h1>{THREAD * 3}</noscript>',
        title='It jams - Forum',
    )
    assert text.startswith('# It jams\n')
    assert text.count('Too dry.') == 3


def test_a_notice_for_browsers_without_scripts_is_left_out() -> None:
    notice = f'<noscript><p>Please enable scripts. {SENTENCE * 6}</p></noscript>'
    text = markdown_of(f'{notice}<main><h1>Looms</h1>{PROSE * 10}</main>')
    assert text.startswith('# Looms\n')
    assert 'enable scripts' not in text


def test_a_listing_is_all_of_its_items() -> None:
    items = ''.join(
        f'<li class="product"><a href="/p{number}"><h2>Loom {number}</h2></a>'
        f'<span class="price">${number}.00</span></li>'
        for number in range(10, 22)
    )
    footer = f'<footer>{LEGAL}</footer>'
    text = markdown_of(f'<div><h1>Looms</h1><ul class="products">{items}</ul></div>{footer}')
    for number in range(10, 22):
        assert f'Loom {number}' in text
        assert f'${number}.00' in text
    assert 'Legal' not in text


def test_a_product_is_its_facts_without_reviews_and_other_products() -> None:
    facts = (
        '<table><tr><th>Weight</th><td>5 kg</td></tr><tr><th>Wood</th><td>Beech</td></tr></table>'
    )
    review = f'<div class="review"><h3>Hilda</h3><p>I like it. {SENTENCE}</p></div>'
    other = '<li><a href="/x"><h3>Floor loom</h3> $999</a></li>'
    text = markdown_of(
        '<script type="application/ld+json">{"@type": "Product"}</script>'
        f'<div class="shop"><h1>Table loom</h1><p class="price">$249</p>{PROSE * 3}{facts}'
        f'<div class="reviews">{review}</div><div class="related"><ul>{other}</ul></div></div>',
        title='Table loom',
    )
    assert text.startswith('# Table loom\n\n$249\n\n')
    assert '| Weight | 5 kg |' in text
    assert 'I like it' not in text
    assert 'Floor loom' not in text


@pytest.mark.parametrize('style', ['display:none', 'display: none;', 'visibility: hidden'])
def test_a_page_that_hides_everything_until_a_script_runs_is_read(style: str) -> None:
    text = markdown_of(f'<div style="{style}"><h1>Looms</h1>{PROSE * 5}</div>')
    assert text.startswith('# Looms\n')
    assert text.count('This is a sentence') == 5


def test_a_page_of_118000_elements_is_read_whole() -> None:
    entries = ''.join(f'<li><a href="#{number}">n{number}</a></li>' for number in range(59_000))
    text = markdown_of(f'<main><h1>Index</h1><ul>{entries}</ul></main>', title='Index')
    assert text.count('[n') == 59_000
    assert '[n58999]' in text


READ = """
import json, sys
from pathlib import Path
from silkline.crawl.extract import read_html
pages = {}
for name in json.load(sys.stdin):
    page = read_html(Path(name).read_text(), url='https://www.example.org/p', markdown='main')
    pages[name] = page.markdown
json.dump(pages, sys.stdout)
"""


def test_a_page_gives_the_same_markdown_whatever_was_read_before_it() -> None:
    names = sorted(map(str, GOLDEN.rglob('*.html')))
    here = read_all(names)
    assert read_all(names[::-1]) == here
    assert read_all([*names[1::2], *names[::2], *names]) == here
    one_by_one = {name: read_in_new_process([name])[name] for name in names[::20]}
    assert one_by_one == {name: here[name] for name in names[::20]}
    assert read_in_new_process(names[::-1]) == here


def read_all(names: list[str]) -> dict[str, str | None]:
    return {
        name: read_html(
            Path(name).read_text(), url='https://www.example.org/p', markdown='main'
        ).markdown
        for name in names
    }


def read_in_new_process(names: list[str]) -> dict[str, str | None]:
    done = subprocess.run(
        [sys.executable, '-c', READ],
        input=json.dumps(names),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)
