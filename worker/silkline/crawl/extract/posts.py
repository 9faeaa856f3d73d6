"""Pages of posts: forums, questions with answers, threads of comments.

Recognised by structure alone: the same kind of element holds most of the prose, twice or more, and
next to each stands when it was written, and mostly who wrote it. Of every post its author, its date
and its text are kept; profiles, signatures, buttons and counters around them are not.
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

from silkline.crawl.extract.clutter import MOST
from silkline.crawl.extract.tree import HEADINGS, Node, ancestors, descendants, holds

MIN_POSTS = 2
MIN_DATED = 0.6
MIN_SIGNED = 0.3
# Characters of prose outside of the posts, on a page that calls itself an article: an article
# stands above its comments.
MAX_BESIDE = 800
MAX_CLIMB = 12
MAX_AUTHOR = 120
MAX_DATE = 150
MAX_LOOSE_DATE = 60
REMEMBERED = 2_000

_DIGITS = re.compile(r'\d+')
_AUTHOR = re.compile(
    r'(?:^|[\s_-])(?:authors?|user-?names?|creator|nick(?:name)?|poster|posted-?by|member|usertext'
    r'|display-?name|user-?details)(?:$|[\s_-])'
)
_AUTHOR_LINK = re.compile(
    r'(?:^|/)(?:u|users?|members?|profiles?|people|author)/|memberlist|member\.php|action=profile'
    r'|viewprofile'
)
_PERSON = frozenset({'author', 'name'})
_DATE = re.compile(
    r'(?:^|[\s_-])(?:date|time|timestamp|posted|post-?date|relativetime|when|age)(?:$|[\s_-])'
)
_TIMES = frozenset({'time', 'relative-time'})
_DIGIT = re.compile(r'\d')
# A year, a clock, a day in numbers, or how long ago.
_DATED = re.compile(r'\b(?:19|20)\d\d\b|\b\d{1,2}:\d\d|\b\d{1,2}[./-]\d{1,2}[./-]\d{2,4}|\bago\b')


@dataclass(frozen=True, slots=True)
class Post:
    root: Node
    text: Node
    author: Node | None
    date: Node | None


def find_posts(nodes: list[Node], *, is_article: bool) -> list[Post]:
    texts = find_texts(nodes)
    if len(texts) < MIN_POSTS:
        return []
    posts = [post_around(root, text) for root, text in roots_of(texts)]
    dated = sum(post.date is not None for post in posts)
    signed = sum(post.author is not None for post in posts)
    if dated < max(MIN_POSTS, MIN_DATED * len(posts)):
        return []
    if signed < max(MIN_POSTS, MIN_SIGNED * len(posts)):
        return []
    if is_article and (
        2 * sum(map(has_heading, posts)) > len(posts)
        or nodes[0].good - sum(post.root.good for post in posts) > MAX_BESIDE
    ):
        return []
    return posts


def has_heading(post: Post) -> bool:
    """Whether the post has a heading outside of its text, as the teaser of another page has."""
    inside = {*descendants(post.text), *(descendants(post.author) if post.author else ())}
    return holds(post.root, lambda one: one.tag in HEADINGS and one not in inside)


def find_texts(nodes: list[Node]) -> list[Node]:
    """Find the elements of one kind that hold most of the prose, as tightly as possible."""
    least = MOST * nodes[0].good
    groups: defaultdict[tuple[str, str], list[Node]] = defaultdict(list)
    for node in nodes:
        if node.names and node.text and node.has_block and not node.is_junk:
            groups[node.tag, first_name(node.names)].append(node)
    # Text, prose and nodes of each kind.
    candidates: list[tuple[int, int, list[Node]]] = []
    for group in groups.values():
        if len(group) < MIN_POSTS or sum(node.good for node in group) < least:
            continue
        group = outermost(group)
        prose = sum(node.good for node in group)
        if len(group) >= MIN_POSTS and prose >= least:
            candidates.append((sum(node.text for node in group), prose, group))
    if not candidates:
        return []
    _, most, widest = max(candidates, key=lambda one: one[1] * min(len(one[2]), 3))
    return min(
        (one for one in candidates if one[1] >= 0.7 * most and len(one[2]) >= 0.8 * len(widest)),
        key=lambda one: one[0],
    )[2]


@lru_cache(maxsize=REMEMBERED)
def first_name(names: str) -> str:
    """The first class, without the numbers that make it unique."""
    return _DIGITS.sub('', names.split(maxsplit=1)[0]) if not names.isspace() else ''


def outermost(group: list[Node]) -> list[Node]:
    known = set(group)
    return [node for node in group if not is_below(node, known)]


def is_below(node: Node, known: set[Node]) -> bool:
    above = node.parent
    while above is not None and above not in known:
        above = above.parent
    return above is not None


def roots_of(texts: list[Node]) -> list[tuple[Node, Node]]:
    """Climb from all texts alike, as long as they stay apart; return the posts with their texts."""
    roots = [(text, text) for text in texts]
    for _ in range(MAX_CLIMB):
        above: defaultdict[Node, list[Node]] = defaultdict(list)
        for root, text in roots:
            if root.parent is None:
                return roots
            above[root.parent].append(text)
        known = set(above)
        inner = {one for one in above if is_below(one, known)}
        if (
            len(above) - len(inner) < MIN_POSTS
            or len(inner) * 4 > len(above)
            or any(len(some) > 2 for some in above.values())
        ):
            break
        # Where two share a post, the longer one is its text, and the other a signature.
        roots = [
            (one, max(some, key=lambda text: text.text))
            for one, some in above.items()
            if one not in inner
        ]
    return roots


def post_around(root: Node, text: Node) -> Post:
    authors: list[Node] = []
    dates: list[Node] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if node is text or node.is_hidden:
            continue
        if is_author(node):
            authors.append(node)
        elif is_date(node):
            dates.append(node)
            continue
        stack += reversed(node.elements)
    author = min(authors, key=author_rank, default=None)
    date = min(dates, key=date_rank, default=None)
    if date is None and author is not None and _DATED.search(author.source.text):
        date = author
    return Post(root, text, author, date)


def is_author(node: Node) -> bool:
    if not 2 <= node.text <= MAX_AUTHOR or 'avatar' in node.names:
        return False
    if node.get('itemprop') in _PERSON:
        return True
    if node.tag == 'a' and (
        node.get('rel') == 'author' or _AUTHOR_LINK.search(node.get('href') or '')
    ):
        return True
    return node.names != '' and node.inline > 1 and _AUTHOR.search(node.names) is not None


def author_rank(node: Node) -> int:
    if node.has_block:
        return 2
    return 0 if node.get('itemprop') in _PERSON else 1


def is_date(node: Node) -> bool:
    if is_time(node):
        return 0 < node.text <= MAX_DATE
    if node.names and node.text <= MAX_DATE and _DATE.search(node.names):
        return _DIGIT.search(node.source.text) is not None
    return 4 <= node.own <= MAX_LOOSE_DATE and _DATED.search(node.source.text) is not None


def is_time(node: Node) -> bool:
    return node.tag in _TIMES or node.get('itemprop') == 'datePublished'


def date_rank(node: Node) -> int:
    if is_time(node):
        return 0
    return 1 if node.names and _DATE.search(node.names) else 2


def keep_posts(posts: list[Post]) -> Node:
    """Mark all but authors, dates and texts as clutter; return what holds posts and title.

    What stands between the title and the first post stays, if it is prose.
    """
    kept: set[Node] = set()
    for post in posts:
        for part in (post.author, post.date, post.text):
            if part is not None:
                kept.update(descendants(part))
                kept.update(ancestors(part))
        for part in (post.author, post.date, post.text):
            if part is not None and part.is_junk:
                show(part)
    roots = {post.root for post in posts}
    is_after = False
    region = region_of(posts)
    stack = [(region, False)]
    while stack:
        node, is_in_post = stack.pop()
        if node in roots:
            is_in_post = True
            is_after = node is posts[-1].root
        if node in kept:
            stack += ((one, is_in_post) for one in reversed(node.elements))
        elif not node.has_title and (is_in_post or is_after or not node.good):
            node.is_junk = True
    return region


def show(node: Node) -> None:
    """Show what a name has marked as clutter, with all around it."""
    for one in descendants(node):
        one.is_junk = one.is_hidden
    for one in ancestors(node):
        one.is_junk = False


def region_of(posts: list[Post]) -> Node:
    """The smallest node that holds all posts, and the title if it is not only in the body."""
    count: defaultdict[Node, int] = defaultdict(int)
    for post in posts:
        for one in (post.root, *ancestors(post.root)):
            count[one] += 1
    node = posts[0].root
    while node.parent is not None and (
        count[node] < len(posts) or (not node.has_title and node.parent.tag != 'body')
    ):
        node = node.parent
    return node
