"""Where the files are that ship with the package.

Each lies in the installed package, or, in a checkout, where it is written.
"""

from pathlib import Path

PACKAGE = Path(__file__).parent
CHECKOUT = PACKAGE.parents[1]


def migrations_directory() -> Path:
    return first_directory(PACKAGE / 'migrations', CHECKOUT / 'supabase/migrations')


def dashboard_directory() -> Path:
    """May not exist: the dashboard has to be built."""
    return first_directory(PACKAGE / 'dashboard', CHECKOUT / 'dashboard/dist')


def first_directory(installed: Path, written: Path) -> Path:
    return installed if installed.is_dir() else written
