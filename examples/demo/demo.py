"""`make demo`: a crawl on this machine, from nothing to Markdown.

Serves a small site on loopback (`demo_site.py`) and runs, in a temporary directory, the commands
that a user would type: crawl, list the pages, crawl again. Owns the order of the commands, and
cleans up after them. The output is that of the commands.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

from demo_site import DemoSite

from silkline.settings import STACK_NAME
from silkline_local.directory import StackDirectory

# The site is on this machine, which a crawl may not reach by default.
ALLOW = ('--allow-network', '127.0.0.0/8')
SHOWN_PAGE = 'guide/sensors/index.md'


def main() -> None:
    # SIGTERM cleans up like Ctrl-C. SIGINT is set as well: a shell makes its background jobs ignore
    # it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    started_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix='silkline-demo-') as name:
        directory = Path(name)
        # Postgres may have to run as another account.
        directory.chmod(0o711)
        try:
            with DemoSite() as site:
                play(Shell(directory), site)
        except KeyboardInterrupt:
            raise SystemExit(130) from None
        finally:
            StackDirectory(directory / STACK_NAME).lock.stop()
    say(f'Done in {time.monotonic() - started_at:.0f} s; everything is stopped and deleted. Next:')
    print(
        """
  make install && . .venv/bin/activate
  silkline crawl https://quotes.toscrape.com --pages 100 --export quotes
  silkline pages                # the pages of the last crawl; --failed and --skipped say why
  silkline up                   # only the stack; .silkline/env has what supabase-js needs
  silkline --help"""
    )


def play(shell: 'Shell', site: DemoSite) -> None:
    say(f'A small fictional manual is served at {site.url}. Crawl it:')
    shell.run('crawl', f'{site.url}/', *ALLOW, '--export', 'pages')

    say('The pages that failed, and those that were skipped on purpose:')
    shell.run('pages', '--failed')
    shell.run('pages', '--skipped')

    say(f'One of the stored pages ({SHOWN_PAGE}):')
    show(shell.directory / 'pages' / SHOWN_PAGE)

    say('Now one page of the site changes. Crawl it again:')
    site.edit()
    shell.run('crawl', f'{site.url}/', *ALLOW, '--export', 'pages')


class Shell:
    """Runs commands like a user with an empty directory and no configuration."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith('SUPABASE')
        }
        self._environment = {
            **kept,
            'SILKLINE_DIRECTORY': str(directory / STACK_NAME),
            'XDG_STATE_HOME': str(directory / 'state'),
            # A terminal knows its width.
            **({} if sys.stdout.isatty() else {'COLUMNS': '120'}),
        }

    def run(self, *words: str) -> None:
        """Run a command and show its output; the demo ends if it fails."""
        print(f'\n$ silkline {" ".join(words)}', flush=True)
        process = subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, '-P', '-m', 'silkline', *words],
            cwd=self.directory,
            env=self._environment,
            # Ctrl-C reaches only the demo, which passes it on: a second one would kill the crawl.
            process_group=0,
        )
        try:
            code = process.wait()
        except BaseException:
            process.send_signal(signal.SIGTERM)
            process.wait()
            raise
        if code != 0:
            raise SystemExit(f'make demo: silkline {words[0]} exited with {code}')


def show(path: Path) -> None:
    print()
    for line in path.read_text().splitlines():
        print(f'  {line}'.rstrip())


def say(text: str) -> None:
    print(f'\n{text}', flush=True)


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == '__main__':
    main()
