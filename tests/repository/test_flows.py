"""The two flows of docs/explanation/architecture.md, followed through the code hop by hop."""

import ast
import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.servers import ROOT

PAGE = ROOT / 'docs/explanation/architecture.md'
ITEM = re.compile(r'^\d+\. \[`([\w.]+)`\]\(([^)]+)\)(?:, via `(\w+)`)?:', re.M)


class Stop(NamedTuple):
    """A function on the way; `via` names what hands over to it where it is not called."""

    name: str
    path: Path
    via: str

    @property
    def called(self) -> str:
        return self.name.rpartition('.')[2]

    def source(self) -> str:
        text = self.path.read_text()
        if self.path.suffix == '.sql':
            found = re.search(rf'^create function \w+\.{self.name}\(.*?^\$\$;', text, re.M | re.S)
            assert found is not None, f'{self.path.name} does not create {self.name}'
            return found[0]
        scope: ast.AST = ast.parse(text)
        for part in self.name.split('.'):
            kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            named = [
                node
                for node in ast.iter_child_nodes(scope)
                if isinstance(node, kinds) and node.name == part
            ]
            assert named, f'{self.path.name} has no {self.name}'
            [scope] = named
        return ast.get_source_segment(text, scope) or ''


def stops(heading: str) -> list[Stop]:
    text = PAGE.read_text().partition(f'### {heading}\n')[2].partition('\n## ')[0]
    return [
        Stop(name, (PAGE.parent / path).resolve(), via) for name, path, via in ITEM.findall(text)
    ]


def mentions(source: str, name: str) -> bool:
    return re.search(rf'\b{name}\b', source) is not None


@pytest.mark.parametrize(
    ('heading', 'most_hops'),
    [('From the command to the claim', 4), ('From the fetched page to its row', 12)],
)
def test_each_stop_leads_to_the_next(heading: str, most_hops: int) -> None:
    way = stops(heading)
    assert 4 <= len(way) - 1 <= most_hops
    for here, there in pairwise(way):
        if there.via:
            # Handed over through a pipe or a queue: both sides touch it.
            assert mentions(there.source(), there.via), f'{there.name} does not use {there.via}'
            name = there.via
        else:
            name = there.called
        # A generator is named by who consumes it, everything else by who calls it.
        is_consumed = mentions(there.source(), here.called) and 'yield' in here.source()
        assert mentions(here.source(), name) or is_consumed, f'{here.name} to {there.name}'
