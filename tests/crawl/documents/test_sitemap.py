"""Sitemaps of every kind: valid, broken and malicious."""

import gzip
import time
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silkline.crawl.documents.sitemap import (
    MAX_BYTES,
    MAX_ENTRIES,
    NotASitemap,
    Sitemap,
    looks_like_sitemap,
    parse_sitemap,
)

URLSET = """<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
        xmlns:image="http://www.google.com/schemas/sitemap-image/1.1"
        xmlns:xhtml="http://www.w3.org/1999/xhtml">
  <url>
    <loc>https://example.com/</loc><lastmod>2026-01-01</lastmod>
    <image:image><image:loc>https://example.com/a.png</image:loc></image:image>
    <xhtml:link rel="alternate" hreflang="de" href="https://example.com/de"/>
  </url>
  <url><loc>
    https://example.com/b?x=1&amp;y=2
  </loc></url>
  <url><loc><![CDATA[https://example.com/c?x=1&y=2]]></loc></url>
  <url><loc>https://example.com/</loc></url>
</urlset>"""
PAGES = [
    'https://example.com/',
    'https://example.com/b?x=1&y=2',
    'https://example.com/c?x=1&y=2',
]
INDEX = """<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
  <sitemap><loc>https://example.com/1.xml.gz</loc></sitemap>
  <sitemap><loc>https://example.com/2.xml</loc><lastmod>2026</lastmod></sitemap>
</sitemapindex>"""
RSS = """<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel>
  <title>News</title><link>https://example.com/</link>
  <atom:link href="https://example.com/feed" rel="self"/>
  <item><title>A</title><link>https://example.com/a</link><guid>1</guid></item>
  <item><link> https://example.com/b </link></item>
</channel></rss>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><link href="https://example.com/"/>
  <entry><link href="https://example.com/a"/><link rel="edit" href="https://example.com/e"/></entry>
  <entry><link rel="alternate" type="text/html" href="https://example.com/b"/></entry>
</feed>"""
RDF = """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
  xmlns="http://purl.org/rss/1.0/"><channel><link>https://example.com/</link></channel>
  <item rdf:about="x"><link>https://example.com/a</link></item></rdf:RDF>"""


def test_a_urlset_gives_its_pages_in_order_without_duplicates() -> None:
    assert parse_sitemap(URLSET.encode()) == Sitemap(pages=PAGES)


def test_an_index_gives_its_sitemaps() -> None:
    assert parse_sitemap(INDEX.encode()) == Sitemap(
        sitemaps=['https://example.com/1.xml.gz', 'https://example.com/2.xml']
    )


@pytest.mark.parametrize(('feed', 'pages'), [
    (RSS, ['https://example.com/a', 'https://example.com/b']),
    (ATOM, ['https://example.com/a', 'https://example.com/b']),
    (RDF, ['https://example.com/a']),
])  # fmt: skip
def test_a_feed_gives_its_entries(feed: str, pages: list[str]) -> None:
    assert parse_sitemap(feed.encode()).pages == pages


@pytest.mark.parametrize('root', [
    '<urlset>',
    '<urlset xmlns="http://www.google.com/schemas/sitemap/0.84">',
    '<s:urlset xmlns:s="urn:any">',
    '<undeclared:urlset>',
    '<URLSET>',
])  # fmt: skip
def test_every_namespace_is_accepted(root: str) -> None:
    name = root[1:-1].partition(' ')[0]
    body = f'{root}<url><loc>https://example.com/</loc></url></{name}>'
    assert parse_sitemap(body.encode()).pages == ['https://example.com/']


@pytest.mark.parametrize('encoding', ['utf-8', 'utf-8-sig', 'utf-16', 'iso-8859-1', 'windows-1251'])
def test_every_encoding_is_read(encoding: str) -> None:
    path = 'д' if encoding == 'windows-1251' else 'ü'
    body = (
        f'<?xml version="1.0" encoding="{encoding.removesuffix("-sig")}"?>'
        f'<urlset><url><loc>https://example.com/{path}</loc></url></urlset>'
    ).encode(encoding)
    assert parse_sitemap(body).pages == [f'https://example.com/{path}']
    assert looks_like_sitemap(body)


