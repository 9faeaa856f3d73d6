"""Pages as Markdown, compared with golden files that a person has checked.

`tests/golden/extract/NAME.html` must become `NAME.md` as main content and, if that file exists,
`NAME.full.md` as a full page.
"""

from pathlib import Path

import pytest

from silkline.crawl.extract import read_html

GOLDEN = Path(__file__).parents[2] / 'golden/extract'
PAGES = sorted(path.stem for path in GOLDEN.glob('*.html'))
FULL_PAGES = sorted(path.name.removesuffix('.full.md') for path in GOLDEN.glob('*.full.md'))


@pytest.mark.parametrize('name', PAGES)
def test_the_main_content_of_a_page_matches_its_golden_file(name: str) -> None:
    page = read_html(html_of(name), url=url_of(name), markdown='main')
    assert page.error is None
    assert page.markdown == (GOLDEN / f'{name}.md').read_text()


@pytest.mark.parametrize('name', FULL_PAGES)
def test_a_full_page_matches_its_golden_file(name: str) -> None:
    page = read_html(html_of(name), url=url_of(name), markdown='full')
    assert page.error is None
    assert page.markdown == (GOLDEN / f'{name}.full.md').read_text()


def test_there_are_golden_pages() -> None:
    assert len(PAGES) > 10
    assert FULL_PAGES


def markdown_of(body: str, *, head: str = '') -> str:
    html = f'<html><head>{head}</head><body>{body}</body></html>'
    page = read_html(html, url='https://example.org/a/b', markdown='main')
    assert page.error is None
    assert page.markdown is not None
    return page.markdown


PROSE = '<p>This is a sentence that is long enough to be taken for prose, with some words.</p>'


def test_text_that_a_style_hides_is_left_out() -> None:
    text = markdown_of(f'{PROSE}{PROSE}<p style="display: none">secret words of this page</p>')
    assert 'secret' not in text


def test_a_page_whose_whole_body_is_hidden_until_a_script_runs_keeps_its_text() -> None:
    text = markdown_of(f'<div aria-hidden="true">{PROSE}{PROSE}</div>')
    assert text.count('This is a sentence') == 2


def test_a_class_name_does_not_drop_most_of_the_text() -> None:
    text = markdown_of(f'<div class="sidebar-wrapper newsletter">{PROSE * 5}</div><p>Short.</p>')
    assert text.count('This is a sentence') == 5


def test_class_names_in_highlighted_code_are_not_taken_for_clutter() -> None:
    code = '<pre><code><span class="comment"># note</span>\n<span class="tag">x</span></code></pre>'
    text = markdown_of(f'<main>{PROSE}{code}</main>', head=ARTICLE)
    assert '# note\nx' in text


def test_an_article_is_separated_from_the_teasers_around_it() -> None:
    teaser = '<div class="x1"><a href="/t"><h3>Other</h3><p>A teaser of another page, which is'
    teaser += ' about as long as a paragraph of this one.</p></a></div>'
    text = markdown_of(
        f'<div>{teaser * 5}</div><div><h1>The title</h1>{PROSE * 3}</div><div>{teaser * 5}</div>',
        head=f'{ARTICLE}<title>The title - Site</title>',
    )
    assert 'teaser' not in text
    assert text.count('This is a sentence') == 3


def test_an_index_page_of_documentation_keeps_its_lists_of_links() -> None:
    links = ''.join(f'<li><a href="/p{n}">Page number {n}</a></li>' for n in range(20))
    text = markdown_of(f'<main><h1>Index</h1><ul>{links}</ul></main>')
    assert text.count('](https://example.org/p') == 20


def test_a_heading_outside_of_the_content_is_written_above_it() -> None:
    text = markdown_of(
        f'<header><h1>Install the tool</h1></header><div class="markdown-body">{PROSE * 3}</div>',
        head='<title>Install the tool | Docs</title>',
    )
    assert text.startswith('# Install the tool\n\nThis is a sentence')


