"""Parse and match robots.txt by RFC 9309, with Crawl-delay and sitemaps.

Written here because protego 0.7 fails cases of tests/crawl/engine/test_robots.py: a Crawl-delay
line ends its group, `Example` matches Example-Bot, a byte order mark hides the first line, and
agents with a version are not found. Fetching and caching the file is left to `host_rules.py`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote

# The RFC's 500 KiB, counted in characters: never fewer bytes than that.
MAX_CHARACTERS = 500 * 1024
MAX_CRAWL_DELAY_SECONDS = 3600.0

_FIELDS = {
    'user-agent': 'agent', 'useragent': 'agent', 'user agent': 'agent',
    'allow': 'allow',
    'disallow': 'disallow', 'dissallow': 'disallow', 'dissalow': 'disallow',
    'disalow': 'disallow', 'diasllow': 'disallow', 'disallaw': 'disallow',
    'crawl-delay': 'delay', 'crawldelay': 'delay',
    'sitemap': 'sitemap', 'site-map': 'sitemap',
}  # fmt: skip
_LINE_END = re.compile('\r\n|\r|\n')
_TOKEN = re.compile('[A-Za-z_-]+')
_COMPATIBLE = re.compile(r'[(;]\s*compatible;\s*([A-Za-z_-]+)', re.IGNORECASE)
_NORMAL_PATH = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!&'()+,;=]*")
_ESCAPE = re.compile('%([0-9A-Fa-f]{2})')
_KEPT = "-._~:/?#[]@!&'()+,;=%"
_UNRESERVED = frozenset('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~')
_QUERY_ESCAPE = re.compile('%(3A|2F|3F|40|5B|5D)')


def verdict_of(status: int) -> Literal['rules', 'allow_all', 'unavailable']:
    """What the status of robots.txt means. 0 stands for a network error."""
    if 200 <= status < 300:
        return 'rules'
    if 400 <= status < 500 and status != 429:
        return 'allow_all'
    return 'unavailable'


def product_token(agent: str) -> str:
    """The product token of a User-Agent, in lower case, which robots.txt may name.

    It is the first word, or the one after `compatible;` in an agent that begins like a browser's.
    """
    named = _COMPATIBLE.search(agent) if agent.startswith('Mozilla/') else None
    found = named or _TOKEN.match(agent.strip())
    if found is None:
        return ''
    return (found[1] if named else found[0]).lower()


class Robots:
    """The rules of one robots.txt."""

    def __init__(self, groups: dict[str, list['Membership']], sitemaps: Sequence[str]) -> None:
        self.groups = groups
        self.sitemaps = sitemaps
        # A crawl has one agent, so the rules of the last agent are kept.
        self.agent: str | None = None
        self.rules = Rules(())
        self.delay_seconds: float | None = None

    @classmethod
    def parse(cls, text: str) -> 'Robots':
        """Parse a file. Nothing is an error: a line without meaning is ignored."""
        if len(text) > MAX_CHARACTERS:
            # A truncated line could allow or forbid more than the whole one.
            text = text[:MAX_CHARACTERS]
            text = text[: max(text.rfind('\n'), text.rfind('\r')) + 1]
        groups: dict[str, list[Membership]] = {}
        sitemaps: dict[str, None] = {}
        # Lines before the first group form a group without agents.
        group = RobotsGroup()
        for line in _LINE_END.split(text.removeprefix('\ufeff')):
            name, value = _name_and_value(line.partition('#')[0])
            if name == 'agent':
                if group.is_closed:
                    group = RobotsGroup()
                group.size += 1
                memberships = groups.setdefault(_line_token(value), [])
                if not memberships or memberships[-1].group is not group:
                    memberships.append(Membership(group, group.size))
            elif name == 'allow' or name == 'disallow':
                group.add_rule(value, is_allow=name == 'allow')
            elif name == 'delay':
                group.add_delay(value)
            elif name == 'sitemap':
                # A URL may contain #; only # after a space begins a comment.
                address = line.partition(':')[2].partition(' #')[0].strip()
                if address:
                    sitemaps[address] = None
        return cls(groups, list(sitemaps))

    def allows(self, url: str, agent: str) -> bool:
        """Whether a crawler, given by token or User-Agent, may fetch an absolute URL."""
        if agent != self.agent:
            self._choose(agent)
        if self.rules.is_empty:
            return True
        path = _path_of(url)
        return path == '/robots.txt' or self.rules.allow(path)

    def crawl_delay_seconds(self, agent: str) -> float | None:
        """The Crawl-delay of the group that applies, at most an hour."""
        if agent != self.agent:
            self._choose(agent)
        return self.delay_seconds

    def _choose(self, agent: str) -> None:
        token = product_token(agent)
        if not token or token not in self.groups:
            token = '*'  # noqa: S105 - no secret: the group for everybody
        memberships = self.groups.get(token, [])
        self.agent = agent
        self.rules = Rules(pattern for member in memberships for pattern in member.group.patterns)
        self.delay_seconds = next(
            (
                seconds
                for member in memberships
                for size, seconds in member.group.delays
                if member.position <= size
            ),
            None,
        )


@dataclass(slots=True)
class RobotsGroup:
    """User-agent lines and the rules below them. Shared by its agents: copies could be too many."""

    patterns: dict[tuple[str, bool], None] = field(default_factory=dict[tuple[str, bool], None])
    # With the number of agents so far: a Crawl-delay does not end the group, but applies only to
    # the agents above it.
    delays: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    size: int = 0
    is_closed: bool = False

    def add_rule(self, value: str, *, is_allow: bool) -> None:
        self.is_closed = True
        # An empty rule matches nothing, and neither does one that cannot begin a path.
        if value[:1] in ('/', '*'):
            self.patterns[value, is_allow] = None

    def add_delay(self, value: str) -> None:
        try:
            seconds = float(value)
        except ValueError:
            return
        # False for NaN.
        if seconds >= 0:
            self.delays.append((self.size, min(seconds, MAX_CRAWL_DELAY_SECONDS)))


@dataclass(frozen=True, slots=True)
class Membership:
    group: RobotsGroup
    position: int


@dataclass(frozen=True, slots=True)
class Wildcard:
    octets: int
    is_allow: bool
    first: str
    # The parts that must follow in order, with anything in between.
    rest: tuple[str, ...]
    # The end of the path, if the pattern ends in $.
    last: str | None

    def continues(self, path: str) -> bool:
        """Whether a path that starts with `first` also has the rest."""
        # The leftmost match is enough for every part but the last: linear for any pattern.
        at = len(self.first)
        for part in self.rest:
            at = path.find(part, at)
            if at < 0:
                return False
            at += len(part)
        return self.last is None or (len(path) - len(self.last) >= at and path.endswith(self.last))


class Rules:
    """The patterns of a group, ready to match: the longest wins, and of equals the allow."""

    def __init__(self, patterns: Iterable[tuple[str, bool]]) -> None:
        self.exact: dict[str, tuple[int, bool]] = {}
        self.prefixes: dict[str, tuple[int, bool]] = {}
        wildcards: list[Wildcard] = []
        for text, is_allow in patterns:
            is_anchored = text.endswith('$')
            parts = (text[:-1] if is_anchored else text.rstrip('*')).split('*')
            normal = '*'.join(map(_normal, parts))
            # Counted as written, so that /a* outranks /a.
            octets = len(normal) + (1 if is_anchored else len(text) - len(text.rstrip('*')))
            for variant in {normal, _relaxed(normal)}:
                first, *rest = variant.split('*')
                if rest:
                    last = rest.pop() if is_anchored else None
                    parts = tuple(part for part in rest if part)
                    wildcards.append(Wildcard(octets, is_allow, first, parts, last))
                else:
                    plain = self.exact if is_anchored else self.prefixes
                    plain[first] = max(plain.get(first, (-1, True)), (octets, is_allow))
        self.lengths = sorted({len(prefix) for prefix in self.prefixes}, reverse=True)
        self.wildcards = sorted(
            wildcards, key=lambda rule: (rule.octets, rule.is_allow), reverse=True
        )
        self.is_empty = not (self.exact or self.prefixes or self.wildcards)

    def allow(self, path: str) -> bool:
        best = self._best(path)
        if '%' in path and (relaxed := _relaxed(path)) != path:
            best = max(best, self._best(relaxed))
        return best[1]

    def _best(self, path: str) -> tuple[int, bool]:
        best = self.exact.get(path, (-1, True))
        for length in self.lengths:
            found = self.prefixes.get(path[:length])
            if found is not None and found > best:
                best = found
        for rule in self.wildcards:
            if (rule.octets, rule.is_allow) <= best:
                break
            if path.startswith(rule.first) and rule.continues(path):
                return (rule.octets, rule.is_allow)
        return best


def _name_and_value(line: str) -> tuple[str | None, str]:
    name, colon, value = line.partition(':')
    if not colon:
        # A missing colon is accepted if a path shows what was meant.
        name, _, value = line.strip().partition(' ')
        if value.lstrip()[:1] not in ('/', '*') and name.lower() != 'user-agent':
            return None, ''
    return _FIELDS.get(name.strip().lower()), value.strip(' \t\x00')


def _line_token(value: str) -> str:
    if value == '*' or value.startswith(('* ', '*\t')):
        return '*'
    found = _TOKEN.match(value)
    return found[0].lower() if found else ''


def _path_of(url: str) -> str:
    start = url.find('/', url.find('//') + 2)
    query = url.find('?')
    if start < 0 or 0 <= query < start:
        path = '/' + (url[query:] if query >= 0 else '')
    else:
        path = url[start:]
    return _normal(path.partition('#')[0])


def _normal(text: str) -> str:
    """One form for equal paths: escaped as in RFC 9309, section 2.2.2, and * and $ as well."""
    if _NORMAL_PATH.fullmatch(text):
        return text
    return _ESCAPE.sub(_normal_escape, quote(text, safe=_KEPT, errors='replace'))


def _normal_escape(found: re.Match[str]) -> str:
    character = chr(int(found[1], 16))
    return character if character in _UNRESERVED else found[0].upper()


def _relaxed(path: str) -> str:
    """The path with `https%3A%2F%2F` in its query as `https://`: equal in the RFC's examples."""
    head, mark, query = path.partition('?')
    return head + mark + _QUERY_ESCAPE.sub(_decode, query) if '%' in query else path


def _decode(found: re.Match[str]) -> str:
    return chr(int(found[1], 16))
