"""The benchmarks with --quick: they run, and the claims hold that do not depend on the machine."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def has_nginx() -> bool:
    path = f'{os.environ.get("PATH", "")}:/usr/sbin:{ROOT / ".venv/nginx/usr/sbin"}'
    return shutil.which('nginx', path=path) is not None


def judge(module: str, *words: str) -> dict[str, str]:
    """Run a benchmark; returns by claim: ok, short, or - if it was not measured."""
    run = subprocess.run(
        [sys.executable, '-m', module, '--quick', *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    print(run.stdout, run.stderr)
    found = re.findall(
        r'^(ok|short|-) +(.+): (?:[^:]+\(target|not measured)', run.stdout, re.MULTILINE
    )
    return {claim: word for word, claim in found}


@pytest.mark.timeout(240)
def test_claims_do_not_slow_down_with_the_queue_and_a_large_fleet_costs_little() -> None:
    claims = judge('benchmarks.queue', '--only', 'claim', 'fleet')

    # Milliseconds depend on the machine; these do not.
    assert claims.get('claim at 100,000 pending, of 1,000') == 'ok'
    assert claims.get('heartbeat: updates that touch no index') == 'ok'
    assert claims.get('database CPU of 1,000 workers') == 'ok'


@pytest.mark.timeout(240)
def test_the_local_stack_is_measured() -> None:
    claims = judge('benchmarks.local')

    # Whether they hold depends on the machine.
    assert set(claims) == {
        'silkline up, cold: initdb and all migrations',
        'silkline up, warm',
        'pending_crawl_work by HTTP, p50 above psycopg',
        'pending_crawl_work over 16 connections',
        'broadcast by a client to 200 sockets, p95',
        'broadcast by the database to 200 sockets, p95',
    }


@pytest.mark.timeout(240)
def test_the_worker_is_measured_and_completes_its_jobs() -> None:
    claims = judge('benchmarks.worker')

    assert set(claims) == {
        'enqueue to the end of a one-page job, p50',
        'enqueue to the end of a one-page job, longest',
        'enqueue to the end of a one-page job for an idle worker, p50',
        'enqueue to the end of a one-page job for an idle worker, longest',
        'cancel to the end of the process, longest of 5',
        'memory of an idle worker',
        'requests of an idle worker',
        '100 small jobs over 50 slots, completed',
        'child processes left after 100 jobs',
        'descriptors grown by, after 100 jobs',
    }
    # Times depend on the machine; these do not.
    assert claims['memory of an idle worker'] == 'ok'
    assert claims['requests of an idle worker'] == 'ok'
    assert claims['100 small jobs over 50 slots, completed'] == 'ok'
    assert claims['child processes left after 100 jobs'] == 'ok'


@pytest.mark.timeout(240)
@pytest.mark.skipif(not has_nginx(), reason='nginx is missing: scripts/install-nginx.sh unpacks it')
def test_the_crawler_is_measured_and_misses_no_page() -> None:
    claims = judge('benchmarks.crawl', '--skip-peers')

    # Most of the time of 300 pages is start-up: only the full run measures the speed.
    for site in ('guide', 'manual'):
        assert claims.get(f'{site}: pages that differ from those of the site') == 'ok'
        assert claims.get(f'{site}: silkline, main Markdown, of Scrapy') == '-'
        assert claims.get(f'{site}: pages that differ from those of Scrapy') == '-'
    assert claims.get('peak memory of the runner') == 'ok'


def test_the_extractor_is_measured_on_the_pages_that_are_there(tmp_path: Path) -> None:
    write_wcxb(tmp_path / 'wcxb')

    claims = judge(
        'benchmarks.extract',
        f'--docs={tmp_path / "none"}',
        f'--wcxb={tmp_path / "wcxb"}',
        f'--articles={tmp_path / "none"}',
    )

    assert claims.pop('WCXB: F1 of all pages') == 'ok'
    # A few pages, no peers, and the other pages are not there.
    assert set(claims.values()) == {'-'}
    assert {
        'documentation: recall',
        'documentation: code blocks lost or changed',
        'documentation: speed, of trafilatura',
        'WCXB: F1 of pages of the kind forum',
        'WCXB: worst 5 % of the pages that carry a warning',
        'WCXB: speed, of trafilatura',
        'F1 of the main content of real articles',
    } <= set(claims)


def write_wcxb(directory: Path) -> None:
    (directory / 'html').mkdir(parents=True)
    truth = {f'{number:04}': article(number) for number in range(3)}
    for key, text in truth.items():
        html = f'<nav><a href="/">Home</a></nav><main><h1>A title</h1><p>{text}</p></main>'
        (directory / f'html/{key}.html.gz').write_bytes(gzip.compress(html.encode()))
    entries = {
        key: {
            'url': f'https://example.org/{key}',
            'page_type': 'article',
            'main_content': f'A title\n\n{text}',
            'with': [text[:20]],
            'without': ['Home'],
        }
        for key, text in truth.items()
    }
    packed = gzip.compress(json.dumps(entries).encode())
    (directory / 'ground-truth.json.gz').write_bytes(packed)


def article(number: int) -> str:
    return f'The worker number {number} saves each page as soon as it has read it. ' * 5
