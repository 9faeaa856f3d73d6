"""Count for each node its text, the text of its links, and the text that reads like prose.

One pass from the last node to the first: children come before their parents, without recursion.
"""

from silkline.crawl.extract.tree import BLOCKS, MARKS, Node

MIN_PROSE = 40


def measure(nodes: list[Node]) -> None:
    for node in reversed(nodes):
        tag = node.tag
        text = inline = node.own
        links = inline_links = good = marks = 0
        has_inner_block = False
        for child in node.elements:
            if not child.is_junk:
                text += child.text
                links += child.links
                good += child.good
                marks += child.marks
                if child.has_block:
                    has_inner_block = True
                else:
                    inline += child.inline
                    inline_links += child.inline_links
        if tag == 'a':
            links = text
            inline_links = inline
            # A teaser that is one link is not prose, however long.
            good = 0
        if tag in MARKS and inline_links * 2 <= inline and text:
            marks += 1
        is_prose = False
        has_block = has_inner_block or tag in BLOCKS
        if has_block and inline >= MIN_PROSE and inline_links * 2 < inline and tag != 'a':
            is_prose = True
            if not node.is_early:
                good += inline
        node.has_block = has_block
        node.has_inner_block = has_inner_block
        node.is_prose = is_prose
        node.text = text
        node.links = links
        node.inline = inline
        node.inline_links = inline_links
        node.good = good
        node.marks = marks
