"""Mark the parts of a page that are not its content, by structure first and by names last.

Landmarks (navigation, banner, footer) and lines of paging are clutter by what they are. A class
that calls a part clutter counts where the structure does not contradict: a part with headings and
prose of its own stays. An id counts only if it is one of a few whole words.
"""

from silkline.crawl.extract import vocabulary
from silkline.crawl.extract.measure import measure
from silkline.crawl.extract.tree import HEADINGS, Node, descendants, holds, is_in_main

# Less text than this decides nothing.
LITTLE = 250
# The share of links in text that makes it navigation.
LINKED = 0.6
MOST = 0.5
MOST_PROSE = 0.4
MOST_REVIEWS = 0.6
MAX_PAGING = 400
MAX_PAGING_LINE = 150
_TEXT_OR_CODE = frozenset({*HEADINGS, 'pre'})
_LANDMARKS = frozenset({'nav', 'aside', 'footer', 'header'})
_NEVER_BY_NAME = frozenset({'main', 'article', 'body'})


def mark_set_apart(nodes: list[Node]) -> None:
    """Mark what is hidden, and what tags, roles and links set apart from the content."""
    measure_above([*mark_landmarks(nodes), *mark_paging(nodes)])


def mark_named(nodes: list[Node], *, is_manual: bool, is_product: bool) -> None:
    """Mark what names call clutter, unless they call nearly everything so."""
    body = nodes[0]
    everything = body.text
    measure_above(mark_by_name(nodes, is_manual=is_manual, is_product=is_product))
    if body.text < LITTLE < everything and body.text * 10 < everything:
        forget(nodes)
        mark_set_apart(nodes)


def forget(nodes: list[Node]) -> None:
    """Take all marks back."""
    for node in nodes:
        node.is_junk = node.is_code = node.has_junk = node.is_early = False
    measure(nodes)


def measure_above(marked: list[Node]) -> None:
    """Count again what holds the marked nodes; the counts of all others are unchanged."""
    depths: dict[Node, int] = {}
    for node in marked:
        chain: list[Node] = []
        above = node.parent
        while above is not None and above not in depths:
            chain.append(above)
            above = above.parent
        depth = 0 if above is None else depths[above] + 1
        for one in reversed(chain):
            depths[one] = depth
            depth += 1
    measure(sorted(depths, key=depths.__getitem__))


def mark_landmarks(nodes: list[Node]) -> list[Node]:
    marked: list[Node] = []
    most = nodes[0].good * MOST
    for node in nodes:
        parent = node.parent
        if parent is None:
            continue
        if parent.is_junk:
            node.is_junk = True
        elif parent.is_code or node.tag == 'pre':
            node.is_code = True
        elif node.is_hidden:
            node.is_junk = node.good <= most
        elif node.role is not None or node.tag in _LANDMARKS:
            node.is_junk = is_landmark(node)
        else:
            continue
        if node.is_junk and not parent.is_junk:
            marked.append(node)
    return marked


def is_landmark(node: Node) -> bool:
    if vocabulary.is_navigation(node):
        # A list of tabs that holds prose holds the panels, too.
        return not holds_main(node) and not (node.role == 'tablist' and node.good)
    return node.tag == 'header' and not node.has_title and not is_in_main(node)


def holds_main(node: Node) -> bool:
    """Whether a part that is set apart holds the main part, or the title."""
    if holds(node, lambda one: one.tag == 'main' or one.role == 'main'):
        return True
    return node.has_title and node.tag != 'nav' and node.tag != 'footer'


def mark_paging(nodes: list[Node]) -> list[Node]:
    """Mark lines that lead to the next page, the one before and the one above."""
    marked: list[Node] = []
    for node in nodes:
        if node.is_paging and not node.is_junk:
            block = node
            above = node.parent
            while above is not None and is_paging_block(above):
                block = above
                above = above.parent
            if block is not node:
                block.is_junk = True
                marked.append(block)
    return marked


def is_paging_block(node: Node) -> bool:
    return (
        node.parent is not None
        and node.text <= MAX_PAGING
        and not node.has_title
        and node.good < MAX_PAGING / 2
        and (node.links * 3 >= node.text or node.text < MAX_PAGING_LINE)
        and node.tag != 'main'
        and not holds(node, lambda one: one.tag in _TEXT_OR_CODE)
    )


def mark_by_name(nodes: list[Node], *, is_manual: bool, is_product: bool) -> list[Node]:
    marked: list[Node] = []
    body = nodes[0]
    for node in nodes:
        parent = node.parent
        if parent is None or node.is_junk:
            continue
        if parent.is_junk:
            node.is_junk = True
            continue
        if not (node.names or node.identity) or vocabulary.means_nothing(node):
            continue
        if node.is_code or parent.is_code or node.has_title:
            continue
        if not node.has_block:
            node.is_junk = vocabulary.is_inline_clutter(node)
        elif node.tag not in _NEVER_BY_NAME:
            node.is_junk = is_clutter(node, body, is_manual=is_manual, is_product=is_product)
        if node.is_junk:
            marked.append(node)
    return marked


def is_clutter(node: Node, body: Node, *, is_manual: bool, is_product: bool) -> bool:
    if vocabulary.is_named_contents(node):
        return node.links > MOST * node.text and leads_inside(node)
    if vocabulary.is_named_clutter(node):
        return not holds_content(node, body) and not (is_manual and is_in_text(node))
    return is_product and vocabulary.is_named_review(node) and node.good < MOST_REVIEWS * body.good


def holds_content(node: Node, body: Node) -> bool:
    """Whether structure contradicts a name: headings and prose, or most prose of the page."""
    if node.good == 0:
        return False
    if node.marks == 0 and body.has_title:
        return False
    if node.good > MOST_PROSE * max(body.good, LITTLE):
        return True
    return node.links <= LINKED * node.text and node.marks > 1 and node.good >= LITTLE


def is_in_text(node: Node) -> bool:
    """Whether it stands among paragraphs, as a box in a text does."""
    return node.parent is not None and any(
        one is not node and one.is_prose and not one.has_inner_block for one in node.parent.elements
    )


def leads_inside(node: Node) -> bool:
    """Whether all links lead to places on the same page, as those of its own contents do."""
    has_links = False
    for one in descendants(node):
        if one.tag == 'a' and (href := one.get('href')):
            if not href.startswith('#'):
                return False
            has_links = True
    return has_links
