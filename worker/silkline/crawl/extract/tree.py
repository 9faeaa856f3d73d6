"""The tree that the extractor works on: elements with their children in plain lists.

A node keeps the parser's element for its attributes, and the counts that distinguish text from
navigation. The sets of tags that the modules of the package share are here, too.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

# Never text: neither their own nor that of elements inside.
DROPPED = frozenset(
    'script style noscript template svg iframe object embed canvas audio video map head link meta'
    ' title base select textarea button datalist frameset noframes dialog param source'
    ' track progress meter'.split()
)
# What starts on a new line.
BLOCKS = frozenset(
    'address article aside blockquote body caption center dd details dialog dir div dl dt fieldset'
    ' figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr html legend li main menu nav'
    ' noscript ol p pre search section summary table tbody td tfoot th thead tr ul'.split()
)
# What a page would be missed without, however short.
MARKS = frozenset({'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'pre', 'table'})
HEADINGS = {'h1': 1, 'h2': 2, 'h3': 3, 'h4': 4, 'h5': 5, 'h6': 6}


class SourceElement(Protocol):
    @property
    def text(self) -> str: ...

    def attr(self, name: str, /) -> str | None: ...


class Node:
    """One element. The counts are set by `measure`, which runs before anything reads them."""

    __slots__ = (
        'children',
        # The children that are nodes.
        'elements',
        # Characters that read like prose.
        'good',
        'has_block',
        'has_inner_block',
        # Whether anything inside is junk.
        'has_junk',
        'has_title',
        # The id in lower case, of elements that are named by it.
        'identity',
        # Characters outside of inner blocks: all, and those in links.
        'inline',
        'inline_links',
        'is_code',
        'is_early',
        'is_hidden',
        'is_junk',
        'is_paging',
        'is_prose',
        'is_protected',
        # The label of the tab for this panel.
        'label',
        'links',
        # Headings, code blocks and tables inside.
        'marks',
        'names',
        # Characters of text directly in this node.
        'own',
        'parent',
        'role',
        'source',
        'tag',
        'text',
    )
    good: int
    has_block: bool
    has_inner_block: bool
    inline: int
    inline_links: int
    is_prose: bool
    links: int
    marks: int
    text: int

    def __init__(self, tag: str, source: SourceElement, parent: 'Node | None') -> None:
        self.tag = tag
        self.source = source
        self.parent = parent
        self.children: list[Node | str] = []
        self.elements: list[Node] = []
        self.own = 0
        # Classes in lower case.
        self.names = ''
        self.identity = ''
        self.role: str | None = None
        self.label = ''
        self.has_junk = False
        self.has_title = False
        self.is_code = False
        self.is_early = False
        self.is_hidden = False
        self.is_junk = False
        self.is_paging = False
        self.is_protected = False

    def get(self, name: str) -> str | None:
        return self.source.attr(name)


def descendants(node: Node) -> Iterator[Node]:
    """Iterate over a node and all nodes inside it, in document order."""
    stack = [node]
    while stack:
        one = stack.pop()
        yield one
        stack += reversed(one.elements)


def ancestors(node: Node) -> Iterator[Node]:
    """Iterate over the nodes around a node, from the inside out."""
    above = node.parent
    while above is not None:
        yield above
        above = above.parent


def holds(node: Node, is_wanted: Callable[[Node], bool]) -> bool:
    return any(map(is_wanted, descendants(node)))


def is_inside(node: Node, region: Node) -> bool:
    above: Node | None = node
    while above is not None:
        if above is region:
            return True
        above = above.parent
    return False


def is_in_main(node: Node) -> bool:
    """Whether the page calls it a part of its main content, or of an article."""
    return any(
        one.tag == 'main' or one.tag == 'article' or one.role == 'main'
        for one in (node, *ancestors(node))
    )
