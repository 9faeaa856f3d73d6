"""Whether this machine can render pages: where Playwright and Chromium are.

A leaf, because three rooms ask: the supervisor before it claims jobs that need a browser, the
commands that report on a worker, and the fetcher that starts it. Nothing is imported or started.
"""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

NAMES = ('chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable', 'chrome')


class Browser(NamedTuple):
    """Either the path of the program, or what is missing, with the remedy."""

    program: str = ''
    problem: str = ''


def find_browser() -> Browser:
    """What renders pages on this machine."""
    if find_spec('playwright') is None:
        return Browser(
            problem="the browser fetcher needs Playwright: pip install 'silkline[browser]'"
        )
    return find_chromium()


def find_chromium() -> Browser:
    """The program in `SILKLINE_CHROMIUM`, one on the path, or Playwright's own."""
    named = os.environ.get('SILKLINE_CHROMIUM')
    if named:
        if not os.access(named, os.X_OK):
            return Browser(problem=f'SILKLINE_CHROMIUM is {named}, which is not a program')
        return Browser(program=named)
    found = next(filter(None, map(shutil.which, NAMES)), None) or downloaded()
    if found is None:
        return Browser(
            problem='the browser fetcher needs Chromium: run `apt-get install chromium` or '
            '`playwright install chromium`, or set SILKLINE_CHROMIUM to the program'
        )
    return Browser(program=found)


def downloaded() -> str | None:
    """The newest Chromium that `playwright install` has put on this machine."""
    home = os.environ.get('PLAYWRIGHT_BROWSERS_PATH')
    try:
        caches = [Path(home)] if home else [Path('~/.cache/ms-playwright').expanduser()]
    except RuntimeError:
        return None
    programs = (
        program
        for cache in caches
        for program in sorted(cache.glob('chromium-*/chrome-*/chrome'), reverse=True)
    )
    return next((str(program) for program in programs if os.access(program, os.X_OK)), None)
