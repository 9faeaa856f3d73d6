"""Sites that never end, crawled by a real runner.

A trap is left long before the page budget of a crawl is used up, and real sites that look a little
like one are crawled completely.
"""

import functools
import sys
from datetime import UTC, datetime
from hashlib import md5
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.support.hostile import (
    GOOD,
    MEGABYTE,
    Case,
    Crawled,
    End,
    Page,
    crawl_cases,
    failed,
    html_page,
)
from tests.support.raw_site import answer

pytestmark = pytest.mark.skipif(sys.platform != 'linux', reason='reads /proc')

YEAR = datetime.now(UTC).year
MAX_PAGES = 1000


def month_page(year: int, month: int, link: str) -> bytes:
    """A month of a calendar, with links to the months around it and some years away."""
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


def repeating(path: str) -> Page | None:
    return html_page('a1/b1/', title='Circle', text=path) if path.startswith('/circle/') else None


def past_the_end(path: str) -> Page | None:
    """An endless list past its end: the same text for every number."""
    if not path.startswith('/list?page='):
        return None
    number = int(path.partition('=')[2])
    links = [f'/list?page={number + step}' for step in (1, 2, 10, 100)]
    return html_page(*links, title='List', text='There are no more entries.')


def adding(path: str) -> Page | None:
    """A filter to which every link adds one more value."""
    if not path.startswith('/filter?'):
        return None
    more = f'{path}&amp;f{path.count("&")}=1'
    return html_page(more, title='Filtered', text=f'All of {path}.')


def in_session(path: str) -> Page | None:
    """Ten pages whose links have a new session id each time."""
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
    Case('paths in circles', {}, {}, repeating, ['/circle/']),
    Case('a list past its end', {}, {}, past_the_end, ['/list?page=1']),
    Case('filters upon filters', {}, {}, adding, ['/filter?f=1']),
]


@functools.cache
def trapped() -> Crawled:
    return crawl_cases(TRAPS, payload={'max_depth': 100, 'concurrency': 8})


def test_a_crawl_of_traps_drains_in_bounded_memory_and_time() -> None:
    trapped().assert_drained(within_bytes=150 * MEGABYTE, within_seconds=60)


@pytest.mark.parametrize('case', [pytest.param(case, id=case.name) for case in TRAPS])
def test_a_trap_is_left_long_before_the_page_budget_is_used_up(case: Case) -> None:
    site = trapped().sites[case.name]
    site.assert_good()
    in_trap = set(site.requests) - {'/', '/robots.txt', *GOOD}
    assert 1 <= len(in_trap) <= MAX_PAGES // 2, f'{len(in_trap)} pages of the trap'
    ends = {finished.skip_reason for finished in site.finished.values()}
    assert site.count('trap') >= 1 or 'trap' in ends, sorted(in_trap)[-5:]
    assert ends <= {None, 'trap'}
    assert {finished.status for finished in site.finished.values()} <= {'done', 'skipped'}


def test_pages_whose_urls_differ_by_session_id_are_fetched_once() -> None:
    case = Case('sessions', {}, {}, in_session, ['/in/0'])
    crawled = crawl_cases([case])
    crawled.assert_drained(within_bytes=150 * MEGABYTE, within_seconds=60)
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
    """Pages with nearly the same text, like a catalogue."""
    if not path.startswith('/item?id='):
        return None
    number = int(path.partition('=')[2])
    links = [f'/item?id={other}' for other in (number + 1, 2 * number) if other <= 150]
    return html_page(*links, '/', title=f'Item {number}', text='Out of stock at the moment.')


def archive(path: str) -> Page | None:
    """A blog with an archive of 20 years by month, which is not a trap."""
    if not path.startswith('/archive/'):
        return None
    _, _, year, month, _ = path.split('/')
    number = int(year) * 12 + int(month) - 2
    links = [f'/archive/{count // 12}/{count % 12 + 1:02}/' for count in (number, number - 11)]
    links = [link for link in links if int(link.split('/')[2]) > YEAR - 20]
    return html_page(*links, title=f'{year}-{month}', text=f'What was written in {month} {year}.')


def test_real_sites_with_numbers_and_dates_are_crawled_completely() -> None:
    crawled = crawl_cases(
        [
            Case('documentation', {}, {}, documentation, ['/docs/page-1']),
            Case('a catalogue', {}, {}, by_id, ['/item?id=1']),
            Case('an archive', {}, {}, archive, [f'/archive/{YEAR}/11/']),
        ],
        payload={'max_depth': 100, 'concurrency': 8},
    )
    crawled.assert_drained(within_bytes=150 * MEGABYTE, within_seconds=60)
    for name, count in (('documentation', 500), ('a catalogue', 150), ('an archive', 19 * 12)):
        site = crawled.sites[name]
        site.assert_good()
        done = [finished for finished in site.finished.values() if finished.status == 'done']
        assert len(done) >= count + 11, f'{name}: {len(done)} pages'
        assert site.count('trap') == 0
        assert len(done) == len(site.finished)


def one_unavailable(path: str) -> Page | None:
    """A chain of a hundred pages, and one page that is never available."""
    if path == '/busy':
        return answer(b'', status='503 Service Unavailable', Retry_After='0')
    if not path.startswith('/step-'):
        return None
    number = int(path.rpartition('-')[2])
    links = [f'/step-{number + 1}'] if number < 90 else []
    return html_page(*links, title=path, text=f'Step {number}.')


def test_a_page_that_is_always_unavailable_ends_while_others_are_crawled() -> None:
    case = Case('one_unavailable', {}, {}, one_unavailable, ['/busy', '/step-1'])
    crawled = crawl_cases([case], payload={'max_depth': 100})
    crawled.assert_drained(within_bytes=150 * MEGABYTE, within_seconds=60)
    site = crawled.sites['one_unavailable']
    site.assert_good()
    site.assert_ends({'/busy': failed('HTTP 503 Service Unavailable', 503), '/step-90': End()})
    assert site.requests['/busy'] <= 8
