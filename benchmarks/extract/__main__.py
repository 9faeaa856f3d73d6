"""Measure the extractor: `python -m benchmarks.extract [--quick] [--articles DIR]`.

Quality is scored on real articles with ground truth, which are not part of the repository: DIR has
`ground-truth.json` and one `.html.gz` per article. Without them only times are measured. Prints one
line per claim (ok or short), writes `benchmarks/results/extract.md`, and exits with 1 when a claim
falls short. `--quick` measures less and writes nothing.
"""

import argparse
import gzip
import importlib.metadata
import json
import platform
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.shared.report import Report
from benchmarks.shared.server import ROOT
from silkline.crawl.extract import read_html

RESULTS = ROOT / 'benchmarks/results/extract.md'
# Not in the repository.
ARTICLES = ROOT / 'benchmarks/extract/articles'
SHINGLE = 4
Mode = Literal['main', 'full', 'none']
MODES: tuple[tuple[Mode, int], ...] = (('none', 100), ('main', 30), ('full', 30))

_TOKEN = re.compile(r'\w+')
_IMAGE = re.compile(r'!\[(?:\\.|[^\]\\])*\]\([^)\s]*\)')
_LINK = re.compile(r'\[((?:\\.|[^\[\]\\]|\[[^\]]*\])*)\]\([^)\s]*\)')
_MARKUP = re.compile(r'</?(?:sup|sub|br)>')
_MARKS = re.compile(r'\*\*|~~|(?<!\\)[*`]')
_LINE_MARKS = re.compile(r'^[ >]*(?:\d+\.|[-*]|#+) ', re.MULTILINE)
_ESCAPE = re.compile(r'\\([!-/:-@\[-`{-~])')


@dataclass(frozen=True, slots=True)
class Article:
    url: str
    html: str
    truth: str


@dataclass(frozen=True, slots=True)
class Score:
    precision: float
    recall: float

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(prog='python -m benchmarks.extract', description=__doc__)
    parser.add_argument('--quick', action='store_true', help='measure less; write no results')
    parser.add_argument(
        '--articles', type=Path, default=ARTICLES, help='directory of articles with ground truth'
    )
    options = parser.parse_args()
    rounds = 2 if options.quick else 7
    report = Report()
    articles = read_articles(options.articles)
    if articles:
        measure_articles(report, articles, rounds)
    else:
        print(f'no articles in {options.articles}: quality and speed on articles are not measured')
    measure_page(report, rounds)
    measure_hostile(report)
    measure_import(report, rounds)
    if not options.quick and articles:
        report.write(
            RESULTS,
            title='The extractor, measured',
            how=f'`make bench-extract`: {len(articles)} real articles with ground truth, one'
            ' process. The stored Markdown is scored without its markup: links count as their'
            ' text, images not at all. Tokens are runs of word characters; multisets of'
            f' {SHINGLE}-token shingles are compared, precision and recall averaged over pages.'
            ' Times are processor time of `read_html`.',
            versions={
                'turbohtml': importlib.metadata.version('turbohtml'),
                'Python': platform.python_version(),
            },
        )
        print(f'written to {RESULTS}')
    return 0 if report.holds else 1


def read_articles(directory: Path) -> list[Article]:
    path = directory / 'ground-truth.json'
    if not path.exists():
        return []
    articles: list[Article] = []
    for key, entry in sorted(json.loads(path.read_text()).items()):
        with gzip.open(directory / f'{key}.html.gz') as file:
            html = file.read().decode('utf-8', 'replace')
        articles.append(Article(entry['url'], html, entry['articleBody']))
    return articles


def measure_articles(report: Report, articles: Sequence[Article], rounds: int) -> None:
    scores: list[Score] = []
    for article in articles:
        page = read_html(article.html, url=article.url, markdown='main')
        scores.append(score(article.truth, plain(page.markdown or '')))
    total = average(scores)
    report.at_least('F1 of the main content of real articles', total.f1, 0.95)
    rates = [len(articles) / seconds(lambda: read_all(articles, 'main')) for _ in range(rounds)]
    report.at_least('articles per second of one core', statistics.median(rates), 150, '/s')
    report.figure('precision', total.precision)
    report.figure('recall', total.recall)
    report.figure('F1 of every other page, from the first', average(scores[0::2]).f1)
    report.figure('F1 of every other page, from the second', average(scores[1::2]).f1)
    report.figure('articles with recall under 0.5', sum(one.recall < 0.5 for one in scores))
    report.figure('articles with precision under 0.5', sum(one.precision < 0.5 for one in scores))
    size = sum(len(article.html) for article in articles) / len(articles)
    report.figure('size of an article', size / 1000, 'kB')
    report.figure('articles per second, main content', rates, '/s')
    report.figure(
        'articles per second, no Markdown',
        [len(articles) / seconds(lambda: read_all(articles, 'none')) for _ in range(rounds)],
        '/s',
    )


