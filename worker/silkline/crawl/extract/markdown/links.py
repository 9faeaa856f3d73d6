"""URLs in Markdown: made absolute, and written so that a bracket cannot end them early.

The links that a crawl follows have rules of their own (`urls.py`); here a link only has to take a
reader to the right place.
"""

import re
from urllib.parse import urljoin

MAX_LENGTH = 2083
_SCHEME = re.compile(r'([a-zA-Z][a-zA-Z0-9+.-]*):')
_READABLE = frozenset({'http', 'https', 'mailto', 'tel', 'ftp'})
_UNSAFE = re.compile(r'[\s()<>\\"|`\x00-\x1f\x7f]')


class LinkResolver:
    """Makes the links of one page absolute."""

    def __init__(self, url: str, base: str | None) -> None:
        self.page = url.partition('#')[0]
        self.base = _joined(self.page, base) if base else self.page
        scheme, _, rest = self.base.partition('://')
        host = rest.partition('/')[0].partition('?')[0]
        self._scheme = f'{scheme}:'
        self._origin = f'{scheme}://{host}'
        path = rest[len(host) :].partition('?')[0]
        self._folder = f'{self._origin}{path.rpartition("/")[0]}/'
        above, slash, _ = self._folder[:-1].rpartition('/')
        self._above = above + slash if len(above) >= len(self._origin) else None
        self._known: dict[str, str | None] = {}

    def absolute(self, href: str) -> str | None:
        """The URL to write; None for links that lead nowhere (javascript:, data:)."""
        known = self._known
        if href not in known:
            known[href] = self._resolve(href.strip())
        return known[href]

    def _resolve(self, href: str) -> str | None:
        if not href or len(href) > MAX_LENGTH:
            return None
        if href[0] == '/' and '/.' not in href:
            result = (self._scheme if href.startswith('//') else self._origin) + href
        elif href.startswith(('https://', 'http://')):
            result = href
        elif href.startswith('#'):
            result = self.base + href
        elif (scheme := _SCHEME.match(href)) is not None:
            if scheme[1].lower() not in _READABLE:
                return None
            result = href
        elif href.startswith('//'):
            result = self._scheme + href
        elif href[0].isalnum() and '/.' not in href:
            result = self._folder + href
        elif href.startswith('../') and '/.' not in href and self._above is not None:
            result = self._above + href[3:]
        else:
            result = _joined(self.base, href)
        if _UNSAFE.search(result):
            result = _UNSAFE.sub(_percent, result)
        return result


def _percent(found: re.Match[str]) -> str:
    return ''.join(f'%{byte:02X}' for byte in found[0].encode())


def _joined(base: str, href: str) -> str:
    try:
        return urljoin(base, href)
    except ValueError:
        return href
