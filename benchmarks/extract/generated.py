"""Times of the extractor that need no corpus: generated pages, hostile ones, and the import."""

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Literal

from benchmarks.shared.report import Report
from benchmarks.shared.server import ROOT
from silkline.crawl.extract import read_html

Mode = Literal['main', 'full', 'none']
MODES: tuple[tuple[Mode, int], ...] = (('none', 100), ('main', 30), ('full', 30))


def measure_generated(report: Report, *, rounds: int) -> None:
    measure_page(report, rounds)
    measure_hostile(report)
    measure_import(report, rounds)


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


def read_page(html: str, mode: Mode, times: int) -> None:
    for _ in range(times):
        read_html(html, url='https://docs.example.org/guide/page', markdown=mode)


def seconds(work: Callable[[], None]) -> float:
    began_at = time.process_time()
    work()
    return time.process_time() - began_at


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
