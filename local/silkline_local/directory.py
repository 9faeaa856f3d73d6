"""The directory of one local stack.

Owns the names of its files, and makes sure that no other directory is mistaken for one. Imports
nothing slow, so that `silkline down` is quick. Which process runs the stack is in `lock.py`.
"""

import json
import os
import pwd
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from silkline.settings import STACK_NAME, STACK_SIGN, is_stack
from silkline_local.errors import StackError
from silkline_local.lock import StackLock

PORTS = range(1, 65536)
# The server's password, in the server's directory; written before anything else there.
PASSWORD = 'password'  # noqa: S105 - the name of a file


class StackDirectory:
    """`env`, `keys.json`, `ports.json`, `up.log`, `lock` and `postgres/`."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.keys_path = self.path / 'keys.json'
        self.postgres_path = self.path / 'postgres'
        self.log_path = self.path / 'up.log'
        self.env_path = self.path / 'env'
        self.lock = StackLock(self.path / STACK_SIGN)
        self._ports_path = self.path / 'ports.json'

    def create(self) -> None:
        """Create it if it does not exist; refuse one that contains anything else."""
        self.check_owner()
        self.path.mkdir(parents=True, exist_ok=True, mode=0o711)
        if not self.is_stack:
            if any(self.path.iterdir()):
                raise StackError(
                    f'{self.path} contains other files: a stack needs a directory of its own,'
                    f' such as {self.path / STACK_NAME}'
                )
            # First: from now on the directory is recognized as a stack's.
            self.lock.path.touch(mode=0o600)
            (self.path / '.gitignore').write_text('*\n')

    @property
    def is_stack(self) -> bool:
        return is_stack(self.path)

    @property
    def has_database(self) -> bool:
        return self.is_stack and (self.postgres_path / PASSWORD).exists()

    def check_owner(self) -> None:
        """Refuse a directory of another user: files of two owners would lock both out."""
        if self.path.exists() and (owner := self.path.stat().st_uid) != os.geteuid():
            raise StackError(
                f'{self.path} belongs to {user_name(owner)}: run this as that user,'
                ' or choose another directory with --directory'
            )

    def read_ports(self) -> dict[str, int]:
        """The ports of the last run, so that clients find the stack again."""
        with suppress(OSError, ValueError):
            ports: Any = json.loads(self._ports_path.read_text())
            if isinstance(ports, dict):
                return {
                    name: port
                    for name, port in ports.items()
                    if type(port) is int and port in PORTS
                }
        return {}

    def write_ports(self, ports: Mapping[str, int]) -> None:
        write_private(self._ports_path, json.dumps(dict(ports)) + '\n')

    def read_env(self) -> dict[str, str]:
        """The variables that a program needs to use the stack."""
        try:
            lines = self.env_path.read_text().splitlines()
        except FileNotFoundError:
            lines = []
        variables = {name: value for name, _, value in (line.partition('=') for line in lines)}
        if not {'SUPABASE_URL', 'SUPABASE_DB_URL', 'SUPABASE_JWT_SECRET'} <= variables.keys():
            raise StackError(
                f'{self.env_path} is damaged: silkline down, then silkline up, writes it again'
            )
        return variables

    def write_env(self, variables: Mapping[str, str]) -> None:
        write_private(self.env_path, format_env(variables))

    def remove_database(self) -> None:
        """Keep its password, so that its URL stays the same."""
        for path in self.postgres_path.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != PASSWORD:
                path.unlink()

    def remove_keys(self) -> None:
        for path in (self.keys_path, self.env_path):
            path.unlink(missing_ok=True)


def format_env(variables: Mapping[str, str]) -> str:
    return ''.join(f'{name}={value}\n' for name, value in variables.items())


def write_private(path: Path, text: str) -> None:
    """Write a whole file or nothing, readable only by its owner."""
    partial = path.with_name(f'{path.name}.partial')
    partial.unlink(missing_ok=True)
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), 'w') as file:
        file.write(text)
    partial.rename(path)


def user_name(user_id: int) -> str:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return f'user {user_id}'
