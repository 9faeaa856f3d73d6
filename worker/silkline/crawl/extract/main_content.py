"""Find the node with the main content, and mark the clutter inside it.

Classifies each node by its tag, role and names (`vocabulary.py`), then walks down from the body:
first to where the page itself says its content is, then to the smallest node that still holds
nearly all prose. A name alone never drops a node with most of the page's prose.
"""

from dataclasses import dataclass

from silkline.crawl.extract import vocabulary
from silkline.crawl.extract.measure import measure
from silkline.crawl.extract.tree import HEADINGS, Node

MOSTLY = 0.5
SUSPICIOUS = 0.2
SHARE_OF_CHILD = 0.75
MIN_TITLE = 8
SELF_LINKS = ' ¶#§\uf0c1\u200b'
MAX_BEFORE_TITLE = 0.6
# Less prose than this decides nothing: the page may consist of code, tables and lists.
LITTLE_PROSE = 250
_NAMES = frozenset({'dt', 'dd', 'td', 'th', 'caption', 'summary', 'figure', 'figcaption'})
_NEVER_ALONE = frozenset({'p', 'ul', 'ol', 'table', 'pre', 'blockquote', 'li', 'dl', *HEADINGS})


@dataclass(frozen=True, slots=True)
class MainContent:
    root: Node
    # The page's heading, if it is outside of the root.
    heading: Node | None


def find_main(nodes: list[Node], *, title: str | None, is_article: bool) -> MainContent:
    measure(nodes)
    is_article = is_article and not is_of_manual(nodes[0])
    all_prose = nodes[0].good
    title_at = find_title(nodes, title or '', is_article=is_article)
    if title_at is not None:
        ignore_prose_before(nodes, title_at)
    mark_junk(nodes, is_article=is_article)
    # The counts of all others are unchanged.
    measure([node for node in nodes if node.is_junk or node.has_junk or node.is_early])
    best = descend(claimed(nodes, is_article=is_article), is_article=is_article)
    if best.good < SUSPICIOUS * all_prose and all_prose > LITTLE_PROSE:
        # Names have dropped too much: classify again, by tags and roles only.
        for node in nodes:
            node.is_junk = False
        measure(nodes)
        mark_junk(nodes, is_article=None)
        measure(nodes)
        best = descend(claimed(nodes, is_article=is_article), is_article=is_article)
    drop_link_blocks(best, is_article=is_article)
    # The title of an article is stored separately; other pages begin with their heading.
    has_own = is_article or best.has_title or title_at is None
    return MainContent(best, None if has_own or title_at is None else nodes[title_at])


def is_of_manual(root: Node) -> bool:
    """Check the names on the way to where most prose is."""
    node = root
    while node.elements:
        node = max(node.elements, key=lambda one: (one.good, one.text))
        if vocabulary.is_manual(node):
            return True
    return False


def find_title(nodes: list[Node], title: str, *, is_article: bool) -> int | None:
    """Mark the ancestors of the page's heading; return its index among the nodes."""
    found = title_index(nodes, ' '.join(title.split()).lower(), is_article=is_article)
    above = None if found is None else nodes[found]
    while above is not None:
        above.has_title = True
        above = above.parent
    return found


def title_index(nodes: list[Node], title: str, *, is_article: bool) -> int | None:
    """Find the first h1 of the main part, else the heading with most of the title, else any h1.

    In articles the h1 of a teaser may come first, even in the main part.
    """
    first: int | None = None
    matching: int | None = None
    # The title also contains the name of the site, which may be the longer part.
    best = (False, MIN_TITLE - 1)
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
        if text in title and (is_main, len(text)) > best and len(text) >= MIN_TITLE:
            matching, best = index, (is_main, len(text))
    if first is None and matching is None:
        return titled_index(nodes, title)
    return first if matching is None else matching


