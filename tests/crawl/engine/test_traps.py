"""Which URLs are cut as endless, and which real ones are not."""

from datetime import date

import pytest

from silkline.crawl.engine.traps import MAX_DUPLICATES, DuplicateDetector, is_trap, shape_of
from silkline.crawl.urls import MAX_URL_LENGTH

TODAY = date(2026, 11, 16)
SITE = 'https://example.com'

REAL = [
    # Ordinary, deep and numbered pages.
    '',
    '/',
    '/docs/guide/install.html',
    '/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t',
    *[f'/page/{number}' for number in (1, 123, 2027, 2031, 4999, 5000, 123456)],
    *[f'/blog/page/{number}/' for number in (12, 2029, 2040, 9999)],
    '/thread/9021/11',
    '/thread/2031/3',
    '/thread/1850/12/',
    '/issues?page=5000',
    '/viewtopic.php?t=2031',
    '/item?id=20310501',
    '/index.php?title=Foo&oldid=123456789',
    '/list?offset=100000&limit=20',
    '/search?q=calendar&page=7',
    '/shop?color=red&size=xl&sort=price&page=3',
    # Repeated names, but not three times in a row.
    '/a/b/a/b',
    '/docs/docs/intro',
    '/en/products/en/products/x',
    '/js/lib/js/x/js/y/js',
    '/1/1/1/',
    '/0/0/0/0.png',
    '/a/a/a/abc',
    '/c/d/e//f',
    # Articles and archives of any age.
    '/2026/11/16/todays-news',
    '/2019/05/',
    '/2003/01/02/',
    '/1851/09/18/archives/first-issue.html',
    '/sitemap/1851/01/',
    '/2027/01/',
    '/2028/12/',
    '/archive?year=1987',
    '/reports/2031/roadmap',
    '/vision-2050/',
    '/products/3000/',
    '/model/2055/10-inch',
    '/2031/05/what-comes-after',
    '/weather?year=2001&month=3',
    '/rates?date=2023-01-31',
    '/log?date=20241231',
    # Calendars around today, and events of any date.
    '/calendar/',
    '/calendar/2026/12/',
    '/calendar/2027-05',
    '/calendar?month=1&year=2028',
    '/calendar?date=2026-12-24',
    '/events/2026/11/20/',
    '/events/2015/',
    '/events/2015/06/',
    '/events/2012/',
    '/events/2009/05/12/annual-meeting',
    '/events/annual-meeting-2031/',
    '/agenda/3000',
    '/events/2031',
    '/calendar/4521',
    '/events?page=2000',
    '/events/12345',
    '/calendar/view.php?view=day&time=1795000000',
    '/map?x=1234&y=5678&z=9',
    '/map?m=4&d=1999',
    '/video?start=1893456000',
]


@pytest.mark.parametrize('path', REAL)
def test_urls_of_real_sites_are_followed(path: str) -> None:
    assert not is_trap(SITE + path, today=TODAY)


TRAPS = [
    '/' + 'a' * MAX_URL_LENGTH,
    '/' + 'x/' * 5 + '/'.join(map(str, range(20))),
    '/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t/u',
    '/docs/docs/docs',
    '/docs/docs/docs/',
    '/x/docs/docs/docs/y',
    '/en/products/en/products/en/products/x',
    '/ab/c/d/ab/c/d/ab/c/d',
    '/a////b',
    '/?' + '&'.join(f'p{number}=1' for number in range(21)),
    '/2031/05/',
    '/2031-05',
    '/blog/2030/01/',
    '/2035/12/31/',
    '/calendar/2031/05/',
    '/calendar/2031/5',
    '/calendar/2031',
    '/calendar/9999/12/',
    '/calendar/1899/01/',
    '/calendar/2005-03/',
    '/calendar/2026-01-01',
    '/events/2031/05/12/',
    '/events/month/2031-05/',
    '/events/2031-05/list/',
    '/kalender/2040/1/',
    '/calendar?month=1&year=2031',
    '/calendar?year=1850&month=12',
    '/calendar.php?m=3&y=2049',
    '/calendar?date=2027-12-24',
    '/calendar?date=24.12.2031',
    '/calendar?date=12/24/2031',
    '/calendar?date=12%2F24%2F2031',
    '/calendar?week=2040-W05',
    '/calendar/view.php?view=day&time=1893456000',
    '/events/?tribe-bar-date=2031-01-01',
    '/events/?filter%5Bdate%5D=2031-01-01',
    '/index.php?month=5&year=2031',
    '/index.php?month=5&year=1890',
    '/?ym=203105',
    '/?date=20310501',
    '/?date=2031-05',
    '/?year=2031',
]


