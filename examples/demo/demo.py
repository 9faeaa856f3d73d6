"""A crawl on this machine, from nothing to Markdown: `make demo`.

Serves a small site on loopback (`demo_site.py`) and runs, in a directory that is gone afterwards,
the commands that anybody would type: crawl, look, crawl again. Owns the story and that nothing is
left running; what is shown is what the commands print.
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

# The site is on this machine, which crawls may not reach unless they are told so.
ALLOW = ('--allow-network', '127.0.0.0/8')
SHOWN_PAGE = 'guide/sensors/index.md'


def main() -> None:
    # Ended politely, it cleans up as after Ctrl-C.
    # Both, whatever was inherited: a shell has SIGINT ignored by what it starts in the background.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    started_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix='silkline-demo-') as name:
        directory = Path(name)
        # The server may have to run as another account.
        directory.chmod(0o711)
        try:
            with DemoSite() as site:
                play(Shell(directory), site)
        except KeyboardInterrupt:
            raise SystemExit(130) from None
        finally:
            StackDirectory(directory / STACK_NAME).lock.stop()
    tell(
        f'Done in {time.monotonic() - started_at:.0f} s; nothing is left running or on disk. Next:'
    )
    print(
        """
  make install && . .venv/bin/activate
  silkline crawl https://quotes.toscrape.com --pages 100 --export quotes
  silkline pages                # what the last crawl stored; --failed, --skipped say why not
  silkline up                   # the stack alone; .silkline/env has what supabase-js needs
  silkline --help"""
    )


def play(shell: 'Shell', site: DemoSite) -> None:
    tell(f'A small manual, made up, is served on {site.url}. Crawl it:')
    shell.run('crawl', f'{site.url}/', *ALLOW, '--export', 'pages')

    tell('What did not work, and what was left out on purpose:')
    shell.run('pages', '--failed')
    shell.run('pages', '--skipped')

    tell(f'One of the pages, as it was stored ({SHOWN_PAGE}):')
    show(shell.directory / 'pages' / SHOWN_PAGE)

    tell('Somebody edits one page of the site. Crawl it again:')
    site.edit()
    shell.run('crawl', f'{site.url}/', *ALLOW, '--export', 'pages')


class Shell:
    """Runs commands as somebody would who has an empty directory and nothing configured."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith('SUPABASE')
        }
        self._environment = {
            **kept,
            'SILKLINE_DIRECTORY': str(directory / STACK_NAME),
            'XDG_STATE_HOME': str(directory / 'state'),
            # Only for reading what it prints; terminals know better.
            **({} if sys.stdout.isatty() else {'COLUMNS': '120'}),
        }

    def run(self, *words: str) -> None:
        """Run a command where everybody sees it; the demo ends if it fails."""
        print(f'\n$ silkline {" ".join(words)}', flush=True)
        process = subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, '-P', '-m', 'silkline', *words],
            cwd=self.directory,
            env=self._environment,
            # Told to stop by the demo alone: a crawl that is told twice ends at once.
            process_group=0,
        )
        try:
            code = process.wait()
        except BaseException:
            process.send_signal(signal.SIGTERM)
            process.wait()
            raise
        if code != 0:
            raise SystemExit(f'make demo: silkline {words[0]} ended with {code}')


def show(path: Path) -> None:
    print()
    for line in path.read_text().splitlines():
        print(f'  {line}'.rstrip())


def tell(text: str) -> None:
    print(f'\n{text}', flush=True)


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == '__main__':
    main()
