"""Malicious robots.txt files and sitemaps, crawled by a real runner.

Rules are obeyed as far as they can be read, and if robots.txt cannot be fetched, nothing is. A
document that is not a sitemap adds no URL and costs no page.
"""

import asyncio
import functools
import gzip
import sys

import pytest

from tests.support.hostile import (
    GOOD,
    MEGABYTE,
    Case,
    Crawled,
    End,
    crawl_cases,
    failed,
    html_page,
    redirect,
    robots,
    sitemap,
    skipped,
    web,
    xml,
)
from tests.support.raw_site import answer, endless, slow

pytestmark = pytest.mark.skipif(sys.platform != 'linux', reason='reads /proc')

# Sitemaps

LAUGHS = (
    b'<?xml version="1.0"?><!DOCTYPE urlset [<!ENTITY a0 "ha">'
    + b''.join(
        b'<!ENTITY a%d "%s">' % (number, b'&a%d;' % (number - 1) * 10) for number in range(1, 30)
    )
    + b']><urlset><url><loc>http://127.0.0.1/&a29;</loc></url></urlset>'
)
BLOWUP = b'<!DOCTYPE urlset [<!ENTITY a "%s">]><urlset><url><loc>%s</loc></url></urlset>' % (
    b'x' * 100_000,
    b'&a;' * 100_000,
)
OUTSIDE = (
    b'<!DOCTYPE urlset [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    b'<urlset><url><loc>http://127.0.0.1/&a;</loc></url></urlset>'
)
BOMB = gzip.compress(b'<urlset>' + b' ' * (300 * MEGABYTE), 1)


NO_SITEMAP = skipped('content_type')
SITEMAPS = [
    Case('a billion laughs', {'/s.xml': xml(LAUGHS)}, {'/s.xml': NO_SITEMAP}),
    Case('quadratic blowup', {'/s.xml': xml(BLOWUP)}, {'/s.xml': NO_SITEMAP}),
    Case('an external entity', {'/s.xml': xml(OUTSIDE)}, {'/s.xml': NO_SITEMAP}),
    Case(
        'a gzip bomb as a file',
        {'/s.xml.gz': web(BOMB, type='application/gzip')},
        {'/s.xml.gz': End()},
    ),
    Case(
        'a gzip bomb as a content encoding',
        {'/s.xml': web(BOMB, type='application/xml', Content_Encoding='gzip')},
        {'/s.xml': skipped('too_large')},
    ),
    Case('nested elements', {'/s.xml': xml(b'<urlset>' + b'<url>' * 10**6)}, {'/s.xml': End()}),
    Case('another document', {'/s.xml': xml(b'<svg>' * 10**6)}, {'/s.xml': NO_SITEMAP}),
    Case('not XML', {'/s.xml': xml(bytes(range(256)) * 1000)}, {'/s.xml': NO_SITEMAP}),
    Case(
        'an index that names itself',
        {'/s.xml': sitemap('/s.xml', '/s.xml?utm_source=x', kind='sitemap', root='sitemapindex')},
        {'/s.xml': End()},
    ),
    Case(
        'URLs that are too long',
        {'/s.xml': sitemap('/' + 'y' * MEGABYTE, '/' + 'y' * 3000)},
        {'/s.xml': End()},
    ),
]


@functools.cache
def mapped() -> Crawled:
    return crawl_cases(SITEMAPS, payload={'concurrency': 8})


def test_a_crawl_of_malicious_sitemaps_drains_in_bounded_memory_and_time() -> None:
    mapped().assert_drained(within_bytes=150 * MEGABYTE, within_seconds=60)


@pytest.mark.parametrize('case', [pytest.param(case, id=case.name) for case in SITEMAPS])
def test_a_malicious_sitemap_ends_with_its_reason_and_adds_no_url(case: Case) -> None:
    site = mapped().sites[case.name]
    site.assert_ends(case.ends)
    site.assert_good()
    assert set(site.found) == {'/', *GOOD, *case.ends}


def test_the_number_of_urls_from_an_endless_sitemap_is_bounded() -> None:
    entries = b''.join(b'<url><loc>/e/%d</loc></url>' % number for number in range(200_000))
    crawled = crawl_cases(
        [
            Case(
                'entries',
                {
                    '/robots.txt': robots('User-agent: *\nDisallow: /e/'),
                    '/s.xml': xml(b'<urlset>' + entries),
                },
                {'/s.xml': End()},
            )
        ]
    )
    crawled.assert_drained(within_bytes=200 * MEGABYTE, within_seconds=60)
    site = crawled.sites['entries']
    site.assert_good()
    found = [path for path in site.found if path.startswith('/e/')]
    assert 5000 <= len(found) <= 50_000
    assert {site.finished[path].skip_reason for path in found} == {'robots'}


