"""Imports point one way, every module is in a room, and a class name means one thing.

cli → supervisor → queue; runner → engine → fetchers → documents → extract, net. Imports inside
functions and for type checkers count too: a room that only names another still depends on it.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.servers import ROOT

PACKAGES = {'silkline': ROOT / 'worker/silkline', 'silkline_local': ROOT / 'local/silkline_local'}

# The modules that are in no room, because every room may import them.
LEAVES = {'browser', 'errors', 'framing', 'linux', 'plugins', 'protocol', 'settings'}
CRAWL_LEAVES = {
    'charsets',
    'fetched',
    'installed_plugins',
    'options',
    'responses',
    'retries',
    'urls',
}

# What each room may import, besides itself and the leaves.
BELOW = {
    'silkline.cli': {'silkline.supervisor', 'silkline.queue', 'silkline.crawl'},
    'silkline.supervisor': {'silkline.queue'},
    'silkline.queue': set[str](),
    'silkline.runner': {
        'silkline.crawl',
        'silkline.crawl.engine',
        'silkline.crawl.fetchers',
        'silkline.crawl.documents',
        'silkline.crawl.net',
    },
    'silkline.crawl.engine': {
        'silkline.crawl',
        'silkline.crawl.fetchers',
        'silkline.crawl.documents',
        'silkline.crawl.extract',
        'silkline.crawl.net',
    },
    'silkline.crawl.fetchers': {
        'silkline.crawl',
        'silkline.crawl.documents',
        'silkline.crawl.net',
    },
    'silkline.crawl.documents': {
        'silkline.crawl',
        'silkline.crawl.extract',
        'silkline.crawl.net',
    },
    'silkline.crawl.extract': {'silkline.crawl'},
    'silkline.crawl.net': {'silkline.crawl'},
    'silkline.crawl': set[str](),
    # The leaves of the crawl that the public plugin API is made of.
    'silkline': {'silkline.crawl'},
    'silkline_local': set[str](),
}
EXCEPTIONS = {
    # `python -m silkline`.
    'silkline.__main__': {'silkline.cli'},
    # Applies the rules of a crawl to one URL: a second copy of them would drift.
    'silkline.cli.why_url': {'silkline.crawl.engine'},
    # Says where a crawl with the scope `prefix` stays, by the same rule.
    'silkline.cli.job_options': {'silkline.crawl.engine'},
    # The one place that offers the local stack.
    'silkline.cli.commands.local_stack': {'silkline_local'},
}


@cache
def modules() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for package, directory in PACKAGES.items():
        for path in directory.rglob('*.py'):
            parts = path.relative_to(directory).with_suffix('').parts
            name = '.'.join((package, *parts)).removesuffix('.__init__')
            found[name] = path
    return found


def room_of(module: str) -> str:
    if module.startswith('silkline_local'):
        return 'silkline_local'
    return max((room for room in BELOW if module == room or module.startswith(room + '.')), key=len)


def imports_of(module: str) -> Iterator[str]:
    """The modules of these packages that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(modules()[module].read_text())):
        names: list[str] = []
        match node:
            case ast.Import(names=aliases):
                names = [alias.name for alias in aliases]
            case ast.ImportFrom(module=str(source), names=aliases, level=0):
                names = [f'{source}.{alias.name}' for alias in aliases]
            case ast.ImportFrom(level=level):
                assert level == 0, f'{module} uses a relative import'
            case ast.Constant(value=str(text)) if re.fullmatch(r'silkline(_local)?(\.\w+)+', text):
                # Imported by name, as a runner does ahead of its job.
                names = [text]
            case _:
                pass
        for name in names:
            while name and name not in modules():
                name = name.rpartition('.')[0]
            if name:
                yield name


@pytest.mark.parametrize('module', sorted(modules()))
def test_a_module_imports_only_its_own_room_and_those_below(module: str) -> None:
    room = room_of(module)
    allowed = BELOW[room] | {room, 'silkline'}
    allowed |= EXCEPTIONS.get(module, set[str]())
    assert not {name for name in imports_of(module) if room_of(name) not in allowed}


def test_no_two_modules_import_each_other() -> None:
    graph = {name: set(imports_of(name)) - {name} for name in modules()}
    # A package names its parts, and they may be imported from it.
    for name, imported in graph.items():
        graph[name] = {other for other in imported if not name.startswith(other + '.')}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(' -> '.join(error.args[1]))


def test_every_module_is_in_a_room_or_a_leaf() -> None:
    outside = {
        path.stem for path in PACKAGES['silkline'].glob('*.py') if not path.stem.startswith('__')
    }
    assert outside == LEAVES
    outside = {
        path.stem
        for path in (PACKAGES['silkline'] / 'crawl').glob('*.py')
        if not path.stem.startswith('__')
    }
    assert outside == CRAWL_LEAVES


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_errors_that_leave_a_room_have_one_root() -> None:
    """Exceptions defined in one module and caught or raised in another derive from the root."""
    bases: dict[str, list[str]] = {}
    homes: dict[str, str] = {}
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [ast.unparse(base).rpartition('.')[2] for base in node.bases]
                homes[node.name] = module

    def derives_from(name: str, root: str) -> bool:
        return name == root or any(derives_from(base, root) for base in bases.get(name, []))

    errors = {name for name in bases if derives_from(name, 'Exception')}
    strays = {
        name
        for name in errors
        if not derives_from(name, 'SilklineError')
        for module, path in modules().items()
        if room_of(module) != room_of(homes[name]) and re.search(rf'\b{name}\b', path.read_text())
    }
    assert not strays
    drawn = re.findall(r'[├└]── (\w+)', (PACKAGES['silkline'] / 'errors.py').read_text())
    assert set(drawn) <= {name for name in errors if derives_from(name, 'SilklineError')}
    leaving = {
        name
        for name in errors
        if derives_from(name, 'SilklineError') and name != 'SilklineError'
        for module, path in modules().items()
        if room_of(module) not in (room_of(homes[name]), 'silkline')
        and re.search(rf'\b{name}\b', path.read_text())
    }
    assert leaving <= set(drawn), 'missing in the tree of errors.py'