def titled_index(nodes: list[Node], title: str) -> int | None:
    """Find an element named title with part of the title, on a page without such a heading."""
    for index, node in enumerate(nodes):
        if 'title' in node.names and 'title' in node.names.split() and node.text < len(title) * 2:
            text = ' '.join(node.source.text.split()).lower()
            if len(text) >= MIN_TITLE and text in title:
                return index
    return None


def is_in_main(node: Node) -> bool:
    above: Node | None = node
    while above is not None:
        if above.tag == 'main' or above.tag == 'article' or above.role == 'main':
            return True
        above = above.parent
    return False


def ignore_prose_before(nodes: list[Node], title_at: int) -> None:
    """Do not count prose before the heading of the page, unless most prose is there."""
    before = sum(node.inline for node in nodes[:title_at] if node.is_prose)
    if before < MAX_BEFORE_TITLE * nodes[0].good:
        for node in nodes[:title_at]:
            node.is_early = True


def mark_junk(nodes: list[Node], *, is_article: bool | None) -> None:
    most = nodes[0].good * MOSTLY
    too_much = max(most, LITTLE_PROSE)
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
        if parent.is_junk:
            node.is_junk = True
            continue
        if node.is_hidden and node.good <= most:
            node.is_junk = True
        elif parent.is_code or node.tag == 'pre':
            node.is_code = True
        elif node.is_protected or node.good > too_much:
            continue
        elif is_article is None:
            node.is_junk = vocabulary.is_navigation(node)
        elif not node.has_title or node.tag == 'header':
            node.is_junk = vocabulary.is_junk(node, is_article=is_article)
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
            if other_text < max(LITTLE_PROSE, 0.15 * region.text):
                continue
        if best.has_title:
            share, rival = share / 2, rival / 8
        if weights[best] > share * weights[region] and rival < 0.6 * weights[best]:
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
    """Walk down to the smallest node with nearly all prose, and the heading if it is inside."""
    best = root
    keeps_title = root.has_title and root.tag != 'body' and not is_article
    while True:
        enough = best.good * SHARE_OF_CHILD
        # Where less than half is prose, as in references, the other text counts as much.
        words = best.text - best.links
        words = 0 if is_article or best.good > words * MOSTLY else words * SHARE_OF_CHILD
        heir: Node | None = None
        for child in best.elements:
            if not child.is_junk and child.good > enough and child.text - child.links >= words:
                heir = child
                break
        if heir is None and not is_article and best.good < LITTLE_PROSE:
            # Too little prose to decide: follow the heading, if most words are there, too.
            heir = next((one for one in best.elements if is_most_below_title(one, best)), None)
        if heir is None or heir.tag in _NEVER_ALONE or (keeps_title and not heir.has_title):
            return best
        best = heir


def is_most_below_title(node: Node, above: Node) -> bool:
    return node.has_title and not node.is_junk and node.text > above.text * MOSTLY


def drop_link_blocks(root: Node, *, is_article: bool) -> None:
    """Drop blocks that are mostly links; lists and paragraphs of links only in articles."""
    # A page with few words of its own is an index, and its links are its content.
    is_index = not is_article and root.good < 2 * LITTLE_PROSE and root.tag != 'body'
    stack = [] if is_index else [root]
    while stack:
        node = stack.pop()
        for child in node.elements:
            if child.is_junk or not child.has_block:
                continue
            tag = child.tag
            if tag in HEADINGS or tag == 'pre' or tag == 'li':
                continue
            if tag in _NAMES and not is_article:
                continue
            if not is_article and (tag in _NEVER_ALONE or tag == 'a' or child.has_inner_block):
                # Outside of articles, lists of links may be the content.
                if child.has_inner_block:
                    stack.append(child)
                continue
            share = 0.8 if tag in _NEVER_ALONE else 0.6
            if child.links > share * child.text and child.good < 200:
                child.is_junk = True
            elif child.has_inner_block:
                stack.append(child)
