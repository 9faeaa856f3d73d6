"""Find where the prose is: the text of an article, and of pages that read like one.

For an article, first everything that tags and names call clutter is marked, then the page is
narrowed by its own markup and walked down to the smallest node that still holds nearly all prose.
Other pages are narrowed the same way, but only by a little: see `narrowed`.
"""

from silkline.crawl.extract import vocabulary
from silkline.crawl.extract.clutter import LITTLE, MOST, forget
from silkline.crawl.extract.measure import measure
from silkline.crawl.extract.tree import HEADINGS, Node, is_inside

# An article with less than this share of the page's prose was chosen by misleading names.
SUSPICIOUS = 0.2
SHARE_OF_CHILD = 0.75
MAX_BEFORE_TITLE = 0.6
MAX_LINKED_PROSE = 200
# The share of headings, code and tables that a page may lose by being narrowed.
MAX_LOST_MARKS = 0.6
_NEVER_ALONE = frozenset({'p', 'ul', 'ol', 'table', 'pre', 'blockquote', 'li', 'dl', *HEADINGS})


def find_article(nodes: list[Node], title_at: int | None) -> Node:
    all_prose = nodes[0].good
    if title_at is not None:
        ignore_prose_before(nodes, title_at)
    mark_junk(nodes, by_name=True)
    # The counts of all others are unchanged.
    measure([node for node in nodes if node.is_junk or node.has_junk or node.is_early])
    best = descend(claimed(nodes, is_article=True), is_article=True)
    if best.good < SUSPICIOUS * all_prose and all_prose > LITTLE:
        forget(nodes)
        mark_junk(nodes, by_name=False)
        measure(nodes)
        best = descend(claimed(nodes, is_article=True), is_article=True)
    drop_link_blocks(best)
    return best


def narrowed(nodes: list[Node], page: Node) -> Node:
    """Narrow a page to where its prose is, unless that loses headings, code or tables."""
    if page.good <= 2 * LITTLE:
        return page
    best = descend(claimed(nodes, is_article=False), is_article=False)
    loses = page.marks - best.marks > MAX_LOST_MARKS * page.marks
    return page if loses or not is_inside(best, page) else best


def ignore_prose_before(nodes: list[Node], title_at: int) -> None:
    """Do not count prose before the heading of the page, unless most prose is there."""
    before = sum(node.inline for node in nodes[:title_at] if node.is_prose)
    if before < MAX_BEFORE_TITLE * nodes[0].good:
        for node in nodes[:title_at]:
            node.is_early = True


def mark_junk(nodes: list[Node], *, by_name: bool) -> None:
    most = nodes[0].good * MOST
    too_much = max(most, LITTLE)
    enough = nodes[0].good * 0.25
    if by_name:
        for node in nodes:
            if (
                node.tag == 'main'
                or node.role == 'main'
                or (node.good > enough and vocabulary.is_body(node))
            ):
                protect(node)
    for node in nodes:
        parent = node.parent
        if parent is None:
            continue
        if parent.is_junk:
            node.is_junk = True
            continue
        if node.is_hidden and node.good <= most:
            node.is_junk = True
        elif parent.is_code or node.tag == 'pre':
            node.is_code = True
        elif node.is_protected or node.good > too_much:
            continue
        elif not by_name:
            node.is_junk = vocabulary.is_navigation(node)
        elif parent.tag in HEADINGS:
            node.is_junk = vocabulary.is_inline_clutter(node)
        elif not node.has_title or node.tag == 'header':
            node.is_junk = vocabulary.is_article_clutter(node)
        if node.is_junk:
            note_junk(parent)


def note_junk(node: Node) -> None:
    above: Node | None = node
    while above is not None and not above.has_junk:
        above.has_junk = True
        above = above.parent


def protect(node: Node) -> None:
    above: Node | None = node
    while above is not None and not above.is_protected:
        above.is_protected = True
        above = above.parent


