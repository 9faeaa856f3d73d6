"""The only module that knows the HTML parser.

Owns the call of turbohtml, the check for the few inputs that blow up any parser of the HTML
standard, and the copy of its tree into `Node`, which the rest of the package reads. Another parser
would only change this module.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from turbohtml import Document, Element, Namespace, Text, parse
from turbohtml import Node as ParsedNode

from silkline.crawl.extract.tree import DROPPED, HEADINGS, Node

MAX_DEPTH = 150
MAX_NODES = 250_000
MAX_TAGS = 500_000
MAX_NAMES = 500
# Less text than this asks for scripts.
MIN_NOSCRIPT = 500
MAX_REPEATED_ROOTS = 50
MAX_FORMATTING_CLONES = 3_000_000
LARGE = 500_000

# Attributes of a second <html> or <body> are merged into the first, which takes quadratic time.
# Formatting elements with attributes that are never closed are opened again in each later block,
# which takes quadratic memory. Both cases of each letter instead of a flag, with which the search
# could not skip from '<' to '<'.
_ROOT = '[hH][tT][mM][lL]|[bB][oO][dD][yY]'
_FORMATTING = (
    '[bB](?:[iI][gG])?|[cC][oO][dD][eE]|[eE][mM]|[fF][oO][nN][tT]|[iI]|[nN][oO][bB][rR]'
    '|[sS](?:[mM][aA][lL][lL]|[tT][rR][iI][kK][eE]|[tT][rR][oO][nN][gG])?|[tT][tT]|[uU]'
)
_COSTLY = re.compile(rf'<(?=[hHbBcCeEfFiInNsStTuU])(?:({_ROOT})|(?:{_FORMATTING}))[\s/]')
_OPENED_OR_CLOSED = re.compile(rf'<(/?)({_FORMATTING})(?=[\s/>])')
# Invisible, but the parser keeps a record of each: ten megabytes of them would take 300.
_ERRORS = re.compile('[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]+')
_ASCII_ERRORS = bytes(number for number in range(128) if _ERRORS.match(chr(number)))
_LATIN_ERROR = re.compile(b'\xc2[\x80-\x9f]')
_FACTS = ('a', 'area', 'meta', 'link', 'base', 'title', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6')


__all__ = [
    'Document',
    'TooCostly',
    'build_tree',
    'fact_elements',
    'is_of_html',
    'parse_html',
    'release',
]


class TooCostly(Exception):
    """The tree of this page would take far more time or memory than its size allows."""


def parse_html(html: str) -> Document:
    check_cost(html)
    if len(html) > LARGE and _may_hold_errors(html):
        html = _ERRORS.sub('', html)
    return parse(html, positions=False)


def _may_hold_errors(html: str) -> bool:
    """Search for errors, in a fraction of the time of the pattern that removes them."""
    raw = html.encode('utf-8', 'replace')
    without = raw.translate(None, _ASCII_ERRORS)
    return len(without) < len(raw) or _LATIN_ERROR.search(raw) is not None


def check_cost(html: str) -> None:
    if len(html) > MAX_TAGS and (tags := html.count('<')) > MAX_TAGS:
        raise TooCostly(f'{tags} tags')
    found = _COSTLY.findall(html)
    if len(found) < MAX_REPEATED_ROOTS:
        return
    roots = sum(map(bool, found))
    if roots > MAX_REPEATED_ROOTS:
        raise TooCostly(f'{roots} <html> or <body> tags')
    opened = len(found) - roots
    if opened * html.count('<') < MAX_FORMATTING_CLONES:
        return
    left_open = most_open(html)
    if left_open > 50 and left_open * html.count('<') > MAX_FORMATTING_CLONES:
        raise TooCostly(f'{left_open} formatting elements open at once')


def most_open(html: str) -> int:
    """The largest number of formatting elements that are open at the same time."""
    counts: dict[str, int] = {}
    now = most = 0
    for found in _OPENED_OR_CLOSED.finditer(html):
        tag = found[2].lower()
        count = counts.get(tag, 0)
        if not found[1]:
            counts[tag] = count + 1
            now += 1
            most = max(most, now)
        elif count:
            counts[tag] = count - 1
            now -= 1
    return most


def fact_elements(document: Document) -> Iterator[Element]:
    """Iterate over the elements that facts are read from, in document order."""
    return document.iter_elements(_FACTS)


def is_of_html(element: Element) -> bool:
    """Whether a <title> is that of the page, and not one inside an SVG."""
    return element.namespace is Namespace.HTML


@dataclass(slots=True)
class Tree:
    """The nodes of a page in document order, and what was left out of them."""

    nodes: list[Node] = field(default_factory=list[Node])
    # Characters in navigation that was not copied.
    skipped: int = 0
    # Whether the page has more elements than are read.
    is_cut: bool = False


def build_tree(document: Document, *, has_navigation: bool) -> Tree:
    """Copy the body into nodes, without elements that never hold text.

    Without `has_navigation` parts that are navigation and nothing else are left out, too. What is
    nested deeper than MAX_DEPTH is attached, flat, to the deepest node kept.
    """
    body = document.find('body')
    if body is None:
        # A set of frames.
        return Tree()
    # Few elements have these attributes, so one query for all is cheaper than asking each.
    unusual = frozenset(body.select(_UNUSUAL))
    unfolded: set[str] = set()
    above = Node('body', body, None)
    nodes = [above]
    tree = Tree(nodes)
    children: Iterator[ParsedNode] = iter(body)
    stack: list[tuple[Iterator[ParsedNode], Node]] = []
    while True:
        append = above.children.append
        for child in children:
            if type(child) is Text:
                data = child.data
                append(data)
                # Between most tags there is only white space.
                if not data.isspace():
                    above.own += len(data.strip())
            elif type(child) is Element:
                tag = child.tag
                if tag in DROPPED:
                    if tag not in _SOMETIMES_KEPT or not _is_kept(child, tag, above):
                        continue
                    if (controlled := _unfolds(child, above)) is not None:
                        unfolded.add(controlled)
                elif (
                    tag in _SET_APART
                    and not has_navigation
                    and child.select_one(_NOT_ONLY_NAVIGATION) is None
                ):
                    tree.skipped += len(child.text)
                    continue
                if len(nodes) > MAX_NODES:
                    tree.is_cut = True
                    return tree
                node = above
                if len(stack) < MAX_DEPTH - 1 or tag in _SHALLOW:
                    node = Node(tag, child, above)
                    append(node)
                    above.elements.append(node)
                    nodes.append(node)
                    if names := child.attr('class'):
                        node.names = names[:MAX_NAMES].lower()
                    if tag in _NAMED_BY_ID and (identity := child.attr('id')):
                        node.identity = identity[:MAX_NAMES].lower()
                    if unusual and child in unusual:
                        _note_unusual(node, unfolded)
                count = len(child)
                if count == 1 and type(only := child[0]) is Text:
                    # As in most elements, so it is handled here.
                    data = only.data
                    node.children.append(data)
                    node.own += len(data.strip())
                elif count:
                    if tag == 'pre' and child.select_one(_NOT_ONLY_CODE) is None:
                        _copy_code(child, node, nodes)
                        continue
                    stack.append((children, above))
                    children, above = iter(child), node
                    break
        else:
            if not stack:
                return tree
            children, above = stack.pop()


def _copy_code(element: Element, node: Node, nodes: list[Node]) -> None:
    """Copy highlighted code as its text: of the elements in it only those that name it matter."""
    for child in element:
        if type(child) is Element and child.tag == 'code':
            inner = Node('code', child, node)
            inner.names = (child.attr('class') or '')[:MAX_NAMES].lower()
            nodes.append(inner)
            node.elements.append(inner)
            node.children.append(inner)
            inner.children.append(child.text)
            inner.own = len(child.text.strip())
        else:
            text = child.data if type(child) is Text else getattr(child, 'text', '')
            node.children.append(text)
            node.own += len(text.strip())


def release(nodes: list[Node]) -> None:
    """Cut the links to parents, so that the tree is freed without the garbage collector."""
    for node in nodes:
        node.parent = None


def _is_kept(element: Element, tag: str, above: Node) -> bool:
    """Keep buttons that label a tab or expand a section, scripts that contain formulas, and pages
    for browsers without scripts."""
    if tag == 'button':
        return (
            element.attr('role') == 'tab'
            or (above.tag in HEADINGS and not above.own and not above.elements)
            or (element.attr('aria-expanded') is not None and element.attr('aria-haspopup') is None)
        )
    if tag == 'noscript':
        return len(element.text) >= MIN_NOSCRIPT
    if not (element.attr('type') or '').startswith('math/tex'):
        return False
    for shown in above.elements[-2:]:
        # The same formula, as MathJax shows it.
        shown.is_hidden = shown.is_hidden or 'mathjax' in shown.names
    return True


def _unfolds(element: Element, above: Node) -> str | None:
    """The id of the section that a button outside of menus expands."""
    node: Node | None = above if element.attr('aria-expanded') is not None else None
    while node is not None and node.tag not in _MENUS:
        if node.parent is None:
            return element.attr('aria-controls')
        node = node.parent
    return None


def _note_unusual(node: Node, unfolded: set[str]) -> None:
    role = node.role = node.get('role')
    node.is_paging = node.tag == 'a' and (
        (node.get('accesskey') or '').isalpha() or node.get('rel') in _PAGING
    )
    style = node.get('style')
    # These are hidden and still part of the page: tabs that are not selected, what a button
    # expands, and the source of a formula that is shown as an image.
    node.is_hidden = (
        role != 'tabpanel'
        and 'mathml' not in node.names
        and not (unfolded and node.get('id') in unfolded)
        and (
            node.get('hidden') is not None
            or node.get('aria-hidden') == 'true'
            or (style is not None and _HIDDEN.search(style) is not None)
        )
    )


_SET_APART = frozenset({'nav', 'footer'})
_NOT_ONLY_NAVIGATION = 'h1, main, article, [role="main"], [role="tab"]'
# Numbers of lines, buttons and tooltips that highlighters add to code are left to the writer.
_NOT_ONLY_CODE = (
    'a, pre, br, div, p, li, tr, button, script, style, [hidden], [style], [aria-hidden], [role],'
    ' [unselectable], [data-line-number], [class*="lin" i], [class*="ln" i], [class*="copy" i],'
    ' [class*="gutter" i], [class*="num" i], [class*="ttc"], [class*="lang"] > [class*="lang"]'
)
_SOMETIMES_KEPT = frozenset({'button', 'script', 'noscript'})
_MENUS = frozenset({'nav', 'header', 'aside', 'footer'})
_UNUSUAL = (
    '[role], [hidden], [aria-hidden="true"], [style*="none" i], a[accesskey], a[rel="next"],'
    ' a[rel="prev"], a[rel="up"]'
)
_PAGING = frozenset({'next', 'prev', 'previous', 'up'})
_HIDDEN = re.compile(r'display\s*:\s*none', re.IGNORECASE)
# The ids of other elements are link targets, often made of the words of a heading.
_NAMED_BY_ID = frozenset({'div', 'ul', 'ol', 'form', 'table', 'figure', 'aside'})
# Kept at any depth, because nothing that matters can be nested in them.
_SHALLOW = frozenset({'br', 'hr', 'img'})
