"""Docs, migrations and code say the same."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

from tests.support.database import Database
from worker import pipe
from worker.errors import ExitCode

ROOT = Path(__file__).parents[2]
QUEUE = (ROOT / 'docs' / 'queue.md').read_text()
OPTIONS = (ROOT / 'docs' / 'options.md').read_text()
README = (ROOT / 'README.md').read_text()


def test_every_function_is_documented_with_its_parameters(database: Database) -> None:
    functions = {
        f'{row["proname"]}({", ".join(row["parameters"] or [])})'
        for row in database.query(
            """
            select
              function.proname,
              (
                select array_agg(parameter.name order by parameter.nth)
                from unnest(function.proargnames) with ordinality as parameter (name, nth)
                where parameter.name like 'p\\_%'
              ) as parameters
            from pg_proc as function
            where function.pronamespace = 'public'::regnamespace
              and function.proname ~ 'crawl'
            """
        )
    }
    documented = set(re.findall(r'`(\w*crawl\w*\([^)`]*\))`', QUEUE))

    assert documented == functions


def test_every_option_is_documented_with_its_default(database: Database) -> None:
    options = {
        (
            row['kind'],
            row['name'],
            '' if row['default_value'] is None else f'`{json.dumps(row["default_value"])}`',
            row['description'],
        )
        for row in database.query(
            'select kind, name, default_value, description from silkline.payload_options'
        )
    }
    documented = {
        (kind, name, default, meaning)
        for kind, section in re.findall(r'## Kind `(\w+)`\n(.*?)(?=\n## |\Z)', OPTIONS, re.DOTALL)
        for name, default, meaning in re.findall(
            r'^\| `(\w+)` \| .+? \| (\S*) ?\| (.+) \|$', section, re.MULTILINE
        )
    }

    assert documented == options


def test_every_setting_is_documented_with_its_default(database: Database) -> None:
    settings = database.query(
        "select to_jsonb(settings) - 'id' as row from crawl_settings as settings"
    )
    documented: dict[str, str] = {}
    for names, defaults in re.findall(
        r'^\| (`\w+`(?:, `\w+`)*) \| ([^|]+) \|', QUEUE, re.MULTILINE
    ):
        documented.update(zip(re.findall(r'\w+', names), defaults.split(', '), strict=False))

    assert {name.strip(): value.strip() for name, value in documented.items()} == {
        name: '{}' if value == [] else 'null' if value is None else str(value)
        for name, value in settings[0]['row'].items()
    }


def test_every_skip_reason_is_documented_and_known_to_runners(database: Database) -> None:
    rule = database.query(
        """
        select pg_get_constraintdef(oid) as definition
        from pg_constraint
        where conname = 'crawl_tasks_skip_reason_is_known'
        """
    )[0]['definition']
    reasons = set(re.findall(r"'(\w+)'::text", rule))
    sentence = QUEUE[QUEUE.index('Skip reasons are a closed set:') :].split('.')[0]

    assert set(re.findall(r'\w+', sentence.split(':')[1])) == reasons
    assert set(get_args(pipe.SkipReason)) == reasons


def test_every_command_and_exit_code_is_documented() -> None:
    help_text = subprocess.run(
        [sys.executable, '-m', 'worker', '--help'],
        cwd=ROOT,
        env={**os.environ, 'COLUMNS': '200'},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    commands = set(re.findall(r'^│ (\w+) ', help_text, re.MULTILINE))
    page = (ROOT / 'docs' / 'cli.md').read_text()

    assert commands == set(re.findall(r'`silkline (\w+)', page))
    assert {int(code) for code in re.findall(r'^\| (\d+) \|', page, re.MULTILINE)} == set(ExitCode)


def test_the_tree_in_the_readme_is_the_tree_of_the_repository() -> None:
    tree = README.split('## The house')[1].split('## ')[0]
    folder = ROOT
    for line in tree.splitlines():
        if not (match := re.match(r' {4}( *)([\w.]+/?)(?: |$)', line)):
            continue
        indent, name = match.groups()
        path = (folder if indent else ROOT) / name
        if not indent and name.endswith('/'):
            folder = path
        assert path.exists(), f'{name} is in the README and not in the repository'
