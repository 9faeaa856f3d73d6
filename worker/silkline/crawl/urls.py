"""URLs as browsers read them: joining links, the canonical form, and the key of a page.

There are two forms of a URL. The wire form is what `join` returns and what is requested: the link
as the WHATWG rules resolve it, without its fragment. The canonical form is used only for the key:
two wire forms with one canonical form are one page. A changed rule changes keys that are stored, so
it comes with a higher `URL_RULES`. Which URLs to follow is left to `engine/scope.py`.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from can_ada import URL, parse

URL_RULES = 1
MAX_URL_LENGTH = 2083
# A host name has at most 253 characters, plus the colon and the port.
MAX_HOST_LENGTH = 259
# Resolving a link may drop spaces, tabs and dot segments, so it may be longer than a URL.
MAX_HREF_LENGTH = 4 * MAX_URL_LENGTH

# https://fetch.spec.whatwg.org/#port-blocking
BAD_PORTS = frozenset(
    int(text)
    for text in (
        '0 1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 '
        '111 113 115 117 119 123 135 137 139 143 161 179 389 427 465 512 513 514 515 526 530 531 '
        '532 540 548 554 556 563 587 601 636 989 990 993 995 1719 1720 1723 2049 3659 4045 4190 '
        '5060 5061 6000 6566 6665 6666 6667 6668 6669 6679 6697 10080'
    ).split()
)

# Parameters that identify a click, a campaign or a visitor, never a page. The list is closed:
# any other parameter may select the content. docs/reference/crawling.md repeats it.
TRACKING_PARAMETERS = frozenset({
    # Google, Microsoft, Yandex
    'dclid', 'gad_campaignid', 'gad_source', 'gbraid', 'gclid', 'gclsrc', 'srsltid', 'wbraid',
    '_ga', '_gl', 'msclkid', 'yclid', 'ysclid', '_openstat',
    # Networks
    'fbclid', 'igsh', 'igshid', 'li_fat_id', 'ttclid', 'twclid', 'epik', 'rdt_cid',
    # Mail and marketing
    'mc_cid', 'mc_eid', 'mkt_tok', '_hsenc', '_hsmi', '__hssc', '__hstc', '__hsfp',
    'hsctatracking', '_kx', 'dm_i', 'ef_id', 'ml_subscriber', 'ml_subscriber_hash', 'oly_anon_id',
    'oly_enc_id', 'rb_clickid', 's_cid', 'vero_conv', 'vero_id', 'wickedid', 'irclickid',
    '_branch_match_id',
})  # fmt: skip
TRACKING_PREFIXES = ('utm_', 'mtm_', 'pk_', 'piwik_', 'matomo_')
# Session ids under names that have no other use.
SESSION_PARAMETERS = frozenset({
    'cfid', 'cftoken', 'jsessionid', 'oscsid', 'phpsessid', 'sessid', 'sessionid', 'session_id',
    'zenid',
})  # fmt: skip
# These names have other uses: they count as session ids only if the value is a hash.
MAYBE_SESSION_PARAMETERS = frozenset({'s', 'sid', 'session'})

_WEB: Final = ('https:', 'http:')
_NOTHING: Final[dict[str, str | None]] = {}
_ESCAPE = re.compile('%([0-9A-Fa-f]{2})?')
_UNRESERVED = frozenset('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~')
_HASH = re.compile('[0-9A-Fa-f]{32,64}')
_PATH_SESSION = re.compile(
    r';(?:jsessionid|phpsessid|sessionid|sid)=[^/;]*|/\([Ss]\([0-9A-Za-z]{20,40}\)\)(?=/)',
    re.IGNORECASE,
)
_AUTHORITY = re.compile('[^/]*//([^/?#]+)')
_TYPED_SITE = re.compile(r'https?://[^/?#\\]+', re.IGNORECASE)
_ROOT_DOT = re.compile(r'[.](:[0-9]+)?\Z')


def join(base: str, href: str) -> str | None:
    """The http(s) URL of a link on a page, without its fragment; None if it has no such URL."""
    try:
        return _join(parse(base), href)
    except (ValueError, TypeError):
        return None


def canonical(url: str) -> str:
    """The form that two URLs of the same page share. ValueError if it is not an http(s) URL."""
    try:
        parsed = parse(url)
    except (ValueError, TypeError):
        parsed = None
    if parsed is None or (scheme := parsed.protocol) not in _WEB:
        raise ValueError(f'not an http or https URL: {url[:100]!r}')
    site = f'{scheme}//{_without_root_dot(parsed.host)}'
    path = _normal_escapes(parsed.pathname)
    if (';' in path or '(' in path) and (stripped := _PATH_SESSION.sub('', path)) != path:
        # What remains may be a dot segment, which parsing resolves.
        path = parse(site + (stripped or '/')).pathname
    query = _canonical_query(parsed.search)
    return f'{site}{path}?{query}' if query else site + path


def key_of(url: str) -> UUID:
    """The key of a page in the frontier. ValueError as for `canonical`."""
    return UUID(bytes=hashlib.blake2b(canonical(url).encode(), digest_size=16).digest())


def host_of(url: str) -> str:
    """Host and port, like the SQL function `silkline.url_host`; '' if there is no host."""
    found = _AUTHORITY.match(url)
    if found is None:
        return ''
    host = found[1].lower()
    host = host.removesuffix(':443' if url[:5].lower() == 'https' else ':80')
    return _without_root_dot(host)


def with_ascii_host(url: str) -> str:
    """The URL with its scheme and host as browsers write them, and the rest as it was typed.

    Unchanged if it is not an http(s) URL or has a user name: nothing can be fetched from it.
    """
    typed = _TYPED_SITE.match(url)
    try:
        parsed = parse(url)
    except (ValueError, TypeError):
        return url
    if typed is None or parsed.has_credentials():
        return url
    return f'{parsed.protocol}//{parsed.host}{url[typed.end() :]}'


class Joiner:
    """`join` for all links of a page, at a fraction of the cost.

    The links of a site repeat from page to page. Where a link leads depends on the site alone if
    it is absolute or begins with a slash, and otherwise on the directory; both are cached.
    Two generations bound the memory: when the young one is full it replaces the old one.
    """

    def __init__(self, *, max_entries: int = 20_000) -> None:
        self.max_young = max(1, max_entries // 2)
        self.young: dict[str, dict[str, str | None]] = {}
        self.old: dict[str, dict[str, str | None]] = {}
        self.young_entries = 0

    def links(self, base: str, hrefs: Iterable[str]) -> list[str]:
        """The URLs of the links of a page, in order, without duplicates."""
        try:
            page = parse(base)
        except (ValueError, TypeError):
            return []
        whole = page.href.partition('#')[0]
        origin = whole[: whole.find('/', 8)]
        path = whole.partition('?')[0]
        directory = path[: path.rfind('/') + 1]
        # For links within the page, such as #part.
        here = _join_or_none(page, '')
        if self.young_entries >= self.max_young:
            self.old, self.young, self.young_entries = self.young, {}, 0
        # Not created here: endless directories would fill the cache with empty entries.
        of_site = self.young.get(origin, _NOTHING)
        of_directory = self.young.get(directory, _NOTHING)
        found: dict[str | None, None] = {}
        for href in dict.fromkeys(hrefs):
            if href in of_site:
                found[of_site[href]] = None
            elif href in of_directory:
                found[of_directory[href]] = None
            elif href[:1] == '#':
                found[here] = None
            else:
                found[self._learn(page, href, origin=origin, directory=directory)] = None
        found.pop(None, None)
        return list(found)  # pyright: ignore[reportReturnType] - None was taken out

    def _learn(self, page: URL, href: str, *, origin: str, directory: str) -> str | None:
        first = href[:1]
        # A bare query is joined to the whole URL; a link that begins with a space may be one.
        if first <= ' ' or first == '?' or len(href) > 500:
            return _join_or_none(page, href)
        is_of_site = first in '/\\' or href.startswith(('https://', 'http://'))
        place = origin if is_of_site else directory
        remembered = self.old.get(place)
        if remembered is not None and href in remembered:
            url = remembered[href]
        else:
            url = _join_or_none(page, href)
        # Even a single page with very many links stays within the bound.
        if self.young_entries < self.max_young:
            self.young.setdefault(place, {})[href] = url
            self.young_entries += 1
        return url


def is_noise(name: str, value: str) -> bool:
    """Whether a query parameter identifies a click, a campaign or a session, not content."""
    name = name.lower()
    return (
        name in TRACKING_PARAMETERS
        or name in SESSION_PARAMETERS
        or name.startswith(TRACKING_PREFIXES)
        or name.startswith('aspsessionid')
        or (name in MAYBE_SESSION_PARAMETERS and _HASH.fullmatch(value) is not None)
    )


def _join(page: URL, href: str) -> str | None:
    if len(href) > MAX_HREF_LENGTH:
        return None
    url = page + href
    if url.protocol not in _WEB or url.has_credentials() or len(url.host) > MAX_HOST_LENGTH:
        return None
    wire = url.href.partition('#')[0]
    return wire if len(wire) <= MAX_URL_LENGTH else None


def _join_or_none(page: URL, href: str) -> str | None:
    try:
        return _join(page, href)
    except (ValueError, TypeError):
        return None


def _canonical_query(search: str) -> str:
    if len(search) < 2:
        return ''
    parameters: list[tuple[str, str]] = []
    for part in _normal_escapes(search[1:]).split('&'):
        name, _, value = part.partition('=')
        if part and not is_noise(name, value):
            parameters.append((name, part))
    # By name only: the order of the values of one name may matter.
    parameters.sort(key=_first)
    return '&'.join(part for _, part in parameters)


def _first(pair: tuple[str, str]) -> str:
    return pair[0]


def _normal_escapes(text: str) -> str:
    return _ESCAPE.sub(_normal_escape, text) if '%' in text else text


def _normal_escape(found: re.Match[str]) -> str:
    digits = found[1]
    if digits is None:
        # A bare % would become an escape once the characters after it are decoded.
        return '%25'
    character = chr(int(digits, 16))
    return character if character in _UNRESERVED else f'%{digits.upper()}'


def _without_root_dot(host: str) -> str:
    return _ROOT_DOT.sub(r'\1', host) if '.' in host[-7:] else host
