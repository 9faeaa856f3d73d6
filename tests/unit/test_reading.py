"""What a response is taken for, and which of its words are obeyed."""

from collections.abc import Mapping
from uuid import uuid4

import pytest

from worker import pipe
from worker.crawl.egress import Response
from worker.crawl.fetched import Fetched
from worker.crawl.options import Options
from worker.crawl.plugins import PageDraft
from worker.crawl.reading import (
    MAX_LINK_BYTES,
    Reader,
    canonical_elsewhere,
    header_directives,
    is_wanted,
    kind_of,
)

URL = 'https://a.example/docs/page'


def response(body: bytes | str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        url=URL,
        status=200,
        headers={'Content-Type': 'text/html', **(headers or {})},
        body=body.encode() if isinstance(body, str) else body,
        address='192.0.2.1',
        seconds=0.1,
        first_byte_seconds=0.1,
    )


def read(reader: Reader, one: Response, url: str = URL) -> Fetched:
    return reader.read(one, task=pipe.Task(url_key=uuid4(), url=url, depth=0), url=url)


@pytest.mark.parametrize(
    ('content_type', 'url', 'kind'),
    [
        ('text/html; charset=utf-8', URL, 'html'),
        ('TEXT/HTML', URL, 'html'),
        ('application/xhtml+xml', URL, 'html'),
        ('text/plain', URL, 'text'),
        ('text/plain', 'https://a.example/readme.md', 'markdown'),
        ('text/plain', 'https://a.example/llms.txt', 'markdown'),
        ('text/markdown', URL, 'markdown'),
        ('application/xml', URL, 'xml'),
        ('application/gzip', 'https://a.example/sitemap.xml.gz', 'xml'),
        ('application/gzip', 'https://a.example/archive.tar', None),
        (None, URL, ''),
        ('', URL, ''),
        ('image/png', URL, None),
        ('application/pdf', URL, None),
        ('application/json', URL, None),
        ('nonsense', URL, None),
    ],
)
def test_a_content_type_says_what_a_document_is(
    content_type: str | None, url: str, kind: str | None
) -> None:
    assert kind_of(content_type, url) == kind


def test_bodies_of_failures_and_of_what_is_no_page_are_not_read() -> None:
    assert is_wanted(200, {'Content-Type': 'text/html'}, url=URL)
    assert not is_wanted(404, {'Content-Type': 'text/html'}, url=URL)
    assert not is_wanted(200, {'Content-Type': 'video/mp4'}, url=URL)


@pytest.mark.parametrize(
    ('header', 'directives'),
    [
        (None, set[str]()),
        ('noindex', {'noindex'}),
        ('NoIndex, NoFollow', {'noindex', 'nofollow'}),
        ('otherbot: noindex, nofollow', set[str]()),
        ('otherbot: noindex, silkline: nofollow', {'nofollow'}),
        ('silkline: none', {'none'}),
        ('max-snippet: 5, noindex', {'max-snippet: 5', 'noindex'}),
    ],
)
def test_a_robots_header_is_for_everybody_or_for_one_agent(
    header: str | None, directives: set[str]
) -> None:
    assert header_directives(header, 'silkline') == directives


@pytest.mark.parametrize(
    ('href', 'canonical'),
    [
        (None, None),
        ('', None),
        ('/docs/page', None),
        ('/docs/page?utm_source=x', None),
        ('https://A.example/docs/page#part', None),
        ('/docs/other', 'https://a.example/docs/other'),
        ('other', 'https://a.example/docs/other'),
        ('/', None),
        ('https://b.example/docs/page', None),
        ('javascript:void(0)', None),
    ],
)
def test_a_canonical_url_counts_where_it_names_another_page_of_the_host(
    href: str | None, canonical: str | None
) -> None:
    assert canonical_elsewhere(href, base=URL, url=URL) == canonical


def test_links_are_joined_with_the_base_of_the_page() -> None:
    html = '<base href="/other/"><a href="x">x</a><a href="https://b.example">b</a>'
    fetched = read(Reader(Options(), agent='silkline'), response(html))
    assert fetched.links == ['https://a.example/other/x', 'https://b.example/']


def test_the_links_of_a_page_are_bounded() -> None:
    html = ''.join(f'<a href="/{"x" * 1500}{number}">x</a>' for number in range(3000))
    fetched = read(Reader(Options(), agent='silkline'), response(html))
    assert 100 < sum(map(len, fetched.links)) <= MAX_LINK_BYTES


def test_a_page_is_the_same_as_long_as_its_markdown_is() -> None:
    reader = Reader(Options(), agent='silkline')
    pages = [
        read(reader, response(f'<title>T</title><script>{token}</script><p>{text}</p>')).page
        for token, text in (('1', 'Words.'), ('2', 'Words.'), ('2', 'Other words.'))
    ]
    first, second, third = (page.content_hash for page in pages if page)
    assert first == second != third


def test_a_hook_may_change_a_page_and_a_broken_one_loses_nothing() -> None:
    class Shout:
        def change(self, page: PageDraft) -> None:
            page.title = (page.title or '').upper()
            page.metadata['shouted'] = True

    class Broken:
        def change(self, page: PageDraft) -> None:
            raise RuntimeError('no')

    reader = Reader(Options(), agent='silkline', hooks=[('broken', Broken()), ('shout', Shout())])
    page = read(reader, response('<title>Title</title><p>Words.</p>')).page
    assert page is not None
    assert page.title == 'TITLE'
    assert page.metadata['shouted'] is True
    assert page.metadata['hook_errors'] == ['broken: RuntimeError: no']


def test_an_extractor_that_breaks_loses_no_page() -> None:
    class Broken:
        name = 'broken'
        version = '1'

        def markdown(self, html: str, *, url: str) -> str:
            raise RuntimeError('no')

    reader = Reader(Options(), agent='silkline', extractor=Broken())
    fetched = read(reader, response('<title>Title</title><p>Words.</p><a href="/x">x</a>'))
    assert fetched.page is not None
    assert fetched.page.title == 'Title'
    assert 'no' in fetched.page.metadata['extract_error']
    assert fetched.links == ['https://a.example/x']


def test_a_robots_header_hides_a_page_and_its_links_are_followed() -> None:
    fetched = read(
        Reader(Options(), agent='silkline'),
        response('<a href="/x">x</a>', {'X-Robots-Tag': 'noindex'}),
    )
    assert (fetched.status, fetched.skip_reason) == ('skipped', 'noindex')
    assert fetched.links == ['https://a.example/x']
