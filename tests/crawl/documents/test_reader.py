"""What each kind of response is read as: page, sitemap, redirect or nothing."""

import gzip
from typing import Any

import pytest

from silkline import protocol
from silkline.crawl.documents.reader import quality_as_fetched
from silkline.crawl.documents.record import MAX_LINK_BYTES
from tests.support.documents import URL, make_reader, read, response


def test_bodies_of_errors_and_of_other_types_are_not_downloaded() -> None:
    reader = make_reader()
    assert reader.wants(200, {'Content-Type': 'text/html'}, url=URL)
    assert not reader.wants(404, {'Content-Type': 'text/html'}, url=URL)
    assert not reader.wants(200, {'Content-Type': 'video/mp4'}, url=URL)


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
def test_a_canonical_url_counts_if_it_is_another_page_of_the_same_host(
    href: str | None, canonical: str | None
) -> None:
    html = f'<link rel=canonical href="{href}"><p>Words.' if href is not None else '<p>Words.'
    assert read(make_reader(), response(html)).canonical == canonical


def test_a_page_with_another_canonical_url_is_read_and_reports_it() -> None:
    html = '<link rel=canonical href="/docs/other"><title>T</title><p>Words.<a href="/x">x</a>'
    fetched = read(make_reader(), response(html))
    assert (fetched.status, fetched.canonical) == ('done', 'https://a.example/docs/other')
    assert fetched.links == ['https://a.example/x']
    assert fetched.page is not None
    assert fetched.page.title == 'T'
    assert fetched.page.metadata['canonical'] == 'https://a.example/docs/other'
    assert read(make_reader(), response('<p>x')).canonical is None


INDEX = """<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
  <sitemap><loc>/1.xml</loc></sitemap><sitemap><loc>https://b.example/2.xml</loc></sitemap>
</sitemapindex>"""

URLSET = '<urlset><url><loc>/a</loc></url><url><loc>https://b.example/b</loc></url></urlset>'

XML = {'Content-Type': 'application/xml'}


def test_a_sitemap_gives_its_pages_and_an_index_gives_its_sitemaps() -> None:
    reader = make_reader()
    index = read(reader, response(INDEX, XML))
    assert index.sitemaps == ['https://a.example/1.xml', 'https://b.example/2.xml']
    assert (index.links, index.link_kind, index.page) == ([], 'sitemap', None)
    urlset = read(reader, response(URLSET, {**XML, 'X-Robots-Tag': 'noindex, nofollow'}))
    assert urlset.links == ['https://a.example/a', 'https://b.example/b']
    assert (urlset.sitemaps, urlset.link_kind, urlset.page) == ([], 'sitemap', None)


@pytest.mark.parametrize('content_type', ['text/plain', ''])
def test_a_plain_list_of_urls_is_a_sitemap_only_for_the_strategy_sitemap(content_type: str) -> None:
    one = response('https://a.example/a\nhttps://b.example/b\n', {'Content-Type': content_type})
    asked = read(make_reader(strategy='sitemap'), one)
    assert asked.links == ['https://a.example/a', 'https://b.example/b']
    assert (asked.link_kind, asked.page) == ('sitemap', None)
    other = read(make_reader(), one)
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
def test_text_that_mentions_a_sitemap_is_a_page(
    body: str, content_type: str, strategy: Any
) -> None:
    reader = make_reader(strategy=strategy)
    fetched = read(reader, response(body, {'Content-Type': content_type}))
    assert fetched.status == 'done'
    assert fetched.page is not None


@pytest.mark.parametrize('content_type', ['text/html', 'text/plain', ''])
def test_for_the_strategy_sitemap_a_sitemap_may_have_any_content_type(content_type: str) -> None:
    one = response(f'\ufeff\n <?xml version="1.0"?>{URLSET}', {'Content-Type': content_type})
    fetched = read(make_reader(strategy='sitemap'), one)
    assert (fetched.link_kind, len(fetched.links)) == ('sitemap', 2)


def test_a_page_in_place_of_a_sitemap_is_skipped() -> None:
    reader = make_reader(strategy='sitemap')
    for url, depth in ((URL, 0), ('https://a.example/posts.xml?page=2', 1)):
        fetched = read(reader, response('<title>Not found</title><p>Sorry.'), url, depth=depth)
        assert (fetched.skip_reason, fetched.error) == ('content_type', 'not a sitemap')


