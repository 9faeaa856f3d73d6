"""Admonitions: how documentation generators mark a note, its kind and its title.

Knows the classes of Sphinx, MkDocs, Docusaurus, VitePress, Starlight, GitHub, GitBook, Nextra,
Confluence and Bootstrap. Writing a note is left to `blocks.py`.
"""

import re

from silkline.crawl.extract.tree import Node

_NOTES = frozenset(
    'admonition theme-admonition custom-block markdown-alert starlight-aside callout hint'
    ' alert nextra-callout confluence-information-macro'.split()
)
_ALWAYS_NOTES = frozenset({'callout', 'nextra-callout', 'hint'})
_KINDS = frozenset(
    'note tip info important warning caution danger attention error seealso success'
    ' deprecated'.split()
)
_TITLE = re.compile(
    r'admonition-?(?:title|heading)|custom-block-title|alert-?(?:title|heading)|aside__title'
    r'|callout-?(?:title|heading)|hint-?title|^title $'
)


def is_note(node: Node) -> bool:
    words = node.names.split()
    if _NOTES.isdisjoint(words):
        return False
    return (
        kind_of(node) != '' or title_node(node) is not None or not _ALWAYS_NOTES.isdisjoint(words)
    )


def kind_of(node: Node) -> str:
    """The kind as a title, or '': both 'admonition note' and 'alert--info' name one."""
    for word in node.names.split():
        kind = word.replace('_', '-').rpartition('-')[2]
        if kind in _KINDS and (kind == word or not _NOTES.isdisjoint(node.names.split())):
            return kind.capitalize()
    kind = (node.get('data-kind') or node.get('data-callout') or '').lower()
    return kind.capitalize() if kind in _KINDS else ''


def title_node(node: Node) -> Node | None:
    for child in node.elements:
        if _TITLE.search(child.names):
            return child
    return None