@pytest.mark.parametrize('path', TRAPS)
def test_endless_places_are_cut(path: str) -> None:
    assert is_trap(SITE + path, today=TODAY)


def walk(template: str, first: int, last: int, step: int = 1) -> int:
    """How many months are followed, one after the other, until the first one that is cut."""
    followed = 0
    for number in range(first, last, step):
        year, month = divmod(number, 12)
        if is_trap(SITE + template.format(year=year, month=month + 1), today=TODAY):
            break
        followed += 1
    return followed


@pytest.mark.parametrize(
    'template',
    [
        '/calendar/{year}/{month:02}/',
        '/calendar?year={year}&month={month}',
        '/events/{year}-{month:02}/',
        '/{year}/{month:02}/',
        '/index.php?month={month}&year={year}',
        '/?ym={year}{month:02}',
        '/calendar/{year}',
    ],
)
@pytest.mark.parametrize('months', [1, 12, 120])
def test_following_a_calendar_into_the_future_ends(template: str, months: int) -> None:
    assert walk(template, 2026 * 12 + 10, 9999 * 12, months) < 40


def test_following_a_calendar_into_the_past_ends() -> None:
    assert 100 < walk('/calendar/{year}/{month}/', 2026 * 12 + 10, 0, -1) < 200
    assert 300 < walk('/index.php?month={month}&year={year}', 2026 * 12 + 10, 0, -1) < 400


def test_the_limits_move_with_the_date() -> None:
    assert is_trap(f'{SITE}/calendar/2031/05/', today=TODAY)
    assert not is_trap(f'{SITE}/calendar/2031/05/', today=date(2030, 1, 1))
    assert is_trap(f'{SITE}/calendar/9000/05/')


@pytest.mark.parametrize(
    'query',
    [
        'date=99999999999999999999',
        'date=0000-00-00',
        'date=2031-99-99',
        'year=0000&month=00',
        'year=٢٠٣١&month=1',
        'time=99999999999',
        'date=1/1/0000',
        'month=' + '9' * 1000 + '&year=2020',
        'date=²⁰³¹',
    ],
)
def test_no_date_raises(query: str) -> None:
    assert is_trap(f'{SITE}/calendar?{query}', today=TODAY) in (True, False)


# Repeated content


def test_a_shape_keeps_host_path_and_parameter_names() -> None:
    assert shape_of('https://a.com/x/12/y3?b=1&a=2&b=3') == 'https://a.com/x/0/y0?a&b'
    assert shape_of('https://a.com/x') == shape_of('https://a.com/x')
    assert shape_of('https://a.com/x?a=1') != shape_of('https://a.com/x?b=1')


def test_twenty_equal_pages_in_a_row_block_their_shape() -> None:
    duplicates = DuplicateDetector()
    for page in range(MAX_DUPLICATES - 1):
        assert not duplicates.record(f'{SITE}/list?page={page}', 'same')
    assert not duplicates.is_blocked(f'{SITE}/list?page=99')
    assert duplicates.record(f'{SITE}/list?page=98', 'same')
    assert duplicates.is_blocked(f'{SITE}/list?page=99')
    assert not duplicates.is_blocked(f'{SITE}/list?page=99&sort=up')
    assert not duplicates.is_blocked(f'{SITE}/item?page=99')


def test_a_different_page_restarts_the_count() -> None:
    duplicates = DuplicateDetector()
    for page in range(1000):
        duplicates.record(f'{SITE}/page/{page}', 'other' if page % 15 == 0 else 'same')
    assert not duplicates.is_blocked(f'{SITE}/page/1000')


def test_urls_without_numbers_or_queries_are_never_blocked() -> None:
    duplicates = DuplicateDetector()
    for _ in range(100):
        assert not duplicates.record(f'{SITE}/about', 'same')


def test_the_number_of_remembered_shapes_is_bounded() -> None:
    duplicates = DuplicateDetector(max_shapes=100)
    for shape in range(300):
        name = ''.join(chr(ord('a') + int(digit)) for digit in str(shape))
        for page in range(MAX_DUPLICATES):
            duplicates.record(f'{SITE}/{name}/{page}', 'same')
    assert len(duplicates.runs) <= 100
    assert len(duplicates.blocked) <= 100
