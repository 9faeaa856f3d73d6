"""The built-in extractor: a parsed document to Markdown, in full or only its main content.

Ties the steps together: copy the tree, find the main content, write it, compare it with the page,
free the tree. The steps themselves are left to the modules that are imported here.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager

from silkline.crawl.extract.comparison import quality_of_page
from silkline.crawl.extract.facts import Facts
from silkline.crawl.extract.kinds import kind_of_page
from silkline.crawl.extract.main_content import MainContent, find_main
from silkline.crawl.extract.markdown.document import write_markdown
from silkline.crawl.extract.markdown.inline import InlineWriter
from silkline.crawl.extract.markdown.links import LinkResolver
from silkline.crawl.extract.measure import measure
from silkline.crawl.extract.parser import Document, build_tree, release
from silkline.crawl.extract.tabs import label_panels
from silkline.crawl.options import LinkStyle


@contextmanager
def uncollected() -> Generator[None, None, None]:
    """Keep the garbage collector from searching the tree: `release` leaves it no work."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@uncollected()
def main_markdown(
    document: Document, facts: Facts, *, html: str, url: str, links: LinkStyle, max_markdown: int
) -> None:
    """Write the main content, without navigation and the like."""
    tree = build_tree(document, has_navigation=False)
    if not tree.nodes:
        facts.markdown = ''
        return
    try:
        label_panels(tree.nodes)
        kind = kind_of_page(facts, html=html, url=url)
        main = find_main(tree.nodes, title=facts.title, kind=kind)
        inline = InlineWriter(LinkResolver(url, facts.base), html=html, links=links)
        written = write_markdown(
            main.root, inline, heading=main.heading, is_main=True, limit=max_markdown
        )
        facts.markdown = written.text
        facts.quality = quality_of_page(tree, main, written, html=html)
    finally:
        release(tree.nodes)


@uncollected()
def full_markdown(
    document: Document, facts: Facts, *, html: str, url: str, links: LinkStyle, max_markdown: int
) -> None:
    """Write all text of the page, including navigation, but nothing that is hidden."""
    tree = build_tree(document, has_navigation=True)
    nodes = tree.nodes
    if not nodes:
        facts.markdown = ''
        return
    try:
        label_panels(nodes)
        for node in nodes:
            node.is_junk = node.is_hidden
        measure(nodes)
        inline = InlineWriter(LinkResolver(url, facts.base), html=html, links=links)
        written = write_markdown(nodes[0], inline, limit=max_markdown)
        facts.markdown = written.text
        facts.quality = quality_of_page(tree, MainContent(nodes[0], None), written, html=html)
    finally:
        release(nodes)
