"""What a response is taken for, and which of its words are obeyed."""

import gzip
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest
from multidict import CIMultiDict
from silkline import framing, protocol
from silkline.crawl.documents.kinds import kind_of
from silkline.crawl.documents.plugin_pages import MAX_METADATA_BYTES, PageHooks
from silkline.crawl.documents.reader import PageReader
from silkline.crawl.documents.record import MAX_LINK_BYTES
from silkline.crawl.documents.robots_tag import directives_of
from silkline.crawl.fetched import Fetched
from silkline.crawl.options import CrawlOptions
from silkline.crawl.responses import Response
from silkline.plugins import Page

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


def read(reader: PageReader, one: Response, url: str = URL, *, depth: int = 1) -> Fetched:
    return reader.read(one, task=protocol.Task(url_key=uuid4(), url=url, depth=depth), url=url)


def page_of(html: str, reader: PageReader | None = None) -> protocol.Page:
    page = read(reader or PageReader(CrawlOptions(), agent='silkline'), response(html)).page
    assert page is not None
    # What the other side of the pipe makes of it.
    sent = framing.encode(protocol.Finished(url_key=uuid4(), status='done', page=page))
    received = framing.decode_from_runner(sent[framing.HEADER_BYTES :])
    assert isinstance(received, protocol.Finished)
    assert received.page is not None
    return received.page


@pytest.mark.parametrize(
    ('content_type', 'url', 'kind'),
    [
        ('text/html; charset=utf-8', URL, 'html'),
        ('TEXT/HTML', URL, 'html'),
        ('text/html, text/html; charset=utf-8', URL, 'html'),
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
    reader = PageReader(CrawlOptions(), agent='silkline')
    assert reader.wants(200, {'Content-Type': 'text/html'}, url=URL)
    assert not reader.wants(404, {'Content-Type': 'text/html'}, url=URL)
    assert not reader.wants(200, {'Content-Type': 'video/mp4'}, url=URL)


@pytest.mark.parametrize(
    ('header', 'directives'),
    [
        ('', set[str]()),
        ('noindex', {'noindex'}),
        ('NoIndex, NoFollow', {'noindex', 'nofollow'}),
        ('noindex nofollow', {'noindex', 'nofollow'}),
        ('otherbot: noindex, nofollow', set[str]()),
        ('otherbot: noindex, silkline: nofollow', {'nofollow'}),
        ('otherbot: max-snippet: 5, noindex', set[str]()),
        ('silkline: none', {'none'}),
        ('Silkline : noindex', {'noindex'}),
        ('*: noindex', {'noindex'}),
        ('otherbot: nofollow, *: noindex', {'noindex'}),
        ('max-snippet: 5, noindex', {'max-snippet', 'noindex'}),
        ('max-video-preview: -1, noindex', {'max-video-preview', 'noindex'}),
        ('max-image-preview: large, noindex', {'max-image-preview', 'noindex'}),
        ('some-new-word: 7, noindex', {'some-new-word', 'noindex'}),
        ('unavailable_after: Sat, 25 Jun 2010 15:00:00 PST', {'noindex'}),
        ('unavailable_after: 25-Aug-2007 15:00:00 EST, nofollow', {'noindex', 'nofollow'}),
        ('unavailable_after: 2010-06-25', {'noindex'}),
        ('unavailable_after: 2010-06-25T10:00:00Z', {'noindex'}),
        ('unavailable_after: 2999-06-25, nofollow', {'nofollow'}),
        ('unavailable_after: one day', set[str]()),
        ('otherbot: unavailable_after: Sat, 25 Jun 2010 15:00:00 PST', set[str]()),
    ],
)
def test_a_robots_header_is_for_everybody_or_for_one_agent(
    header: str, directives: set[str]
) -> None:
    assert directives_of({'X-Robots-Tag': header}, 'silkline') == directives


def test_all_of_several_robots_headers_count() -> None:
    headers = CIMultiDict([('X-Robots-Tag', 'otherbot: nofollow'), ('x-robots-tag', 'noindex')])
    assert directives_of(headers, 'silkline') == {'noindex'}
    assert directives_of(headers, 'otherbot') == {'nofollow', 'noindex'}
    assert directives_of({}, 'silkline') == set()


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
        ('http://a.example/docs/page', None),
        ('http://a.example/docs/other', 'http://a.example/docs/other'),
        ('https://b.example/docs/page', None),
        ('javascript:void(0)', None),
    ],
)
def test_a_canonical_url_counts_where_it_names_another_page_of_the_host(
    href: str | None, canonical: str | None
) -> None:
    html = f'<link rel=canonical href="{href}"><p>Words.' if href is not None else '<p>Words.'
    assert read(PageReader(CrawlOptions(), agent='silkline'), response(html)).canonical == canonical


