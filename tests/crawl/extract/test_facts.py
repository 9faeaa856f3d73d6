"""The facts of a page, and pages that try to break the reader."""

import time
from dataclasses import dataclass

import pytest

from silkline.crawl.extract import EXTRACTOR, EXTRACTOR_VERSION, Anchor, Facts, read_html
from silkline.crawl.extract.facts import MAX_MARKDOWN

URL = 'https://example.org/dir/page'


def read(html: str) -> Facts:
    return read_html(html, url=URL, markdown='none')


def test_the_facts_of_a_page_are_read() -> None:
    page = read(
        '<!doctype html><html lang="pt-BR"><head><title> A\n title </title>'
        '<meta name="Description" content=" What  it is ">'
        '<link rel="canonical" href="/canonical"><base href="/base/">'
        '<meta name="ROBOTS" content="NoIndex, nofollow"></head>'
        '<body><h1>First</h1><h2>Second <a class="headerlink" href="#x">¶</a></h2></body></html>'
    )
    assert page.title == 'A title'
    assert page.description == 'What it is'
    assert page.language == 'pt-BR'
    assert page.canonical == '/canonical'
    assert page.base == '/base/'
    assert page.robots == {'noindex', 'nofollow'}
    assert page.headings == [(1, 'First'), (2, 'Second')]
    assert (page.markdown, page.extractor, page.extractor_version) == (None, None, None)
    assert page.error is None


def test_missing_facts_are_none() -> None:
    page = read('')
    assert (page.title, page.description, page.language) == (None, None, None)
    assert (page.canonical, page.base, page.robots) == (None, None, frozenset())
    assert (page.anchors, page.headings, page.error) == ([], [], None)


def test_directives_for_this_crawler_count_and_those_for_others_do_not() -> None:
    page = read(
        '<meta name="silkline" content="noindex"><meta name="googlebot" content="nofollow">'
    )
    assert page.robots == {'noindex'}
    html = '<meta name="MyBot" content="none"><meta name="silkline" content="x"><meta content="y">'
    assert read_html(html, url=URL, markdown='none', agent='mybot').robots == {'none'}
    assert read_html(html, url=URL, markdown='none', agent='').robots == frozenset()


def test_a_page_without_a_title_gets_its_open_graph_title() -> None:
    page = read(
        '<meta property="og:title" content="Shared"><meta property="og:description" content="D">'
        '<body><svg><title>Close</title></svg>'
    )
    assert (page.title, page.description) == ('Shared', 'D')


def test_anchors_come_in_order_as_written() -> None:
    page = read(
        '<a href="/a">x</a><a name="n">y</a><area href="b"><a href="">e</a>'
        '<a href="#c" rel="noopener NOFOLLOW">z</a><a href="/a">again</a>'
    )
    assert page.anchors == [
        Anchor('/a', False),
        Anchor('b', False),
        Anchor('', False),
        Anchor('#c', True),
        Anchor('/a', False),
    ]


def test_lists_and_texts_are_bounded() -> None:
    page = read(
        f'<title>{"t" * 5000}</title><meta name=description content="{"d" * 9000}">'
        + '<a href=x>y</a>' * 6000
        + '<h2>h</h2>' * 600
    )
    assert page.title is not None
    assert len(page.title) == 1000
    assert page.description is not None
    assert len(page.description) == 5000
    assert len(page.anchors) == 5000
    assert len(page.headings) == 500


def test_the_built_in_extractor_is_named_with_its_version() -> None:
    page = read_html('<p>Text</p>', url=URL, markdown='full')
    assert page.markdown == 'Text\n'
    assert (page.extractor, page.extractor_version) == (EXTRACTOR, EXTRACTOR_VERSION)


@dataclass
class Shout:
    name: str = 'shout'
    version: str = '7'

    def markdown(self, html: str, *, url: str) -> str:
        return f'{url} {html}'.upper()


@dataclass
class Fail:
    name: str = 'fail'
    version: str = '1'

    def markdown(self, html: str, *, url: str) -> str:
        raise ValueError(f'no idea\nof {url}')


def test_another_extractor_is_named_with_its_version() -> None:
    page = read_html('<p>x', url='u', markdown='main', extractor=Shout())
    assert (page.markdown, page.extractor, page.extractor_version) == ('U <P>X', 'shout', '7')


def test_an_extractor_that_fails_does_not_lose_the_page() -> None:
    page = read_html('<title>T</title><a href=/x>y</a>', url='u', markdown='main', extractor=Fail())
    assert page.title == 'T'
    assert page.anchors == [Anchor('/x', False)]
    assert (page.markdown, page.extractor) == (None, None)
    assert page.error == 'ValueError: no idea of u'


