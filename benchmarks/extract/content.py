"""The claims about the main content of real pages, with their targets, and about its speed.

Articles are compared by shingles, which also need the right order; the pages of WCXB by their
words, as its README says.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from benchmarks.extract.corpora import Page
from benchmarks.extract.scores import (
    Score,
    average,
    compare,
    mean_f1,
    share_found,
    shingles,
    words,
)
from benchmarks.extract.turns import Tool, Turns
from benchmarks.shared.report import Report, number, table

ARTICLES_F1 = 'F1 of the main content of real articles'
ARTICLES_RATE = 'articles per second of one core'
WCXB_F1 = 'WCXB: F1 of all pages'
WCXB_SPEED = 'WCXB: speed, of trafilatura'
WCXB_WARNED = 'WCXB: worst 5 % of the pages that carry a warning'
WCXB_WARNED_WRONGLY = 'WCXB: pages with recall above 0.95 that carry a warning'
KINDS: Mapping[str, float] = {
    'article': 0.95,
    'documentation': 0.94,
    'service': 0.86,
    'forum': 0.78,
    'listing': 0.72,
    'collection': 0.72,
    'product': 0.70,
}
# The share of pages that count as the worst, and the recall above which a warning is wrong.
WORST = 0.05
GOOD_RECALL = 0.95


def kind_claim(kind: str) -> str:
    return f'WCXB: F1 of pages of the kind {kind}'


# Of many pages: a sample says little about them.
WCXB_FULL = (*map(kind_claim, KINDS), WCXB_WARNED, WCXB_WARNED_WRONGLY)
WCXB_CLAIMS = (WCXB_F1, *WCXB_FULL, WCXB_SPEED)
ARTICLES_CLAIMS = (ARTICLES_F1, ARTICLES_RATE)


def judge_articles(report: Report, pages: Sequence[Page], turns: Turns) -> None:
    scores = score_articles(pages, turns.ours)
    total = average(scores)
    report.at_least(ARTICLES_F1, total.f1, 0.975)
    report.at_least(ARTICLES_RATE, statistics.median(turns.ours.rates()), 150, '/s')
    report.figure('articles: precision', total.precision)
    report.figure('articles: recall', total.recall)
    report.figure('articles with recall under 0.5', sum(one.recall < 0.5 for one in scores))
    report.figure('articles with precision under 0.5', sum(one.precision < 0.5 for one in scores))
    report.figure('articles per second', turns.ours.rates(), '/s')
    if peer := turns.trafilatura:
        report.figure('articles: F1 of trafilatura', average(score_articles(pages, peer)).f1)
        report.figure('articles: speed, of trafilatura', turns.speed(peer), 'x')


def score_articles(pages: Sequence[Page], tool: Tool) -> list[Score]:
    return [
        compare(shingles(page.truth), shingles(text))
        for page, text in zip(pages, tool.texts, strict=True)
    ]


def judge_wcxb(report: Report, pages: Sequence[Page], turns: Turns, *, is_sample: bool) -> None:
    scores = score_wcxb(pages, turns.ours)
    report.at_least(WCXB_F1, mean_f1(scores), 0.875)
    if is_sample:
        report.skip(WCXB_FULL, f'{len(pages)} pages are too few')
    else:
        by_kind = f1_by_kind(pages, scores)
        for kind in by_kind:
            report.at_least(kind_claim(kind), by_kind[kind], KINDS[kind])
        judge_warnings(report, pages, scores, turns.is_warned)
    if peer := turns.trafilatura:
        report.at_least(WCXB_SPEED, turns.speed(peer), 6, 'x')
        report.figure('WCXB: F1 of trafilatura', mean_f1(score_wcxb(pages, peer)))
        report.figure('WCXB: pages per second of trafilatura', peer.rates(), '/s')
    report.figure('WCXB: pages per second', turns.ours.rates(), '/s')
    report.figure('WCXB: snippets found', share(pages, turns.ours, lambda page: page.wanted))
    report.figure(
        'WCXB: snippets of boilerplate let through',
        share(pages, turns.ours, lambda page: page.unwanted),
    )


def score_wcxb(pages: Sequence[Page], tool: Tool) -> list[Score]:
    return [
        compare(words(page.truth), words(text))
        for page, text in zip(pages, tool.texts, strict=True)
    ]


def f1_by_kind(pages: Sequence[Page], scores: Sequence[Score]) -> Mapping[str, float]:
    return {
        kind: mean_f1(one for page, one in zip(pages, scores, strict=True) if page.kind == kind)
        for kind in KINDS
        if any(page.kind == kind for page in pages)
    }


def judge_warnings(
    report: Report, pages: Sequence[Page], scores: Sequence[Score], is_warned: Sequence[bool]
) -> None:
    """A page without a main content of its own has no recall, and does not count."""
    known = sorted(
        (score.recall, warned)
        for page, score, warned in zip(pages, scores, is_warned, strict=True)
        if words(page.truth)
    )
    # With equal recalls, those without a warning come first: the claim is not helped by the order.
    worst = known[: max(1, int(len(known) * WORST))]
    good = [warned for recall, warned in known if recall > GOOD_RECALL]
    report.at_least(WCXB_WARNED, percent(warned for _, warned in worst), 70, '%')
    report.at_most(WCXB_WARNED_WRONGLY, percent(good), 3, '%')
    report.figure('WCXB: recall of the worst 5 %, at most', worst[-1][0])
    report.figure('WCXB: pages with recall above 0.95', len(good))
    report.figure('WCXB: pages that carry a warning', percent(is_warned), '%')


def percent(values: Iterable[bool]) -> float:
    return 100 * statistics.fmean(values)


def share(pages: Sequence[Page], tool: Tool, snippets: Callable[[Page], Sequence[str]]) -> float:
    """The mean over the pages that have such snippets."""
    shares = (
        share_found(snippets(page), text) for page, text in zip(pages, tool.texts, strict=True)
    )
    return statistics.fmean(one for one in shares if one is not None)


def wcxb_table(pages: Sequence[Page], turns: Turns) -> str:
    """F1 by kind of page."""
    counts = Counter(page.kind for page in pages)
    kinds = [kind for kind in KINDS if counts[kind]]
    rows = [('pages', str(len(pages)), *(str(counts[kind]) for kind in kinds))]
    for name, tool in (('silkline', turns.ours), ('trafilatura', turns.trafilatura)):
        if tool is not None:
            scores = score_wcxb(pages, tool)
            by_kind = f1_by_kind(pages, scores)
            rows.append((name, number(mean_f1(scores)), *(number(by_kind[kind]) for kind in kinds)))
    return table(('', 'all', *kinds), rows)
