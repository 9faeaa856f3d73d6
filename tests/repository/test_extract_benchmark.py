"""How `benchmarks/extract` scores a page, and what it says about warnings."""

from pathlib import Path

import pytest

from benchmarks.extract.content import WCXB_WARNED, WCXB_WARNED_WRONGLY, judge_warnings
from benchmarks.extract.corpora import Page
from benchmarks.extract.plain_text import plain_text
from benchmarks.extract.scores import Score, compare, share_found, shingles, words
from benchmarks.shared.report import Report


def page(truth: str = 'Some text') -> Page:
    return Page(Path('page.html.gz'), 'https://example.org/', 'article', truth)


def test_markdown_is_scored_without_its_markup() -> None:
    markdown = (
        '## A [link](https://example.org/a) and ![a picture](/b.png)\n\n'
        '1. **one** \\*two\\*\n\n```python\nprint(3)\n```\n'
    )

    assert plain_text(markdown).split() == 'A link and one *two* print(3)'.split()


def test_words_are_compared_as_often_as_they_occur_and_in_lower_case() -> None:
    score = compare(words('The cat and the dog'), words('the THE the cat'))

    assert score == Score(precision=3 / 4, recall=3 / 5)
    assert score.f1 == pytest.approx(2 / 3)


def test_the_order_of_the_words_matters_to_shingles() -> None:
    assert compare(shingles('a b c d e'), shingles('a b c d e')).f1 == 1
    assert compare(shingles('a b c d e'), shingles('e d c b a')).f1 == 0


def test_an_empty_truth_counts_only_if_nothing_was_found() -> None:
    assert compare(words(''), words('')).f1 == 1
    assert compare(words(''), words('text')).f1 == 0


def test_snippets_are_found_whole_ignoring_case_and_line_breaks() -> None:
    assert share_found(['Some Text', 'other'], 'here is some\ntext') == 0.5
    assert share_found([], 'text') is None


def test_warnings_are_judged_on_the_worst_and_the_best_pages() -> None:
    scores = [Score(1, 0.1)] * 2 + [Score(1, 0.9)] * 8 + [Score(1, 1.0)] * 30
    is_warned = [True, False] + [True] * 8 + [True] + [False] * 29
    report = Report()

    judge_warnings(report, [page()] * 40, scores, is_warned)

    figures = {claim.what: (claim.figure, claim.holds) for claim in report.claims}
    assert figures[WCXB_WARNED] == ('50 %', False)
    assert figures[WCXB_WARNED_WRONGLY] == ('3.33 %', False)


def test_pages_without_main_content_need_no_warning() -> None:
    scores = [Score(0, 0)] * 5 + [Score(1, 0.5)] + [Score(1, 1.0)] * 19
    is_warned = [False] * 5 + [True] + [False] * 19
    report = Report()

    judge_warnings(report, [page('')] * 5 + [page()] * 20, scores, is_warned)

    assert report.holds


def test_a_claim_that_was_not_measured_is_named_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = Report()

    report.skip(['speed, of a peer'], 'because it is not installed')

    assert report.skipped == ['speed, of a peer']
    assert capsys.readouterr().out == (
        '-      speed, of a peer: not measured, because it is not installed\n'
    )
