"""Which links a crawl follows: by host or path of its starts, by the operator's policy for hosts,
by pattern, and outside of traps.

Patterns come from users and run on every link, so RE2 matches them: it takes linear time for any
pattern, and has no lookaround or backreferences in exchange. What robots.txt forbids is left to
`robots.py`, forbidden addresses to `net/egress.py`, start URLs against the policy to
`host_rules.py`.
"""

import ipaddress
from collections.abc import Callable, Sequence
from typing import Literal
from urllib.parse import urlsplit

from silkline.crawl.engine.traps import DuplicateDetector, is_trap
from silkline.crawl.options import CrawlError, CrawlOptions, HostPolicy
from silkline.crawl.urls import host_of, join
from silkline.protocol import SkipReason

MAX_PATTERN_LENGTH = 1_000
MAX_KNOWN_SITES = 2_000

ScopeKind = Literal['host', 'domain', 'prefix']


class Scope:
    """Decides about every link of one crawl."""

    def __init__(
        self,
        starts: Sequence[str],
        *,
        kind: ScopeKind,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        policy: HostPolicy | None = None,
    ) -> None:
        """ValueError names the first invalid pattern, and what is wrong with it."""
        self.kind: ScopeKind = kind
        self.policy = policy or HostPolicy()
        self.includes = compile_patterns(include, name='include')
        self.excludes = compile_patterns(exclude, name='exclude')
        self.starts: set[str] = set()
        # Hosts or domains, with the paths that are in scope for `prefix`, otherwise with ''.
        self.places: dict[str, set[str]] = {}
        # Scheme and authority to the paths that are in scope there; None if none are.
        self.known_sites: dict[str, tuple[str, ...] | None] = {}
        self.duplicates = DuplicateDetector()
        for start in starts:
            self.extend(start)

    @classmethod
    def of_job(cls, options: CrawlOptions, starts: Sequence[str]) -> 'Scope':
        try:
            return cls(
                starts,
                kind=options.scope,
                include=options.include,
                exclude=options.exclude,
                policy=options.policy,
            )
        except ValueError as error:
            raise CrawlError(str(error)) from error

    def extend(self, start: str) -> None:
        """Add the place of a start URL, or of the URL it redirects to."""
        url = join(start, '')
        if url is None or self.policy.refusal(host_of(url)) is not None:
            return
        self.starts.add(url)
        path = directory_of(url) if self.kind == 'prefix' else ''
        self.places.setdefault(self._place_of(url), set()).add(path)
        self.known_sites.clear()

    def judge(self, url: str) -> SkipReason | None:
        """Why a URL, in the form of `urls.join`, is not followed.

        A start is, unless the policy refuses its host.
        """
        path_start = url.find('/', 8)
        site = url[:path_start]
        if site in self.known_sites:
            prefixes = self.known_sites[site]
        else:
            prefixes = self._learn(site)
        if prefixes is None or (self.kind == 'prefix' and not is_below(url[path_start:], prefixes)):
            reason = 'out_of_scope'
        elif (self.includes is not None and not self.includes(url)) or (
            self.excludes is not None and self.excludes(url)
        ):
            reason = 'excluded'
        elif is_trap(url) or self.duplicates.is_blocked(url):
            reason = 'trap'
        else:
            return None
        return None if url in self.starts else reason

    def record_content(self, url: str, content_hash: str) -> None:
        """Note a fetched page, so that URLs with repeated content are recognised as a trap."""
        self.duplicates.record(url, content_hash)

    def _learn(self, site: str) -> tuple[str, ...] | None:
        is_refused = self.policy.refusal(host_of(site)) is not None
        places = None if is_refused else self.places.get(self._place_of(site + '/'))
        prefixes = tuple(places) if places is not None else None
        if len(self.known_sites) >= MAX_KNOWN_SITES:
            self.known_sites.clear()
        self.known_sites[site] = prefixes
        return prefixes

    def _place_of(self, url: str) -> str:
        if self.kind == 'domain':
            return domain_of(url)
        return bare_host(host_of(url))


def bare_host(host: str) -> str:
    """The host without `www.`, which in practice is the same site."""
    bare = host.removeprefix('www.')
    return bare if '.' in bare else host


def domain_of(url: str) -> str:
    """The registered domain of a URL. An address or a single name is its own domain."""
    host = (urlsplit(url).hostname or '').rstrip('.')
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return _public_suffixes()(host) or host


def directory_of(url: str) -> str:
    """The path at and below which URLs are in scope for `prefix`.

    It is the directory of the start URL: `/docs/` for /docs/, /docs/intro and /docs/index.html. A
    single name at the top stands for itself and what is below it: `/docs` for /docs. A file at the
    top, such as /index.html, stands for the whole host.
    """
    path = urlsplit(url).path
    directory, _, name = path.rpartition('/')
    if directory or not name or '.' in name:
        return directory + '/'
    return path


def is_below(path: str, prefixes: Sequence[str]) -> bool:
    """Whether a path, with its query, is at or below one of the prefixes."""
    for prefix in prefixes:
        if path.startswith(prefix):
            if prefix.endswith('/') or path[len(prefix) :][:1] in ('', '/', '?'):
                return True
        elif path.partition('?')[0] + '/' == prefix:
            return True
    return False


def compile_patterns(patterns: Sequence[str], *, name: str) -> Callable[[str], bool] | None:
    """One test for all patterns, which may match anywhere in a URL; None without patterns."""
    if not patterns:
        return None
    # Imported here: it takes 4 ms, and only crawls with patterns need it.
    import re2  # pyright: ignore[reportMissingTypeStubs] - it has none

    options = re2.Options()
    options.log_errors = False
    for pattern in patterns:
        if len(pattern) > MAX_PATTERN_LENGTH:
            raise ValueError(
                f'{name} pattern {pattern[:40]!r}… is longer than {MAX_PATTERN_LENGTH} characters'
            )
        try:
            re2.compile(pattern, options)
        except (re2.error, UnicodeError) as error:
            raise ValueError(f'{name} pattern {pattern!r}: {_reason(error)}') from None
    whole = re2.compile('|'.join(f'(?:{pattern})' for pattern in patterns), options)

    def matches(url: str) -> bool:
        return whole.search(url) is not None

    return matches


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else 'not a regular expression'
    text = reason.decode(errors='replace') if isinstance(reason, bytes) else str(error)
    if 'perl operator' in text or '(?' in text.partition(':')[2]:
        return f'{text} (RE2 does not support lookaround or backreferences)'
    return text


_lookup: Callable[[str], str | None] | None = None


def _public_suffixes() -> Callable[[str], str | None]:
    """Loads the bundled list on first use: it takes 45 ms, and only the scope `domain` needs it."""
    global _lookup
    if _lookup is None:
        from publicsuffixlist import PublicSuffixList

        _lookup = PublicSuffixList().privatesuffix
    return _lookup
