"""What a page says it is: an article, a product, a part of a manual.

Reads what pages state for search engines (schema.org, Open Graph) and their URL. Which posts,
items or prose a page really has is found by other modules, which may overrule this one.
"""

import re
from dataclasses import dataclass

from silkline.crawl.extract.facts import Facts

_ARTICLE = re.compile(r'"@type"\s*:\s*"(?:(?:News|Reportage)?Article|BlogPosting)"')
_ARTICLE_WORDS = (
    'schema.org/NewsArticle',
    'schema.org/BlogPosting',
    'schema.org/Article',
)
_PRODUCT = re.compile(r'"@type"\s*:\s*"Product"')
# Hosts and paths of documentation and wikis.
_MANUAL = re.compile(
    r'https?://(?:(?:docs?|developers?|help|support|wiki|api|learn|kb|manual|handbook)\.'
    r'|[^?#]*/(?:docs|documentation|reference|manual|wiki|api|kb|handbook)/)'
)


@dataclass(frozen=True, slots=True)
class PageKind:
    is_article: bool
    # Said in more than one word of Open Graph, which many pages of other kinds have, too.
    is_surely_article: bool
    is_manual: bool
    is_product: bool


def kind_of_page(facts: Facts, *, html: str, url: str) -> PageKind:
    is_manual = _MANUAL.match(url) is not None
    # Many documentation sites mark each of their pages as an article.
    is_surely_article = not is_manual and (says_article(html) or facts.is_dated)
    return PageKind(
        is_article=is_surely_article or (facts.is_article and not is_manual),
        is_surely_article=is_surely_article,
        is_manual=is_manual,
        is_product=not is_manual and says_product(html),
    )


def says_article(html: str) -> bool:
    """Whether the page calls itself an article, in one of the ways of schema.org."""
    # Searching for a word takes a third of the time of a pattern that begins with it.
    if 'CollectionPage"' in html:
        return False
    return (
        ('"@type"' in html and _ARTICLE.search(html) is not None)
        or ('schema.org/' in html and any(word in html for word in _ARTICLE_WORDS))
        or 'itemprop="articleBody"' in html
    )


def says_product(html: str) -> bool:
    return (
        ('"Product"' in html and _PRODUCT.search(html) is not None)
        or 'schema.org/Product"' in html
        or 'content="product"' in html
        or 'content="og:product"' in html
    )
