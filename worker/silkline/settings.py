"""Where the project is and the key to it, read once.

Owns the names of the variables. The environment comes first; without `SUPABASE_URL` in it, the
local stack of this directory or of one above, which keeps the same variables in `.silkline/env`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from silkline.errors import SettingsError

PACKAGE = Path(__file__).parent
CHECKOUT = PACKAGE.parents[1]

STACK_NAME = '.silkline'
# What tells a stack's directory from others: made before anything else in it.
STACK_SIGN = 'lock'
SECRET_KEYS = ('SUPABASE_SECRET_KEY', 'SUPABASE_SERVICE_ROLE_KEY')
PUBLIC_KEYS = ('SUPABASE_PUBLISHABLE_KEY', 'SUPABASE_ANON_KEY')
WORKER_TOKEN = 'SUPABASE_WORKER_TOKEN'  # noqa: S105 - the name of a variable


@dataclass(frozen=True, slots=True)
class Project:
    """A Supabase project, or the local stack. Keys are opaque, and are shown nowhere."""

    url: str
    key: str = field(repr=False)
    # A bearer token beside the key: that of role crawl_worker, for a machine trusted less.
    token: str | None = field(default=None, repr=False)
    is_local: bool = False

    @property
    def bearer(self) -> str:
        return self.token or self.key


def read_project(
    environment: Mapping[str, str] = os.environ, directory: Path | None = None
) -> Project:
    """Raises `SettingsError`, which names what is missing."""
    if environment.get('SUPABASE_URL'):
        return make_project(environment, where='the environment')
    stack = find_stack_path(environment.get('SILKLINE_DIRECTORY'), directory or Path.cwd())
    if stack is None:
        raise SettingsError(
            'SUPABASE_URL is not set, and there is no local stack here: set it to the URL of your'
            ' project, or run silkline up'
        )
    path = stack / 'env'
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError as error:
        raise SettingsError(
            f'SUPABASE_URL is not set, and the stack of {stack} has not been up yet: silkline up'
        ) from error
    except UnicodeDecodeError as error:
        raise SettingsError(f'{path} is damaged: silkline down and up write it anew') from error
    except OSError as error:
        raise SettingsError(f'{path} cannot be read: {error.strerror}') from error
    variables = {name: value for name, _, value in (line.partition('=') for line in lines)}
    return make_project(variables, where=str(path), is_local=True)


def make_project(variables: Mapping[str, str], *, where: str, is_local: bool = False) -> Project:
    url = variables.get('SUPABASE_URL', '').strip().rstrip('/')
    parts = urlsplit(url)
    if parts.scheme not in ('http', 'https') or not parts.hostname:
        raise SettingsError(
            f'SUPABASE_URL in {where} is no address like https://<project>.supabase.co'
        )
    if parts.username or parts.password or parts.query or parts.path:
        raise SettingsError(
            f'SUPABASE_URL in {where} is more than scheme, host and port: leave out the rest'
        )
    secret = first(variables, SECRET_KEYS)
    if secret is not None:
        return Project(url, secret, is_local=is_local)
    token = variables.get(WORKER_TOKEN, '').strip()
    public = first(variables, PUBLIC_KEYS)
    if token and public is not None:
        return Project(url, public, token, is_local=is_local)
    if token:
        raise SettingsError(f'{WORKER_TOKEN} needs {PUBLIC_KEYS[0]} beside it in {where}')
    raise SettingsError(
        f'{SECRET_KEYS[0]} is not set in {where}: your project has it in its settings,'
        ' under API keys'
    )


def find_stack_path(named: str | Path | None, here: Path) -> Path | None:
    """The directory of the stack that was named, else of the one here, else of one above."""
    if named:
        return Path(named)
    places = (parent / STACK_NAME for parent in (here, *here.parents))
    return next(filter(is_stack, places), None)


def is_stack(directory: Path) -> bool:
    return (directory / STACK_SIGN).exists()


def migrations_directory() -> Path:
    return first_directory(PACKAGE / 'migrations', CHECKOUT / 'supabase/migrations')


def dashboard_directory() -> Path:
    """May not exist: the dashboard has to be built."""
    return first_directory(PACKAGE / 'dashboard', CHECKOUT / 'dashboard/dist')


def first_directory(installed: Path, written: Path) -> Path:
    return installed if installed.is_dir() else written


def first(variables: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    for name in names:
        if value := variables.get(name, '').strip():
            return value
    return None
