"""Measure the extractor: `python -m benchmarks.extract [--quick]`.

Quality is scored on real pages that are not part of the repository: `--docs`, `--wcxb` and
`--articles` say where they are, and claims about those that are missing are not measured.
trafilatura reads the same pages in the same run. Prints one line per claim (ok or short), writes
`benchmarks/results/extract.md` if everything was measured, and exits with 1 when a claim falls
short. `--quick` reads fewer pages, without trafilatura, and writes nothing.

Start here: `corpora.py` finds the pages, `turns.py` has them extracted in turn, `content.py` and
`docs.py` compare the results with the targets, and `generated.py` times pages that need no corpus.
"""

import argparse
import importlib.metadata
import platform
import sys
import time
from pathlib import Path

from benchmarks.extract import content, docs
from benchmarks.extract.corpora import (
    ARTICLES,
    DOCS_EXTRACT,
    WCXB,
    find_articles,
    find_wcxb,
    sample,
)
from benchmarks.extract.generated import measure_generated
from benchmarks.extract.peers import PYTHON, is_installed, trafilatura_version
from benchmarks.extract.scores import SHINGLE
from benchmarks.extract.turns import take_turns
from benchmarks.shared.report import Report, number
from benchmarks.shared.server import ROOT, machine_seconds, own_seconds

RESULTS = ROOT / 'benchmarks/results/extract.md'
ROUNDS = 3
QUICK_PAGES = 60
QUICK_DOCS_PAGES = 15
NO_PEER = 'because --quick leaves trafilatura out'


def main() -> int:
    options = parse_arguments()
    is_quick: bool = options.quick
    if not (is_quick or is_installed()):
        sys.exit('trafilatura is not installed: run benchmarks/extract/run.sh, or add --quick')
    report = Report()
    began_at, machine, own = time.monotonic(), machine_seconds(), own_seconds()
    tables = [
        *measure_docs(report, options.docs, is_quick=is_quick),
        *measure_wcxb(report, options.wcxb, is_quick=is_quick),
    ]
    measure_articles(report, options.articles, is_quick=is_quick)
    measure_generated(report, rounds=2 if is_quick else 7)
    others = machine_seconds() - machine - (own_seconds() - own)
    cores = max(others, 0) / (time.monotonic() - began_at)
    report.figure('processor time of other programs meanwhile', cores, 'cores')
    if not is_quick and not report.skipped:
        report.write(
            RESULTS,
            title='The extractor, measured',
            how=how(cores_of_others=cores),
            versions={
                'turbohtml': importlib.metadata.version('turbohtml'),
                'trafilatura': trafilatura_version(),
                'Python': platform.python_version(),
            },
            tables=tables,
        )
        print(f'written to {RESULTS}')
    return 0 if report.holds else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='python -m benchmarks.extract', description=__doc__)
    parser.add_argument('--quick', action='store_true', help='measure less; write no results')
    for name, default, what in (
        ('--docs', DOCS_EXTRACT, 'docs-extract, which scores real documentation'),
        ('--wcxb', WCXB, 'pages of the Web Content eXtraction Benchmark'),
        ('--articles', ARTICLES, 'articles with their main content'),
    ):
        parser.add_argument(
            name,
            type=Path,
            default=default,
            metavar='DIR',
            help=f'directory of {what} (default: {default})',
        )
    return parser.parse_args()


def measure_docs(report: Report, directory: Path, *, is_quick: bool) -> list[tuple[str, str]]:
    if not docs.is_there(directory):
        report.skip(docs.CLAIMS, f'because {directory} has no {docs.PROGRAM}')
        return []
    if not is_installed():
        report.skip(docs.CLAIMS, f'because docs-extract needs lxml, and {PYTHON} does not exist')
        return []
    pages = QUICK_DOCS_PAGES if is_quick else docs.PAGES
    measured = docs.run_docs(directory, pages=pages, with_peer=not is_quick)
    docs.judge_docs(report, measured, is_sample=is_quick)
    if is_quick:
        report.skip([docs.SPEED], NO_PEER)
    return [('Documentation, by package', docs.docs_table(measured))]


def measure_wcxb(report: Report, directory: Path, *, is_quick: bool) -> list[tuple[str, str]]:
    pages = find_wcxb(directory)
    if not pages:
        report.skip(content.WCXB_CLAIMS, f'because {directory} has no pages')
        return []
    if is_quick:
        pages = sample(pages, QUICK_PAGES)
    turns = take_turns(pages, rounds=1 if is_quick else ROUNDS, with_peer=not is_quick)
    content.judge_wcxb(report, pages, turns, is_sample=is_quick)
    if is_quick:
        report.skip([content.WCXB_SPEED], NO_PEER)
    return [('WCXB, F1 by kind of page', content.wcxb_table(pages, turns))]


def measure_articles(report: Report, directory: Path, *, is_quick: bool) -> None:
    pages = find_articles(directory)
    if not pages:
        report.skip(content.ARTICLES_CLAIMS, f'because {directory} has no articles')
        return
    turns = take_turns(pages, rounds=1 if is_quick else ROUNDS, with_peer=not is_quick)
    content.judge_articles(report, pages, turns)


def how(*, cores_of_others: float) -> str:
    return (
        '`make bench-extract`. The Markdown that is stored is scored without its markup: links'
        ' count as their text, images not at all. Documentation: docs-extract, eight packages of'
        f' Debian, {docs.PAGES} pages each, means over packages; lost are pages with recall under'
        " 0.9, navigation have pages with precision under 0.8. WCXB: the developers' part of the"
        ' Web Content eXtraction Benchmark; multisets of words are compared, means over pages.'
        f' Articles: multisets of {SHINGLE}-word shingles, precision and recall averaged over'
        ' pages. trafilatura took turns with silkline on the same pages: page by page on WCXB and'
        ' articles (comments and tables on), package by package on documentation (recall favoured,'
        ' tables on). Speeds are pages per second of processor time, of `read_html` and of'
        f' `extract`. Other programs used {number(cores_of_others)} cores meanwhile.'
    )


if __name__ == '__main__':
    sys.exit(main())