def weight(node: Node, *, is_article: bool) -> int:
    """Weigh the content: an article by its prose, other pages also by text outside of links."""
    return node.good if is_article else node.good + (node.text - node.links) // 4


def claimed(nodes: list[Node], *, is_article: bool) -> Node:
    """Narrow the page by its own markup: main, then article, then a body by its name."""
    region = nodes[0]
    weights: dict[Node, int] = {region: weight(region, is_article=is_article)}
    levels: tuple[list[Node], list[Node], list[Node]] = ([], [], [])
    for node in nodes:
        if node.is_junk or not (node.good or (node.has_block and node.text and not is_article)):
            continue
        if node.tag == 'main' or node.role == 'main':
            levels[0].append(node)
        elif node.tag == 'article' or node.role == 'article':
            levels[1].append(node)
        if node.names and vocabulary.is_body(node):
            levels[2].append(node)
    for level, share in zip(levels, (0.25, 0.35, 0.5), strict=True):
        inside = [node for node in level if is_inside(node, region)]
        if not inside:
            continue
        weights |= {node: weight(node, is_article=is_article) for node in inside}
        best = max(inside, key=lambda node: weights[node] * (5 if node.has_title else 1))
        rival = max(
            (
                weights[node]
                for node in inside
                if node is not best and not is_inside(node, best) and not is_inside(best, node)
            ),
            default=0,
        )
        if region.has_title and not best.has_title and not is_article and region.parent:
            # The heading is in the marked region, and the text below it may be, too.
            other_text = region.text - region.links - (best.text - best.links)
            if other_text < max(LITTLE, 0.15 * region.text):
                continue
        if any(is_alike(node, best) and not is_inside(node, best) for node in inside):
            # The text is in several parts of the same kind.
            continue
        if best.has_title:
            share, rival = share / 2, rival / 8
        if weights[best] > share * weights[region] and rival < 0.6 * weights[best]:
            region = best
    return region


def descend(root: Node, *, is_article: bool) -> Node:
    """Walk down to the smallest node with nearly all prose, and the heading if it is inside."""
    best = root
    keeps_title = root.has_title and root.tag != 'body' and not is_article
    while True:
        enough = best.good * SHARE_OF_CHILD
        # Where less than half is prose, as in references, the other text counts as much.
        words = best.text - best.links
        words = 0 if is_article or best.good > words * MOST else words * SHARE_OF_CHILD
        heir: Node | None = None
        for child in best.elements:
            if not child.is_junk and child.good > enough and child.text - child.links >= words:
                heir = child
                break
        if heir is None and not is_article and best.good < LITTLE:
            # Too little prose to decide: follow the heading, if most words are there, too.
            heir = next((one for one in best.elements if is_most_below_title(one, best)), None)
        if heir is None or heir.tag in _NEVER_ALONE or (keeps_title and not heir.has_title):
            return best
        if any(is_alike(one, heir) for one in best.elements):
            return best
        best = heir


def is_alike(node: Node, other: Node) -> bool:
    """Whether a neighbour is of the same kind, and has prose, too: the next part of the page."""
    return (
        node is not other
        and node.good > 0
        and not node.is_junk
        and node.tag == other.tag
        and node.names != ''
        and node.names == other.names
    )


def is_most_below_title(node: Node, above: Node) -> bool:
    return node.has_title and not node.is_junk and node.text > above.text * MOST


def drop_link_blocks(root: Node) -> None:
    """Drop blocks that are mostly links, lists and paragraphs of links included."""
    stack = [root]
    while stack:
        node = stack.pop()
        for child in node.elements:
            tag = child.tag
            if child.is_junk or not child.has_block:
                continue
            if tag in HEADINGS or tag == 'pre' or tag == 'li':
                continue
            share = 0.8 if tag in _NEVER_ALONE else 0.6
            if child.links > share * child.text and child.good < MAX_LINKED_PROSE:
                child.is_junk = True
            elif child.has_inner_block:
                stack.append(child)
