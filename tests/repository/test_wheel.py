"""The wheel in an empty environment, outside of the repository, as a user installs it."""

import ast
import json
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import pytest

from tests.support.servers import ROOT
from tests.support.site import Site, page
from tests.support.user import User

PACKAGES = {'silkline', 'silkline_local'}
DIST_INFO = 'silkline-0.1.0.dist-info'


@pytest.fixture(scope='module')
def wheel() -> Iterator[Path]:
    with TemporaryDirectory(prefix='silkline-') as name:
        subprocess.run(
            [
                *(sys.executable, '-m', 'pip', 'wheel', '--quiet', '--no-deps'),
                *('--no-build-isolation', '--no-index', '--wheel-dir', name, str(ROOT)),
            ],
            check=True,
            timeout=100,
        )
        [built] = Path(name).glob('*.whl')
        yield built


@pytest.fixture(scope='module')
def site_packages(wheel: Path) -> Iterator[Path]:
    """Of an environment that had nothing in it; what silkline depends on is found elsewhere."""
    with TemporaryDirectory(prefix='silkline-') as name:
        environment = Path(name) / 'python'
        venv.create(environment, symlinks=True)
        [packages] = environment.glob('lib/python*/site-packages')
        assert not list(packages.iterdir())
        subprocess.run(
            [
                *(sys.executable, '-m', 'pip', '--python', str(environment / 'bin/python')),
                *('install', '--quiet', '--no-deps', '--no-index', str(wheel)),
            ],
            check=True,
            timeout=100,
        )
        yield packages


def test_an_installation_adds_two_packages_and_nothing_else(site_packages: Path) -> None:
    added = {path.name for path in site_packages.iterdir()} - {'dependencies.pth'}
    assert added == {*PACKAGES, DIST_INFO}


def test_what_is_installed_is_what_the_packages_need(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    assert any(name.startswith('silkline/migrations/') for name in names)
    assert 'silkline_local/postgres/bootstrap.sql' in names
    kinds = {Path(name).suffix for name in names if not name.startswith(DIST_INFO)}
    assert kinds == {'.py', '.sql'}


def test_every_import_is_declared_as_a_dependency(wheel: Path) -> None:
    metadata = ZipFile(wheel).read(f'{DIST_INFO}/METADATA').decode()
    declared = {
        normalised(name) for name in re.findall(r'^Requires-Dist: ([\w.-]+)', metadata, re.M)
    }
    providers = packages_distributions()
    undeclared: dict[str, str] = {}
    for directory in (ROOT / 'worker/silkline', ROOT / 'local/silkline_local'):
        for path in directory.rglob('*.py'):
            for name in top_level_imports(path):
                if name in sys.stdlib_module_names or name in PACKAGES:
                    continue
                provided_by = {normalised(one) for one in [name, *providers.get(name, [])]}
                if not provided_by & declared:
                    undeclared[name] = str(path.relative_to(ROOT))
    # They come with aiohttp, whose own API is made of them.
    for name in ('aiohappyeyeballs', 'multidict', 'yarl'):
        undeclared.pop(name, None)
    assert not undeclared


def top_level_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                yield from (name.name.partition('.')[0] for name in names)
            case ast.ImportFrom(module=str(module)):
                yield module.partition('.')[0]
            case _:
                pass


def normalised(name: str) -> str:
    return re.sub(r'[-_.]+', '-', name).lower()


def test_the_wheel_runs_a_stack_a_crawl_and_a_worker(site_packages: Path) -> None:
    (site_packages / 'dependencies.pth').write_text(f'{sysconfig.get_path("purelib")}\n')
    python = str(site_packages.parents[2] / 'bin/python')
    with TemporaryDirectory(prefix='silkline-') as name, Site({'/': page(title='Hello')}) as site:
        user = User(Path(name), python=python)
        where = subprocess.run(
            [python, '-c', 'import silkline, silkline_local; print(silkline.__file__)'],
            cwd=name,
            capture_output=True,
            text=True,
            check=True,
        )
        assert Path(where.stdout).is_relative_to(site_packages)
        assert 'crawl' in user.run('--help').stdout
        (user.directory / 'supabase').mkdir()
        user.run('install')
        assert len(list((user.directory / 'supabase/migrations').glob('*.sql'))) > 10
        user.run('up', '--detach')
        try:
            allowed = '--allow-network=127.0.0.0/8'
            user.run('crawl', site.url, allowed, '--export', 'pages')
            assert any('Hello' in path.read_text() for path in user.directory.rglob('*.md'))
            user.run('enqueue', site.url)
            user.run('worker', '--burst', allowed)
            jobs = json.loads(user.run('jobs', '--json').stdout)
            assert {job['status'] for job in jobs} == {'completed'}
            assert len(jobs) == 2
        finally:
            user.run('down')
