"""Find the node with the main content, and mark the clutter inside it.

Decides what kind of page it is, by what it says and by what it holds, and leaves the search to the
module for that kind: `prose.py` for articles, `posts.py` for forums, `pages.py` for all others.
"""

from dataclasses import dataclass

from silkline.crawl.extract import vocabulary
from silkline.crawl.extract.clutter import (
    LITTLE,
    MOST,
    forget,
    mark_named,
    mark_set_apart,
    measure_above,
)
from silkline.crawl.extract.kinds import PageKind
from silkline.crawl.extract.measure import measure
from silkline.crawl.extract.pages import drop_before, find_page, marked_main
from silkline.crawl.extract.posts import find_posts, keep_posts
from silkline.crawl.extract.prose import find_article, narrowed
from silkline.crawl.extract.titles import find_title, is_anchor
from silkline.crawl.extract.tree import HEADINGS, Node, ancestors, holds, is_inside

MIN_ITEMS = 4
MIN_REPEATED = 200
# The share of the page's prose and headings that an article has at least.
MIN_ARTICLE = 0.6
# What surely is an article is one whatever it leaves out, except for this many headings.
MAX_LOST = 10
# What is short, beside this many times its text, is a note on a page of links.
TIMES_BESIDE = 8


@dataclass(frozen=True, slots=True)
class MainContent:
    root: Node
    # The page's heading, if it is outside of the root.
    heading: Node | None


def find_main(nodes: list[Node], *, title: str | None, kind: PageKind) -> MainContent:
    measure(nodes)
    hide_consent(nodes)
    hide_noscript(nodes)
    is_manual = kind.is_manual or is_of_manual(nodes[0])
    is_article = kind.is_article and not is_manual
    title_at = find_title(nodes, title or '', is_article=is_article)
    is_article = is_article and not is_listing(nodes)
    if is_article and not find_posts(nodes, is_article=True):
        may_lose = MAX_LOST if kind.is_surely_article else 0
        article = whole_article(nodes, title_at, may_lose=may_lose)
        if article is not None:
            drop_repeated(article)
            # The title of an article is stored separately; other pages begin with their heading.
            return MainContent(article, None)
        forget(nodes)
    mark_set_apart(nodes)
    heading = None if title_at is None else nodes[title_at]
    anchor = heading if heading is not None and is_anchor(heading, title or '') else None
    has_posts = not kind.is_product and not kind.is_manual
    posts = find_posts(nodes, is_article=is_article) if has_posts else []
    is_manual = is_manual or any(node.tag == 'pre' for node in nodes)
    mark_named(nodes, is_manual=is_manual, is_product=kind.is_product)
    if posts:
        page = keep_posts(posts)
        measure(nodes)
        if anchor is not None and page.has_title:
            drop_before(page, anchor)
        drop_repeated(page)
    else:
        page = find_page(nodes, anchor)
        if not is_manual:
            drop_repeated(page)
            page = narrowed(nodes, page)
    return MainContent(page, None if page.has_title else heading)


def whole_article(nodes: list[Node], title_at: int | None, *, may_lose: int) -> Node | None:
    """Find the article, unless it leaves out too much for the page to be one."""
    all_prose, all_marks = nodes[0].good, nodes[0].marks
    article = find_article(nodes, title_at)
    prose, marks, text = article.good, article.marks, article.text
    is_short = prose < 2 * LITTLE
    if not is_short and (
        prose >= MIN_ARTICLE * all_prose or marks >= MIN_ARTICLE * all_marks - may_lose
    ):
        return article
    # Much of the rest may be clutter.
    forget(nodes)
    mark_set_apart(nodes)
    mark_named(nodes, is_manual=False, is_product=False)
    page = marked_main(nodes)
    if prose < MIN_ARTICLE * page.good and marks < MIN_ARTICLE * page.marks - may_lose:
        return None
    if is_short and text * TIMES_BESIDE < page.text:
        return None
    forget(nodes)
    return find_article(nodes, title_at)


def hide_consent(nodes: list[Node]) -> None:
    """Hide what asks for consent to cookies, unless it holds the page."""
    parts = [
        node
        for node in nodes
        if (node.names or node.identity) and node.has_block and vocabulary.is_consent(node)
    ]
    hide([node for node in parts if not holds(node, is_title)])


def is_title(node: Node) -> bool:
    return node.tag == 'h1' or node.tag == 'main' or node.tag == 'article'


def hide_noscript(nodes: list[Node]) -> None:
    """Hide what is for browsers without scripts, unless it is the page itself."""
    parts = [node for node in nodes if node.tag == 'noscript']
    body = nodes[0]
    if not parts or 2 * sum(node.text - node.links for node in parts) > body.text - body.links:
        return
    hide(parts)


def hide(parts: list[Node]) -> None:
    for node in parts:
        node.is_hidden = node.is_junk = True
    measure_above(parts)


def is_of_manual(root: Node) -> bool:
    """Check the names on the way to where most prose is."""
    node = root
    while node.elements:
        node = max(node.elements, key=lambda one: (one.good, one.text))
        if vocabulary.is_manual(node):
            return True
    return False


def is_listing(nodes: list[Node]) -> bool:
    """Whether the page shows several articles with headings, and none of them is the page's."""
    articles = [node for node in nodes if node.tag == 'article' and not is_in_article(node)]
    if len(articles) < MIN_ITEMS or any(node.has_title for node in articles):
        return False
    texts = [node.text for node in articles]
    together = sum(texts)
    if together < MOST * nodes[0].text or max(texts) > MOST * together:
        return False
    titled = sum(holds(node, lambda one: one.tag in HEADINGS) for node in articles)
    return 2 * titled >= len(articles)


def is_in_article(node: Node) -> bool:
    return any(one.tag == 'article' for one in ancestors(node))


def drop_repeated(root: Node) -> None:
    """Drop a part that repeats an earlier one word for word, as layouts for other screens do."""
    seen: dict[tuple[int, int, int], list[Node]] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if node.is_junk or node.good < MIN_REPEATED:
            continue
        earlier = seen.setdefault((node.text, node.links, node.good), [])
        if (node.has_inner_block or node.tag == 'blockquote') and any(
            not is_inside(node, one) and is_same(one, node) for one in earlier
        ):
            node.is_junk = True
            continue
        earlier.append(node)
        stack += reversed(node.elements)


def is_same(node: Node, other: Node) -> bool:
    return node.source.text.split() == other.source.text.split()
