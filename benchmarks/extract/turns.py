"""Extract the same pages with silkline and with trafilatura, in turn, page by page.

So a slow minute of the machine affects both. Seconds are of the processor; reading and decoding a
page is left out. Texts are those of the first round, which all rounds would give.
"""

import statistics
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from benchmarks.extract.corpora import Page
from benchmarks.extract.peers import run_trafilatura
from benchmarks.extract.plain_text import plain_text
from silkline.crawl.extract import read_html


@dataclass(slots=True)
class Tool:
    """The results of one extractor: the text of each page, and the seconds of each round."""

    texts: list[str] = field(default_factory=list[str])
    seconds: list[float] = field(default_factory=list[float])

    def rates(self) -> list[float]:
        """Pages per second of processor time, by round."""
        return [len(self.texts) / seconds for seconds in self.seconds]


@dataclass(slots=True)
class Turns:
    ours: Tool = field(default_factory=Tool)
    # Whether the Markdown carries a warning, page by page.
    is_warned: list[bool] = field(default_factory=list[bool])
    trafilatura: Tool | None = None

    def speed(self, peer: Tool) -> float:
        """How many times as fast as a peer: the median of the rounds."""
        return statistics.median(
            theirs / own for own, theirs in zip(self.ours.seconds, peer.seconds, strict=True)
        )


def take_turns(pages: Sequence[Page], *, rounds: int, with_peer: bool) -> Turns:
    turns = Turns(trafilatura=Tool() if with_peer else None)
    # What is loaded late is loaded by this page.
    read_html('<main><p>Text</p></main>', url='https://example.org/', markdown='main')
    for nth in range(rounds):
        with run_trafilatura() if with_peer else nullcontext() as peer:
            own_seconds = peer_seconds = 0.0
            for page in pages:
                html = page.read()
                began_at = time.process_time()
                facts = read_html(html, url=page.url, markdown='main')
                own_seconds += time.process_time() - began_at
                if nth == 0:
                    quality = facts.quality
                    turns.ours.texts.append(plain_text(facts.markdown or ''))
                    turns.is_warned.append(quality is not None and bool(quality.warnings))
                if peer is not None and turns.trafilatura is not None:
                    text, seconds = peer.extract(html)
                    peer_seconds += seconds
                    if nth == 0:
                        turns.trafilatura.texts.append(text)
        turns.ours.seconds.append(own_seconds)
        if turns.trafilatura is not None:
            turns.trafilatura.seconds.append(peer_seconds)
    return turns
