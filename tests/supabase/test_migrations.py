"""The order of the migrations: each uses only what earlier ones, or itself, have created.

Postgres does not check this: the body of a function is not resolved before it runs.
"""

import re
from collections.abc import Iterator

from tests.support.servers import MIGRATIONS

COMMENT = re.compile(r'--[^\n]*')
CREATED = re.compile(
    r'^create (?:function|table|view|type) ((?:silkline|public)\.\w+)', re.MULTILINE
)
USED = re.compile(r'\b(?:silkline|public)\.\w+')


def forward_references() -> Iterator[str]:
    texts = {
        path.name: COMMENT.sub('', path.read_text()) for path in sorted(MIGRATIONS.glob('*.sql'))
    }
    home = {name: file for file, text in texts.items() for name in CREATED.findall(text)}
    for file, text in texts.items():
        for name in sorted(set(USED.findall(text))):
            if home.get(name, file) > file:
                yield f'{file} uses {name} of {home[name]}'


def test_each_migration_uses_only_earlier_ones() -> None:
    assert list(forward_references()) == []
