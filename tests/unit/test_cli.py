"""The command line, run as a user runs it."""

import subprocess
import sys
from pathlib import Path

from tests.support.servers import MIGRATIONS, ROOT
from worker import __version__


def silkline(*words: str) -> str:
    return subprocess.run(
        [sys.executable, '-m', 'worker', *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_the_version_is_shown() -> None:
    assert silkline('--version') == f'silkline {__version__}\n'


def test_help_tells_how_the_queue_is_installed() -> None:
    assert 'supabase db push' in ' '.join(silkline('--help').split())


def test_migrations_names_the_directory_of_the_checkout() -> None:
    assert Path(silkline('migrations').strip()) == MIGRATIONS
