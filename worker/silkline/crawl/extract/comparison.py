"""Compare the Markdown of a page with the page: what was kept of it, and what to warn of.

What is hidden on the page is not counted as visible, and headings inside of links or of navigation
are not counted as headings: they belong to other pages. A warning is a suspicion. Its rules were
chosen on real pages of seven kinds whose content is known (benchmarks/extract): most of the worst
pages have one, and few of those that are whole.
"""

from dataclasses import dataclass

from silkline.crawl.extract import vocabulary
from silkline.crawl.extract.main_content import MainContent
from silkline.crawl.extract.markdown.document import Written
from silkline.crawl.extract.parser import Tree
from silkline.crawl.extract.scripted import needs_browser
from silkline.crawl.extract.tree import HEADINGS, Node, holds
from silkline.protocol import PageWarning, Quality

# Nearly nothing of a large page, in characters of Markdown and of HTML.
NEXT_TO_NOTHING = 700
MANY_TIMES = 333
# A page of this size is an application, and its content is prose or drawn by scripts.
APPLICATION = 500_000
LITTLE_PROSE = 0.4
NEARLY_ALL = 0.7
# A short result that has less than half of the prose, and of the headings.
SHORT = 3_000
HALF = 0.5
MUCH = 1_000
NOT_EXPLAINED = 200
MUCH_HIDDEN = 1_500
# Of the headings, where the result is not that short, or where they are many.
MOST_HEADINGS = 0.8
MANY_HEADINGS = 30
MEDIUM = 6_000
TENTH = 0.1


@dataclass(frozen=True, slots=True)
class Counts:
    """Characters and numbers of a page."""

    visible: int
    kept: int
    # Of those that read like prose.
    prose: int
    prose_kept: int
    # Of the prose that is neither kept nor in anything that looks like clutter.
    prose_missed: int
    prose_hidden: int
    headings: int
    headings_kept: int
    code_blocks: int
    code_blocks_kept: int


def quality_of_page(tree: Tree, main: MainContent, written: Written, *, html: str) -> Quality:
    counts = count(tree, main)
    is_cut = written.is_cut or tree.is_cut
    is_drawn = needs_browser(html, text_characters=counts.visible) or (
        counts.prose_hidden > MUCH_HIDDEN and counts.kept * 200 < len(html)
    )
    headings_kept, code_blocks_kept = counts.headings_kept, counts.code_blocks_kept
    if is_cut:
        headings_kept = min(headings_kept, written.headings)
        code_blocks_kept = min(code_blocks_kept, written.code_blocks)
    return Quality(
        kept=round(min(1.0, counts.kept / counts.visible), 3) if counts.visible else 1.0,
        headings=counts.headings,
        headings_kept=headings_kept,
        code_blocks=counts.code_blocks,
        code_blocks_kept=code_blocks_kept,
        is_cut=is_cut,
        needs_browser=is_drawn,
        warnings=warnings_of(counts, is_cut=is_cut, is_drawn=is_drawn, size=len(html)),
    )


def count(tree: Tree, main: MainContent) -> Counts:
    root = main.root
    kept: set[Node | None] = set()
    hidden: set[Node | None] = set()
    explained: set[Node | None] = set()
    visible, kept_text = tree.skipped, 0
    prose = prose_kept = prose_missed = prose_hidden = 0
    headings = headings_kept = code_blocks = code_blocks_kept = 0
    for node in tree.nodes:
        parent = node.parent
        is_kept = (parent in kept or node is root) and not node.is_junk
        if is_kept:
            kept.add(node)
            kept_text += node.own
        elif node.is_hidden or parent in hidden:
            hidden.add(node)
            if parent in explained or is_never_shown(node):
                explained.add(node)
            elif node.is_prose:
                prose_hidden += node.inline
            continue
        elif parent in explained or (parent is not None and is_explained(node)):
            explained.add(node)
        visible += node.own
        tag = node.tag
        if tag in HEADINGS:
            if node.text and (node.inline_links * 2 <= node.inline or leads_here(node)):
                headings += 1
                headings_kept += is_kept
        elif tag == 'pre':
            code_blocks += 1
            code_blocks_kept += is_kept
        if node.is_prose:
            prose += node.inline
            if is_kept:
                prose_kept += node.inline
            elif node not in explained:
                prose_missed += node.inline
    if main.heading is not None:
        kept_text += main.heading.text
        headings_kept = min(headings, headings_kept + 1)
    return Counts(
        visible=visible,
        kept=kept_text,
        prose=prose,
        prose_kept=prose_kept,
        prose_missed=prose_missed,
        prose_hidden=prose_hidden,
        headings=headings,
        headings_kept=headings_kept,
        code_blocks=code_blocks,
        code_blocks_kept=code_blocks_kept,
    )


def leads_here(heading: Node) -> bool:
    """Whether a heading is a link to the page itself, such as back to its contents."""
    return holds(heading, lambda one: one.tag == 'a' and (one.get('href') or '').startswith('#'))


def is_never_shown(node: Node) -> bool:
    """Whether scripts will not make it a part of the page."""
    return node.tag == 'noscript' or vocabulary.is_consent(node)


def is_explained(node: Node) -> bool:
    """Whether it is clear why a part of the page is not content."""
    return (
        node.links * 2 > node.text
        or vocabulary.is_navigation(node)
        or vocabulary.is_article_clutter(node)
        or vocabulary.is_named_clutter(node)
    )


def warnings_of(
    counts: Counts, *, is_cut: bool, is_drawn: bool, size: int
) -> tuple[PageWarning, ...]:
    warnings: list[PageWarning] = []
    if is_cut:
        warnings.append('cut')
    if is_drawn:
        warnings.append('needs_browser')
    if counts.visible and not counts.kept:
        warnings.append('nothing_kept')
    elif is_little(counts, size):
        warnings.append('little_kept')
    if loses_headings(counts):
        warnings.append('headings_lost')
    if counts.code_blocks_kept < counts.code_blocks:
        warnings.append('code_lost')
    return tuple(warnings)


def is_little(counts: Counts, size: int) -> bool:
    lost = counts.prose - counts.prose_kept
    return (
        (counts.kept < NEXT_TO_NOTHING and counts.kept * MANY_TIMES < size)
        or (
            size > APPLICATION
            and counts.prose_kept < LITTLE_PROSE * counts.kept
            and counts.kept < NEARLY_ALL * counts.visible
        )
        or (
            counts.prose_kept < HALF * counts.prose
            and lost > MUCH
            and counts.prose_missed > NOT_EXPLAINED
        )
    )


def loses_headings(counts: Counts) -> bool:
    lost = counts.headings - counts.headings_kept
    if lost < 2:
        return False
    if lost > MOST_HEADINGS * counts.headings and (
        lost >= MANY_HEADINGS or (lost > 2 and counts.kept < TENTH * counts.visible)
    ):
        return True
    return counts.prose_kept < HALF * counts.prose and (
        (counts.kept < SHORT and lost > HALF * counts.headings)
        or (counts.kept < MEDIUM and lost > MOST_HEADINGS * counts.headings)
    )