def test_a_page_that_names_another_as_its_own_is_read_and_says_so() -> None:
    html = '<link rel=canonical href="/docs/other"><title>T</title><p>Words.<a href="/x">x</a>'
    fetched = read(PageReader(CrawlOptions(), agent='silkline'), response(html))
    assert (fetched.status, fetched.canonical) == ('done', 'https://a.example/docs/other')
    assert fetched.links == ['https://a.example/x']
    assert fetched.page is not None
    assert fetched.page.title == 'T'
    assert fetched.page.metadata['canonical'] == 'https://a.example/docs/other'
    assert read(PageReader(CrawlOptions(), agent='silkline'), response('<p>x')).canonical is None


INDEX = """<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
  <sitemap><loc>/1.xml</loc></sitemap><sitemap><loc>https://b.example/2.xml</loc></sitemap>
</sitemapindex>"""
URLSET = '<urlset><url><loc>/a</loc></url><url><loc>https://b.example/b</loc></url></urlset>'
XML = {'Content-Type': 'application/xml'}


def test_a_sitemap_gives_its_pages_and_an_index_its_sitemaps() -> None:
    reader = PageReader(CrawlOptions(), agent='silkline')
    index = read(reader, response(INDEX, XML))
    assert index.sitemaps == ['https://a.example/1.xml', 'https://b.example/2.xml']
    assert (index.links, index.link_kind, index.page) == ([], 'sitemap', None)
    urlset = read(reader, response(URLSET, {**XML, 'X-Robots-Tag': 'noindex, nofollow'}))
    assert urlset.links == ['https://a.example/a', 'https://b.example/b']
    assert (urlset.sitemaps, urlset.link_kind, urlset.page) == ([], 'sitemap', None)


@pytest.mark.parametrize('content_type', ['text/plain', ''])
def test_a_list_of_urls_is_a_sitemap_only_where_sitemaps_are_asked_for(content_type: str) -> None:
    one = response('https://a.example/a\nhttps://b.example/b\n', {'Content-Type': content_type})
    asked = read(PageReader(CrawlOptions(strategy='sitemap'), agent='silkline'), one)
    assert asked.links == ['https://a.example/a', 'https://b.example/b']
    assert (asked.link_kind, asked.page) == ('sitemap', None)
    other = read(PageReader(CrawlOptions(), agent='silkline'), one)
    assert (other.links, other.link_kind) == ([], 'page')
    assert other.page is not None


@pytest.mark.parametrize('strategy', ['site', 'sitemap'])
@pytest.mark.parametrize(
    ('body', 'content_type'),
    [
        ('Words about a <urlset> and more.', 'text/plain'),
        ('https://a.example is a site.\nWords.', 'text/plain'),
        ('<!doctype html><title>T</title><p>About <feed >.', ''),
        ('<!doctype html><title>T</title><p>About <feed >.', 'text/html'),
    ],
)
def test_what_is_no_sitemap_is_a_page(body: str, content_type: str, strategy: Any) -> None:
    reader = PageReader(CrawlOptions(strategy=strategy), agent='silkline')
    fetched = read(reader, response(body, {'Content-Type': content_type}))
    assert fetched.status == 'done'
    assert fetched.page is not None


@pytest.mark.parametrize('content_type', ['text/html', 'text/plain', ''])
def test_where_sitemaps_are_asked_for_they_may_have_any_type(content_type: str) -> None:
    one = response(f'\ufeff\n <?xml version="1.0"?>{URLSET}', {'Content-Type': content_type})
    fetched = read(PageReader(CrawlOptions(strategy='sitemap'), agent='silkline'), one)
    assert (fetched.link_kind, len(fetched.links)) == ('sitemap', 2)


