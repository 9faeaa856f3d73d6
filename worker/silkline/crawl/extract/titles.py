"""Find the heading that is the title of a page, among those of its site and of its teasers.

The <title> of a page names the page and its site, in parts: the heading that equals the first part
is the page's, wherever it is, and one that equals a later part is the site's.
"""

import re

from silkline.crawl.extract.tree import HEADINGS, Node, is_in_main

MIN_TITLE = 8
MIN_PART = 4
MAX_NAMED = 300
# What an h1 without any relation to the title is worth.
WEAK = 2
MAX_LEVEL = 3
SELF_LINKS = ' ¶#§\uf0c1\u200b'
_PARTS = re.compile(r'\s+[-\u2013—|·•»«:/]+\s+|\s*[|»«—·•]\s*|:\s+')


def find_title(nodes: list[Node], title: str, *, is_article: bool) -> int | None:
    """Mark the ancestors of the page's heading; return its index among the nodes."""
    title = ' '.join(title.split()).lower()
    found = title_index(nodes, title, is_article=is_article)
    above = None if found is None else nodes[found]
    while above is not None:
        above.has_title = True
        above = above.parent
    return found


def title_index(nodes: list[Node], title: str, *, is_article: bool) -> int | None:
    """Find the heading with most evidence: equal to a part of the title, in the main part, an h1.

    In articles the h1 of a teaser may come first, even in the main part.
    """
    if is_article:
        return article_title_index(nodes, title)
    whole = squeezed(title)
    parts = [part for part in map(squeezed, _PARTS.split(title)) if part]
    # The name of the site is the last part, if there are several.
    of_page = {whole, *(parts[:-1] or parts)}
    best = (0, False, 0)
    found: int | None = None
    for index, node in enumerate(nodes):
        level = HEADINGS.get(node.tag)
        if level is None or level > MAX_LEVEL or node.is_hidden:
            continue
        text = squeezed(node.source.text)
        if not text:
            continue
        is_main = is_in_main(node)
        is_long = len(text) >= MIN_TITLE
        if level == 1:
            if text in of_page:
                rank = 6
            elif is_main:
                rank = 5
            elif (is_long and text in whole and text not in parts) or any(
                len(part) >= MIN_PART and part in text for part in of_page
            ):
                rank = 4
            else:
                rank = 1 if text in parts else 2
        elif text in of_page:
            rank = 3
        elif is_long and text in whole:
            rank = 1
        else:
            continue
        evidence = (rank, is_main, len(text) if text in of_page else 0)
        if evidence > best:
            best, found = evidence, index
    if best[0] <= WEAK:
        named = named_title(nodes, title)
        found = found if named is None else named
    return found


def is_anchor(heading: Node, title: str) -> bool:
    """Whether the content surely begins at this heading, and not before it."""
    text, whole = squeezed(heading.source.text), squeezed(title)
    return (
        is_in_main(heading)
        or text in whole
        or any(
            len(part) >= MIN_PART and part in text for part in map(squeezed, _PARTS.split(title))
        )
    )


def squeezed(text: str) -> str:
    return ''.join(filter(str.isalnum, text.lower()))


def article_title_index(nodes: list[Node], title: str) -> int | None:
    first: int | None = None
    matching: int | None = None
    # The title also contains the name of the site, which may be the longer part.
    best = (False, MIN_TITLE - 1)
    for index, node in enumerate(nodes):
        level = HEADINGS.get(node.tag)
        if level is None or level > MAX_LEVEL or node.is_hidden:
            continue
        text = ' '.join(node.source.text.split()).strip(SELF_LINKS).lower()
        if not text:
            continue
        if level == 1 and first is None:
            first = index
        if text in title and len(text) >= MIN_TITLE and (is_in_main(node), len(text)) > best:
            matching, best = index, (is_in_main(node), len(text))
    if first is None and matching is None:
        return named_title(nodes, title)
    return first if matching is None else matching


def named_title(nodes: list[Node], title: str) -> int | None:
    """Find an element named title with part of the title, and make a heading of it."""
    parts = _PARTS.split(title)
    for index, node in enumerate(nodes):
        if 'title' in node.names and 'title' in node.names.split() and node.text < MAX_NAMED:
            own = ' '.join(part for part in node.children if isinstance(part, str))
            text = ' '.join(own.split()).lower()
            if not text or not (
                text in parts
                or (len(text) >= MIN_TITLE and text in title)
                or any(len(part) >= MIN_TITLE and part in text for part in parts)
            ):
                continue
            node.tag = 'h1'
            for child in node.elements:
                # Where the page belongs, as links.
                child.is_hidden = child.is_hidden or child.links * 2 > child.text > 0
            return index
    return None
