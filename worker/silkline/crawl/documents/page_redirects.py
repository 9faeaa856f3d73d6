"""Pages that name another page: by a refresh, or by their canonical URL.

Both are only what the page claims. What follows from it is left to the frontier and the database.
"""

import re

from silkline.crawl.urls import host_of, join, key_of

# A refresh within this time counts as a redirect, as for search engines.
MAX_REDIRECT_SECONDS = 1

_REFRESH = re.compile(
    r'\s*(?=[0-9.])([0-9]*)(?:[.][0-9.]*)?(?:\s*[;,]|\s)\s*(?:url\s*=\s*)?(.*)', re.I | re.S
)


def refresh_of(content: str | None, *, base: str, url: str) -> tuple[int, str | None]:
    """The delay and the target of a `Refresh`; the target is None if it is the page itself."""
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


def other_canonical(canonical: str | None, *, url: str) -> str | None:
    """The canonical URL of a page, if it is another page of the same host.

    Not the front page, which whole sites name by mistake. Not the same page by http or https
    either: sites that have moved from one to the other often still name the old one.
    """
    if canonical is None or host_of(canonical) != host_of(url):
        return None
    scheme, _, rest = canonical.partition('://')
    if not rest.partition('/')[2]:
        return None
    here = url.partition('://')[2]
    return canonical if key_of(f'{scheme}://{here}') != key_of(canonical) else None