def test_a_page_with_little_prose_is_reduced_to_its_main_content() -> None:
    text = markdown_of(
        '<header><a href="/">Site</a></header>'
        '<main><h1>CrawlOptions</h1><p>Short.</p><pre>x</pre></main><footer>'
        'All rights of this page are reserved by the people who have made it.</footer>'
    )
    assert text == '# CrawlOptions\n\nShort.\n\n```\nx\n```\n'


def test_documentation_marked_as_articles_keeps_captions_and_lists_of_links() -> None:
    links = (
        '<ul><li><a href="/a">First other page</a></li><li><a href="/b">Second one</a></li></ul>'
    )
    figure = '<figure><img src="/i.png" alt="I"><figcaption>Figure 1</figcaption></figure>'
    body = f'<div class="td-content"><h1>Pods</h1>{PROSE * 3}{figure}<h2>See also</h2>{links}</div>'
    text = markdown_of(body, head=ARTICLE)
    assert text.startswith('# Pods\n')
    assert 'Figure 1' in text
    assert '- [First other page](https://example.org/a)' in text


def test_a_section_that_a_button_expands_is_content_and_a_hidden_one_is_not() -> None:
    text = markdown_of(
        f'<main>{PROSE}<h3><button>How?</button></h3><div>So.</div>'
        '<button aria-expanded="false" aria-controls="p">Why?</button><div id="p" hidden>Because.'
        '</div><button>Copy</button><div id="q" hidden>secret</div></main>'
    )
    assert text.endswith('### How?\n\nSo.\n\nWhy?\n\nBecause.\n')


def test_a_formula_is_written_once_and_as_tex() -> None:
    text = markdown_of(
        f'<script src="/MathJax.js"></script>{PROSE}<p>One \\(a_1 * b_1\\)'
        '<span class="MathJax_Preview">shown</span><script type="math/tex">c^2</script></p>'
        '<p><math><msup><mi>d</mi><mn>2</mn></msup></math></p>'
    )
    assert text.endswith('One $a_1 * b_1$$c^2$\n\n$d^{2}$\n')


@pytest.mark.parametrize(
    ('html', 'line'),
    [
        ('Straßen<span>&shy;</span>bahn', 'Straßenbahn'),
        ('Donau<b>dampf</b>&shy;<b>schiff</b>', 'Donau**dampfschiff**'),
        ('<a href="/x">Auto<i>&shy;</i>bahn</a>', '[Autobahn](https://example.org/x)'),
        ('two<span> </span>words', 'two words'),
    ],
)
def test_soft_hyphens_are_removed(html: str, line: str) -> None:
    assert line in markdown_of(f'<main><h1>Title</h1>{PROSE}<p>{html}</p></main>').split('\n')


def test_text_of_two_elements_cannot_become_a_link_or_a_tag_together() -> None:
    text = markdown_of(f'{PROSE}<p><i>[click]</i>(javascript:x) &lt;<b>img src=x&gt;</b></p>')
    assert r'*[click\]*(javascript:x) \<**img src=x>**' in text
    text = markdown_of(f'{PROSE}<p><span>[click]</span>(javascript:x) wow!<a href="/u">u</a></p>')
    assert r'[click\](javascript:x) wow\![u](https://example.org/u)' in text


def test_markdown_is_not_longer_than_its_limit() -> None:
    html = f'<main>{PROSE * 4_000}</main>'
    page = read_html(html, url='https://e.org/', markdown='main', max_markdown=200_000)
    assert page.markdown is not None
    assert 199_000 < len(page.markdown) <= 200_000


ARTICLE = '<meta property="og:type" content="article">'


def html_of(name: str) -> str:
    return (GOLDEN / f'{name}.html').read_text()


def url_of(name: str) -> str:
    host = 'www' if name.startswith('article') else 'docs'
    return f'https://{host}.example.org/en/{name}.html'