@pytest.mark.parametrize('body', ['', ' \r\n'])
@pytest.mark.parametrize('content_type', ['text/html', 'text/plain', 'application/xml', ''])
def test_an_empty_body_is_skipped(body: str, content_type: str) -> None:
    fetched = read(make_reader(), response(body, {'Content-Type': content_type}))
    assert (fetched.skip_reason, fetched.error) == ('content_type', 'the body is empty')


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
def test_a_binary_file_sent_as_text_is_skipped(
    body: bytes, content_type: str, is_page: bool
) -> None:
    one = response(body, {'Content-Type': content_type})
    fetched = read(make_reader(), one)
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
def test_an_immediate_refresh_is_a_redirect(content: str, target: str | None) -> None:
    html = f"""<meta http-equiv=Refresh content='{content.replace("'", '&#39;')}'><p>Moved."""
    fetched = read(make_reader(), response(html))
    if target is None:
        assert (fetched.redirect, fetched.status) == (None, 'done')
    else:
        assert fetched.redirect == (target if '//' in target else f'https://a.example{target}')
        assert (fetched.status, fetched.skip_reason) == ('skipped', 'redirect')


def test_a_refresh_header_is_a_redirect_too() -> None:
    answer = response('<p>Moved.', {'Refresh': '0;url=/new'})
    fetched = read(make_reader(), answer)
    assert fetched.redirect == 'https://a.example/new'


def test_a_later_refresh_is_a_link_of_the_page() -> None:
    html = '<meta http-equiv=refresh content="5;url=/new"><p>Moved. <a href="/old">old</a>'
    fetched = read(make_reader(), response(html))
    assert fetched.links == ['https://a.example/old', 'https://a.example/new']
    assert fetched.page is not None


def test_a_refresh_inside_noscript_is_ignored() -> None:
    html = '<noscript><meta http-equiv=refresh content="0;url=/js"></noscript><p>Words.'
    fetched = read(make_reader(), response(html))
    assert (fetched.redirect, fetched.links) == (None, [])


def test_xml_that_is_not_a_sitemap_is_skipped() -> None:
    fetched = read(make_reader(), response('<svg/>', XML))
    assert (fetched.status, fetched.skip_reason) == ('skipped', 'content_type')


def test_a_gzipped_sitemap_is_recognised_without_a_content_type() -> None:
    one = response(gzip.compress(URLSET.encode()), {'Content-Type': ''})
    assert read(make_reader(), one).link_kind == 'sitemap'


def test_links_are_joined_with_the_base_of_the_page() -> None:
    html = '<base href="/other/"><a href="x">x</a><a href="https://b.example">b</a>'
    fetched = read(make_reader(), response(html))
    assert fetched.links == ['https://a.example/other/x', 'https://b.example/']


def test_the_links_of_a_page_are_bounded() -> None:
    html = ''.join(f'<a href="/{"x" * 1500}{number}">x</a>' for number in range(3000))
    fetched = read(make_reader(), response(html))
    assert 100 < sum(map(len, fetched.links)) <= MAX_LINK_BYTES


def test_the_content_hash_changes_only_with_the_markdown() -> None:
    reader = make_reader()
    pages = [
        read(reader, response(f'<title>T</title><script>{token}</script><p>{text}</p>')).page
        for token, text in (('1', 'Words.'), ('2', 'Words.'), ('2', 'Other words.'))
    ]
    first, second, third = (page.content_hash for page in pages if page)
    assert first == second != third


def test_a_noindex_page_is_not_stored_but_its_links_are_followed() -> None:
    fetched = read(
        make_reader(),
        response('<a href="/x">x</a>', {'X-Robots-Tag': 'noindex'}),
    )
    assert (fetched.status, fetched.skip_reason) == ('skipped', 'noindex')
    assert fetched.links == ['https://a.example/x']


@pytest.mark.parametrize('content_type', ['text/plain', 'text/markdown'])
def test_a_robots_header_counts_for_text_and_markdown_too(content_type: str) -> None:
    reader = make_reader()
    headers = {'Content-Type': content_type, 'X-Robots-Tag': 'noindex, nofollow'}
    fetched = read(reader, response('# B\n[c](/c)', headers))
    assert (fetched.status, fetched.skip_reason, fetched.links) == ('skipped', 'noindex', [])
    kept = make_reader(keep_noindex=True, follow_nofollow=True)
    assert read(kept, response('# B\n[c](/c)', headers)).page is not None


