"""The migrations, applied by the real Supabase CLI and by `silkline_local`."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from silkline_local.postgres.migrations import migrate
from tests.support.database import Database
from tests.support.servers import MIGRATIONS, NODE_MODULES, ROOT, Server

CLI = NODE_MODULES / '@supabase/cli-linux-x64/bin/supabase'
VERSIONS = [path.name.split('_')[0] for path in sorted(MIGRATIONS.glob('*.sql'))]

TRICKY = r"""
-- a comment; with 'half a quote
/* a block; /* a nested one; */ it's */
create table public.things (
  id int primary key, -- a semicolon; in a list
  "odd;name" text default 'it''s; fine',
  escaped text default E'a\';b'
);;
create function public.tell() returns text language plpgsql as $body$
begin
  perform $$x;y$$;
  return 'a;b';
end;
$body$;
create function public.choose(n int) returns int language sql
begin atomic
  select case when n > 1 then 2 else 3 end;
  select 4;
end;
create rule twice as on delete to public.things do also (select 1; select 2);
do $_1$ begin perform 1; end $_1$;
-- a comment at the end
"""

Cli = Callable[..., dict[str, Any]]


@pytest.fixture(scope='session')
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home directory for the CLI, in which its telemetry is off."""
    if not CLI.exists():
        pytest.skip('no Supabase CLI: npm ci in tests/tools, on Linux x64')
    home = tmp_path_factory.mktemp('home')
    subprocess.run(
        [CLI, 'telemetry', 'disable'],
        env=environment(home),
        cwd=home,
        capture_output=True,
        check=True,
    )
    return home


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / 'supabase', tmp_path / 'supabase')
    return tmp_path


@pytest.fixture
def cli(home: Path, project: Path) -> Cli:
    """Run a command of the CLI in the project, on a database; return its JSON."""

    def run(database: Database, *words: str) -> dict[str, Any]:
        done = subprocess.run(
            [
                *(CLI, '--workdir', project, '--output-format', 'json'),
                *(*words, f'--remote={database.url()}'),
            ],
            env=environment(home),
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    return run


def environment(home: Path) -> dict[str, str]:
    return {'HOME': str(home), 'PATH': os.defpath}


def history(database: Database) -> list[dict[str, Any]]:
    return database.query(
        'select version, name, statements from supabase_migrations.schema_migrations'
        ' order by version'
    )


def test_push_applies_all_migrations_once(bare_database: Database, cli: Cli) -> None:
    cli(bare_database, 'db', 'push', '--yes')
    applied = history(bare_database)
    assert [row['version'] for row in applied] == VERSIONS

    cli(bare_database, 'db', 'push', '--yes')
    assert history(bare_database) == applied


def test_push_succeeds_on_a_project_that_refuses_policies_on_messages(
    server: Server, bare_database: Database, cli: Cli
) -> None:
    """The CLI prints no notices: what was refused is for crawl_doctor to say."""
    with server.without_supautils():
        cli(bare_database, 'db', 'push', '--yes')

    assert [row['version'] for row in history(bare_database)] == VERSIONS


def test_migrate_leaves_nothing_to_push(database: Database, cli: Cli) -> None:
    listed = cli(database, 'migration', 'list')['migrations']
    assert [(row['local'], row['remote']) for row in listed] == [
        (version, version) for version in VERSIONS
    ]


def test_push_and_migrate_store_the_same_history(
    server: Server, bare_database: Database, project: Path, cli: Cli
) -> None:
    migrations = project / 'supabase/migrations'
    (migrations / '99990101000000_tricky.sql').write_text(TRICKY)
    cli(bare_database, 'db', 'push', '--yes')
    with server.database() as ours:
        migrate(ours.url(), migrations)
        assert history(ours) == history(bare_database)


def test_lint_finds_nothing(server: Server, cron_database: Database, cli: Cli) -> None:
    """In a database with pg_cron: functions that read its tables cannot be checked without it."""
    if not server.postgres.has_extension('plpgsql_check'):
        pytest.skip(f'PostgreSQL {server.version} here has no plpgsql_check: Debian has it for 15')
    found = cli(cron_database, 'db', 'lint', '--level', 'warning')['results']
    issues = [
        f'{result["function"]}: {issue["message"]}'
        for result in found
        for issue in result['issues']
    ]
    assert not issues, '\n'.join(issues)


def test_advisors_find_nothing(database: Database, cli: Cli) -> None:
    found = cli(database, 'db', 'advisors', '--level', 'info')['results']
    # Every index of a new database is unused.
    issues = [
        f'{advice["name"]}: {advice["detail"]}'
        for advice in found
        if advice['name'] != 'unused_index'
    ]
    assert not issues, '\n'.join(issues)
