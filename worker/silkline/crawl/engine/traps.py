"""Recognise where a site never ends: growing paths, calendars, pages that repeat.

Everything but `DuplicateDetector` looks at the URL alone, so that a crawl decides after a restart
as it did before, without stored state. The rules let real sites pass: numbered pages, dated
articles and archives are never cut. docs/reference/crawling.md describes them.
"""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final, Literal

from silkline.crawl.urls import MAX_URL_LENGTH

MAX_SEGMENTS = 20
MAX_PARAMETERS = 20
MAX_RUN = 2
MAX_DUPLICATES = 20

View = Literal['year', 'month', 'week', 'day']

# How far before and after today the views of a calendar are followed: about 200 of each kind.
CALENDAR: Final[dict[View, tuple[timedelta, timedelta]]] = {
    'year': (timedelta(days=100 * 365), timedelta(days=2 * 365)),
    'month': (timedelta(days=14 * 365), timedelta(days=2 * 365)),
    'week': (timedelta(days=2 * 365), timedelta(days=2 * 365)),
    'day': (timedelta(days=100), timedelta(days=100)),
}
# For a date in a query without another sign of a calendar: it may as well select data by date.
DATED_QUERY: Final[dict[View, tuple[timedelta, timedelta]]] = {
    'year': (timedelta(days=200 * 365), timedelta(days=2 * 365)),
    'month': (timedelta(days=30 * 365), timedelta(days=2 * 365)),
    'week': (timedelta(days=10 * 365), timedelta(days=2 * 365)),
    'day': (timedelta(days=5 * 365), timedelta(days=365)),
}
# For paths that end in a year and a month, such as /2031/05/. A crawl into the future has to pass
# these years; beyond them are numbers that only look like years.
PATH_YEARS_AHEAD: Final = (3, 13)

_CALENDAR_WORD = re.compile(
    r'(?<![a-z])(?:e?calend[ae]rs?|kalender|calendario|calendrier|agenda|events?|veranstaltungen'
    r'|termine|evenements|eventos|schedule|whats-?on|tribe)(?![a-z])',
    re.IGNORECASE,
)
# Segments that select a view, and may follow the date.
_VIEWS = frozenset({
    'year', 'month', 'week', 'day', 'list', 'today', 'agenda', 'grid', 'photo', 'map', 'all',
    'view', 'date', 'monat', 'woche', 'tag', 'jahr', 'mois', 'semaine', 'jour', 'page', '1',
})  # fmt: skip
_DATE_KEYS = frozenset({
    'date', 'day', 'month', 'year', 'week', 'yr', 'mon', 'mo', 'ym', 'ymd', 'yearmonth',
    'cal_date', 'cal_day', 'cal_month', 'cal_year', 'calendar_date', 'event_date', 'eventdate',
    'eventdisplaydate', 'tribe-bar-date', 'startdate', 'start_date', 'fromdate', 'from_date',
    'd', 'm', 'y', 'from', 'start', 'time', 'datum', 'jahr', 'monat', 'tag', 'mois', 'annee',
})  # fmt: skip
_YEAR_KEYS = frozenset({'year', 'yr', 'y', 'cal_year', 'jahr', 'annee'})
_MONTH_KEYS = frozenset({'month', 'mon', 'mo', 'm', 'cal_month', 'monat', 'mois'})
_DAY_KEYS = frozenset({'day', 'd', 'cal_day', 'tag'})
# Short names mean a date only next to a year or in a calendar.
_WEAK_KEYS = frozenset({'d', 'm', 'y', 'from', 'start', 'time'})
_DATE = re.compile(r'(\d{4})(?:-?W(\d{1,2})|([-/.]?)(\d{1,2})(?:\3(\d{1,2}))?)?', re.IGNORECASE)
_DATE_BACKWARDS = re.compile(r'(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})')
_YEAR = re.compile(r'\d{4}')
_PATH_YEAR = re.compile(r'/\d{4}(?=[-/]|$)')
_PATH_DATE = re.compile(r'/(\d{4})(?:[-/](\d{1,2})(?:[-/](\d{1,2}))?)?(?=/|$)')
_CALENDAR_NAME = re.compile('calend|kalender', re.IGNORECASE)
_DATED_PATH = re.compile(r'/(\d{4})[-/](?:0[1-9]|1[0-2])(?:[-/](?:0[1-9]|[12]\d|3[01]))?/?$')
_DIGITS = re.compile(r'\d+')


def is_trap(url: str, *, today: date | None = None) -> bool:
    """Whether a URL, in the form of `urls.join`, leads into an endless part of a site."""
    if len(url) > MAX_URL_LENGTH:
        return True
    path_start = url.find('/', 8)
    path, mark, query = url[path_start if path_start >= 0 else len(url) :].partition('?')
    slashes = path.count('/')
    if slashes > MAX_SEGMENTS and len(path.strip('/').split('/')) > MAX_SEGMENTS:
        return True
    if slashes > MAX_RUN and _goes_in_circles(path):
        return True
    if query.count('&') >= MAX_PARAMETERS:
        return True
    # Nearly every URL ends here: without four digits there is no date.
    if _PATH_YEAR.search(path) is None and (not mark or _YEAR.search(query) is None):
        return False
    return _is_far_view(path, query, today)


def shape_of(url: str) -> str:
    """What similar URLs share: host, path without its numbers, parameter names."""
    head, _, query = url.partition('?')
    names = sorted({part.partition('=')[0] for part in query.split('&')}) if query else ()
    return f'{_DIGITS.sub("0", head)}?{"&".join(names)}'


