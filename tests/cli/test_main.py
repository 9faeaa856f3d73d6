"""The command line, run as a user runs it."""

import subprocess
import sys
from pathlib import Path

from silkline import __version__

from tests.support.servers import MIGRATIONS, ROOT


def silkline(*words: str) -> str:
    return subprocess.run(
        [sys.executable, '-m', 'silkline', *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_the_version_is_shown() -> None:
    assert silkline('--version') == f'silkline {__version__}\n'


def test_help_tells_how_the_queue_is_installed() -> None:
    assert 'supabase db push' in ' '.join(silkline('--help').split())


def test_help_begins_with_what_a_newcomer_types() -> None:
    commands = silkline('--help').partition('Commands:\n')[2].splitlines()

    assert [line.split()[0] for line in commands[:2]] == ['crawl', 'pages']
    assert not [line for line in commands if line.endswith('...')], 'a sentence is cut off'


def test_what_cannot_be_written_is_told_in_a_sentence() -> None:
    with open('/dev/full', 'w') as full:
        done = subprocess.run(
            [sys.executable, '-m', 'silkline', 'migrations'],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr == 'silkline: No space left on device\n'


def test_migrations_names_the_directory_of_the_checkout() -> None:
    assert Path(silkline('migrations').strip()) == MIGRATIONS
