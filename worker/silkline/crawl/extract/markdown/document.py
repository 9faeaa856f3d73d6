"""Write a whole document: its heading, its blocks, the targets of its links, up to a limit.

Markdown that is longer is cut after a block if possible, never inside a fence, and the result says
so. The blocks themselves are left to `blocks.py`.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from silkline.crawl.extract.facts import MAX_MARKDOWN
from silkline.crawl.extract.markdown.blocks import MarkdownWriter
from silkline.crawl.extract.markdown.code import is_listing
from silkline.crawl.extract.markdown.inline import InlineWriter
from silkline.crawl.extract.tree import Node
from silkline.crawl.extract.vocabulary import MAX_LAST_LINKS, drop_ending

# Room for the end of a fence.
MARGIN = 200
_MARKS = r'(?:[ \t>]|[-*+:] |\d+[.)] )*'
_FENCE = re.compile(rf'({_MARKS})(`{{3,}})[^`]*')
_HEADING = re.compile(rf'{_MARKS}#{{1,6}} ')
_NOT_REPEATED = re.compile(r'[^\s>]')


class Written(Struct, frozen=True):
    """The Markdown of a page, and how many of its headings and blocks of code are in it."""

    text: str
    headings: int
    code_blocks: int
    # Whether its end is missing, because the page is longer than the limit.
    is_cut: bool


def write_markdown(
    root: Node,
    inline: InlineWriter,
    *,
    heading: Node | None = None,
    is_main: bool = False,
    limit: int = MAX_MARKDOWN,
) -> Written:
    """Write the content of `root`, below `heading` if it has no heading of its own.

    No more than `limit` characters are written.
    """
    writer = MarkdownWriter(inline, limit=limit)
    blocks: list[str] = []
    if is_listing(root):
        writer.code(root, blocks)
    else:
        blocks = writer.blocks(root)
    if heading is not None and blocks and not blocks[0].startswith('# '):
        title = inline.heading(heading)
        if title and blocks[0].lstrip('# ') != title:
            blocks.insert(0, f'# {title}')
            writer.headings += 1
    if is_main:
        # A rule below the navigation.
        while blocks[:1] == ['---']:
            del blocks[0]
        _drop_ending(blocks, inline)
    text = '\n\n'.join(blocks)
    headings, code_blocks = writer.headings, writer.code_blocks
    is_cut = writer.is_cut or inline.is_cut
    if len(text) >= limit:
        text = _cut(text, limit - 1)
        headings, code_blocks = _count(text)
        is_cut = True
    if inline.links == 'references':
        targets = inline.definitions(text)
        while targets and len(text) + len(targets) + 3 > limit:
            text = _cut(text, len(text) * 3 // 4)
            targets = inline.definitions(text)
            headings, code_blocks = _count(text)
            is_cut = True
        text = f'{text}\n\n{targets}' if targets else text
    return Written(text + '\n' if text else '', headings, code_blocks, is_cut)


def _drop_ending(blocks: list[str], inline: InlineWriter) -> None:
    """Drop clutter at the end, which is the same however links are written."""
    if inline.links == 'inline':
        drop_ending(blocks)
        return
    shown = blocks[:]
    linked = inline.linked
    end = len(linked)
    for at in range(len(blocks) - 1, max(-1, len(blocks) - 5), -1):
        text = ''.join(blocks[at].split())
        for links in range(1, MAX_LAST_LINKS + 1):
            if text == ''.join(''.join(linked[max(0, end - links) : end]).split()):
                shown[at] = '[link](target)' * links
                end -= links
                break
    drop_ending(shown)
    del blocks[len(shown) :]


def _cut(text: str, limit: int) -> str:
    """Cut after a block, or after a line where blocks are long; a fence left open is closed."""
    text = text[: max(0, limit - min(MARGIN, limit // 2))]
    enough = len(text) // 2
    at = block_end = 0
    closing = ''
    for line, after in _lines(text):
        if not closing and not line.strip(' >'):
            block_end = at
        closing = after
        at += len(line) + 1
    if block_end > enough:
        return text[:block_end].rstrip('\n >')
    end = text.rfind('\n', enough)
    if end < 0 and not closing:
        end = text.rfind(' ', enough)
    text = text[:end] if end > 0 else text
    return f'{text}\n{closing}' if closing else text


def _count(text: str) -> tuple[int, int]:
    """Count the headings and the blocks of code."""
    headings = code_blocks = 0
    closing = ''
    for line, after in _lines(text):
        if not closing:
            headings += _HEADING.match(line) is not None
            code_blocks += after != ''
        closing = after
    return headings, code_blocks


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield each line, with the line that would end the fence that is open after it, or ''."""
    closing = ''
    for line in text.split('\n'):
        if not closing:
            found = _FENCE.fullmatch(line)
            if found is not None:
                # A marker of a list stands before its first line only.
                closing = _NOT_REPEATED.sub(' ', found[1]) + found[2]
        elif line.strip(' \t>') == closing.strip(' \t>'):
            closing = ''
        yield line, closing