class DuplicateDetector:
    """Blocks shapes of URLs that return the same content again and again.

    A shape is blocked after twenty different URLs in a row with the same content: an endless list
    past its end, or a faceted search without results. Forgotten at a restart, which costs twenty
    pages; at most `max_shapes` are remembered.
    """

    def __init__(self, *, max_shapes: int = 5_000) -> None:
        self.max_shapes = max_shapes
        self.runs: dict[str, tuple[str, int]] = {}
        self.blocked: dict[str, None] = {}

    def record(self, url: str, content_hash: str) -> bool:
        """Note a fetched page; returns whether its shape is blocked now."""
        # Only numbers and queries make endless URLs of one shape.
        if '?' not in url and not _DIGITS.search(url, url.find('/', 8)):
            return False
        shape = shape_of(url)
        known, count = self.runs.pop(shape, ('', 0))
        count = count + 1 if known == content_hash else 1
        self.runs[shape] = (content_hash, count)
        if len(self.runs) > self.max_shapes:
            self.runs.pop(next(iter(self.runs)))
        if count >= MAX_DUPLICATES:
            self.blocked[shape] = None
            if len(self.blocked) > self.max_shapes:
                self.blocked.pop(next(iter(self.blocked)))
        return shape in self.blocked

    def is_blocked(self, url: str) -> bool:
        return bool(self.blocked) and shape_of(url) in self.blocked


def _goes_in_circles(path: str) -> bool:
    """Whether one or more segments occur three times in a row: /a/a/a, /a/b/a/b/a/b.

    Numbers and single letters may: /1/1/1 can be a verse, /a/a/a a directory of a file store.
    """
    segments = path.strip('/').split('/')
    count = len(segments)
    if len(set(segments)) == count:
        return False
    times = MAX_RUN + 1
    for period in range(1, count // times + 1):
        run = 0
        for at in range(period, count):
            run = run + 1 if segments[at] == segments[at - period] else 0
            if run >= period * MAX_RUN and any(
                len(segment) != 1 and not segment.isdigit()
                for segment in segments[at - period + 1 : at + 1]
            ):
                return True
    return False


def _is_far_view(path: str, query: str, today: date | None) -> bool:
    today = today or datetime.now(UTC).date()
    is_calendar = bool(_CALENDAR_WORD.search(path) or _CALENDAR_WORD.search(query))
    found = _view_of_query(query, is_calendar=is_calendar) if query else None
    if found is None and is_calendar:
        found = _view_of_path(path)
        if found is not None and found[0] == 'year':
            # It may be the number of an event, unless the path names a calendar.
            return _CALENDAR_NAME.search(path) is not None and _is_ahead(found[1].year, today)
    if found is not None:
        view, day = found
        back, ahead = (CALENDAR if is_calendar else DATED_QUERY)[view]
        return not today - back <= day <= today + ahead
    dated = _DATED_PATH.search(path)
    return dated is not None and _is_ahead(int(dated[1]), today)


def _is_ahead(year: int, today: date) -> bool:
    first, last = PATH_YEARS_AHEAD
    return first <= year - today.year <= last


def _view_of_path(path: str) -> tuple[View, date] | None:
    """The date at the end of a path. Followed by a name, it is the date of an article or event."""
    dates = list(_PATH_DATE.finditer(path))
    if not dates:
        return None
    found = dates[-1]
    if any(part not in _VIEWS for part in path[found.end() :].lower().split('/') if part):
        return None
    return _view(found[1], found[2], found[3])


def _view_of_query(query: str, *, is_calendar: bool) -> tuple[View, date] | None:
    values: dict[str, str] = {}
    for part in query.replace('%2F', '/').replace('%2f', '/').split('&'):
        name, _, value = part.partition('=')
        name = name.lower().rpartition('%5b')[2].removesuffix('%5d').rpartition('[')[2].rstrip(']')
        if value and name in _DATE_KEYS:
            values.setdefault(name, value)
    if not values:
        return None
    year = _first(values, _YEAR_KEYS)
    if year is not None and len(year) == 4 and year.isdecimal():
        month = _first(values, _MONTH_KEYS)
        # `y` alone may be anything, such as a coordinate.
        if month is not None or is_calendar or 'y' not in values:
            return _view(year, month, _first(values, _DAY_KEYS))
    for name, value in values.items():
        if (is_calendar or name not in _WEAK_KEYS) and (found := _view_of_value(value)):
            return found
    return None


def _view_of_value(value: str) -> tuple[View, date] | None:
    if len(value) in (9, 10, 11) and value.isdecimal():
        return ('day', datetime.fromtimestamp(min(int(value), 32_503_680_000), UTC).date())
    found = _DATE.match(value)
    if found is not None and not value[found.end() :][:1].isdigit():
        if found[2]:
            return ('week', _day(int(found[1]), 1 + int(found[2]) * 7 // 31, 1))
        return _view(found[1], found[4], found[5])
    found = _DATE_BACKWARDS.match(value)
    # Which of the two is the month depends on the country; the distance is about the same.
    return _view(found[3], str(min(int(found[1]), int(found[2]))), '1') if found else None


def _view(year: str, month: str | None, day: str | None) -> tuple[View, date] | None:
    if month is None or not month.isdecimal():
        return ('year', _day(int(year), 7, 1))
    if not 1 <= int(month[:4]) <= 12:
        return None
    if day is None or not day.isdecimal():
        return ('month', _day(int(year), int(month), 15))
    return ('day', _day(int(year), int(month), int(day[:4])))


def _day(year: int, month: int, day: int) -> date:
    return date(max(year, 1), min(max(month, 1), 12), min(max(day, 1), 28))


def _first(values: dict[str, str], names: frozenset[str]) -> str | None:
    return next((value for name, value in values.items() if name in names), None)
