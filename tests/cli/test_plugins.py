"""`silkline plugins`, and the example plugin at work: installed beside silkline, not into it."""

import json
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from examples.demo.demo_site import DemoSite
from tests.support.servers import ROOT
from tests.support.stack import StackProcess
from tests.support.user import User


class Installation:
    """A Python of its own that has what this one has, and a directory for plugins beside it."""

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
        # The installer of this Python, because the other has none.
        subprocess.run(
            [
                *(sys.executable, '-m', 'pip', 'install', '--quiet', '--no-deps'),
                *('--no-build-isolation', '--no-index', '--target', str(self.plugins)),
                str(package),
            ],
            check=True,
            timeout=100,
        )

    def add_broken(self) -> None:
        """A plugin as a package that was installed and does not load."""
        about = self.plugins / 'broken-2.5.dist-info'
        about.mkdir()
        (about / 'METADATA').write_text('Metadata-Version: 2.1\nName: broken\nVersion: 2.5\n')
        (about / 'entry_points.txt').write_text('[silkline.plugins]\nsad = nowhere_to_be:found\n')


@pytest.fixture(scope='module')
def installation() -> Iterator[Installation]:
    with TemporaryDirectory(prefix='silkline-') as name:
        made = Installation(Path(name))
        made.install(ROOT / 'examples/plugin')
        yield made


@pytest.fixture
def user(directory: Path, installation: Installation) -> User:
    return User(directory, python=installation.python)


def test_without_plugins_there_is_a_word_about_how_to_make_one(directory: Path) -> None:
    done = User(directory).run('plugins')

    assert done.stdout == ''
    assert 'docs/how-to/plugins.md' in done.stderr


def test_plugins_are_listed_with_what_they_are_and_where_from(user: User) -> None:
    listed = [re.split(r'  +', line.strip()) for line in user.run('plugins').stdout.splitlines()]

    assert listed == [
        ['plugin', 'kind', 'package', 'state', 'error'],
        ['plain-text', 'extractor', 'silkline-example 1.0', 'ok'],
        ['reading-time', 'page hook', 'silkline-example 1.0', 'ok'],
    ]


def test_a_plugin_that_does_not_load_is_listed_with_its_error(directory: Path) -> None:
    other = Installation(directory)
    other.add_broken()
    user = User(directory, python=other.python)
    done = user.run('plugins', code=1)
    [told] = json.loads(user.run('plugins', '--json', code=1).stdout)

    assert re.search(r'sad +unknown +broken 2\.5 +broken +ModuleNotFoundError: ', done.stdout)
    assert told['error'].startswith('ModuleNotFoundError')
    assert told['kind'] is None


def test_the_example_reads_the_pages_of_a_crawl(user: User) -> None:
    words = ('--pages', '3', '-o', 'extractor=plain-text', '--allow-network', '127.0.0.0/8')
    with StackProcess(user.directory / '.silkline'), DemoSite() as site:
        user.run('crawl', f'{site.url}/faq/', *words)
        pages = {row['url']: row for row in user.lines('pages', '--jsonl')}
        page = pages[f'{site.url}/faq/']

    assert (page['extractor'], page['extractor_version']) == ('plain-text', '1')
    assert 'Does it need the internet?\nNo. Alerts by SMS need a modem' in page['markdown']
    assert '<' not in page['markdown']
    assert page['metadata']['reading_minutes'] == 1
    assert page['metadata']['words'] > 50
