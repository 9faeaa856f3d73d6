"""The words by which pages name their content and their clutter.

Classes and ids are read as words between spaces, hyphens and underscores. The words are in wide
use, in content management systems, themes and frameworks; none belongs to a single site. Articles
have more kinds of clutter than, say, documentation.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from silkline.crawl.extract.tree import HEADINGS, Node

REMEMBERED = 2_000
MAX_LAST_LINKS = 3

_TAGS = frozenset({'nav', 'aside', 'footer'})
_ARTICLE_TAGS = frozenset({'nav', 'aside', 'footer', 'figcaption', 'form', 'header'})
_CONTENT_TAGS = frozenset({'main', 'article', 'code', 'kbd', 'samp', 'pre', 'dt', *HEADINGS})
_ROLES = frozenset(
    'navigation banner contentinfo search complementary dialog menu toolbar menubar alertdialog'
    ' tablist'.split()
)
_START = r'(?:^|[\s_-])'
_END = r'(?:$|[\s_-])'
# First words that mean the same with any ending, then words that may begin others.
_ALWAYS = (
    r'(?:newsletter|breadcrumb|(?<!has-)(?<!with-)(?<!no-)sidebar|disqus|outbrain|taboola|advert'
    r'|footer|navbar|navigation|masthead|cookie'
    r'|popup|modal|signup|subscri|paginat|pager|sharing'
    r'|social|screen-reader|visually-?hidden|headerlink|hash-link|header-anchor'
    r'|skip-?(?:to|link|nav|content)|prev-?next|next-?prev|edit-?(?:this|page|link|section|on-github)'
    r'|last-?updated|theme-doc-(?:toc|footer|version)|post-?nav|doc-?nav|rst-footer|rst-versions'
    r'|md-(?:sidebar|footer|header|source)|vpdocfooter|vpdocaside|sphinxsidebar|wy-nav'
    r'|contents (?:local )?topic|navbox|catlinks|printfooter|feedback|back-?to-?top|announcement'
    r'|mw-portlet|vector-dropdown|votecell|vote-?count|suggest-?edit|updated-?at'
    r'|copy-?(?:btn|button)|comment-?(?:list|form|respond|section|area|thread))'
    r'|(?:shares?|sharebar|ads?|adslot|nav|menu|toc|login|sr-only|no-?print|comments|related|banner'
    r'|hideme|post-?(?:menu|taglist|signature)|user-?(?:info|card|details)|crumbs?|aux|rail|foot'
    r'|right-?rail|tocbox|localtoc|page-toc)' + _END
)
_IN_ARTICLES = (
    r'(?:related|recommend|comment(?!ary)|sponsor|byline|caption|credit|gallery|trending|popular'
    r'|carousel|swiper|slideshow|most-|read-?more|read-?next|up-?next|teaser|copyright|disclaimer'
    r'|more-(?:from|stories|news|articles|on)|toolbar|tooltip|dropdown|metadata|timestamp|dateline'
    r'|datetime|userinfo|rating|donate|paywall|leaderboard|playlist|breaking)'
    r'|(?:ad-?unit|promos?|promotion|tags?|tag-?list|taglist|authors?|author-?(?:bio|box|info|meta)'
    r'|bio|register|widgets?|meta|post-?meta|entry-?meta|date|time|cta|hidden|print|print-only'
    r'|print-link|follow|follow-us|overlay|infobox|factbox|topics|keywords|categories'
    r'|category-?links|skip|sticky)' + _END
)
_CLUTTER = re.compile(f'{_START}(?:{_ALWAYS})')
_ARTICLE_CLUTTER = re.compile(f'{_START}(?:{_ALWAYS}|{_IN_ARTICLES})')
_INLINE_CLUTTER = re.compile(
    rf'{_START}(?:screen-reader|visually-?hidden|sr-only|headerlink|hash-link|header-anchor'
    r'|edit-?(?:this|page|link|section)|mw-editsection|suggest-?edits?|copy-?(?:btn|button)|no-?print)'
)
_CONSENT = re.compile(
    rf'{_START}(?:onetrust|cookie-?(?:consent|banner|notice|law|popup|modal|policy-banner)'
    rf'|cookiebot|cybotcookiebotdialog|consent-?(?:banner|manager|modal|popup|sdk)|gdpr'
    rf'|truste|usercentrics|didomi|qc-cmp)'
)
_CONTENTS = re.compile(
    rf'{_START}(?:toc|table-?of-?contents|contents|tocbox|localtoc|page-?toc){_END}'
)
_REVIEW = re.compile(
    rf'{_START}(?:[a-z]*reviews?|testimonials?|ratings?|recommend\w*|upsells?|cross-?sells?'
    rf'|you-may-also-like|(?:mini)?carts?|bundles?){_END}'
)
# An id is a link target, often made of the words of a heading: only these whole ids count.
_IDENTITIES = frozenset(
    'footer header sidebar nav navigation navbar menu toc breadcrumb breadcrumbs comments search'
    ' cookie cookies banner masthead'.split()
)
_BODY = re.compile(
    _START + r'(?:(?:article|story|entry|post|blog|news|page|content|node|field-name|text|single)'
    r'(?:[_-]{1,2})?(?:body|content|text|copy|main|detail)|body-?(?:copy|text|content)|storytext'
    r'|main-?(?:content|text|body|story)|rich-?text|markdown-body|markdown|rst-content|vp-doc'
    r'|md-content__inner|articlebody|wysiwyg|documentation|document)' + _END
)
_NOTE = re.compile(
    rf'{_START}(?:admonition|aside|callout|hint|note|quote|footnotes?|footnote-list|topic){_END}'
)
_MANUALS = frozenset(
    'mw-parser-output rst-content td-content theme-doc-markdown md-content__inner'
    ' wiki-content'.split()
)

_LAST_WORDS = re.compile(
    r'\W*(?:last (?:updated?|modified|edited)\b.{0,80}|(?:was|is) this (?:\w+ )?helpful\W*'
    r'|did this page help(?: you)?\W*|---'
    r'|(?:suggest an |improve |edit )(?:edit|this page|this article)\W*'
    r'|(?:feedback|share this|related|read more)\W*)',
    re.IGNORECASE,
)
_LINK = re.compile(r'\[[^\[\]]*\]\([^()]*\)\s*')


def means_nothing(node: Node) -> bool:
    """Whether the names say nothing about pages that are no articles, as those of most do."""
    return _means(node.names).is_nothing and (
        not node.identity or (_means(node.identity).is_nothing and node.identity not in _IDENTITIES)
    )


def is_article_clutter(node: Node) -> bool:
    """Whether tag, role or names say that it is not the text of an article."""
    tag = node.tag
    if tag in _CONTENT_TAGS:
        return False
    if tag == 'aside' and _NOTE.search(node.names):
        return False
    if tag in _ARTICLE_TAGS or (node.role and node.role in _ROLES):
        return True
    return _means(node.names).is_article_clutter or node.identity in _IDENTITIES


def is_consent(node: Node) -> bool:
    """Whether names say that it asks for consent to cookies, which may take many words."""
    return _means(node.names).is_consent or _means(node.identity).is_consent


def is_navigation(node: Node) -> bool:
    """Whether tag or role alone mark it as navigation."""
    return node.role in _ROLES or (node.tag in _TAGS and not _NOTE.search(node.names))


def is_named_clutter(node: Node) -> bool:
    """Whether classes, or an id that is one word of clutter, call it clutter."""
    if node.tag in _CONTENT_TAGS:
        return False
    return _means(node.names).is_clutter or node.identity in _IDENTITIES


def is_inline_clutter(node: Node) -> bool:
    """Whether classes say that a piece of text is not to be read."""
    return _means(node.names).is_inline_clutter


def is_named_contents(node: Node) -> bool:
    """Whether it is named like a table of contents."""
    return _means(node.names).is_contents or _means(node.identity).is_contents


def is_named_review(node: Node) -> bool:
    """Whether classes say that it is what customers think of a product, or what else is on sale."""
    return _means(node.names).is_review


def is_body(node: Node) -> bool:
    """Whether the names say that this holds the text of the page."""
    return _means(node.names).is_body or _means(node.identity).is_body


def is_manual(node: Node) -> bool:
    """Whether the names are those of documentation generators and wikis."""
    return bool(node.names) and not _MANUALS.isdisjoint(node.names.split())


def drop_ending(blocks: list[str]) -> None:
    """Drop unmarked clutter at the end of a page: links to the next page, a date of change.

    Links under a heading, and those that go on a list of links, are no clutter.
    """
    links = 0
    are_single = True
    end = len(blocks)
    for _ in range(min(4, len(blocks) - 3)):
        last = blocks[end - 1]
        if not _LAST_WORDS.fullmatch(last):
            found = len(_LINK.findall(last))
            links += found
            if _LINK.sub('', last) or (links > MAX_LAST_LINKS and not are_single):
                break
            are_single = are_single and found == 1
            if links > MAX_LAST_LINKS or blocks[end - 2].startswith('#'):
                return
        end -= 1
    del blocks[end:]


@dataclass(frozen=True, slots=True)
class _Meaning:
    """What classes, or an id, say about an element."""

    # None of the following, apart from what counts in articles.
    is_nothing: bool
    is_clutter: bool
    is_article_clutter: bool
    is_inline_clutter: bool
    is_consent: bool
    is_contents: bool
    is_review: bool
    is_body: bool


# The same names occur again and again, on a page and on all pages of a site.
@lru_cache(maxsize=REMEMBERED)
def _means(names: str) -> _Meaning:
    is_embedded = 'embed' in names
    is_clutter = not is_embedded and _CLUTTER.search(names) is not None
    is_inline_clutter = _INLINE_CLUTTER.search(names) is not None
    is_contents = _CONTENTS.search(names) is not None
    is_review = _REVIEW.search(names) is not None
    return _Meaning(
        is_nothing=not (is_clutter or is_inline_clutter or is_contents or is_review),
        is_clutter=is_clutter,
        is_article_clutter=not is_embedded and _ARTICLE_CLUTTER.search(names) is not None,
        is_inline_clutter=is_inline_clutter,
        is_consent=_CONSENT.search(names) is not None,
        is_contents=is_contents,
        is_review=is_review,
        is_body=_BODY.search(names) is not None,
    )
