"""A user at a shell, without any configuration."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


class User:
    def __init__(self, directory: Path, *, python: str = sys.executable, **variables: str) -> None:
        self.directory = directory
        self._silkline = [python, '-m', 'silkline']
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(('SUPABASE_', 'SILKLINE_'))
        }
        # The state of workers goes into the directory as well.
        self.environment = {**kept, 'XDG_STATE_HOME': str(directory / 'state'), **variables}

    def run(
        self, *words: str, typed: str = '', code: int = 0, seconds: float = 100, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, and check its exit code; `typed` answers its questions."""
        done = subprocess.run(
            [*self._silkline, *words],
            cwd=self.directory,
            env={**self.environment, **variables},
            input=typed,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert 'Traceback' not in done.stderr, done.stderr
        return done

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command and return while it runs."""
        return subprocess.Popen(
            [*self._silkline, *words],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def lines(self, *words: str) -> list[dict[str, Any]]:
        """Run a command that prints JSON lines."""
        return [json.loads(line) for line in self.run(*words).stdout.splitlines()]
