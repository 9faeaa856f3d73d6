"""Where a page leads instead of itself: a refresh, or the URL that it names as its own.

Both are what the page says. Whether it is believed is the frontier's and the database's.
"""

import re

from silkline.crawl.urls import host_of, join, key_of

# A page that leads on within this time is a redirect, as search engines have it.
AT_ONCE_SECONDS = 1

_REFRESH = re.compile(
    r'\s*(?=[0-9.])([0-9]*)(?:[.][0-9.]*)?(?:\s*[;,]|\s)\s*(?:url\s*=\s*)?(.*)', re.I | re.S
)


def refresh_of(content: str | None, *, base: str, url: str) -> tuple[int, str | None]:
    """After how many seconds a page leads to which other one, as `Refresh` has it."""
    found = _REFRESH.match(content) if content else None
    if found is None:
        return 0, None
    href = found[2].strip()
    if href[:1] in ('"', "'"):
        href = href[1:].partition(href[0])[0]
    target = join(base, href) if href else None
    if target is None or key_of(target) == key_of(url):
        return 0, None
    return int(found[1][:6] or 0), target


def canonical_elsewhere(canonical: str | None, *, url: str) -> str | None:
    """The URL that a page names as its own, if that is another page of the same host.

    Not the front page, which whole sites name by mistake, and not the page itself by http or
    https: sites that move from one to the other are late to say so.
    """
    if canonical is None or host_of(canonical) != host_of(url):
        return None
    scheme, _, rest = canonical.partition('://')
    if not rest.partition('/')[2]:
        return None
    here = url.partition('://')[2]
    return canonical if key_of(f'{scheme}://{here}') != key_of(canonical) else None