def test_space_before_the_xml_declaration_is_accepted() -> None:
    assert parse_sitemap(b'\n \r\n' + URLSET.encode()).pages == PAGES
    assert parse_sitemap(b'\xef\xbb\xbf\n' + URLSET.encode()).pages == PAGES


def test_a_plain_list_of_urls_gives_its_pages() -> None:
    body = (
        '\ufeffhttps://example.com/\r\nhttps://example.com/ü\n\n# no\nnot a url\n'
        ' HTTP://example.com/c \rhttps://example.com/'
    )
    assert parse_sitemap(body.encode()).pages == [
        'https://example.com/',
        'https://example.com/ü',
        'HTTP://example.com/c',
    ]


def test_a_long_plain_list_is_read_to_its_end() -> None:
    pages = [f'https://example.com/{"x" * (number % 90)}{number}' for number in range(10_000)]
    assert parse_sitemap('\n'.join(pages).encode()).pages == pages
    long = ['https://example.com/' + 'y' * 200_000, 'https://example.com/last']
    assert parse_sitemap('\n'.join([*pages, *long]).encode()).pages == [*pages, long[1]]


def test_gzip_is_recognised_by_its_content() -> None:
    assert parse_sitemap(gzip.compress(URLSET.encode())).pages == PAGES
    half = len(URLSET) // 2
    members = gzip.compress(URLSET[:half].encode()) + gzip.compress(URLSET[half:].encode())
    assert parse_sitemap(members).pages == PAGES
    assert looks_like_sitemap(gzip.compress(URLSET.encode()))


