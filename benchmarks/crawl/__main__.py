"""Measure the crawler: `python -m benchmarks.crawl [--quick] [--profile]`.

Crawls two sites on a local nginx with silkline and with its peers, in turn. The crawler has one
core to itself; nginx, and for silkline the supervisor, the gateway and Postgres, share another.
Prints one line per claim (ok or short), writes `benchmarks/results/crawl.md`, and exits with 1 when
a claim falls short, with 2 when nginx is missing. `--quick` crawls a tenth of the pages once and
writes nothing; if the peers are not installed, it makes no claims about them. `--profile` shows
where the time goes instead.

Start here: `site.py` generates the sites, `guide.py` and `manual.py` have their templates,
`bench.py` runs the crawls in order, `ours.py` runs silkline, `peers/` the others, and `claims.py`
compares the results with the targets.
"""

import argparse
import platform
import sys
import time
from collections.abc import Sequence

from benchmarks.crawl.bench import FULL, QUICK, Size, prepare
from benchmarks.crawl.claims import QUIET_CORES, busy_note, crawlers, how, judge, parts
from benchmarks.crawl.peers import PEERS, Peer, is_installed, version_of
from benchmarks.crawl.site_server import find_nginx, nginx_version
from benchmarks.shared.report import Report
from benchmarks.shared.server import ROOT, machine_seconds, own_seconds

RESULTS = ROOT / 'benchmarks/results/crawl.md'


def main() -> int:
    arguments = parse_arguments()
    find_nginx()
    size = QUICK if arguments.quick else FULL
    if arguments.pages:
        size = Size(pages=arguments.pages, rounds=size.rounds, has_tree=size.has_tree)
    if arguments.profile:
        from benchmarks.crawl.profile import profile_all

        with prepare(size) as bench:
            profile_all(bench)
        return 0
    peers, why_no_peers = choose_peers(skip=arguments.skip_peers, may_be_missing=arguments.quick)
    report = Report()
    began_at, machine, own = time.monotonic(), machine_seconds(), own_seconds()
    with prepare(size) as bench:
        bench.run(peers)
        judge(report, bench, why_no_peers=why_no_peers)
        versions = {
            'Python': platform.python_version(),
            'PostgreSQL': bench.silkline.release,
            'nginx': nginx_version(),
            **{peer.package: version_of(peer.package) for peer in peers},
        }
        guide, manual = bench.guide.facts, bench.manual.facts
    others = machine_seconds() - machine - (own_seconds() - own)
    cores = max(others, 0) / (time.monotonic() - began_at)
    report.figure('processor time of other programs meanwhile', cores, 'cores')
    if cores > QUIET_CORES:
        print(f'       {busy_note(cores)}')
    if not (arguments.quick or arguments.skip_peers or arguments.pages):
        report.write(
            RESULTS,
            title='The crawler, measured',
            how=how(guide, manual, cores_of_others=cores),
            versions=versions,
            tables=[
                ('Pages per second', crawlers(bench, peers)),
                ('Processor time of silkline, seconds per 1,000 pages', parts(bench)),
            ],
        )
        print(f'written to {RESULTS}')
    return 0 if report.holds else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='python -m benchmarks.crawl', description=__doc__)
    parser.add_argument('--quick', action='store_true', help='a tenth of the pages, one round')
    parser.add_argument(
        '--skip-peers', action='store_true', help='only silkline; writes no results'
    )
    parser.add_argument('--pages', type=int, help='number of pages of the site; writes no results')
    parser.add_argument('--profile', action='store_true', help='show where the time goes')
    return parser.parse_args()


def choose_peers(*, skip: bool, may_be_missing: bool) -> tuple[Sequence[Peer], str]:
    """The peers to run; if none, also why."""
    if skip:
        return (), 'because of --skip-peers'
    if is_installed():
        return PEERS, ''
    if may_be_missing:
        return (), 'because the peers are not installed: make bench-crawl installs them'
    sys.exit('the peers are not installed: run benchmarks/crawl/run.sh, or add --skip-peers')


if __name__ == '__main__':
    sys.exit(main())