def test_what_was_to_be_a_sitemap_and_is_none_is_no_page() -> None:
    reader = PageReader(CrawlOptions(strategy='sitemap'), agent='silkline')
    for url, depth in ((URL, 0), ('https://a.example/posts.xml?page=2', 1)):
        fetched = read(reader, response('<title>Not found</title><p>Sorry.'), url, depth=depth)
        assert (fetched.skip_reason, fetched.error) == ('content_type', 'it is no sitemap')


@pytest.mark.parametrize('body', ['', ' \r\n'])
@pytest.mark.parametrize('content_type', ['text/html', 'text/plain', 'application/xml', ''])
def test_an_empty_body_is_no_page(body: str, content_type: str) -> None:
    fetched = read(
        PageReader(CrawlOptions(), agent='silkline'), response(body, {'Content-Type': content_type})
    )
    assert (fetched.skip_reason, fetched.error) == ('content_type', 'its body is empty')


@pytest.mark.parametrize(
    ('body', 'content_type', 'is_page'),
    [
        (b'%PDF-1.7\n1 0 obj', 'text/html', False),
        (b'\x89PNG\r\n\x1a\n', 'text/html; charset=utf-8', False),
        (b'PK\x03\x04', '', False),
        (b'%PDF-1.7\n1 0 obj', 'text/plain', False),
        (b'\x00\x01\x02', '', False),
        (b'words \x00 and more', 'text/plain', False),
        (b'words and \x1b[1mmore\x1b[0m', 'text/plain', True),
        ('Words.'.encode('utf-16'), 'text/plain', True),
        ('Words.'.encode('utf-16-le'), 'text/plain; charset=UTF-16LE', True),
        (b'<title>A \x00 page</title><p>Words', 'text/html', True),
        (b'caf\xe9', 'text/plain', True),
    ],
)
def test_a_file_that_is_sent_as_text_is_no_page(
    body: bytes, content_type: str, is_page: bool
) -> None:
    one = response(body, {'Content-Type': content_type})
    fetched = read(PageReader(CrawlOptions(), agent='silkline'), one)
    assert (fetched.page is not None) == is_page
    assert fetched.skip_reason == (None if is_page else 'content_type')


@pytest.mark.parametrize(
    ('content', 'target'),
    [
        ('0; url=/new', '/new'),
        ('0;URL=new', '/docs/new'),
        (' 1.5 , url = "/new?a=1;b" x', '/new?a=1;b'),
        ("0;url='/new", '/new'),
        ('0 /new', '/new'),
        ('.5;/new', '/new'),
        ('0; url=https://b.example/', 'https://b.example/'),
        ('0', None),
        ('0;url=', None),
        ('url=/new', None),
        ('; url=/new', None),
        ('0; url=page#part', None),
        ('0; url=javascript:alert(1)', None),
        ('2; url=/new', None),
        pytest.param('0' * 9_999, None, id='long'),
        pytest.param('0' + ' ' * 9_999, None, id='wide'),
    ],
)
def test_a_page_that_leads_on_at_once_is_a_redirect(content: str, target: str | None) -> None:
    html = f"""<meta http-equiv=Refresh content='{content.replace("'", '&#39;')}'><p>Moved."""
    fetched = read(PageReader(CrawlOptions(), agent='silkline'), response(html))
    if target is None:
        assert (fetched.redirect, fetched.status) == (None, 'done')
    else:
        assert fetched.redirect == (target if '//' in target else f'https://a.example{target}')
        assert (fetched.status, fetched.skip_reason) == ('skipped', 'redirect')


def test_a_header_leads_on_as_a_page_does() -> None:
    answer = response('<p>Moved.', {'Refresh': '0;url=/new'})
    fetched = read(PageReader(CrawlOptions(), agent='silkline'), answer)
    assert fetched.redirect == 'https://a.example/new'


def test_a_page_that_leads_on_later_is_a_page_with_that_link() -> None:
    html = '<meta http-equiv=refresh content="5;url=/new"><p>Moved. <a href="/old">old</a>'
    fetched = read(PageReader(CrawlOptions(), agent='silkline'), response(html))
    assert fetched.links == ['https://a.example/old', 'https://a.example/new']
    assert fetched.page is not None


