"""The command `silkline` itself: help, version, output that cannot be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_version_prints_the_version() -> None:
    assert silkline('--version') == f'silkline {__version__}\n'


def test_help_says_how_to_install_the_queue() -> None:
    assert 'supabase db push' in ' '.join(silkline('--help').split())


def test_help_lists_crawl_and_pages_first_and_cuts_no_sentence() -> None:
    commands = silkline('--help').partition('Commands:\n')[2].splitlines()

    assert [line.split()[0] for line in commands[:4]] == ['crawl', 'scrape', 'map', 'pages']
    assert not [line for line in commands if line.endswith('...')], 'a sentence is cut off'


@pytest.mark.parametrize('words', [['-h'], ['crawl', '-h']])
def test_help_has_a_short_option(words: list[str]) -> None:
    assert 'Usage: ' in silkline(*words)


def test_output_that_cannot_be_written_is_reported_in_one_sentence() -> None:
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


def test_migrations_prints_the_directory_of_the_checkout() -> None:
    assert Path(silkline('migrations').strip()) == MIGRATIONS


def test_the_shell_completes_commands() -> None:
    command = Path(sys.executable).parent / 'silkline'
    words = {'_SILKLINE_COMPLETE': 'complete_bash', 'COMP_WORDS': 'silkline scr', 'COMP_CWORD': '1'}
    completed = subprocess.run(
        [command], env={**os.environ, **words}, capture_output=True, text=True, check=False
    )

    assert completed.stdout.split() == ['scrape']
