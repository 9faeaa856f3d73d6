"""The built-in extractor: a parsed document to Markdown, whole or only what it is about.

Ties the steps together: copy the tree, find the main content, write it, let the tree go. What the
steps do is left to the modules named in the imports.
"""

import re

from silkline.crawl.extract.facts import Facts
from silkline.crawl.extract.main_content import find_main
from silkline.crawl.extract.markdown.blocks import write_markdown
from silkline.crawl.extract.markdown.inline import InlineWriter
from silkline.crawl.extract.markdown.links import LinkResolver
from silkline.crawl.extract.measure import measure
from silkline.crawl.extract.parser import Document, build_tree, release
from silkline.crawl.extract.tabs import label_panels

_ARTICLE = re.compile(r'"@type"\s*:\s*"(?:(?:News|Reportage)?Article|BlogPosting)"')
_ARTICLE_WORDS = (
    'schema.org/NewsArticle',
    'schema.org/BlogPosting',
    'schema.org/Article',
)
# Parts of a host or path that manuals and wikis have.
_MANUAL = re.compile(
    r'https?://(?:(?:docs?|developers?|help|support|wiki|api|learn|kb|manual|handbook)\.'
    r'|[^?#]*/(?:docs|documentation|reference|manual|wiki|api|kb|handbook)/)'
)


def main_markdown(document: Document, facts: Facts, *, html: str, url: str) -> str:
    """Write what the page is about, without navigation and the like."""
    nodes = build_tree(document)
    if not nodes:
        return ''
    try:
        # Many manuals call each of their pages an article.
        is_article = _MANUAL.match(url) is None and (facts.is_article or says_article(html))
        label_panels(nodes)
        main = find_main(nodes, title=facts.title, is_article=is_article)
        inline = InlineWriter(LinkResolver(url, facts.base), html=html)
        return write_markdown(main.root, inline, heading=main.heading, is_main=True)
    finally:
        release(nodes)


def says_article(html: str) -> bool:
    """Tell whether the page calls itself an article, in one of the ways of schema.org."""
    # Looking for a word takes a third of the time of a pattern that begins with it.
    return (
        ('"@type"' in html and _ARTICLE.search(html) is not None)
        or ('schema.org/' in html and any(word in html for word in _ARTICLE_WORDS))
        or 'itemprop="articleBody"' in html
    )


def full_markdown(document: Document, facts: Facts, *, html: str, url: str) -> str:
    """Write all text of the page, navigation too, but nothing that is hidden."""
    nodes = build_tree(document)
    if not nodes:
        return ''
    try:
        label_panels(nodes)
        for node in nodes:
            node.is_junk = node.is_hidden
        measure(nodes)
        inline = InlineWriter(LinkResolver(url, facts.base), html=html)
        return write_markdown(nodes[0], inline)
    finally:
        release(nodes)