def test_a_refresh_for_browsers_without_scripts_is_left_out() -> None:
    html = '<noscript><meta http-equiv=refresh content="0;url=/js"></noscript><p>Words.'
    fetched = read(PageReader(CrawlOptions(), agent='silkline'), response(html))
    assert (fetched.redirect, fetched.links) == (None, [])


def test_xml_that_is_no_sitemap_is_of_no_use() -> None:
    fetched = read(PageReader(CrawlOptions(), agent='silkline'), response('<svg/>', XML))
    assert (fetched.status, fetched.skip_reason) == ('skipped', 'content_type')


def test_a_zipped_sitemap_without_a_type_is_one() -> None:
    one = response(gzip.compress(URLSET.encode()), {'Content-Type': ''})
    assert read(PageReader(CrawlOptions(), agent='silkline'), one).link_kind == 'sitemap'


def test_links_are_joined_with_the_base_of_the_page() -> None:
    html = '<base href="/other/"><a href="x">x</a><a href="https://b.example">b</a>'
    fetched = read(PageReader(CrawlOptions(), agent='silkline'), response(html))
    assert fetched.links == ['https://a.example/other/x', 'https://b.example/']


def test_the_links_of_a_page_are_bounded() -> None:
    html = ''.join(f'<a href="/{"x" * 1500}{number}">x</a>' for number in range(3000))
    fetched = read(PageReader(CrawlOptions(), agent='silkline'), response(html))
    assert 100 < sum(map(len, fetched.links)) <= MAX_LINK_BYTES


def test_a_page_is_the_same_as_long_as_its_markdown_is() -> None:
    reader = PageReader(CrawlOptions(), agent='silkline')
    pages = [
        read(reader, response(f'<title>T</title><script>{token}</script><p>{text}</p>')).page
        for token, text in (('1', 'Words.'), ('2', 'Words.'), ('2', 'Other words.'))
    ]
    first, second, third = (page.content_hash for page in pages if page)
    assert first == second != third


def test_a_hook_may_change_a_page_and_a_broken_one_loses_nothing() -> None:
    class Shout:
        def change(self, page: Page) -> None:
            page.title = (page.title or '').upper()
            page.metadata['shouted'] = True

    class Broken:
        def change(self, page: Page) -> None:
            raise RuntimeError('no')

    reader = PageReader(
        CrawlOptions(),
        agent='silkline',
        hooks=PageHooks([('broken', Broken()), ('shout', Shout())]),
    )
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

    reader = PageReader(CrawlOptions(), agent='silkline', extractor=Broken())
    fetched = read(reader, response('<title>Title</title><p>Words.</p><a href="/x">x</a>'))
    assert fetched.page is not None
    assert fetched.page.title == 'Title'
    assert 'no' in fetched.page.metadata['extract_error']
    assert fetched.links == ['https://a.example/x']


def test_a_robots_header_hides_a_page_and_its_links_are_followed() -> None:
    fetched = read(
        PageReader(CrawlOptions(), agent='silkline'),
        response('<a href="/x">x</a>', {'X-Robots-Tag': 'noindex'}),
    )
    assert (fetched.status, fetched.skip_reason) == ('skipped', 'noindex')
    assert fetched.links == ['https://a.example/x']


@pytest.mark.parametrize('content_type', ['text/plain', 'text/markdown'])
def test_a_robots_header_counts_for_documents_that_are_no_html(content_type: str) -> None:
    reader = PageReader(CrawlOptions(), agent='silkline')
    headers = {'Content-Type': content_type, 'X-Robots-Tag': 'noindex, nofollow'}
    fetched = read(reader, response('# B\n[c](/c)', headers))
    assert (fetched.status, fetched.skip_reason, fetched.links) == ('skipped', 'noindex', [])
    kept = PageReader(CrawlOptions(keep_noindex=True, follow_nofollow=True), agent='silkline')
    assert read(kept, response('# B\n[c](/c)', headers)).page is not None


