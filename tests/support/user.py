"""Somebody at a shell, who has configured nothing."""

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
        # What workers leave behind is theirs, too.
        self.environment = {**kept, 'XDG_STATE_HOME': str(directory / 'state'), **variables}

    def run(
        self, *words: str, code: int = 0, seconds: float = 100, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, and see that it answers with `code`."""
        done = subprocess.run(
            [*self._silkline, *words],
            cwd=self.directory,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert 'Traceback' not in done.stderr, done.stderr
        return done

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command that goes on."""
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
        """What a command prints as JSON lines."""
        return [json.loads(line) for line in self.run(*words).stdout.splitlines()]