def test_a_page_may_name_the_crawler_in_its_directives() -> None:
    html = '<meta name="MyBot" content="noindex"><title>T</title><p>x'
    assert read(make_reader('MyBot'), response(html)).skip_reason == 'noindex'
    assert read(make_reader(), response(html)).page is not None
    header = response('<p>x', {'X-Robots-Tag': 'mybot: noindex'})
    assert read(make_reader('MyBot'), header).skip_reason == 'noindex'
    assert read(make_reader(), header).page is not None


def test_validators_too_long_to_store_are_left_out() -> None:
    headers = {'ETag': f'"{"x" * 998}"', 'Last-Modified': 'x' * 1001}
    page = read(make_reader(), response('<p>x', headers)).page
    assert page is not None
    assert (page.etag, page.last_modified) == (headers['ETag'], None)


MANY = 'Many words about it. ' * 20


@pytest.mark.parametrize(
    ('html', 'is_duplicate'),
    [
        (f'<title>T</title><main><p>{MANY}</p></main><script>[]</script>', True),
        ('<title>T</title><p>No more entries.</p><a href="?page=[]">Page []</a>', True),
        ('<title>T</title><p>Please enable it.</p><script src="/[].js"></script>', False),
        ('<title>T</title><h1>Photo</h1><img src="/[].jpg">', False),
        ('<title>T</title><h1>Photo</h1><a href="/[].jpg"><img src="/[].jpg"></a>', False),
        ('<title>T</title><p>[]</p>', False),
    ],
)
def test_fingerprints_compare_the_words_or_with_few_words_the_body(
    html: str, is_duplicate: bool
) -> None:
    reader = make_reader()
    # The first one is known by its size alone.
    _, second, third = (
        read(reader, response(html.replace('[]', str(number)))).fingerprint for number in range(3)
    )
    assert (second == third) is is_duplicate


TEXT_TYPES = ['text/plain', 'text/markdown']


@pytest.mark.parametrize('content_type', TEXT_TYPES)
def test_text_that_is_too_long_is_cut_and_says_so(content_type: str) -> None:
    reader = make_reader(max_markdown_chars=1000)
    text = '# Title\n' + 'x' * 3984 + '\n[c](/c)'
    page = read(reader, response(text, {'Content-Type': content_type})).page
    assert page is not None
    assert page.markdown == text[:1000]
    assert page.quality is not None
    assert page.quality.is_cut
    assert page.quality.warnings == ('cut',)
    assert page.quality.kept == 0.25


@pytest.mark.parametrize('content_type', TEXT_TYPES)
def test_text_that_is_not_too_long_is_kept_whole(content_type: str) -> None:
    page = read(
        make_reader(max_markdown_chars=1000), response('x' * 1000, {'Content-Type': content_type})
    ).page
    assert page is not None
    assert page.quality is not None
    assert (page.quality.kept, page.quality.is_cut, page.quality.warnings) == (1.0, False, ())


def test_links_beyond_the_cut_of_a_markdown_file_are_followed() -> None:
    text = 'x' * 2000 + '\n\n[c](/c)'
    fetched = read(
        make_reader(max_markdown_chars=1000), response(text, {'Content-Type': 'text/markdown'})
    )
    assert fetched.links == ['https://a.example/c']


@pytest.mark.parametrize('content_type', ['text/html', *TEXT_TYPES])
def test_without_markdown_there_is_no_quality(content_type: str) -> None:
    page = read(make_reader(markdown='none'), response('x', {'Content-Type': content_type})).page
    assert page is not None
    assert page.quality is None


def test_a_page_that_a_browser_has_shown_does_not_ask_for_one() -> None:
    quality = protocol.Quality(
        kept=0.0,
        headings=0,
        headings_kept=0,
        code_blocks=0,
        code_blocks_kept=0,
        needs_browser=True,
        warnings=('needs_browser', 'nothing_kept'),
    )
    shown = quality_as_fetched(quality, is_rendered=True)
    assert shown is not None
    assert (shown.needs_browser, shown.warnings) == (False, ('nothing_kept',))
    assert quality_as_fetched(quality, is_rendered=False) == quality


OTHER_OPTIONS = [{'links': 'none'}, {'links': 'references'}, {'max_markdown_chars': 2000}]


@pytest.mark.parametrize('options', OTHER_OPTIONS)
def test_pages_made_with_other_options_for_markdown_are_told_apart(options: dict[str, Any]) -> None:
    assert make_reader(**options).made_with != make_reader().made_with
