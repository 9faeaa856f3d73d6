"""The built-in extractor: a parsed document to Markdown, whole or only what it is about.

Ties the steps together: copy the tree, find the main content, write it, let the tree go. What the
steps do is left to the modules named in the imports.
"""

import re

from worker.crawl.extract.facts import Facts
from worker.crawl.extract.links import Resolver
from worker.crawl.extract.main_content import find_main
from worker.crawl.extract.markdown import write_markdown
from worker.crawl.extract.measure import measure
from worker.crawl.extract.parser import Document, build_tree, release

_ARTICLE = re.compile(r'"@type"\s*:\s*"(?:(?:News|Reportage)?Article|BlogPosting)"')
_ARTICLE_WORDS = (
    'itemprop="articleBody"',
    'schema.org/NewsArticle',
    'schema.org/BlogPosting',
    'schema.org/Article',
)


def main_markdown(document: Document, facts: Facts, *, html: str, url: str) -> str:
    """Write what the page is about, without navigation and the like."""
    nodes = build_tree(document)
    if not nodes:
        return ''
    try:
        is_article = facts.is_article or says_article(html)
        main = find_main(nodes, title=facts.title, is_article=is_article)
        resolver = Resolver(url, facts.base)
        return write_markdown(main.root, resolver, heading=main.heading, is_main=True)
    finally:
        release(nodes)


def says_article(html: str) -> bool:
    """Tell whether the page calls itself an article, in one of the ways of schema.org."""
    return _ARTICLE.search(html) is not None or any(word in html for word in _ARTICLE_WORDS)


def full_markdown(document: Document, facts: Facts, *, url: str) -> str:
    """Write all text of the page, navigation too, but nothing that is hidden."""
    nodes = build_tree(document)
    if not nodes:
        return ''
    try:
        for node in nodes:
            node.is_junk = node.is_hidden
        measure(nodes)
        return write_markdown(nodes[0], Resolver(url, facts.base))
    finally:
        release(nodes)
