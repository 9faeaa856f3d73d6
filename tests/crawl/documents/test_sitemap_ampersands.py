"""Sitemaps with the most common mistake: an unescaped ampersand."""

import gzip

import pytest

from silkline.crawl.documents.sitemap import MAX_AMPERSANDS, parse_sitemap

PAGES = [
    'https://a.example/',
    'https://a.example/search?q=1&page=2',
    'https://a.example/kept?x=1&y=2',
    'https://a.example/raw?x=1&y=2',
    'https://a.example/a&b',
    'https://a.example/last?a&b;c=&',
]
WRITTEN = [
    PAGES[0],
    PAGES[1],
    'https://a.example/kept?x=1&amp;y=2',
    '<![CDATA[https://a.example/raw?x=1&y=2]]>',
    'https://a.example/a&#38;b',
    PAGES[5],
]


def urlset(links: list[str]) -> bytes:
    entries = ''.join(f'<url><loc>{link}</loc></url>\n' for link in links)
    return f'<?xml version="1.0"?><urlset>{entries}</urlset>'.encode()


def test_an_unescaped_ampersand_loses_no_page() -> None:
    assert parse_sitemap(urlset(WRITTEN)).pages == PAGES
    assert parse_sitemap(gzip.compress(urlset(WRITTEN))).pages == PAGES


@pytest.mark.parametrize('length', range(65_500, 65_560, 4))
def test_the_position_of_the_ampersand_does_not_matter(length: int) -> None:
    """Long sitemaps are read in chunks of 64 KiB."""
    pages = ['https://a.example/' + 'x' * 2_000 + str(number) for number in range(32)]
    room = length - len(urlset(pages))
    first = f'https://a.example/?{"y" * room}'
    assert parse_sitemap(urlset([first, *pages, *WRITTEN])).pages == [first, *pages, *PAGES]


def test_in_utf_16_what_was_read_before_the_ampersand_is_kept() -> None:
    body = urlset(WRITTEN).decode().replace('version="1.0"', 'version="1.0" encoding="utf-16"')
    assert parse_sitemap(body.encode('utf-16')).pages == PAGES[:1]


def test_html_entities_in_a_feed_lose_no_page() -> None:
    items = ''.join(
        f'<item><title>A&nbsp;B &copy; C</title><link>https://a.example/{number}</link></item>'
        for number in range(3)
    )
    feed = f'<rss version="2.0"><channel>{items}</channel></rss>'.encode()
    assert parse_sitemap(feed).pages == [f'https://a.example/{number}' for number in range(3)]


def test_with_another_error_as_well_what_was_read_is_kept() -> None:
    body = urlset(WRITTEN)[: -len(b'</loc></url>\n</urlset>') - 4]
    assert parse_sitemap(body).pages == PAGES[:5]


def test_cdata_that_spans_chunks_is_not_escaped() -> None:
    links = [f'https://a.example/?n={number}&f=x>y&z=1' for number in range(5_000)]
    written = [f'<![CDATA[{link}]]>' for link in links]
    assert parse_sitemap(urlset([*WRITTEN, *written])).pages == [*PAGES, *links]


def test_the_number_of_escaped_ampersands_is_bounded() -> None:
    links = ['https://a.example/', '&' * (3 * MAX_AMPERSANDS), 'https://a.example/last']
    assert parse_sitemap(urlset(links)).pages == links[:1]