def test_a_page_may_speak_to_the_crawler_by_its_own_name() -> None:
    html = '<meta name="MyBot" content="noindex"><title>T</title><p>x'
    assert read(PageReader(CrawlOptions(), agent='MyBot'), response(html)).skip_reason == 'noindex'
    assert read(PageReader(CrawlOptions(), agent='silkline'), response(html)).page is not None
    header = response('<p>x', {'X-Robots-Tag': 'mybot: noindex'})
    assert read(PageReader(CrawlOptions(), agent='MyBot'), header).skip_reason == 'noindex'
    assert read(PageReader(CrawlOptions(), agent='silkline'), header).page is not None


class Upper:
    name = 'upper'
    version = '7'

    def markdown(self, html: str, *, url: str) -> str:
        return html.upper()


class Nothing:
    def change(self, page: Page) -> None:
        pass


class NothingTwo(Nothing):
    version = '2'


def test_a_page_tells_what_it_was_made_with() -> None:
    reader = PageReader(
        CrawlOptions(), agent='silkline', hooks=PageHooks([('a', Nothing()), ('b', NothingTwo())])
    )
    assert page_of('<p>x', reader).metadata['made_with'] == reader.made_with
    assert reader.made_with == (
        'fetcher=http markdown=main extractor=silkline/1 urls=1 hook=a hook=b/2'
    )
    markdown = read(reader, response('# x', {'Content-Type': 'text/markdown'})).page
    assert markdown is not None
    assert markdown.metadata['made_with'] == reader.made_with


def test_whatever_shapes_a_page_changes_what_it_was_made_with() -> None:
    readers = [
        PageReader(CrawlOptions(), agent='silkline'),
        PageReader(CrawlOptions(markdown='full'), agent='silkline'),
        PageReader(CrawlOptions(follow_nofollow=True), agent='silkline'),
        PageReader(CrawlOptions(keep_noindex=True), agent='silkline'),
        PageReader(CrawlOptions(fetcher='browser'), agent='silkline'),
        PageReader(CrawlOptions(), agent='silkline', extractor=Upper()),
        PageReader(CrawlOptions(), agent='silkline', hooks=PageHooks([('a', Nothing())])),
        PageReader(CrawlOptions(), agent='silkline', hooks=PageHooks([('a', NothingTwo())])),
        PageReader(
            CrawlOptions(),
            agent='silkline',
            hooks=PageHooks([('x' * 200, NothingTwo()), ('y' * 200, Nothing())]),
        ),
    ]
    texts = [reader.made_with for reader in readers]
    assert len(set(texts)) == len(texts)
    assert all(len(text) <= 300 for text in texts)
    same = PageReader(CrawlOptions(max_depth=3, concurrency=1), agent='other')
    assert same.made_with == texts[0]


class Text(str):
    """As parsers have them."""

    __slots__ = ()


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {'a': value}
    return value


def cyclic() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value['itself'] = value
    return value


BROKEN: list[dict[str, Any]] = [
    {'title': 5},
    {'markdown': b'words'},
    {'links': None},
    {'links': 'https://a.example/'},
    {'links': ['/a', None]},
    {'metadata': None},
    {'metadata': ['list']},
    {'metadata': {'x': object()}},
    {'metadata': {'x': [{'y': Nothing()}]}},
    {'metadata': nested(5000)},
    {'metadata': nested(60)},
    {'metadata': cyclic()},
    {'metadata': {'x': 'x' * MAX_METADATA_BYTES}},
    {'nonsense': 1},
]


@pytest.mark.parametrize('fields', BROKEN)
def test_what_a_hook_breaks_is_undone_and_noted(fields: Mapping[str, Any]) -> None:
    class Breaking:
        def change(self, page: Page) -> None:
            page.title = 'Broken'
            page.links.append('https://a.example/broken')
            page.metadata['headings'].append('broken')
            for name, value in fields.items():
                setattr(page, name, value)

    html = '<title>T</title><h1>H</h1><p>Words.<a href="/x">x</a>'
    plain = page_of(html)
    reader = PageReader(
        CrawlOptions(), agent='silkline', hooks=PageHooks([('bad', Breaking()), ('ok', Nothing())])
    )
    page = page_of(html, reader)
    assert (page.title, page.markdown, page.links) == (plain.title, plain.markdown, plain.links)
    assert page.content_hash == plain.content_hash
    [error] = page.metadata.pop('hook_errors')
    assert error.startswith('bad: ')
    assert len(error) <= 300
    assert {**page.metadata, 'made_with': None} == {**plain.metadata, 'made_with': None}


