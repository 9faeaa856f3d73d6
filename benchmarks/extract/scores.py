"""How much two texts have in common: precision and recall of multisets, of words or of shingles."""

import re
import statistics
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

SHINGLE = 4
Token = TypeVar('Token', bound=Hashable)

_WORD = re.compile(r'\w+')


@dataclass(frozen=True, slots=True)
class Score:
    precision: float
    recall: float

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


def compare(truth: Counter[Token], found: Counter[Token]) -> Score:
    """An empty truth counts 1 if nothing was found, else 0."""
    if not truth:
        is_right = float(not found)
        return Score(is_right, is_right)
    both = (truth & found).total()
    return Score(both / found.total() if found else 0.0, both / truth.total())


def words(text: str) -> Counter[str]:
    """Runs of word characters, in lower case."""
    return Counter(_WORD.findall(text.lower()))


def shingles(text: str) -> Counter[tuple[str, ...]]:
    """Each run of `SHINGLE` words; of a shorter text, all of it."""
    tokens = _WORD.findall(text)
    if 0 < len(tokens) < SHINGLE:
        return Counter([tuple(tokens)])
    return Counter(zip(*(tokens[start:] for start in range(SHINGLE)), strict=False))


def average(scores: Sequence[Score]) -> Score:
    """The means of precision and recall: its F1 is not the mean of F1."""
    return Score(
        statistics.fmean(one.precision for one in scores),
        statistics.fmean(one.recall for one in scores),
    )


def mean_f1(scores: Iterable[Score]) -> float:
    return statistics.fmean(one.f1 for one in scores)


def share_found(snippets: Sequence[str], text: str) -> float | None:
    """The share of the snippets that are in the text, ignoring case; None if there are none."""
    if not snippets:
        return None
    there = _one_line(text)
    return statistics.fmean(_one_line(snippet) in there for snippet in snippets)


def _one_line(text: str) -> str:
    return ' '.join(text.lower().split())
