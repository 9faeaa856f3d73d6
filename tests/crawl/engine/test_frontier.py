"""Start URLs, which URLs are sent once, and which are only counted."""

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence

import pytest

from silkline import protocol
from silkline.crawl.engine.frontier import Frontier, SeenUrls, start_of
from silkline.crawl.engine.scope import Scope
from silkline.crawl.urls import key_of
from tests.support.channel import RecordingChannel

SITE = 'https://a.example'
ELSEWHERE = 'https://b.example/'


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


def discover(*pages: tuple[int, Sequence[str]]) -> tuple[dict[str, str | None], dict[str, int]]:
    """Send the links of pages at these depths; returns the URLs sent, and the counts of others."""

    async def run() -> RecordingChannel:
        channel = RecordingChannel()
        scope = Scope([f'{SITE}/'], kind='host', exclude=['/private/'])
        frontier = Frontier(channel, scope, max_depth=2)
        for depth, links in pages:
            await frontier.discover(links, depth=depth, found_on=None)
        return channel

    sent: dict[str, str | None] = {}
    refused: Counter[str] = Counter()
    for message in asyncio.run(run()).messages:
        match message:
            case protocol.Discovered(urls=urls):
                sent.update({found.url: found.skip_reason for found in urls})
            case protocol.LinksRefused(counts=counts):
                refused.update(counts)
            case _:
                raise AssertionError(message)
    return sent, dict(refused)


def test_links_that_the_rules_refuse_are_counted_by_reason_instead_of_sent() -> None:
    links = [f'{SITE}/a', ELSEWHERE, f'{ELSEWHERE}2', f'{SITE}/private/1']
    sent, refused = discover((1, links))
    assert sent == {f'{SITE}/a': None}
    assert refused == {'out_of_scope': 2, 'excluded': 1}


def test_a_link_that_is_refused_on_every_page_is_counted_once() -> None:
    links = [ELSEWHERE, f'{SITE}/private/1']
    assert discover((1, links), (2, links), (1, links)) == ({}, {'out_of_scope': 1, 'excluded': 1})


@pytest.mark.parametrize('depths', [(2, 3), (3, 2), (3, 3)])
def test_a_refused_link_is_counted_once_whatever_the_depth(depths: tuple[int, int]) -> None:
    assert discover(*((depth, [ELSEWHERE]) for depth in depths)) == ({}, {'out_of_scope': 1})


def test_links_that_are_too_deep_or_lead_into_a_trap_are_sent_with_that_reason() -> None:
    trap = f'{SITE}/up/up/up/'
    sent, refused = discover((2, [trap]), (3, [f'{SITE}/deep']))
    assert sent == {trap: 'trap', f'{SITE}/deep': 'too_deep'}
    assert refused == {}


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
