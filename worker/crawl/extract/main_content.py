"""Find the node that holds what the page is about, and mark what in it is not part of it.

Judges each node by its tag, role and names (`vocabulary.py`), then walks down from the body: first
to where the page itself says its content is, then to the smallest node that still holds nearly all
prose. A name alone never drops what holds most of the page's prose.
"""

from dataclasses import dataclass

from worker.crawl.extract import vocabulary
from worker.crawl.extract.measure import measure
from worker.crawl.extract.tree import HEADINGS, Node

MOSTLY = 0.5
SUSPICIOUS = 0.2
SHARE_OF_CHILD = 0.75
SHORTEST_TITLE = 8
SELF_LINKS = ' ¶#§\uf0c1\u200b'
MOST_BEFORE_TITLE = 0.6
_NEVER_ALONE = frozenset({'p', 'ul', 'ol', 'table', 'pre', 'blockquote', 'li', 'dl', *HEADINGS})


@dataclass(frozen=True, slots=True)
class Main:
    root: Node
    # The page's heading, when it stands outside of the root.
    heading: Node | None


def find_main(nodes: list[Node], *, title: str | None, is_article: bool) -> Main:
    measure(nodes)
    all_prose = nodes[0].good
    title_at = find_title(nodes, title or '', is_article=is_article)
    if title_at is not None:
        set_apart_what_comes_before(nodes, title_at)
    mark_junk(nodes, is_article=is_article)
    measure(nodes)
    best = descend(claimed(nodes), is_article=is_article)
    if best.good < SUSPICIOUS * all_prose:
        # Names have dropped too much: once more by tags and roles alone.
        for node in nodes:
            node.is_junk = False
        measure(nodes)
        mark_junk(nodes, is_article=None)
        measure(nodes)
        best = descend(claimed(nodes), is_article=is_article)
    drop_link_blocks(best, is_article=is_article)
    # An article is its text, and its title is kept elsewhere; other pages begin with their heading.
    has_own = is_article or best.has_title or title_at is None
    return Main(best, None if has_own or title_at is None else nodes[title_at])


def find_title(nodes: list[Node], title: str, *, is_article: bool) -> int | None:
    """Mark what holds the page's heading; return where in the order of nodes it stands."""
    found = title_index(nodes, ' '.join(title.split()).lower(), is_article=is_article)
    above = None if found is None else nodes[found]
    while above is not None:
        above.has_title = True
        above = above.parent
    return found


def title_index(nodes: list[Node], title: str, *, is_article: bool) -> int | None:
    """Find the first h1 of the main part, else what says most of the title, else any h1.

    In articles the h1 of a teaser may come first, even in the main part.
    """
    first: int | None = None
    matching: int | None = None
    # The site's name is in the title, too, and may be the longer part of it.
    best = (False, SHORTEST_TITLE - 1)
    for index, node in enumerate(nodes):
        level = HEADINGS.get(node.tag)
        if level is None or level > 3 or node.is_hidden:
            continue
        text = ' '.join(node.source.text.split()).strip(SELF_LINKS).lower()
        if not text:
            continue
        is_main = is_in_main(node)
        if level == 1:
            if is_main and not is_article:
                return index
            if first is None:
                first = index
        if text in title and (is_main, len(text)) > best and len(text) >= SHORTEST_TITLE:
            matching, best = index, (is_main, len(text))
    return first if matching is None else matching


def is_in_main(node: Node) -> bool:
    above: Node | None = node
    while above is not None:
        if above.tag == 'main' or above.tag == 'article' or above.role == 'main':
            return True
        above = above.parent
    return False


def set_apart_what_comes_before(nodes: list[Node], title_at: int) -> None:
    """Prose before the heading of the page is no part of it, unless most prose is there."""
    before = sum(node.inline for node in nodes[:title_at] if node.is_prose)
    if before < MOST_BEFORE_TITLE * nodes[0].good:
        for node in nodes[:title_at]:
            node.is_early = True


def mark_junk(nodes: list[Node], *, is_article: bool | None) -> None:
    most = nodes[0].good * MOSTLY
    enough = nodes[0].good * 0.25
    if is_article is not None:
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
        if parent.is_junk or (node.is_hidden and node.good <= most):
            node.is_junk = True
        elif parent.is_code or node.tag == 'pre':
            node.is_code = True
        elif node.is_protected or node.good > most:
            continue
        elif is_article is None:
            node.is_junk = vocabulary.is_navigation(node)
        elif not node.has_title or node.tag == 'header':
            node.is_junk = vocabulary.is_junk(node, is_article=is_article)


def protect(node: Node) -> None:
    above: Node | None = node
    while above is not None and not above.is_protected:
        above.is_protected = True
        above = above.parent


def claimed(nodes: list[Node]) -> Node:
    """Narrow the page by what it says of itself: main, then article, then a body by its name."""
    region = nodes[0]
    levels: tuple[list[Node], list[Node], list[Node]] = ([], [], [])
    for node in nodes:
        if node.is_junk or not node.good:
            continue
        if node.tag == 'main' or node.role == 'main':
            levels[0].append(node)
        elif node.tag == 'article' or node.role == 'article':
            levels[1].append(node)
        if vocabulary.is_body(node):
            levels[2].append(node)
    for level, share in zip(levels, (0.25, 0.35, 0.5), strict=True):
        inside = [node for node in level if is_inside(node, region)]
        if not inside:
            continue
        best = max(inside, key=lambda node: node.good * (5 if node.has_title else 1))
        rival = max(
            (
                node.good
                for node in inside
                if node is not best and not is_inside(node, best) and not is_inside(best, node)
            ),
            default=0,
        )
        if best.has_title:
            share, rival = share / 2, rival / 8
        if best.good > share * region.good and rival < 0.6 * best.good:
            region = best
    return region


def is_inside(node: Node, region: Node) -> bool:
    above: Node | None = node
    while above is not None:
        if above is region:
            return True
        above = above.parent
    return False


def descend(root: Node, *, is_article: bool) -> Node:
    """Walk down to the smallest node with nearly all prose, and the heading if it is claimed."""
    best = root
    keeps_title = root.has_title and root.tag != 'body' and not is_article
    while True:
        enough = best.good * SHARE_OF_CHILD
        heir: Node | None = None
        for child in best.elements:
            if not child.is_junk and child.good > enough:
                heir = child
                break
        if heir is None or heir.tag in _NEVER_ALONE or (keeps_title and not heir.has_title):
            return best
        best = heir


def drop_link_blocks(root: Node, *, is_article: bool) -> None:
    """Drop blocks that are mostly links; lists and paragraphs of them only from articles."""
    stack = [root]
    while stack:
        node = stack.pop()
        for child in node.elements:
            if child.is_junk or not child.has_block:
                continue
            tag = child.tag
            if tag in HEADINGS or tag == 'pre' or tag == 'li':
                continue
            if not is_article and (tag in _NEVER_ALONE or tag == 'a' or child.has_inner_block):
                # Elsewhere than in articles, lists of links are what a page may be about.
                if child.has_inner_block:
                    stack.append(child)
                continue
            share = 0.8 if tag in _NEVER_ALONE else 0.6
            if child.links > share * child.text and child.good < 200:
                child.is_junk = True
            elif child.has_inner_block:
                stack.append(child)
