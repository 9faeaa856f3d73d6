"""The main content of pages that are no articles: all of it, minus the clutter.

Such a page may consist of code, tables, short lines and lists of links, so nothing is chosen for
its prose. Works on nodes whose clutter is marked (`clutter.py`): takes the part that the page calls
its main one, walks down as long as nothing that a reader would miss is left behind, and drops what
stands before the title.
"""

from silkline.crawl.extract.clutter import LINKED, LITTLE
from silkline.crawl.extract.tree import HEADINGS, Node, holds

# The share of the page's text that a main part has at least, unless it has the title.
LEAST_MAIN = 0.15
# Text of this share of its neighbour is missed, even if it is neither prose nor a heading.
MISSED = 0.05
MAX_OWN = 0.1
MAX_PREAMBLE = 0.2
MAX_BANNER = 300
_NEVER_ALONE = frozenset({'p', 'ul', 'ol', 'table', 'pre', 'blockquote', 'li', 'dl', *HEADINGS})
_NAMES = frozenset({'dt', 'dd', 'td', 'th', 'caption', 'summary', 'figure', 'figcaption', 'li'})


def find_page(nodes: list[Node], title: Node | None) -> Node:
    region = descend(marked_main(nodes))
    if title is not None and region.has_title:
        drop_before(region, title)
    drop_link_blocks(region)
    return region


def marked_main(nodes: list[Node]) -> Node:
    """Narrow the page to its main part, if it says which one that is."""
    body = nodes[0]
    mains = [
        node
        for node in nodes
        if (node.tag == 'main' or node.role == 'main') and not node.is_junk and node.text
    ]
    best = max(mains, key=lambda node: node.text, default=body)
    if any(one.text * 4 > best.text for one in mains if one is not best):
        return body
    return best if best.has_title or best.text > LEAST_MAIN * body.text else body


def descend(root: Node) -> Node:
    """Walk down while all that is left behind holds nothing that a reader would miss."""
    best = root
    while True:
        heir = max(best.elements, key=lambda one: -1 if one.is_junk else one.text, default=None)
        if (
            heir is None
            or heir.is_junk
            or heir.tag in _NEVER_ALONE
            or not heir.has_block
            or (best.has_title and not heir.has_title)
            or best.own > MAX_OWN * best.text
            or any(is_missed(one, heir) for one in best.elements)
        ):
            return best
        best = heir


def is_missed(node: Node, heir: Node) -> bool:
    if node is heir or node.is_junk or not node.text:
        return False
    if node.links > LINKED * node.text and node.good == 0:
        return not heir.has_title and node.marks > 0
    return node.good > 0 or node.marks > 0 or node.text > MISSED * heir.text


def drop_before(region: Node, title: Node) -> None:
    """Drop what stands before the title, unless it is content that the title follows."""
    node = title
    while node is not region and node.parent is not None:
        before = node.parent.elements[: node.parent.elements.index(node)]
        if any(one.is_prose for one in before) and any(one.tag in HEADINGS for one in before):
            # The text begins before the title.
            return
        if sum(one.text for one in before if one.good) > max_preamble(region):
            before = [one for one in before if not one.good]
        for one in before:
            if one.tag in HEADINGS and one.parent is title.parent and not one.links:
                # The kind of thing that the title names.
                continue
            if one.text and not one.is_junk and is_preamble(one):
                one.is_junk = True
        node = node.parent


def max_preamble(region: Node) -> float:
    """How much prose before the title may be something else than the text of the page."""
    return max(MAX_PREAMBLE * region.text, MAX_BANNER)


def is_preamble(node: Node) -> bool:
    if node.good:
        return node.marks == 0
    return not holds(node, lambda one: one.tag == 'pre')


def drop_link_blocks(root: Node) -> None:
    """Drop blocks that are mostly links, unless they are lists, or the page is an index."""
    stack = [] if root.good < 2 * LITTLE else [root]
    while stack:
        node = stack.pop()
        for child in node.elements:
            if child.is_junk or not child.has_block or child.tag in HEADINGS or child.tag == 'pre':
                continue
            if child.has_inner_block:
                if child.tag not in _NAMES:
                    stack.append(child)
            elif (
                child.tag not in _NEVER_ALONE
                and child.tag not in _NAMES
                and child.tag != 'a'
                and child.links > LINKED * child.text
            ):
                child.is_junk = True
