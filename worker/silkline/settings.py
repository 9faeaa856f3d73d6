"""Which project to use, the key to it, and where the shipped files are.

Owns the names of the variables. The environment comes first. Without `SUPABASE_URL`, commands use
the local stack of this directory or of a directory above, which keeps the same variables in
`.silkline/env`.
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
# Marks a directory as a stack's: the first file that is created in it.
STACK_SIGN = 'lock'
SECRET_KEYS = ('SUPABASE_SECRET_KEY', 'SUPABASE_SERVICE_ROLE_KEY')
PUBLIC_KEYS = ('SUPABASE_PUBLISHABLE_KEY', 'SUPABASE_ANON_KEY')
WORKER_TOKEN = 'SUPABASE_WORKER_TOKEN'  # noqa: S105 - the name of a variable


@dataclass(frozen=True, slots=True)
class Project:
    """A Supabase project, or the local stack. Keys are never shown."""

    url: str
    key: str = field(repr=False)
    # A token of role crawl_worker, sent in addition to the key: for a less trusted machine.
    token: str | None = field(default=None, repr=False)
    is_local: bool = False

    @property
    def bearer(self) -> str:
        return self.token or self.key


def read_project(
    environment: Mapping[str, str] = os.environ, directory: Path | None = None
) -> Project:
    """Raise `SettingsError` if something is missing; the message names the variable."""
    if environment.get('SUPABASE_URL'):
        return make_project(environment, where='the environment')
    stack = find_stack_path(environment.get('SILKLINE_DIRECTORY'), directory or Path.cwd())
    if stack is None:
        raise SettingsError(
            'SUPABASE_URL is not set and there is no local stack here: set it to the URL of your'
            ' project, or run silkline up'
        )
    path = stack / 'env'
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError as error:
        raise SettingsError(
            f'SUPABASE_URL is not set and the stack in {stack} was never started: run silkline up'
        ) from error
    except UnicodeDecodeError as error:
        raise SettingsError(
            f'{path} is damaged: silkline down, then silkline up, writes it again'
        ) from error
    except OSError as error:
        raise SettingsError(f'cannot read {path}: {error.strerror}') from error
    variables = {name: value for name, _, value in (line.partition('=') for line in lines)}
    return make_project(variables, where=str(path), is_local=True)


def make_project(variables: Mapping[str, str], *, where: str, is_local: bool = False) -> Project:
    url = variables.get('SUPABASE_URL', '').strip().rstrip('/')
    parts = urlsplit(url)
    if parts.scheme not in ('http', 'https') or not parts.hostname:
        raise SettingsError(
            # The value is not repeated: it may contain a password.
            f'SUPABASE_URL in {where} is not a URL: expected https://<project>.supabase.co'
        )
    if parts.username or parts.password or parts.query or parts.path:
        raise SettingsError(
            f'SUPABASE_URL in {where} must have only a scheme, a host and a port:'
            ' remove the user, path or query'
        )
    secret = first_value(variables, SECRET_KEYS)
    if secret is not None:
        return Project(url, secret, is_local=is_local)
    token = variables.get(WORKER_TOKEN, '').strip()
    public = first_value(variables, PUBLIC_KEYS)
    if token and public is not None:
        return Project(url, public, token, is_local=is_local)
    if token:
        raise SettingsError(
            f'{WORKER_TOKEN} is set but {PUBLIC_KEYS[0]} is not: set both in {where}'
        )
    raise SettingsError(
        f'{SECRET_KEYS[0]} is not set in {where}: find it in the settings of your project,'
        ' under API Keys'
    )


def find_stack_path(named: str | Path | None, here: Path) -> Path | None:
    """The directory that was named, else the stack of this directory, else of one above."""
    if named:
        return Path(named)
    places = (parent / STACK_NAME for parent in (here, *here.parents))
    return next(filter(is_stack, places), None)


def is_stack(directory: Path) -> bool:
    return (directory / STACK_SIGN).exists()


def migrations_directory() -> Path:
    return shipped_directory(PACKAGE / 'migrations', CHECKOUT / 'supabase/migrations')


def dashboard_directory() -> Path:
    """Does not exist until the dashboard is built."""
    return shipped_directory(PACKAGE / 'dashboard', CHECKOUT / 'dashboard/dist')


def shipped_directory(installed: Path, in_checkout: Path) -> Path:
    return installed if installed.is_dir() else in_checkout


def first_value(variables: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    for name in names:
        if value := variables.get(name, '').strip():
            return value
    return None
