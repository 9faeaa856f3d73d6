"""`silkline plugins`, and a crawl with the example plugin, installed as a package of its own."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from examples.demo.demo_site import DemoSite
from tests.support.plugins import Installation
from tests.support.servers import ROOT
from tests.support.stack import StackProcess
from tests.support.user import User


def add_broken(directory: Path) -> None:
    """A plugin whose package is installed, but does not load."""
    about = directory / 'broken-2.5.dist-info'
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


def test_without_plugins_the_command_says_where_to_read_about_them(directory: Path) -> None:
    done = User(directory).run('plugins')

    assert done.stdout == ''
    assert 'docs/how-to/plugins.md' in done.stderr


def test_plugins_are_listed_with_their_kinds_and_packages(user: User) -> None:
    listed = [re.split(r'  +', line.strip()) for line in user.run('plugins').stdout.splitlines()]

    assert listed == [
        ['plugin', 'kind', 'package', 'state', 'error'],
        ['plain-text', 'extractor', 'silkline-example 1.0', 'ok'],
        ['reading-time', 'page hook', 'silkline-example 1.0', 'ok'],
    ]


def test_a_plugin_that_does_not_load_is_listed_with_its_error(directory: Path) -> None:
    other = Installation(directory)
    add_broken(other.plugins)
    user = User(directory, python=other.python)
    done = user.run('plugins', code=1)
    [found] = json.loads(user.run('plugins', '--json', code=1).stdout)

    assert re.search(r'sad +unknown +broken 2\.5 +broken +ModuleNotFoundError: ', done.stdout)
    assert found['error'].startswith('ModuleNotFoundError')
    assert found['kind'] is None


def test_the_example_plugin_extracts_the_pages_of_a_crawl(user: User) -> None:
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
