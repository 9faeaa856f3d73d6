"""The directives of X-Robots-Tag that apply to one crawler.

`name: words` applies to the crawler of that name, up to the next name; but some directives also
have a value after a colon. Only the directives are returned, without their values; an
`unavailable_after` that has passed counts as `noindex`. Obeying them is left to `reader.py`.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

HEADER = 'X-Robots-Tag'
PLAIN = frozenset({
    'all', 'index', 'follow', 'noindex', 'nofollow', 'none', 'noarchive', 'nocache', 'nosnippet',
    'noimageindex', 'notranslate', 'noodp', 'noydir', 'nositelinkssearchbox', 'indexifembedded',
    'noai', 'noimageai',
})  # fmt: skip
WITH_VALUE = frozenset({
    'unavailable_after', 'max-snippet', 'max-image-preview', 'max-video-preview',
})  # fmt: skip
# Names that mean every crawler.
EVERYBODY = frozenset({'*', 'robots'})

# The parts between commas. A comma after a day of the week belongs to the date.
_PARTS = re.compile(
    r'[^,]*?\bunavailable_after\s*:\s*(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\s*,)?[^,]*|[^,]+'
)


def directives_of(headers: Mapping[str, str], agent: str) -> frozenset[str]:
    """The directives for every crawler and those for `agent` (lower case), from all headers."""
    if HEADER not in headers:
        return frozenset()
    # A header may be repeated; an ordinary mapping, such as a plugin's, holds it once.
    getall = getattr(headers, 'getall', None)
    values: Iterable[str] = getall(HEADER) if getall is not None else (headers[HEADER],)
    found: set[str] = set()
    for value in values:
        found |= _read(value.lower(), agent)
    return frozenset(found)


def _read(value: str, agent: str) -> set[str]:
    found: set[str] = set()
    is_for_us = True
    for part in _PARTS.findall(value):
        name, words = _named(part.strip(), agent)
        if name is not None:
            is_for_us = name == agent or name in EVERYBODY
        if not is_for_us:
            continue
        directive, colon, rest = words.partition(':')
        directive = directive.strip()
        if directive == 'unavailable_after':
            if _is_past(rest.strip()):
                found.add('noindex')
        elif colon:
            found.add(directive)
        else:
            found.update(words.replace(';', ' ').split())
    return found


def _named(part: str, agent: str) -> tuple[str | None, str]:
    """The crawler that a part names, if any, and the rest of the part."""
    name, colon, rest = part.partition(':')
    name, rest = name.strip(), rest.strip()
    if not colon or name in WITH_VALUE:
        return None, part
    if name in EVERYBODY or (name and name == agent):
        return name, rest
    first = re.split(r'[\s:;]', rest, maxsplit=1)[0]
    return (name, rest) if first in PLAIN or first in WITH_VALUE else (None, part)


def _is_past(date: str) -> bool:
    from email.utils import parsedate_to_datetime

    try:
        when = datetime.fromisoformat(date.upper())
    except ValueError:
        try:
            when = parsedate_to_datetime(date)
        except (ValueError, TypeError, OverflowError):
            return False
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return when < datetime.now(UTC)