# robots.txt


RULES = 'User-agent: *\nDisallow: /private/\n'
PRIVATE = {'/private/x': skipped('robots')}
OPEN_TEXT = b'HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n' + RULES.encode()
ROBOTS = [
    Case(
        'rules before ten megabytes of others',
        {'/robots.txt': robots(RULES + 'Disallow: /nothing\n' * 550_000)},
        PRIVATE,
    ),
    Case('rules that never end', {'/robots.txt': endless(OPEN_TEXT, b'# more\n' * 9000)}, PRIVATE),
    Case(
        'rules in a bomb',
        {
            '/robots.txt': web(
                gzip.compress(RULES.encode() + b'\n' * (300 * MEGABYTE), 1),
                type='text/plain',
                Content_Encoding='gzip',
            )
        },
        PRIVATE,
    ),
    Case(
        'patterns of many stars',
        {
            '/robots.txt': robots(
                RULES + ''.join(f'Disallow: /{"a*" * 100}b{number}$\n' for number in range(2000))
            )
        },
        {**PRIVATE, '/' + 'a' * 2000: failed('HTTP 404')},
    ),
    Case(
        'endless redirects',
        {},
        {'/private/x': failed('HTTP 404')},
        others=lambda path: redirect(f'{path}x') if path.startswith('/robots.txt') else None,
    ),
    Case(
        'a redirect to itself',
        {'/robots.txt': redirect('/robots.txt')},
        {'/private/x': failed('HTTP 404')},
    ),
    Case(
        'bytes that are not text',
        {'/robots.txt': robots(bytes(range(256)) * 2000 + b'\n' + RULES.encode())},
        {},
    ),
    Case(
        'a page instead of rules',
        {'/robots.txt': html_page('/private/x', title='Welcome')},
        {'/private/x': failed('HTTP 404')},
    ),
    Case(
        'an enormous delay for another crawler',
        {'/robots.txt': robots('User-agent: other\nCrawl-delay: 99999\n\n' + RULES)},
        PRIVATE,
    ),
]


@functools.cache
def ruled() -> Crawled:
    return crawl_cases(ROBOTS)


def test_a_crawl_of_malicious_robots_txt_drains_in_bounded_memory_and_time() -> None:
    ruled().assert_drained(within_bytes=150 * MEGABYTE, within_seconds=60)


@pytest.mark.parametrize('case', [pytest.param(case, id=case.name) for case in ROBOTS])
def test_a_malicious_robots_txt_is_obeyed_as_far_as_it_can_be_read(case: Case) -> None:
    site = ruled().sites[case.name]
    site.assert_ends(case.ends)
    site.assert_good()


def test_hosts_are_not_given_up_because_the_robots_txt_of_others_is_slow() -> None:
    async def in_half_a_second(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.5)
        writer.write(answer(b'', status='404 Not Found'))
        await writer.drain()

    cases = [Case(str(number), {'/robots.txt': in_half_a_second}, {}) for number in range(60)]
    crawled = crawl_cases(cases, payload={'concurrency': 8, 'strategy': 'list'})
    crawled.assert_drained(within_bytes=150 * MEGABYTE, within_seconds=60)
    for case in cases:
        assert crawled.sites[case.name].finished['/'].status == 'done'


def test_if_robots_txt_cannot_be_fetched_no_page_is_and_the_crawl_ends() -> None:
    cases = [
        Case(
            'too slow',
            {'/robots.txt': slow(OPEN_TEXT + b'# x\n' * 999, seconds_per_byte=0.05)},
            {'/': skipped('host_unavailable')},
        ),
        Case(
            'broken',
            {'/robots.txt': answer(b'x', status='500 Internal Server Error')},
            {'/': skipped('host_unavailable')},
        ),
    ]
    crawled = crawl_cases(cases, payload={'timeout_seconds': 2})
    crawled.assert_drained(within_bytes=150 * MEGABYTE, within_seconds=60)
    for case in cases:
        site = crawled.sites[case.name]
        site.assert_ends(case.ends)
        assert 'could not fetch robots.txt' in (site.finished['/'].error or '')
        assert set(site.requests) == {'/robots.txt'}
