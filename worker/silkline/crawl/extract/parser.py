"""The only module that knows the HTML parser.

Owns the call of turbohtml, the check for the few inputs that blow up any parser of the HTML
standard, and the copy of its tree into `Node`, which the rest of the package reads. Another parser
would only change this module.
"""

import re
from collections.abc import Iterator

from turbohtml import Document, Element, Namespace, Text, parse
from turbohtml import Node as ParsedNode

from silkline.crawl.extract.tree import DROPPED, HEADINGS, Node

MAX_DEPTH = 150
MAX_NODES = 100_000
MAX_TAGS = 400_000
MAX_NAMES = 500
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


def build_tree(document: Document) -> list[Node]:
    """Copy the body into nodes in document order, without elements that never hold text.

    What is nested deeper than MAX_DEPTH is attached, flat, to the deepest node kept.
    """
    body = document.find('body')
    if body is None:
        return []
    # Few elements have these attributes, so one query for all is cheaper than asking each.
    unusual = frozenset(body.select(_UNUSUAL))
    unfolded: set[str] = set()
    above = Node('body', body, None)
    nodes = [above]
    children: Iterator[ParsedNode] = iter(body)
    stack: list[tuple[Iterator[ParsedNode], Node]] = []
    while True:
        append = above.children.append
        for child in children:
            if type(child) is Text:
                data = child.data
                append(data)
                above.own += len(data.strip())
            elif type(child) is Element:
                tag = child.tag
                if tag in DROPPED:
                    if (tag != 'button' and tag != 'script') or not _is_kept(child, tag, above):
                        continue
                    if (controlled := _unfolds(child, above)) is not None:
                        unfolded.add(controlled)
                if len(nodes) > MAX_NODES:
                    return nodes
                node = above
                if len(stack) < MAX_DEPTH - 1 or tag in _SHALLOW:
                    node = Node(tag, child, above)
                    append(node)
                    above.elements.append(node)
                    nodes.append(node)
                    names = child.attr('class')
                    identity = child.attr('id') if tag in _NAMED_BY_ID else None
                    if names or identity:
                        node.names = f'{names or ""} {identity or ""}'[:MAX_NAMES].lower()
                    if unusual and child in unusual:
                        _note_unusual(node, unfolded)
                count = len(child)
                if count == 1 and type(only := child[0]) is Text:
                    # As in most elements, so it is handled here.
                    data = only.data
                    node.children.append(data)
                    node.own += len(data.strip())
                elif count:
                    stack.append((children, above))
                    children, above = iter(child), node
                    break
        else:
            if not stack:
                return nodes
            children, above = stack.pop()


def release(nodes: list[Node]) -> None:
    """Cut the links to parents, so that the tree is freed without the garbage collector."""
    for node in nodes:
        node.parent = None


def _is_kept(element: Element, tag: str, above: Node) -> bool:
    """Keep buttons that label a tab or expand a section, and scripts that contain formulas."""
    if tag == 'button':
        return (
            element.attr('role') == 'tab'
            or (above.tag in HEADINGS and not above.own and not above.elements)
            or (element.attr('aria-expanded') is not None and element.attr('aria-haspopup') is None)
        )
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


_MENUS = frozenset({'nav', 'header', 'aside', 'footer'})
_UNUSUAL = '[role], [hidden], [aria-hidden="true"], [style*="none" i]'
_HIDDEN = re.compile(r'display\s*:\s*none', re.IGNORECASE)
# The ids of other elements are link targets, often made of the words of a heading.
_NAMED_BY_ID = frozenset({'div', 'ul', 'ol', 'form', 'table', 'figure', 'aside'})
# Kept at any depth, because nothing that matters can be nested in them.
_SHALLOW = frozenset({'br', 'hr', 'img'})
