"""The claims about real documentation, measured by docs-extract, which is not in the repository.

docs-extract has its own packages, truth and scores: its README explains them. Owns how it is
started, and compares its figures with the targets.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.extract.peers import PYTHON
from benchmarks.shared.report import Report, number, table
from benchmarks.shared.server import ROOT

PAGES = 120
PROGRAM = 'docs_extract.py'
RECALL = 'documentation: recall'
PRECISION = 'documentation: precision'
LOWEST = 'documentation: recall of the worst package'
SPEED = 'documentation: speed, of trafilatura'
# At most so many percent.
SHARES: Mapping[str, tuple[str, float]] = {
    'lost': ('documentation: pages that lost a tenth of their words', 1.5),
    'navigation': ('documentation: pages with navigation', 1.5),
    'headings_lost': ('documentation: headings lost', 2),
    'code_lost': ('documentation: code blocks lost or changed', 3),
}
# Of many pages: a sample says little about them.
FULL = (*(claim for claim, _ in SHARES.values()), LOWEST)
CLAIMS = (RECALL, PRECISION, *FULL, SPEED)


@dataclass(frozen=True, slots=True)
class Tool:
    """What docs-extract says about one extractor."""

    # One row per package, and their mean, by the names of the figures.
    packages: Sequence[Mapping[str, Any]]
    mean: Mapping[str, Any]
    # Processor time over all pages, and the number of pages.
    seconds: float
    pages: int

    @property
    def rate(self) -> float:
        return self.pages / self.seconds


@dataclass(frozen=True, slots=True)
class Docs:
    ours: Tool
    trafilatura: Tool | None


def is_there(directory: Path) -> bool:
    return (directory / PROGRAM).exists()


def run_docs(directory: Path, *, pages: int, with_peer: bool) -> Docs:
    """Run docs-extract on its packages, which it downloads if it has to."""
    with TemporaryDirectory(prefix='silkline-bench-') as name:
        output = Path(name) / 'figures.json'
        command = [
            PYTHON,
            directory / PROGRAM,
            f'--project={ROOT / "worker"}',
            f'--python={sys.executable}',
            f'--pages={pages}',
            f'--json={output}',
        ]
        if with_peer:
            command.append(f'--beside={PYTHON}')
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise RuntimeError(f'docs-extract exited with {run.returncode}:\n{run.stderr[-2000:]}')
        figures = json.loads(output.read_text())
    peer = figures.get('trafilatura')
    return Docs(read_tool(figures['project']), None if peer is None else read_tool(peer))


def read_tool(figures: Mapping[str, Any]) -> Tool:
    *packages, mean = figures['packages']
    pages = [page for pages in figures['pages'].values() for page in pages]
    return Tool(packages, mean, sum(page['seconds'] for page in pages), len(pages))


def judge_docs(report: Report, docs: Docs, *, is_sample: bool) -> None:
    mean = docs.ours.mean
    report.at_least(RECALL, mean['recall'], 0.985)
    report.at_least(PRECISION, mean['precision'], 0.98)
    if is_sample:
        report.skip(FULL, f'{docs.ours.pages} pages are too few')
    else:
        for figure, (claim, target) in SHARES.items():
            report.at_most(claim, 100 * mean[figure], target, '%')
        report.at_least(LOWEST, min(row['recall'] for row in docs.ours.packages), 0.97)
    report.figure('documentation: pages', docs.ours.pages)
    report.figure('documentation: pages per second', docs.ours.rate, '/s')
    if peer := docs.trafilatura:
        report.at_least(SPEED, docs.ours.rate / peer.rate, 6, 'x')
        report.figure('documentation: pages per second of trafilatura', peer.rate, '/s')
        report.figure(
            'documentation: speed, of trafilatura, by package',
            [
                own['pages_per_second'] / theirs['pages_per_second']
                for own, theirs in zip(docs.ours.packages, peer.packages, strict=True)
            ],
            'x',
        )


def docs_table(docs: Docs) -> str:
    head = (
        '',
        'generator',
        'pages',
        'recall',
        'precision',
        'lost',
        'navigation',
        'headings lost',
        'code lost',
        'pages/s',
    )
    rows = [docs_row(row['package'], row) for row in docs.ours.packages]
    rows.append(docs_row('**mean**', docs.ours.mean))
    if docs.trafilatura is not None:
        rows.append(docs_row('trafilatura, mean', docs.trafilatura.mean))
    return table(head, rows)


def docs_row(name: str, row: Mapping[str, Any]) -> Sequence[str]:
    return (
        name,
        row['kind'],
        str(row['pages']),
        *(number(row[figure]) for figure in ('recall', 'precision')),
        *('-' if row[figure] is None else number(100 * row[figure], '%') for figure in SHARES),
        number(row['pages_per_second']),
    )
