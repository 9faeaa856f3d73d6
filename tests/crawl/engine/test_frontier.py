"""Start URLs, and which URLs are sent once."""

import sys

import pytest

from silkline.crawl.engine.frontier import SeenUrls, start_of
from silkline.crawl.urls import key_of


@pytest.mark.parametrize(
    ('url', 'wire'),
    [
        ('https://a.example', 'https://a.example/'),
        ('HTTPS://A.example/Docs#intro', 'https://a.example/Docs'),
        ('https://bücher.example/ü', 'https://xn--bcher-kva.example/%C3%BC'),
        (' https://a.example/x y ', 'https://a.example/x%20y'),
    ],
)
def test_a_start_url_is_read_like_a_link(url: str, wire: str) -> None:
    start = start_of(url)
    assert (start.url, start.url_key, start.skip_reason) == (wire, key_of(wire), None)


def test_an_invalid_start_url_is_skipped_as_invalid() -> None:
    start = start_of('http://1.2.3.4.5/')
    assert (start.url, start.skip_reason) == ('http://1.2.3.4.5/', 'invalid_url')


def test_a_url_is_new_once() -> None:
    seen = SeenUrls()
    assert seen.add('https://example.com/')
    assert not seen.add('https://example.com/')
    assert seen.add('https://example.com/a')


def test_the_filter_of_seen_urls_forgets_the_oldest_and_stays_within_its_bound() -> None:
    seen = SeenUrls(max_entries=1_000)
    for number in range(10_000):
        assert seen.add(f'https://example.com/{number}')
        assert len(seen) <= 1_000
    assert not seen.add('https://example.com/9999')
    assert not seen.add('https://example.com/9600')
    assert seen.add('https://example.com/0')


def test_a_url_that_is_seen_again_and_again_is_not_forgotten() -> None:
    seen = SeenUrls(max_entries=100)
    seen.add('https://example.com/')
    for number in range(10_000):
        seen.add(f'https://example.com/{number}')
        assert not seen.add('https://example.com/')


def test_the_filter_of_seen_urls_takes_less_than_30_megabytes() -> None:
    seen = SeenUrls()
    for number in range(250_000):
        seen.add(f'https://example.com/{number}')
    sets = sys.getsizeof(seen.young) + sys.getsizeof(seen.old)
    marks = sum(sys.getsizeof(mark) for mark in seen.young | seen.old)
    assert len(seen) <= 200_000
    assert sets + marks < 30_000_000
