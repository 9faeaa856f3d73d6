"""Plugins for tests: packages made on the fly, and a Python of its own to install them into.

The Python of the tests has no plugin, and it stays that way: runners would look for hooks at every
start. Runners that need the fetcher `generated` run on `python_with_generated_site`, which
`conftest.py` makes once per run.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

# Inherited by the processes of pytest-xdist and by the programs that tests start.
VARIABLE = 'PYTHON_WITH_GENERATED_SITE'
# Of a job over a generated site. Its host has no robots.txt, and a slow page may take its time.
GENERATED = {
    'fetcher': 'generated',
    'obey_robots': False,
    'timeout_seconds': 120,
    'retry_seconds': 0.01,
}
SOURCE = Path(__file__).with_name('generated_site.py')


def install(directory: Path, source: str, plugins: Mapping[str, str], *, name: str) -> None:
    """Write a distribution `name` 1.0 with one module; `plugins` maps their names to classes."""
    (directory / f'{name}.py').write_text(source)
    info = directory / f'{name}-1.0.dist-info'
    info.mkdir()
    (info / 'METADATA').write_text(f'Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n')
    lines = ''.join(f'{key} = {name}:{value}\n' for key, value in plugins.items())
    (info / 'entry_points.txt').write_text(f'[silkline.plugins]\n{lines}')


class Installation:
    """A virtual environment with the packages of this one, and a directory for plugins."""

    def __init__(self, directory: Path) -> None:
        self.plugins = directory / 'plugins'
        self.plugins.mkdir()
        venv.create(directory / 'python', symlinks=True)
        self.python = str(directory / 'python/bin/python')
        [packages] = (directory / 'python').glob('lib/python*/site-packages')
        added = [sysconfig.get_path('purelib'), str(self.plugins)]
        (packages / 'added.pth').write_text(
            ''.join(f'import site; site.addsitedir({path!r})\n' for path in added)
        )

    def install(self, package: Path) -> None:
        # With the pip of this Python: the other has none.
        subprocess.run(
            [
                *(sys.executable, '-m', 'pip', 'install', '--quiet', '--no-deps'),
                *('--no-build-isolation', '--no-index', '--target', str(self.plugins)),
                str(package),
            ],
            check=True,
            timeout=100,
        )


def install_generated_site(directory: Path) -> None:
    """Make the Python that `python_with_generated_site` returns from then on."""
    made = Installation(directory)
    plugins = {'generated': 'GeneratedSite'}
    install(made.plugins, SOURCE.read_text(), plugins, name=SOURCE.stem)
    os.environ[VARIABLE] = made.python


def python_with_generated_site() -> str:
    return os.environ[VARIABLE]
