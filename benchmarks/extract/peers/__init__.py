"""trafilatura, in a process and an environment of its own.

`run_trafilatura.py` gets one page per line and answers with one line: the text and the seconds of
processor time it took. It runs in `.venv-bench-extract`, which `run.sh` creates; that environment
has lxml, too, which docs-extract needs.
"""

import json
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.shared.server import ROOT

ENVIRONMENT = ROOT / '.venv-bench-extract'
PYTHON = ENVIRONMENT / 'bin/python'


def is_installed() -> bool:
    return (ENVIRONMENT / '.peers').exists()


def trafilatura_version() -> str:
    code = 'import importlib.metadata as m; print(m.version("trafilatura"))'
    shown = subprocess.run([PYTHON, '-c', code], capture_output=True, text=True, check=True)
    return shown.stdout.strip()


@dataclass(frozen=True, slots=True)
class Trafilatura:
    process: 'subprocess.Popen[str]'

    def extract(self, html: str) -> tuple[str, float]:
        """The main text of a page, and the seconds of processor time."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(html) + '\n')
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f'trafilatura exited with {self.process.wait()}')
        text, seconds = json.loads(answer)
        return text, seconds


@contextmanager
def run_trafilatura() -> Generator[Trafilatura]:
    process = subprocess.Popen(
        [PYTHON, Path(__file__).with_name('run_trafilatura.py')],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield Trafilatura(process)
