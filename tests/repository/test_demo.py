"""`make demo`, as a user runs it after cloning the repository, and what it installs."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from silkline.linux import processes
from tests.support.servers import ROOT
from tests.support.waiting import wait_until

DEMO = [sys.executable, str(ROOT / 'examples/demo/demo.py')]


def environment(directory: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(('SUPABASE_', 'SILKLINE_'))
    }
    return {**kept, 'TMPDIR': str(directory)}


def processes_in(directory: Path) -> list[int]:
    """Processes whose working directory or command line is in a directory."""
    found: list[int] = []
    for process in processes():
        try:
            words = Path(f'/proc/{process.pid}/cmdline').read_bytes()
            here = os.readlink(f'/proc/{process.pid}/cwd')
        except OSError:
            continue
        if str(directory).encode() in words or here.startswith(str(directory)):
            found.append(process.pid)
    return found


def test_the_demo_crawls_and_leaves_nothing_behind(directory: Path) -> None:
    done = subprocess.run(
        DEMO,
        cwd=ROOT,
        env=environment(directory),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    # The first crawl, its failures, one page, and the second crawl.
    assert '  stored   14 new\n' in done.stdout
    assert '404' in done.stdout
    assert 'robots: disallowed by robots.txt' in done.stdout
    assert '| `radar` | water level, from above |' in done.stdout
    assert '```python' in done.stdout
    assert '  stored   1 changed, 13 unchanged\n' in done.stdout
    assert 'silkline crawl https://' in done.stdout
    assert list(directory.iterdir()) == []
    wait_until(lambda: processes_in(directory) == [], what='all processes to end')


def test_an_interrupted_demo_leaves_nothing_behind(directory: Path) -> None:
    process = subprocess.Popen(
        DEMO,
        cwd=ROOT,
        env=environment(directory),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said: list[str] = []
    with process:
        for line in process.stderr:
            said.append(line)
            if line.startswith('silkline: job'):
                break
        os.kill(process.pid, signal.SIGINT)
        rest = threading.Thread(target=process.stderr.read)
        rest.start()
        code = process.wait(timeout=60)
        rest.join()

    assert code == 130, said
    assert list(directory.iterdir()) == []
    wait_until(lambda: processes_in(directory) == [], what='all processes to end')


@pytest.mark.parametrize('target', ['demo', 'up', 'install'])
def test_a_first_look_installs_no_development_tools(target: str) -> None:
    planned = subprocess.run(
        ['make', '--dry-run', '--always-make', target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert 'requirements.lock' in planned
    assert '--editable .' in planned
    assert 'requirements-dev.lock' not in planned
