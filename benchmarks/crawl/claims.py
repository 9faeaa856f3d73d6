"""The claims about the crawls with their targets, and the tables of the results page."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.crawl.bench import CONCURRENCY, Bench, Markdown, SiteRuns, our_name
from benchmarks.crawl.ours import PARTS, OurRun
from benchmarks.crawl.peers import CRAWLEE, LOOP, SCRAPY, Peer, PeerRun
from benchmarks.crawl.site import Facts
from benchmarks.crawl.site_server import TREE_PAGES
from benchmarks.shared.report import Report, number, table

# If other programs used more than this, a crawler did not have its core to itself.
QUIET_CORES = 0.1


@dataclass(frozen=True, slots=True)
class Ratio:
    """A claim: silkline is at least so many times as fast as a peer on a site."""

    site: str
    markdown: Markdown
    peer: Peer
    target: float

    @property
    def claim(self) -> str:
        return f'{self.site}: {our_name(self.markdown)}, of {self.peer.name}'


RATIOS = (
    Ratio('guide', 'none', SCRAPY, 6),
    Ratio('guide', 'none', CRAWLEE, 3),
    Ratio('guide', 'none', LOOP, 0.45),
    Ratio('guide', 'main', SCRAPY, 3),
    Ratio('manual', 'main', SCRAPY, 4),
)


def judge(report: Report, bench: Bench, *, why_no_peers: str) -> None:
    sites = (bench.guide, bench.manual)
    for site in sites:
        judge_rates(report, site, why_no_peers)
    for site in sites:
        judge_pages(report, site, why_no_peers)
    peak = max(run.peak_megabytes for site in sites for runs in site.ours.values() for run in runs)
    report.at_most('peak memory of the runner', peak, 150, 'MB')
    if bench.tree is not None:
        found = len(bench.tree.paths)
        report.at_most(f'missing of {TREE_PAGES:,} URLs', TREE_PAGES - found, 0)
        report.at_most(
            f'peak memory of the runner, {TREE_PAGES:,} URLs', bench.tree.peak_megabytes, 200, 'MB'
        )
        report.figure(f'{TREE_PAGES:,} small pages', bench.tree.rate, 'pages/s')
    for site in sites:
        add_figures(report, site)


def judge_rates(report: Report, site: SiteRuns, why_no_peers: str) -> None:
    for ratio in RATIOS:
        if ratio.site != site.name:
            continue
        if ratio.peer.name not in site.peers:
            report.skip([ratio.claim], why_no_peers)
            continue
        ours, theirs = site.ours[ratio.markdown], site.peers[ratio.peer.name]
        rate = median_rate(ours) / median_rate(theirs)
        report.at_least(ratio.claim, rate, ratio.target, 'x')
        # Other programs on the machine affect this less.
        saved = processor_milliseconds(theirs) / processor_milliseconds(ours)
        report.figure(f'{ratio.claim}, by processor time', saved, 'x')


def judge_pages(report: Report, site: SiteRuns, why_no_peers: str) -> None:
    runs = [run for runs in site.ours.values() for run in runs]
    wrong = max((run.paths ^ frozenset(site.facts.paths) for run in runs), key=len)
    report.at_most(f'{site.name}: pages that differ from those of the site', len(wrong), 0)
    print_some(wrong)
    claim = f'{site.name}: pages that differ from those of {SCRAPY.name}'
    if SCRAPY.name in site.peers:
        others = site.peers[SCRAPY.name][0].paths
        differ = max((run.paths ^ others for run in runs), key=len)
        report.at_most(claim, len(differ), 0)
        print_some(differ)
    else:
        report.skip([claim], why_no_peers)


def add_figures(report: Report, site: SiteRuns) -> None:
    for markdown, runs in site.ours.items():
        name = f'{site.name}, {our_name(markdown)}'
        report.figure(f'{name}, from enqueue', [run.rate for run in runs], 'pages/s')
        report.figure(f'{name}, from claim', [run.claimed_rate for run in runs], 'pages/s')
    for name, peer_runs in site.peers.items():
        report.figure(f'{site.name}, {name}', [run.rate for run in peer_runs], 'pages/s')


def print_some(paths: frozenset[str]) -> None:
    for path in sorted(paths)[:5]:
        print(f'         {path}')


def median_rate(runs: Sequence[OurRun] | Sequence[PeerRun]) -> float:
    return statistics.median(run.rate for run in runs)


def how(guide: Facts, manual: Facts, *, cores_of_others: float) -> str:
    busy = f' {busy_note(cores_of_others)}' if cores_of_others > QUIET_CORES else ''
    return (
        f'`make bench-crawl`: two generated sites. The guide is mostly prose, {describe(guide)};'
        f' the manual has tables, nested lists and highlighted code, {describe(manual)}. Each has'
        f' {len(guide.paths):,} pages, {len(guide.private_paths)} more that robots.txt disallows,'
        f' {guide.moved} redirects, {guide.gone} dead links; nginx with gzip on loopback;'
        f' {CONCURRENCY} requests at a'
        ' time, no delay. The crawler is one process on one core: for silkline the runner. nginx'
        " and silkline's supervisor, gateway and Postgres share another core. Peers are timed from"
        ' the start of the process to its end. Silkline is timed by the database from the enqueue,'
        ' through the API, to the completion of the job: this includes the start of its runner, but'
        ' not that of its worker and stack. Its frontier is durable, it checks robots.txt and every'
        ' address it connects to, and stores a row per page; the loop does none of this, Scrapy'
        ' and Crawlee obey robots.txt and keep titles. No peer writes Markdown. All took turns'
        f' within one run; rates are medians.{busy}'
    )


def describe(facts: Facts) -> str:
    return (
        f'median {facts.median_bytes / 1000:.0f} KB, {facts.median_links} links and'
        f' {facts.median_tags:,} tags (start and end)'
    )


def busy_note(cores: float) -> str:
    return (
        f'Other programs used {number(cores)} cores meanwhile: rates and their ratios cannot be'
        ' trusted, run it again on a quiet machine.'
    )


def crawlers(bench: Bench, peers: Sequence[Peer]) -> str:
    ways: Mapping[Markdown, str] = {
        'none': 'frontier and pages in Postgres',
        'main': 'frontier, pages and their Markdown in Postgres',
    }
    rows: list[Sequence[str]] = []
    for site in (bench.guide, bench.manual):
        rows += [
            row(site, our_name(markdown), ways[markdown], runs)
            for markdown, runs in site.ours.items()
        ]
        rows += [
            row(site, peer.name, peer.how, site.peers[peer.name])
            for peer in peers
            if peer.name in site.peers
        ]
    head = (
        'site',
        'crawler',
        'how',
        'pages/s',
        'CPU s per 1,000',
        'core, busy',
        'peak MB',
        'pages',
        'requests',
    )
    return table(head, rows)


def row(
    site: SiteRuns, name: str, how: str, runs: Sequence[OurRun] | Sequence[PeerRun]
) -> Sequence[str]:
    pages = len(runs[-1].paths)
    return (
        site.name,
        name,
        how,
        number(median_rate(runs)),
        number(processor_milliseconds(runs)),
        number(statistics.median(run.crawler_seconds / run.seconds for run in runs)),
        number(max(run.peak_megabytes for run in runs)),
        f'{pages:,}',
        f'{site.requests[name]:,}',
    )


def processor_milliseconds(runs: Sequence[OurRun] | Sequence[PeerRun]) -> float:
    """Processor time of the crawler per page."""
    return statistics.median(run.crawler_seconds / len(run.paths) * 1000 for run in runs)


def parts(bench: Bench) -> str:
    """Also how busy each core was: the one near 1 is the bottleneck."""
    rows = [
        parts_row(site, markdown, runs)
        for site in (bench.guide, bench.manual)
        for markdown, runs in site.ours.items()
    ]
    return table(('site', '', *PARTS, "crawler's core, busy", 'other core, busy'), rows)


def parts_row(site: SiteRuns, markdown: Markdown, runs: Sequence[OurRun]) -> Sequence[str]:
    run = sorted(runs, key=lambda run: run.rate)[len(runs) // 2]
    used = run.processor_seconds
    other = sum(used[part] for part in PARTS if part != 'runner')
    return (
        site.name,
        our_name(markdown),
        *(number(used[part] / len(run.paths) * 1000) for part in PARTS),
        number(used['runner'] / run.seconds),
        number(other / run.seconds),
    )
