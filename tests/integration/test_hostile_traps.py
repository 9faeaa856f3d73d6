"""Sites that never end, and what robots.txt, sitemaps and addresses can do to a crawl.

As in `test_hostile_sites.py`, every crawl is a real runner's. A trap is left by itself, long before
the pages of a crawl are used up, and real sites that look a little like one are crawled whole.
"""

import asyncio
import functools
import gzip
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from hashlib import md5
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.support.hostile import (
    GOOD,
    MEGABYTE,
    Case,
    Crawled,
    End,
    HostileSite,
    Page,
    crawl_cases,
    crawl_sites,
    failed,
    html_page,
    redirect,
    serve,
    skipped,
    web,
)
from tests.support.raw_site import answer, endless, slow

pytestmark = pytest.mark.skipif(sys.platform != 'linux', reason='reads /proc')

YEAR = datetime.now(UTC).year
MOST_PAGES = 1000


# Traps


def month_page(year: int, month: int, link: str) -> bytes:
    """A month of a calendar, with links to those around it, and some years away."""
    count = year * 12 + month - 1
    around = [count + step for step in (-1, 1, -12, 12, -120, 120)]
    links = [link.format(year=number // 12, month=number % 12 + 1) for number in around]
    return html_page(*links, title=f'{year}-{month:02}', text=f'No events in {month} {year}.')


def by_query(path: str) -> Page | None:
    query = dict(parse_qsl(urlsplit(path).query))
    if not path.startswith('/calendar?'):
        return None
    return month_page(
        int(query['year']), int(query['month']), '/calendar?month={month}&amp;year={year}'
    )


def by_query_alone(path: str) -> Page | None:
    query = dict(parse_qsl(urlsplit(path).query))
    if not path.startswith('/show?'):
        return None
    return month_page(
        int(query['year']), int(query['month']), '/show?month={month}&amp;year={year}'
    )


def by_path(path: str) -> Page | None:
    if not path.startswith('/events/'):
        return None
    _, _, year, month, _ = path.split('/')
    return month_page(int(year), int(month), '/events/{year}/{month:02}/')


def ahead_by_path(path: str) -> Page | None:
    if not path.startswith('/2'):
        return None
    _, year, month, _ = path.split('/')
    number = int(year) * 12 + int(month)
    following = [number, number + 11]
    links = [f'/{count // 12}/{count % 12 + 1:02}/' for count in following]
    return html_page(*links, title=path, text=f'Nothing yet in {path}.')


def growing(path: str) -> Page | None:
    if not path.startswith('/grow/'):
        return None
    return html_page('more/', 'other/more/', title='Grown', text=f'This is {path}.')


def circling(path: str) -> Page | None:
    return html_page('a1/b1/', title='Circle', text=path) if path.startswith('/circle/') else None


def echoing(path: str) -> Page | None:
    """An endless list that is past its end: the same words under every number."""
    if not path.startswith('/list?page='):
        return None
    number = int(path.partition('=')[2])
    links = [f'/list?page={number + step}' for step in (1, 2, 10, 100)]
    return html_page(*links, title='List', text='There are no more entries.')


def adding(path: str) -> Page | None:
    """A filter that every link adds one more value to."""
    if not path.startswith('/filter?'):
        return None
    more = f'{path}&amp;f{path.count("&")}=1'
    return html_page(more, title='Filtered', text=f'All of {path}.')


def in_session(path: str) -> Page | None:
    """Ten pages whose links carry a session of their own each time."""
    found = urlsplit(path)
    if not found.path.startswith('/in/'):
        return None
    session = md5(path.encode(), usedforsecurity=False).hexdigest()
    links = [f'/in/{number}?sid={session}' for number in range(5)]
    links += [f'/in/{number};jsessionid={session}' for number in range(5, 10)]
    name = found.path.partition(';')[0]
    return html_page(*links, title=name, text=f'You are {session}.')


TRAPS = [
    Case('a calendar by query', {}, {}, by_query, [f'/calendar?month=11&amp;year={YEAR}']),
    Case('months by query', {}, {}, by_query_alone, [f'/show?month=11&amp;year={YEAR}']),
    Case('a calendar by path', {}, {}, by_path, [f'/events/{YEAR}/11/']),
    Case('months ahead by path', {}, {}, ahead_by_path, [f'/{YEAR}/11/']),
    Case('paths that grow', {}, {}, growing, ['/grow/']),
    Case('paths in circles', {}, {}, circling, ['/circle/']),
    Case('a list past its end', {}, {}, echoing, ['/list?page=1']),
    Case('filters upon filters', {}, {}, adding, ['/filter?f=1']),
]


@functools.cache
def trapped() -> Crawled:
    return crawl_cases(TRAPS, payload={'max_depth': 100, 'concurrency': 8})


def test_a_crawl_of_traps_drains_by_itself_in_bounded_memory_and_time() -> None:
    trapped().assert_drained(within_bytes=150 * MEGABYTE, within_seconds=30)


@pytest.mark.parametrize('case', [pytest.param(case, id=case.name) for case in TRAPS])
def test_a_trap_is_left_long_before_the_pages_are_used_up(case: Case) -> None:
    site = trapped().sites[case.name]
    site.assert_good()
    in_trap = set(site.asked) - {'/', '/robots.txt', *GOOD}
    assert 1 <= len(in_trap) <= MOST_PAGES // 2, f'{len(in_trap)} pages of the trap'
    ends = {finished.skip_reason for finished in site.finished.values()}
    assert site.count('trap') >= 1 or 'trap' in ends, sorted(in_trap)[-5:]
    assert ends <= {None, 'trap'}
    assert {finished.status for finished in site.finished.values()} <= {'done', 'skipped'}


def test_pages_that_differ_by_their_session_are_fetched_once() -> None:
    case = Case('sessions', {}, {}, in_session, ['/in/0'])
    crawled = crawl_cases([case])
    crawled.assert_drained(within_bytes=150 * MEGABYTE, within_seconds=20)
    site = crawled.sites['sessions']
    site.assert_good()
    names = [path.partition('?')[0].partition(';')[0] for path in site.finished]
    assert sorted(names) == sorted(['/', *GOOD, *(f'/in/{number}' for number in range(10))])


def documentation(path: str) -> Page | None:
    if not path.startswith('/docs/page-'):
        return None
    number = int(path.rpartition('-')[2])
    links = [f'/docs/page-{other}' for other in (number + 1, 2 * number, 2 * number + 1)]
    links = [link for link in links if int(link.rpartition('-')[2]) <= 500]
    return html_page(*links, '/', title=f'Page {number}', text=f'This is about {number}.')


def by_id(path: str) -> Page | None:
    """Pages with nearly the same words, as a catalogue has them."""
    if not path.startswith('/item?id='):
        return None
    number = int(path.partition('=')[2])
    links = [f'/item?id={other}' for other in (number + 1, 2 * number) if other <= 150]
    return html_page(*links, '/', title=f'Item {number}', text='Out of stock at the moment.')


def archive(path: str) -> Page | None:
    """A blog with a month for each of 20 years, which is old and no trap."""
    if not path.startswith('/archive/'):
        return None
    _, _, year, month, _ = path.split('/')
    number = int(year) * 12 + int(month) - 2
    links = [f'/archive/{count // 12}/{count % 12 + 1:02}/' for count in (number, number - 11)]
    links = [link for link in links if int(link.split('/')[2]) > YEAR - 20]
    return html_page(*links, title=f'{year}-{month}', text=f'What was written in {month} {year}.')


def test_real_sites_with_numbers_and_dates_are_crawled_whole() -> None:
    crawled = crawl_cases(
        [
            Case('documentation', {}, {}, documentation, ['/docs/page-1']),
            Case('a catalogue', {}, {}, by_id, ['/item?id=1']),
            Case('an archive', {}, {}, archive, [f'/archive/{YEAR}/11/']),
        ],
        payload={'max_depth': 100, 'concurrency': 8},
    )
    crawled.assert_drained(within_bytes=150 * MEGABYTE, within_seconds=30)
    for name, count in (('documentation', 500), ('a catalogue', 150), ('an archive', 19 * 12)):
        site = crawled.sites[name]
        site.assert_good()
        done = [finished for finished in site.finished.values() if finished.status == 'done']
        assert len(done) >= count + 11, f'{name}: {len(done)} pages'
        assert site.count('trap') == 0
        assert len(done) == len(site.finished)


def unwell(path: str) -> Page | None:
    """A hundred pages one after the other, and one that is never to be had."""
    if path == '/busy':
        return answer(b'', status='503 Service Unavailable', Retry_After='0')
    if not path.startswith('/step-'):
        return None
    number = int(path.rpartition('-')[2])
    links = [f'/step-{number + 1}'] if number < 90 else []
    return html_page(*links, title=path, text=f'Step {number}.')


def test_a_page_that_always_asks_for_patience_ends_while_others_come() -> None:
    case = Case('unwell', {}, {}, unwell, ['/busy', '/step-1'])
    crawled = crawl_cases([case], payload={'max_depth': 100})
    crawled.assert_drained(within_bytes=150 * MEGABYTE, within_seconds=20)
    site = crawled.sites['unwell']
    site.assert_good()
    site.assert_ends({'/busy': failed('HTTP 503 Service Unavailable', 503), '/step-90': End()})
    assert site.asked['/busy'] <= 8


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


def sitemap(*links: str, kind: str = 'url', root: str = 'urlset') -> bytes:
    entries = ''.join(f'<{kind}><loc>{link}</loc></{kind}>' for link in links)
    return xml(f'<{root}>{entries}</{root}>'.encode())


def xml(body: bytes) -> bytes:
    return web(body, type='application/xml')


NO_SITEMAP = skipped('content_type')
SITEMAPS = [
    Case('a billion laughs', {'/s.xml': xml(LAUGHS)}, {'/s.xml': NO_SITEMAP}),
    Case('quadratic blowup', {'/s.xml': xml(BLOWUP)}, {'/s.xml': NO_SITEMAP}),
    Case('an entity from outside', {'/s.xml': xml(OUTSIDE)}, {'/s.xml': NO_SITEMAP}),
    Case(
        'a gzip bomb as a file',
        {'/s.xml.gz': web(BOMB, type='application/gzip')},
        {'/s.xml.gz': End()},
    ),
    Case(
        'a gzip bomb on its way',
        {'/s.xml': web(BOMB, type='application/xml', Content_Encoding='gzip')},
        {'/s.xml': skipped('too_large')},
    ),
    Case(
        'elements in elements', {'/s.xml': xml(b'<urlset>' + b'<url>' * 10**6)}, {'/s.xml': End()}
    ),
    Case('another document', {'/s.xml': xml(b'<svg>' * 10**6)}, {'/s.xml': NO_SITEMAP}),
    Case('no XML at all', {'/s.xml': xml(bytes(range(256)) * 1000)}, {'/s.xml': NO_SITEMAP}),
    Case(
        'an index of itself',
        {'/s.xml': sitemap('/s.xml', '/s.xml?utm_source=x', kind='sitemap', root='sitemapindex')},
        {'/s.xml': End()},
    ),
    Case(
        'addresses that are too long',
        {'/s.xml': sitemap('/' + 'y' * MEGABYTE, '/' + 'y' * 3000)},
        {'/s.xml': End()},
    ),
]


@functools.cache
def mapped() -> Crawled:
    return crawl_cases(SITEMAPS, payload={'concurrency': 8})


def test_a_crawl_of_hostile_sitemaps_drains_in_bounded_memory_and_time() -> None:
    mapped().assert_drained(within_bytes=150 * MEGABYTE, within_seconds=30)


@pytest.mark.parametrize('case', [pytest.param(case, id=case.name) for case in SITEMAPS])
def test_a_hostile_sitemap_ends_in_its_reason_and_adds_no_url(case: Case) -> None:
    site = mapped().sites[case.name]
    site.assert_ends(case.ends)
    site.assert_good()
    assert set(site.found) == {'/', *GOOD, *case.ends}


def test_of_a_sitemap_without_end_a_bounded_number_is_taken() -> None:
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
    crawled.assert_drained(within_bytes=200 * MEGABYTE, within_seconds=45)
    site = crawled.sites['entries']
    site.assert_good()
    found = [path for path in site.found if path.startswith('/e/')]
    assert 5000 <= len(found) <= 50_000
    assert {site.finished[path].skip_reason for path in found} == {'robots'}


# robots.txt


def robots(text: str | bytes) -> bytes:
    return web(text.encode() if isinstance(text, str) else text, type='text/plain')


RULES = 'User-agent: *\nDisallow: /private/\n'
PRIVATE = {'/private/x': skipped('robots')}
OPEN_TEXT = b'HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n' + RULES.encode()
ROBOTS = [
    Case(
        'rules and ten megabytes of others',
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
        'redirects without end',
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
        'bytes of no text',
        {'/robots.txt': robots(bytes(range(256)) * 2000 + b'\n' + RULES.encode())},
        {},
    ),
    Case(
        'a page instead of rules',
        {'/robots.txt': html_page('/private/x', title='Welcome')},
        {'/private/x': failed('HTTP 404')},
    ),
    Case(
        'an enormous delay of somebody else',
        {'/robots.txt': robots('User-agent: other\nCrawl-delay: 99999\n\n' + RULES)},
        PRIVATE,
    ),
]


@functools.cache
def ruled() -> Crawled:
    return crawl_cases(ROBOTS, payload={'timeout_seconds': 10})


def test_a_crawl_of_hostile_robots_drains_in_bounded_memory_and_time() -> None:
    ruled().assert_drained(within_bytes=150 * MEGABYTE, within_seconds=30)


@pytest.mark.parametrize('case', [pytest.param(case, id=case.name) for case in ROBOTS])
def test_a_hostile_robots_txt_is_obeyed_as_far_as_it_can_be_read(case: Case) -> None:
    site = ruled().sites[case.name]
    site.assert_ends(case.ends)
    site.assert_good()


def test_hosts_are_not_given_up_because_others_are_slow_with_their_robots() -> None:
    async def in_half_a_second(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.5)
        writer.write(answer(b'', status='404 Not Found'))
        await writer.drain()

    cases = [Case(str(number), {'/robots.txt': in_half_a_second}, {}) for number in range(60)]
    crawled = crawl_cases(cases, payload={'concurrency': 8, 'strategy': 'list'})
    crawled.assert_drained(within_bytes=150 * MEGABYTE, within_seconds=20)
    for case in cases:
        assert crawled.sites[case.name].finished['/'].status == 'done'


def test_without_robots_txt_no_page_is_fetched_and_the_crawl_ends() -> None:
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
    crawled = crawl_cases(cases)
    crawled.assert_drained(within_bytes=150 * MEGABYTE, within_seconds=20)
    for case in cases:
        site = crawled.sites[case.name]
        site.assert_ends(case.ends)
        assert 'its robots.txt cannot be had' in (site.finished['/'].error or '')
        assert set(site.asked) == {'/robots.txt'}


# Addresses

# All of them mean 127.0.0.1 or [::1], or would on some machine.
LOOPBACK = """
127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.1 0177.0.0.1 017700000001 0x7F.0.0.0x1 127.0.0.1.
%31%32%37.0.0.1 127%2e0%2e0%2e1 0 0.0.0.0 0x0 [::1] [::] [0:0:0:0:0:0:0:1] [::127.0.0.1]
[::ffff:127.0.0.1] [::ffff:7f00:1] [64:ff9b::7f00:1] [64:ff9b::127.0.0.1] [2002:7f00:1::]
[2001:0:7f00:1::] localhost LOCALHOST localhost. 127.0.0.3
""".split()
ELSEWHERE = """
169.254.169.254 2852039166 0xa9fea9fe [::ffff:169.254.169.254] [fd00:ec2::254] 10.0.0.1 192.168.1.1
172.16.0.1 100.100.100.200 168.63.129.16 224.0.0.1 255.255.255.255 [fe80::1] [ff02::1]
""".split()


def inward(port: int, path: str) -> list[str]:
    """Every address that must not be reached, each with a path of its own."""
    return [
        f'http://{host}:{port}{path}{number}' for number, host in enumerate(LOOPBACK + ELSEWHERE)
    ]


class Victims:
    """Servers on the port of the site, at addresses that nobody allowed."""

    def __init__(self, sites: Sequence[HostileSite]) -> None:
        self.sites = sites

    def assert_unasked(self) -> None:
        for site in self.sites:
            assert not site.asked, f'{site.host} was asked for {dict(site.asked)}'


async def open_victims(stack: AsyncExitStack, pages: Any) -> tuple[HostileSite, Victims]:
    """A site at 127.0.0.2, and victims at the same port."""
    for _ in range(20):
        async with AsyncExitStack() as attempt:
            site = await attempt.enter_async_context(serve(pages, name='site', host='127.0.0.2'))
            with suppress(OSError):
                victims = [
                    await attempt.enter_async_context(
                        serve(lambda _: html_page(title='Secret'), host=host, port=site.port)
                    )
                    for host in ('127.0.0.1', '127.0.0.3', '::1')
                ]
                await stack.enter_async_context(attempt.pop_all())
                return site, Victims(victims)
    raise AssertionError('there is no port that is free on all addresses')


def attack(case: Case, *, starts: str | None = None, **payload: Any) -> tuple[Crawled, HostileSite]:
    """Crawl a site at 127.0.0.2, the one allowed address; `{port}` in its pages is its own."""

    async def run() -> tuple[Crawled, HostileSite]:
        ports: list[int] = []

        def pages(path: str) -> Page | None:
            return answer_inward(case, path, ports[0])

        async with AsyncExitStack() as stack:
            site, victims = await open_victims(stack, pages)
            ports.append(site.port)
            urls = inward(site.port, '/v/') if starts is None else []
            if starts == '/start/':
                urls = [f'{site.url}/start/{number}' for number in range(len(LOOPBACK + ELSEWHERE))]
            crawled = await crawl_sites(
                [site],
                payload={'urls': [f'{site.url}/', *urls], **payload},
                allow_networks=['127.0.0.2/32'],
            )
            victims.assert_unasked()
            return crawled, site

    return asyncio.run(run())


def answer_inward(case: Case, path: str, port: int) -> Page | None:
    """Pages that lead to the forbidden addresses, in every way a site can."""
    if path == '/':
        numbers = range(len(LOOPBACK + ELSEWHERE))
        hops = [f'/hop/{number}' for number in numbers]
        return html_page(*GOOD, '/links', '/s.xml', *hops, title='Start')
    if path == '/links':
        return html_page(*inward(port, '/l/'), title='Links')
    if path == '/s.xml':
        return sitemap(*inward(port, '/s/'))
    if path.startswith(('/hop/', '/start/')):
        kind, number = path[1:].split('/')
        return redirect(inward(port, f'/{kind[0]}/')[int(number)])
    if path == '/robots.txt' and case is MAPPED:
        named = [
            *inward(port, '/s/'),
            '/laughs.xml',
            '/bomb.xml.gz',
            'good.xml',
            'ftp://x/',
            '??',
            'http://',
        ]
        return robots(''.join(f'Sitemap: {url}\n' for url in named))
    if path == '/robots.txt':
        return redirect(f'http://127.0.0.1:{port}/robots.txt')
    return case.page(path)


SITE = Case('site', {}, {})
MAPPED = Case(
    'site with sitemaps',
    {
        '/laughs.xml': xml(LAUGHS),
        '/bomb.xml.gz': web(BOMB, type='application/gzip'),
        '/good.xml': sitemap(*GOOD),
    },
    {},
)


def test_links_redirects_and_sitemaps_inward_are_never_followed() -> None:
    crawled, _ = attack(SITE, starts='')
    crawled.assert_drained(within_bytes=150 * MEGABYTE, within_seconds=20)
    site = crawled.sites['site']
    site.assert_good()
    for number in range(len(LOOPBACK + ELSEWHERE)):
        assert site.finished[f'/hop/{number}'].skip_reason == 'redirect'
    for path in ('/l/', '/h/', '/s/'):
        found = [url for url in crawled.elsewhere if path in url]
        assert len(found) == len(LOOPBACK + ELSEWHERE), path
    assert {found.skip_reason for found in crawled.elsewhere.values()} == {'out_of_scope'}


def test_sitemaps_inward_are_refused_and_the_good_ones_read() -> None:
    crawled, _ = attack(MAPPED, starts='', strategy='sitemap')
    crawled.assert_drained(within_bytes=150 * MEGABYTE, within_seconds=20)
    site = crawled.sites['site']
    for path in GOOD:
        assert site.finished[path].status == 'done'
    assert site.finished['/laughs.xml'].skip_reason == 'content_type'
    ends = {
        finished.skip_reason
        for url, finished in crawled.ended_elsewhere.items()
        if 'localhost.:' not in url
    }
    assert ends == {'forbidden_address'}


def test_start_urls_that_are_or_lead_inward_are_refused() -> None:
    for starts, path in ((None, '/v/'), ('/start/', '/s/')):
        crawled, _ = attack(SITE, starts=starts, strategy='list')
        crawled.assert_drained(within_bytes=150 * MEGABYTE, within_seconds=20)
        assert crawled.sites['site'].finished['/'].status == 'done'
        ended = {url: crawled.ended_elsewhere[url] for url in crawled.elsewhere if path in url}
        assert len(ended) == len(LOOPBACK + ELSEWHERE)
        for url, finished in ended.items():
            if 'localhost.:' in url:
                # Not every resolver knows it with a dot; no one was asked in either case.
                continue
            assert finished.skip_reason == 'forbidden_address', f'{url}: {finished}'
            assert 'operator of the worker' in (finished.error or '')