def measure_page(report: Report, rounds: int) -> None:
    """Time a typical page of documentation: 40 kB, 70 links."""
    html = documentation_page()
    report.figure('size of the page of documentation', len(html) / 1000, 'kB')
    for mode, times in MODES:
        figures = [
            seconds(lambda mode=mode, times=times: read_page(html, mode, times)) / times * 1000
            for _ in range(rounds)
        ]
        report.figure(f'page of documentation, Markdown {mode}', figures, 'ms')


def measure_hostile(report: Report) -> None:
    pages = {
        '10,000 nested tags': '<div>' * 10_000 + 'x',
        '1 MB of short paragraphs': '<p>word</p>' * 90_000,
    }
    for name, html in pages.items():
        took = seconds(lambda html=html: read_page(html, 'main', 1))
        report.figure(f'{name}, main content', took * 1000, 'ms')


def measure_import(report: Report, rounds: int) -> None:
    """Time the import in a runner, which has already loaded dataclasses and the like."""
    program = (
        'import dataclasses, re, typing, urllib.parse, time; began_at = time.process_time();'
        'import silkline.crawl.extract; print((time.process_time() - began_at) * 1000)'
    )
    figures = [
        float(subprocess.check_output([sys.executable, '-c', program], cwd=ROOT))
        for _ in range(rounds)
    ]
    report.figure('import of the package', figures, 'ms')


def read_all(articles: Sequence[Article], mode: Mode) -> None:
    for article in articles:
        read_html(article.html, url=article.url, markdown=mode)


def read_page(html: str, mode: Mode, times: int) -> None:
    for _ in range(times):
        read_html(html, url='https://docs.example.org/guide/page', markdown=mode)


def seconds(work: Callable[[], None]) -> float:
    began_at = time.process_time()
    work()
    return time.process_time() - began_at


def plain(markdown: str) -> str:
    """Remove the markup of Markdown, which a reader does not see either."""
    text = _IMAGE.sub(' ', markdown)
    # Twice, for links whose text contains brackets that look like a link.
    text = _LINK.sub(r'\1', _LINK.sub(r'\1', text))
    text = _MARKUP.sub(' ', text)
    text = _LINE_MARKS.sub(' ', text)
    return _ESCAPE.sub(r'\1', _MARKS.sub('', text))


def score(truth: str, text: str) -> Score:
    wanted, found = shingles(truth), shingles(text)
    both = (wanted & found).total()
    return Score(
        both / found.total() if found else 0.0,
        both / wanted.total() if wanted else 1.0,
    )


def shingles(text: str) -> Counter[tuple[str, ...]]:
    tokens = _TOKEN.findall(text)
    if 0 < len(tokens) < SHINGLE:
        return Counter([tuple(tokens)])
    return Counter(zip(*(tokens[start:] for start in range(SHINGLE)), strict=False))


def average(scores: Sequence[Score]) -> Score:
    return Score(
        sum(one.precision for one in scores) / len(scores),
        sum(one.recall for one in scores) / len(scores),
    )


def documentation_page() -> str:
    """A page of 40 kB with 70 links: navigation, prose, code, tables, notes."""
    menu = ''.join(f'<li class="item"><a href="/guide/{n}">Chapter {n}</a></li>' for n in range(40))
    section = (
        '<section id="part-{n}"><h2>Part {n}<a class="headerlink" href="#part-{n}">¶</a></h2>'
        '<p>A crawl is a row of a table, and so is each of its pages. The worker asks for work,'
        ' and <strong>keeps</strong> what it has found, see <a href="/guide/pages-{n}">pages</a>'
        ' and <a href="../reference/{n}">the reference of <code>claim_{n}</code></a>. What is not'
        ' finished when it stops is taken up again by the next one, page by page.</p>'
        '<div class="highlight-python"><pre><span class="k">def</span> <span class="nf">part</span>'
        '<span class="p">(</span><span class="n">url</span><span class="p">):</span>\n'
        '    <span class="k">return</span> <span class="mi">{n}</span>\n</pre></div>'
        '<ul><li>first point of the part</li><li>second point of the part</li></ul>'
        '<table><tr><th>name</th><th>value</th></tr><tr><td>depth</td><td>{n}</td></tr></table>'
        '<div class="admonition note"><p class="admonition-title">Note</p><p>Nothing is lost when'
        ' a worker stops: its pages are in the table already.</p></div></section>'
    )
    body = ''.join(section.replace('{n}', str(n)) for n in range(15))
    filler = '<p>' + 'Text that has no links and no marks, only words. ' * 12 + '</p>'
    script = '<script>' + 'window.data = window.data || [];' * 100 + '</script>'
    return (
        '<!doctype html><html lang="en"><head><title>A page of documentation</title>'
        '<meta name="description" content="How it works"><link rel="canonical" href="/guide/page">'
        f'{script}</head><body><header><a href="/">Home</a></header><nav><ul>{menu}</ul></nav>'
        f'<main><h1>A page of documentation</h1>{body}{filler * 25}</main>'
        '<footer><p>Made by people who crawl.</p></footer></body></html>'
    )


if __name__ == '__main__':
    sys.exit(main())