def test_what_was_read_before_an_error_is_kept() -> None:
    body = URLSET.encode()
    cut = body[: body.index(b'<![CDATA')]
    assert parse_sitemap(cut).pages == PAGES[:2]
    assert parse_sitemap(cut + b'& < broken').pages == PAGES[:2]
    pages = [f'https://example.com/{number}' for number in range(5_000)]
    entries = ''.join(f'<url><loc>{page}</loc></url>' for page in pages)
    zipped = gzip.compress(f'<urlset>{entries}</urlset>'.encode())
    kept = parse_sitemap(zipped[: len(zipped) // 2]).pages
    assert 0 < len(kept) < 5_000
    assert kept == pages[: len(kept)]
    damaged = zipped[: len(zipped) // 2] + b'\xff' * 100
    assert len(parse_sitemap(damaged).pages) > 0


OTHER_DOCUMENTS = [
    b'',
    b' \n ',
    b'\xef\xbb\xbf',
    b'hello',
    b'https://example.com is a site.\nhttps://example.com/a\n',
    b'{"a": 1}',
    b'\x00\x01\x02',
    b'<',
    b'<html><body>404</body></html>',
    b'<!doctype html><html></html>',
    b'<?xml version="1.0"?>',
    b'<?xml version="1.0" encoding="nonsense"?><urlset/>',
    b'\x1f\x8b',
    b'\x1f\x8b broken',
    gzip.compress(b'', mtime=0),
    gzip.compress(b'hello', mtime=0),
    gzip.compress(gzip.compress(URLSET.encode())),
    b'%PDF-1.4',
]


@pytest.mark.parametrize('body', OTHER_DOCUMENTS)
def test_other_documents_are_refused(body: bytes) -> None:
    with pytest.raises(NotASitemap, match='sitemap'):
        parse_sitemap(body)


LAUGHS = b"""<?xml version="1.0"?><!DOCTYPE urlset [<!ENTITY a "ha">
<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">
<!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;"><!ENTITY e "&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;">
]><urlset><url><loc>https://example.com/&e;</loc></url></urlset>"""


@pytest.mark.parametrize('body', [
    LAUGHS,
    gzip.compress(LAUGHS, mtime=0),
    b'<!DOCTYPE urlset SYSTEM "file:///etc/passwd"><urlset/>',
    b'<!DOCTYPE urlset [<!ENTITY x SYSTEM "http://127.0.0.1/">]><urlset>&x;</urlset>',
    b'<!DOCTYPE urlset [<!ENTITY % x SYSTEM "http://127.0.0.1/"> %x;]><urlset/>',
    b'<!DOCTYPE urlset><urlset/>',
])  # fmt: skip
def test_a_document_type_declaration_is_refused(body: bytes) -> None:
    with pytest.raises(NotASitemap, match='document type'):
        parse_sitemap(body)


def test_an_unknown_entity_stands_for_itself() -> None:
    body = b'<urlset><url><loc>https://a/</loc></url><url><loc>&lol;</loc></url></urlset>'
    assert parse_sitemap(body).pages == ['https://a/', '&lol;']


def test_at_most_50_000_entries_are_read() -> None:
    entries = ''.join(f'<url><loc>https://a/{number}</loc></url>' for number in range(60_000))
    assert len(parse_sitemap(f'<urlset>{entries}</urlset>'.encode()).pages) == MAX_ENTRIES
    lines = '\n'.join(f'https://a/{number}' for number in range(60_000))
    assert len(parse_sitemap(lines.encode()).pages) == MAX_ENTRIES


def bomb(*, size: int, unit: bytes, head: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [packer.compress(head)]
    block = unit * (1024 * 1024 // len(unit))
    parts.extend(packer.compress(block) for _ in range(size // len(block)))
    return b''.join(parts) + packer.flush()


@pytest.mark.parametrize(('head', 'unit'), [
    (b'<urlset><url><loc>https://a/</loc></url>', b' '),
    (b'<urlset><url><loc>https://a/</loc></url><url><loc>', b'a'),
    (b'https://a/\n', b'\n'),
    (b'https://a/\n', b'a'),
])  # fmt: skip
def test_a_gzip_bomb_is_read_up_to_50_mib_in_little_memory(head: bytes, unit: bytes) -> None:
    body = bomb(size=2 * MAX_BYTES, unit=unit, head=head)
    tracemalloc.start()
    try:
        pages = parse_sitemap(body).pages
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert pages == ['https://a/']
    assert peak < 10_000_000


@pytest.mark.parametrize('body', [
    b'<urlset>' + b'<a>' * 300_000,
    b'<urlset><url><loc>https://a/</loc></url>' + b'<a b="' + b'x' * 1_000_000 + b'"/></urlset>',
    b'<urlset ' + b' '.join(b'a%d="1"' % number for number in range(50_000)) + b'/>',
    b'<urlset>' + b'<!--' * 100_000,
    b'https://a/\n' + b'https://a/ ' * 100_000,
    b'https://a/' * 100_000,
])  # fmt: skip
def test_malicious_documents_are_read_in_short_time(body: bytes) -> None:
    started = time.process_time()
    assert len(parse_sitemap(body).pages) <= 1
    assert time.process_time() - started < 5


@given(
    st.binary(max_size=200)
    | st.text(alphabet='<>/urlset oc&;!-[]"=?x', max_size=200).map(str.encode)
)
def test_no_input_raises_anything_but_not_a_sitemap(body: bytes) -> None:
    for variant in (body, b'<urlset>' + body, gzip.compress(body, mtime=0), b'\x1f\x8b\x08' + body):
        looks_like_sitemap(variant)
        try:
            parse_sitemap(variant)
        except NotASitemap:
            continue


@pytest.mark.parametrize(('body', 'is_one'), [
    (URLSET.encode(), True),
    (INDEX.encode(), True),
    (RSS.encode(), True),
    (ATOM.encode(), True),
    (RDF.encode(), True),
    (b'<?xml version="1.0"?><!-- made by x --><s:urlset xmlns:s="y">', True),
    (b'<html><body>urlset</body></html>', False),
    (b'<svg xmlns="http://www.w3.org/2000/svg">', False),
    (b'https://example.com/', False),
    (b'', False),
    (b'\x1f\x8b broken', False),
])  # fmt: skip
def test_a_sitemap_is_recognised_by_its_first_bytes(body: bytes, is_one: bool) -> None:
    assert looks_like_sitemap(body) is is_one
