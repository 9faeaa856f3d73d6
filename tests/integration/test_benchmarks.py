"""The short form of the benchmark: what must not grow does not, on any machine."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(240)
def test_claims_do_not_grow_with_the_queue_and_a_large_fleet_takes_little() -> None:
    run = subprocess.run(
        [sys.executable, '-m', 'benchmarks.queue', '--quick', '--only', 'claim', 'fleet'],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    claims = {
        name: word
        for word, name in re.findall(r'^(ok|short) +(.+): [^:]+\(target', run.stdout, re.MULTILINE)
    }

    # Times in milliseconds depend on the machine; these do not.
    assert claims.get('claim at 100,000 pending, of 1,000') == 'ok', run.stdout + run.stderr
    assert claims.get('heartbeat: updates that touch no index') == 'ok', run.stdout
    assert claims.get('database CPU of 1,000 workers') == 'ok', run.stdout
