"""Lists: which ones are written as lists, whether they are tight, how two are separated.

Writing the items is left to `blocks.py`.
"""

import re

from silkline.crawl.extract.tree import Node

_PARTS = frozenset({'h1', 'h2', 'h3'})
_BULLET = re.compile(r'^- ', re.MULTILINE)
_FIRST_NUMBER = re.compile(r'^(\d+)\.(?= )', re.MULTILINE)
_NUMBER = re.compile(r'(\d{1,9})\\?[.)]')


def add_blocks(blocks: list[str], inner: list[str]) -> None:
    """Add blocks; two lists in a row get different bullets, or they would be read as one."""
    if inner and blocks:
        if blocks[-1].startswith('- ') and inner[0].startswith('- '):
            inner[0] = _BULLET.sub('* ', inner[0])
        elif (
            inner[0][:1].isdigit()
            and _FIRST_NUMBER.match(inner[0])
            and _FIRST_NUMBER.match(blocks[-1])
        ):
            inner[0] = _FIRST_NUMBER.sub(r'\1)', inner[0])
    blocks += inner


def has_sections(node: Node) -> bool:
    """Whether the items of a list are sections of the page, each with a heading."""
    for item in node.elements:
        for child in item.elements:
            inner = child.elements[0].tag if child.elements else child.tag
            if child.tag in _PARTS or (child.tag == 'section' and inner in _PARTS):
                return True
    return False


def is_marker(text: str, first: int | None, index: int) -> bool:
    """Whether the page writes its bullets or numbers itself."""
    found = _NUMBER.fullmatch(text)
    if found is None or first is None:
        return text in ('•', '·')
    return int(found[1]) == first + index


def is_tight_item(item: list[str]) -> bool:
    """Whether the blocks of a list item need no empty lines between them."""
    return len(item) <= 1 or (
        '\n\n' not in item[0]
        and not item[0].startswith(('```', '> ', '|'))
        and all(_is_list(part) for part in item[1:])
    )


def _is_list(text: str) -> bool:
    return text.startswith(('- ', '* ')) or re.match(r'\d+[.)] ', text) is not None
