"""Compare the Markdown of a page with the page: what was kept of it, and what to warn of.

What is hidden on the page does not count, nor do headings and code in navigation.
"""

from silkline.crawl.extract.main_content import MainContent
from silkline.crawl.extract.markdown.document import Written
from silkline.crawl.extract.parser import Tree
from silkline.crawl.extract.scripted import needs_browser
from silkline.crawl.extract.tree import HEADINGS, Node
from silkline.protocol import Quality


def quality_of_page(tree: Tree, main: MainContent, written: Written, *, html: str) -> Quality:
    visible = tree.skipped
    headings = code_blocks = 0
    hidden: set[Node] = set()
    for node in tree.nodes:
        if node.is_hidden or node.parent in hidden:
            hidden.add(node)
            continue
        visible += node.own
        if node.tag in HEADINGS and node.text:
            headings += 1
        elif node.tag == 'pre':
            code_blocks += 1
    kept = kept_text(main)
    is_drawn = needs_browser(html, text_characters=visible)
    return Quality(
        kept=round(min(1.0, kept / visible), 3) if visible else 1.0,
        headings=headings,
        headings_kept=min(headings, written.headings),
        code_blocks=code_blocks,
        code_blocks_kept=min(code_blocks, written.code_blocks),
        is_cut=written.is_cut or tree.is_cut,
        needs_browser=is_drawn,
    )


def kept_text(main: MainContent) -> int:
    """Characters of the nodes that were written."""
    kept = 0 if main.heading is None else main.heading.text
    stack = [] if main.root.is_junk else [main.root]
    while stack:
        node = stack.pop()
        kept += node.own
        stack += (one for one in node.elements if not one.is_junk)
    return kept
