"""The built-in extractor: a parsed document to Markdown, in full or only its main content.

Ties the steps together: copy the tree, find the main content, write it, free the tree. The steps
themselves are left to the modules that are imported here.
"""

import re

from silkline.crawl.extract.facts import Facts
from silkline.crawl.extract.main_content import find_main
from silkline.crawl.extract.markdown.document import write_markdown
from silkline.crawl.extract.markdown.inline import InlineWriter
from silkline.crawl.extract.markdown.links import LinkResolver
from silkline.crawl.extract.measure import measure
from silkline.crawl.extract.parser import Document, build_tree, release
from silkline.crawl.extract.tabs import label_panels
from silkline.crawl.options import LinkStyle

_ARTICLE = re.compile(r'"@type"\s*:\s*"(?:(?:News|Reportage)?Article|BlogPosting)"')
_ARTICLE_WORDS = (
    'schema.org/NewsArticle',
    'schema.org/BlogPosting',
    'schema.org/Article',
)
# Hosts and paths of documentation and wikis.
_MANUAL = re.compile(
    r'https?://(?:(?:docs?|developers?|help|support|wiki|api|learn|kb|manual|handbook)\.'
    r'|[^?#]*/(?:docs|documentation|reference|manual|wiki|api|kb|handbook)/)'
)


def main_markdown(
    document: Document, facts: Facts, *, html: str, url: str, links: LinkStyle, max_markdown: int
) -> str:
    """Write the main content, without navigation and the like."""
    nodes = build_tree(document)
    if not nodes:
        return ''
    try:
        # Many documentation sites mark each of their pages as an article.
        is_article = _MANUAL.match(url) is None and (facts.is_article or says_article(html))
        label_panels(nodes)
        main = find_main(nodes, title=facts.title, is_article=is_article)
        inline = InlineWriter(LinkResolver(url, facts.base), html=html, links=links)
        return write_markdown(
            main.root, inline, heading=main.heading, is_main=True, limit=max_markdown
        ).text
    finally:
        release(nodes)


def says_article(html: str) -> bool:
    """Whether the page calls itself an article, in one of the ways of schema.org."""
    # Searching for a word takes a third of the time of a pattern that begins with it.
    return (
        ('"@type"' in html and _ARTICLE.search(html) is not None)
        or ('schema.org/' in html and any(word in html for word in _ARTICLE_WORDS))
        or 'itemprop="articleBody"' in html
    )


def full_markdown(
    document: Document, facts: Facts, *, html: str, url: str, links: LinkStyle, max_markdown: int
) -> str:
    """Write all text of the page, including navigation, but nothing that is hidden."""
    nodes = build_tree(document)
    if not nodes:
        return ''
    try:
        label_panels(nodes)
        for node in nodes:
            node.is_junk = node.is_hidden
        measure(nodes)
        inline = InlineWriter(LinkResolver(url, facts.base), html=html, links=links)
        return write_markdown(nodes[0], inline, limit=max_markdown).text
    finally:
        release(nodes)
