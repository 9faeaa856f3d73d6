"""Admonitions: which blocks are notes, and what of them is the kind, the title and the text.

A note has a class of one of the documentation generators (Sphinx, MkDocs, Docusaurus, VitePress,
Starlight, GitHub, GitBook, Nextra, Confluence, Bootstrap, AsciiDoc), or a class that is a kind of
note and the structure of one, as in DocBook, Doxygen, rustdoc and others. Writing a note is left to
`blocks.py`.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

from silkline.crawl.extract.tree import HEADINGS, Node

REMEMBERED = 2_000
# A block without a title that has more text than this is a part of the page.
MAX_UNTITLED = 3_000
MAX_ELEMENTS = 2_000
MAX_ICON = 20
_NOTES = frozenset(
    'admonition theme-admonition custom-block markdown-alert starlight-aside callout hint'
    ' alert nextra-callout confluence-information-macro admonitionblock notecard'.split()
)
_ALWAYS_NOTES = frozenset({'callout', 'nextra-callout', 'hint'})
# Other classes, such as 'info', are those of notes only if their title says so, too.
_CLEAR_KINDS = frozenset('note tip important warning caution'.split())
_KINDS = _CLEAR_KINDS | frozenset('info danger attention error seealso success deprecated'.split())
_FOLDED_KINDS = _KINDS | frozenset('abstract question bug failure example quote'.split())
_TAGS = frozenset({'div', 'p', 'aside', 'blockquote', 'section', 'details', 'table', 'dl'})
_TITLE = re.compile(
    r'admonition-?(?:title|heading)|custom-block-title|alert-?(?:title|heading)|aside__title'
    r'|callout-?(?:title|heading)|hint-?title|note__?title|^title$'
)
_CELLS = frozenset({'td', 'th'})
_ROWS = frozenset({'thead', 'tbody', 'tfoot', 'tr'})


class Note(Struct, frozen=True):
    # The kind as a title, or ''.
    kind: str
    title: Node | None
    # The elements with the text; the title may be inside.
    body: list[Node]
    # Whether the title is a heading of the page, and not one only by its tag.
    has_heading: bool = False


def read_note(node: Node) -> Note | None:
    """Take a note apart; None if the block is not one."""
    if not _may_be_note(node.names) or node.tag not in _TAGS:
        return None
    # Not the id, which is often made of the words of a heading.
    names = node.get('class') or ''
    kind = _kind_in(names)
    words = names.lower().split()
    is_named = not _NOTES.isdisjoint(words)
    if not kind and is_named:
        kind = (node.get('data-kind') or node.get('data-callout') or '').capitalize()
        kind = kind if kind.lower() in _KINDS else ''
    if node.tag == 'details':
        note = _parts(node, kind)
        is_note = kind != '' or not _FOLDED_KINDS.isdisjoint(words)
        return note if is_note and note.title is not None else None
    if is_named:
        note = _parts(node, kind)
        is_clear = note.kind != '' or note.title is not None
        return note if is_clear or not _ALWAYS_NOTES.isdisjoint(words) else None
    if not kind or _has_sections(node):
        return None
    note = _parts(node, kind)
    is_clear = kind.lower() in _CLEAR_KINDS
    if note.title is not None:
        return note if is_clear or kind.lower() in note.title.source.text.lower() else None
    is_short = len(words) == 1 and node.tag != 'dl' and node.text <= MAX_UNTITLED
    return note if is_clear and is_short else None


# The same names occur again and again, on a page and on all pages of a site.
@lru_cache(maxsize=REMEMBERED)
def _may_be_note(names: str) -> bool:
    words = names.split()
    return not (_NOTES.isdisjoint(words) and _FOLDED_KINDS.isdisjoint(words))


@lru_cache(maxsize=REMEMBERED)
def _kind_in(names: str) -> str:
    """The kind as a title, or '': both 'admonition note' and 'alert--info' name one."""
    words = names.lower().split()
    is_note = not _NOTES.isdisjoint(words)
    for word in words:
        kind = word.replace('_', '-').rpartition('-')[2]
        if kind in _KINDS and (kind == word or is_note):
            return kind.capitalize()
    return ''


@lru_cache(maxsize=REMEMBERED)
def _are_title(names: str) -> bool:
    return _TITLE.search(names) is not None


def _parts(node: Node, kind: str) -> Note:
    for child in node.elements:
        if child.names and _are_title(child.names):
            is_heading = child.tag in HEADINGS and child.names == 'title'
            return Note(kind, child, [node], is_heading)
    if node.tag == 'dl':
        terms = [child for child in node.elements if child.tag == 'dt']
        return Note(kind, terms[0] if len(terms) == 1 else None, node.elements)
    inside = [child for child in node.elements if child.text or child.elements]
    table = node if node.tag == 'table' else inside[0] if len(inside) == 1 else None
    if table is not None and table.tag == 'table':
        note = _parts_of_table(table, kind)
        if note is not None:
            return note
    if inside and not node.own and (inside[0].tag in HEADINGS or inside[0].tag == 'summary'):
        return Note(kind, inside[0], [node], inside[0].tag in HEADINGS)
    return Note(kind, None, [node])


def _parts_of_table(table: Node, kind: str) -> Note | None:
    """Take apart a table with an icon or a title in one cell and the text in another."""
    title: Node | None = None
    body: list[Node] = []
    for cell in _cells(table):
        image = _image_in(cell) if cell.text <= MAX_ICON else None
        if cell.tag == 'th' or image is not None or 'icon' in cell.names.split():
            title = cell if cell.text else title
            alt = (image.get('alt') or image.get('title') or '') if image is not None else ''
            alt = alt.strip('[] ').capitalize()
            kind = kind or (alt if alt.lower() in _KINDS else '')
        elif cell.text or cell.elements:
            body.append(cell)
    return Note(kind, title, body) if len(body) == 1 else None


def _cells(table: Node) -> Iterator[Node]:
    for child in table.elements:
        if child.tag in _CELLS:
            yield child
        elif child.tag in _ROWS:
            yield from _cells(child)


def _image_in(node: Node) -> Node | None:
    for child in node.elements:
        if child.tag == 'img' or child.tag == 'i':
            return child
        if (image := _image_in(child)) is not None:
            return image
    return None


def _has_sections(node: Node) -> bool:
    """Whether this is a part of the page: with several headings, or far too large for a note."""
    headings = elements = 0
    stack = [node]
    while stack:
        inner = stack.pop()
        elements += 1
        headings += inner.tag in HEADINGS
        if headings > 1 or elements > MAX_ELEMENTS:
            return True
        stack += inner.elements
    return False
