"""What the README says about the repository is so."""

import re

import pytest

from tests.support.servers import ROOT

TREE = (ROOT / 'README.md').read_text().partition('## The house')[2].partition('\n## ')[0]


def named_below(directory: str) -> set[str]:
    """The entries that the tree has for a directory."""
    found = re.search(rf'^    {directory}/.*\n((?:      \S.*\n)+)', TREE, re.MULTILINE)
    assert found
    return {line.split()[0].rstrip('/') for line in found[1].splitlines()}


@pytest.mark.parametrize('directory', ['supabase', 'worker', 'local'])
def test_the_tree_names_what_is_there(directory: str) -> None:
    hidden = ('__', '.')
    there = {path.name for path in (ROOT / directory).iterdir() if not path.name.startswith(hidden)}

    assert named_below(directory) == there


def test_the_tree_names_every_directory() -> None:
    named = set(re.findall(r'^    (\w+)/', TREE, re.MULTILINE))
    there = {path.parent.name for path in ROOT.glob('*/*') if not path.parent.name.startswith('.')}

    assert named == there - {'dist', 'node_modules'}


@pytest.mark.parametrize(
    'page', re.findall(r'\]\((?!http)([^)#]+)', (ROOT / 'README.md').read_text())
)
def test_what_the_readme_links_to_is_there(page: str) -> None:
    assert (ROOT / page).exists()
