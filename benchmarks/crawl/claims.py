"""The claims about the crawls with their targets, and the tables of the results page."""

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.crawl.bench import CONCURRENCY, Bench, Markdown, our_name
from benchmarks.crawl.ours import PARTS, OurRun
from benchmarks.crawl.peers import CRAWLEE, LOOP, SCRAPY, Peer, PeerRun
from benchmarks.crawl.site import Facts
from benchmarks.crawl.site_server import TREE_PAGES
from benchmarks.shared.report import Report, number, table

# If other programs used more than this, a crawler did not have its core to itself.
QUIET_CORES = 0.1


def judge(report: Report, bench: Bench) -> None:
    judge_rates(report, bench)
    judge_pages(report, bench)
    runs = [run for runs in bench.ours.values() for run in runs]
    peak = max(run.peak_megabytes for run in runs)
    report.at_most('peak memory of the runner', peak, 150, 'MB')
    if bench.tree is not None:
        found = len(bench.tree.paths)
        report.at_most(f'missing of {TREE_PAGES:,} URLs', TREE_PAGES - found, 0)
        report.at_most(
            f'peak memory of the runner, {TREE_PAGES:,} URLs', bench.tree.peak_megabytes, 200, 'MB'
        )
        report.figure(f'{TREE_PAGES:,} small pages', bench.tree.rate, 'pages/s')
    for markdown, runs in bench.ours.items():
        name = our_name(markdown)
        report.figure(f'{name}, from enqueue', [run.rate for run in runs], 'pages/s')
        report.figure(f'{name}, from claim', [run.claimed_rate for run in runs], 'pages/s')
        report.figure(f'{name}, requests', bench.requests[name])
    for name, peer_runs in bench.peers.items():
        report.figure(name, [run.rate for run in peer_runs], 'pages/s')
        report.figure(f'{name}, requests', bench.requests[name])


def judge_rates(report: Report, bench: Bench) -> None:
    targets: Sequence[tuple[Markdown, Peer, float]] = (
        ('none', SCRAPY, 6),
        ('none', CRAWLEE, 3),
        ('none', LOOP, 0.45),
        ('main', SCRAPY, 3),
    )
    for markdown, peer, target in targets:
        if peer.name in bench.peers:
            ratio = median_rate(bench.ours[markdown]) / median_rate(bench.peers[peer.name])
            report.at_least(f'{our_name(markdown)}, of {peer.name}', ratio, target, 'x')
            # Other programs on the machine affect this less.
            saved = processor_milliseconds(bench.peers[peer.name]) / processor_milliseconds(
                bench.ours[markdown]
            )
            report.figure(f'{our_name(markdown)}, of {peer.name}, by processor time', saved, 'x')


def judge_pages(report: Report, bench: Bench) -> None:
    runs = [run for runs in bench.ours.values() for run in runs]
    wrong = max((run.paths ^ frozenset(bench.facts.paths) for run in runs), key=len)
    report.at_most('pages that differ from those of the site', len(wrong), 0)
    print_some(wrong)
    if SCRAPY.name in bench.peers:
        others = bench.peers[SCRAPY.name][0].paths
        differ = max((run.paths ^ others for run in runs), key=len)
        report.at_most(f'pages that differ from those of {SCRAPY.name}', len(differ), 0)
        print_some(differ)


def print_some(paths: frozenset[str]) -> None:
    for path in sorted(paths)[:5]:
        print(f'         {path}')


def median_rate(runs: Sequence[OurRun] | Sequence[PeerRun]) -> float:
    return statistics.median(run.rate for run in runs)


def how(facts: Facts, *, cores_of_others: float) -> str:
    busy = f' {busy_note(cores_of_others)}' if cores_of_others > QUIET_CORES else ''
    return (
        f'`make bench-crawl`: {len(facts.paths):,} pages of a generated site, median'
        f' {facts.median_bytes / 1000:.0f} KB and {facts.median_links} links,'
        f' {len(facts.private_paths)} more that robots.txt disallows, {facts.moved} redirects,'
        f' {facts.gone} dead links; nginx with gzip on loopback; {CONCURRENCY} requests at a'
        ' time, no delay. The crawler is one process on one core: for silkline the runner. nginx'
        " and silkline's supervisor, gateway and Postgres share another core. Peers are timed from"
        ' the start of the process to its end. Silkline is timed by the database from the enqueue,'
        ' through the API, to the completion of the job: this includes the start of its runner, but'
        ' not that of its worker and stack. Its frontier is durable, it checks robots.txt and every'
        ' address it connects to, and stores a row per page; the loop does none of this, Scrapy'
        ' and Crawlee obey robots.txt and keep titles. All took turns within one run; rates are'
        f' medians.{busy}'
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
    rows = [
        row(our_name(markdown), ways[markdown], bench, runs)
        for markdown, runs in bench.ours.items()
    ]
    rows += [row(peer.name, peer.how, bench, bench.peers[peer.name]) for peer in peers]
    head = (
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
    name: str, how: str, bench: Bench, runs: Sequence[OurRun] | Sequence[PeerRun]
) -> Sequence[str]:
    pages = len(runs[-1].paths)
    return (
        name,
        how,
        number(median_rate(runs)),
        number(processor_milliseconds(runs)),
        number(statistics.median(run.crawler_seconds / run.seconds for run in runs)),
        number(max(run.peak_megabytes for run in runs)),
        f'{pages:,}',
        f'{bench.requests[name]:,}',
    )


def processor_milliseconds(runs: Sequence[OurRun] | Sequence[PeerRun]) -> float:
    """Processor time of the crawler per page."""
    return statistics.median(run.crawler_seconds / len(run.paths) * 1000 for run in runs)


def parts(bench: Bench) -> str:
    """Also how busy each core was: the one near 1 is the bottleneck."""
    rows: list[Sequence[str]] = []
    for markdown, runs in bench.ours.items():
        run = sorted(runs, key=lambda run: run.rate)[len(runs) // 2]
        used = run.processor_seconds
        other = sum(used[part] for part in PARTS if part != 'runner')
        rows.append(
            (
                our_name(markdown),
                *(number(used[part] / len(run.paths) * 1000) for part in PARTS),
                number(used['runner'] / run.seconds),
                number(other / run.seconds),
            )
        )
    return table(('', *PARTS, "crawler's core, busy", 'other core, busy'), rows)