def test_a_hook_that_would_end_the_process_costs_its_own_work_alone() -> None:
    class Ending:
        def change(self, page: Page) -> None:
            raise SystemExit(3)

    page = page_of(
        '<title>T</title>',
        PageReader(CrawlOptions(), agent='s', hooks=PageHooks([('a', Ending())])),
    )
    assert page.metadata['hook_errors'] == ['a: SystemExit: 3']


def test_what_a_hook_sets_is_made_storable() -> None:
    class Setting:
        def change(self, page: Page) -> None:
            page.url = 'https://elsewhere.example/'
            page.title = Text('Title')
            page.markdown = Text('x' * 3_000_000)
            page.links += ['/relative', 'mailto:a@b.c', Text('y#part'), 'https://b.example']
            page.metadata = {'text': Text('a'), 'bad': '\udc80\0', 'list': (1, 2.5, None)}

    page = page_of(
        '<a href="/x">x</a>',
        PageReader(CrawlOptions(), agent='s', hooks=PageHooks([('a', Setting())])),
    )
    assert page.url == URL
    assert page.title == 'Title'
    assert page.markdown == 'x' * 2_000_000
    assert page.links == [
        'https://a.example/x',
        'https://a.example/relative',
        'https://a.example/docs/y',
        'https://b.example/',
    ]
    assert 'hook_errors' not in page.metadata
    assert page.metadata['text'] == 'a'
    assert page.metadata['list'] == [1, 2.5, None]


def test_a_hook_cannot_set_what_the_crawl_knows_itself() -> None:
    class Claiming:
        def change(self, page: Page) -> None:
            page.content_hash = page.etag = page.last_modified = 'claimed'
            page.extractor = page.extractor_version = 'claimed'
            page.http_status = 999

    hooks = PageHooks([('a', Claiming())])
    page = page_of('<p>Words.', PageReader(CrawlOptions(), agent='s', hooks=hooks))
    plain = page_of('<p>Words.')
    for one in (page, plain):
        del one.metadata['made_with']
    assert page == plain


@pytest.mark.parametrize('markdown', [None, b'bytes', ['list'], 5])
def test_an_extractor_that_gives_no_text_loses_no_page(markdown: Any) -> None:
    class Odd(Upper):
        def markdown(self, html: str, *, url: str) -> str:
            return markdown

    page = page_of('<title>T</title>', PageReader(CrawlOptions(), agent='s', extractor=Odd()))
    assert (page.title, page.markdown) == ('T', None)
    assert 'TypeError' in page.metadata['extract_error']


def test_validators_too_long_to_store_are_left_out() -> None:
    headers = {'ETag': f'"{"x" * 998}"', 'Last-Modified': 'x' * 1001}
    page = read(PageReader(CrawlOptions(), agent='silkline'), response('<p>x', headers)).page
    assert page is not None
    assert (page.etag, page.last_modified) == (headers['ETag'], None)


MANY = 'Many words about it. ' * 20


@pytest.mark.parametrize(
    ('html', 'is_echo'),
    [
        (f'<title>T</title><main><p>{MANY}</p></main><script>[]</script>', True),
        ('<title>T</title><p>No more entries.</p><a href="?page=[]">Page []</a>', True),
        ('<title>T</title><p>Please enable it.</p><script src="/[].js"></script>', False),
        ('<title>T</title><h1>Photo</h1><img src="/[].jpg">', False),
        ('<title>T</title><h1>Photo</h1><a href="/[].jpg"><img src="/[].jpg"></a>', False),
        ('<title>T</title><p>[]</p>', False),
    ],
)
def test_pages_echo_by_their_words_and_with_few_words_by_their_body(
    html: str, is_echo: bool
) -> None:
    reader = PageReader(CrawlOptions(), agent='silkline')
    # Of the first one only its size is known.
    _, second, third = (
        read(reader, response(html.replace('[]', str(number)))).fingerprint for number in range(3)
    )
    assert (second == third) is is_echo