HOSTILE = {
    '10,000 levels': '<div>' * 10_000 + '<p>text at the bottom',
    '200,000 levels': '<div>' * 200_000 + '<p>text at the bottom',
    'five megabytes of <div>': '<div>' * 1_000_000,
    'nested tables': '<table><tr><td>' * 20_000,
    'nested lists': '<ul><li>x' * 20_000,
    'nested quotes': '<blockquote>' * 20_000 + 'x',
    'nested bold': '<b>' * 50_000 + 'x',
    'nested notes': '<div class="admonition note">' * 20_000 + 'x',
    'nested links': '<a href=x><div>' * 10_000,
    'headings nobody closes': '<h1><p>' * 10_000,
    'bold that is opened anew in each paragraph': ''.join(f'<b a{n}><p>' for n in range(20_000)),
    'attributes to merge': ''.join(f'<html a{n}>' for n in range(20_000)),
    'many attributes': f'<p {" ".join(f"a{n}=1" for n in range(100_000))}>x',
    'a comment without end': '<!--' + 'x' * 2_000_000,
    'a tag without end': '<a href="' + 'x' * 2_000_000,
    'only <': '<' * 2_000_000,
    'only NUL': '\0' * 1_000_000,
    'only white space': '<p>' + ' ' * 2_000_000 + 'x',
    'underscores': '<p>a' + '_' * 1_000_000 + 'b',
    'empty lines of code': '<pre>x' + '\n' * 1_000_000 + '```',
    'spans that cover all': '<table>' + '<tr><td rowspan=999 colspan=999>x' * 2_000,
    'scripts without end': '<script>' * 50_000,
    '50,000 paragraphs': '<p>word word word word word word word word</p>' * 50_000,
    '20,000 cells': '<table>' + ('<tr>' + '<td>x</td>' * 20) * 1_000,
    '50,000 marks that cannot stand': '<p>' + '<b>"x"</b>y' * 50_000,
    '50,000 links': '<p>' + '<a href=x>[y</a>](' * 50_000,
    'a paragraph of five megabytes': '<p>' + 'some words here, ' * 300_000,
    'formulas without end': '<script src=MathJax.js></script><p>' + r'\(x $$y \[' * 20_000,
    'lists of tabs': '<div role=tablist><b role=tab>x</b></div><div role=tabpanel>y</div>' * 20_000,
    'a lone surrogate': '<p>\ud800</p>',
    'a long class': f'<div class="{"a-" * 500_000}">x',
}


@pytest.mark.parametrize('name', HOSTILE)
def test_malicious_pages_are_read_in_short_time(name: str) -> None:
    began_at = time.process_time()
    read_html(HOSTILE[name], url=URL, markdown='none')
    read_html(HOSTILE[name], url=URL, markdown='full')
    page = read_html(HOSTILE[name], url=URL, markdown='main')
    # All three take far less than a second; the limit allows for a slow machine.
    assert time.process_time() - began_at < 20
    assert page.markdown is not None
    assert len(page.markdown) <= MAX_MARKDOWN + 1


def test_text_below_ten_thousand_levels_is_found() -> None:
    page = read_html(HOSTILE['10,000 levels'], url=URL, markdown='main')
    assert page.markdown == 'text at the bottom\n'
    assert page.error is None


def test_a_page_whose_tree_would_be_too_large_is_read_as_plain_text() -> None:
    costly = ''.join(f'<b a{n}><p>word{n} &amp; ' for n in range(20_000))
    page = read_html(
        f'<title>T &lt; U</title><script>no</script>{costly}', url=URL, markdown='main'
    )
    assert page.title == 'T < U'
    assert page.markdown is not None
    assert page.markdown.startswith('T < U word0 & word1 & ')
    assert page.error is not None
    assert 'plain text' in page.error


@pytest.mark.parametrize('markdown', ['main', 'full'])
def test_nul_never_reaches_the_result(markdown: str) -> None:
    html = '<title>a\0b</title><p title="\0">x\0y</p><pre>\0z</pre><a href="/\0">l\0</a>'
    page = read_html(html, url=URL, markdown='main' if markdown == 'main' else 'full')
    assert '\0' not in f'{page.title}{page.markdown}{page.anchors}'


@pytest.mark.parametrize('error', ['\x02', '\x0e\x1f', '\x7f', '\x80', '\x9f'])
def test_a_large_page_is_read_without_its_control_characters(error: str) -> None:
    filling = '<p>some words é €, </p>\r\n\t' * 25_000
    assert read(f'{filling}<h1>On{error}e</h1>').headings == [(1, 'One')]
