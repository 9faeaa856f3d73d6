"""Docs, migrations and code say the same."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args
from uuid import UUID

from silkline import protocol
from silkline.errors import ExitCode
from silkline_local.postgres.migrations import split_statements

from tests.support.database import Database
from tests.support.queue import checkpoint, claim_one, enqueue, fetched, found

ROOT = Path(__file__).parents[2]
QUEUE = (ROOT / 'docs' / 'queue.md').read_text()
OPTIONS = (ROOT / 'docs' / 'options.md').read_text()
PAGES = (ROOT / 'docs' / 'pages.md').read_text()


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
    assert set(get_args(protocol.SkipReason)) == reasons


def test_a_checkpoint_has_the_keys_that_are_documented_and_known_to_runners(
    database: Database,
) -> None:
    enqueue(database)
    token = claim_one(database).token
    rules = (next((ROOT / 'supabase' / 'migrations').glob('*_checkpoint_input.sql'))).read_text()
    keys = re.search(r'entry.key not in \(([^)]*)\)', rules)
    documented = QUEUE[QUEUE.index('p_batch  seq') :].split('```')[0]
    batch, answer = documented.split('answer ')

    told = checkpoint(
        database,
        token,
        1,
        want=1,
        discovered=[found(1)],
        hosts=[{'host': 'site.example', 'error_streak': 1}],
        want_hosts=['site.example'],
        want_links=[found(1)['url_key']],
        redirected_starts=['https://site.example/en/'],
    )

    assert keys
    assert set(re.findall(r'^(?:p_batch| {7}) +(\w+)  ?', batch, re.MULTILINE)) == set(
        re.findall(r"'(\w+)'", keys[1])
    )
    assert set(re.findall(r'\w+', re.sub(r'\[.*?\]', '', answer, flags=re.DOTALL))) == set(told)
    for key, kind in {
        'tasks': protocol.Task,
        'links': protocol.StoredLinks,
        'hosts': protocol.KnownHost,
    }.items():
        [entry] = told[key]
        listed = re.search(rf'{key}: \[{{(.*?)}}\]', answer, re.DOTALL)
        assert listed
        assert set(entry) == set(kind.__struct_fields__) == set(re.findall(r'\w+', listed[1])), key


def test_every_query_about_pages_runs_for_a_user_and_finds_something(database: Database) -> None:
    user = database.user()
    crawl_docs(database, user, {1: 'Retry', 2: 'Same', 3: 'Same', 4: 'Gone soon'})
    # The next crawl: one page has changed, one is new, one is not found, one is not wanted.
    text = 'Retry when you meet a rate limit.'
    job_id = crawl_docs(database, user, {1: text, 2: 'Same', 3: 'Same', 5: 'New'}, fails=6)
    queries = re.findall(r'```sql\n(.*?)```', PAGES, re.DOTALL)
    owner, reader = database.connect(), database.connect('authenticated', user)

    assert len(queries) >= 10
    for query in queries:
        for statement in split_statements(query.replace('<job id>', str(job_id))):
            if statement.startswith('select'):
                assert reader.execute(statement.encode()).fetchall(), statement
            else:
                owner.execute(statement.encode())


def test_the_search_over_pages_goes_by_its_index(database: Database) -> None:
    statements = split_statements('\n'.join(re.findall(r'```sql\n(.*?)```', PAGES, re.DOTALL)))
    [index] = [text for text in statements if text.startswith('create index')]
    [function] = [text for text in statements if text.startswith('create function')]
    body = function.split('$$')[1].replace('p_query', "'words'").replace('p_limit', '10')
    search, *_ = [text for text in statements if 'ts_headline' in text]
    user = database.user()
    database.query(
        """
        insert into public.crawl_pages (
          user_id, source_id, url_key, url, version, job_id, content_hash, markdown
        )
        select
          %s, 'docs.example', gen_random_uuid(), 'https://docs.example/' || n, 1,
          gen_random_uuid(), n, 'Word' || n || case when n %% 1000 = 0 then ' words' else '' end
        from generate_series(1, 5000) as n
        """,
        [user],
    )
    database.query(index)
    database.query('analyze public.crawl_pages')
    reader = database.connect('authenticated', user)

    for query in (search, body):
        assert 'crawl_pages_text' in str(database.query(f'explain {query}'))
    # What the page says about users: it would be of no use to ask them to search by themselves.
    assert 'crawl_pages_text' not in str(reader.execute(f'explain {search}'.encode()).fetchall())


def crawl_docs(
    database: Database, user: UUID, texts: dict[int, str], *, fails: int | None = None
) -> UUID:
    """Crawl pages of docs.example with these texts to the end; one more URL may fail."""
    job_id = enqueue(database, 'docs.example', user=user)
    token = claim_one(database).token
    numbers = [*texts, *([] if fails is None else [fails])]
    private = found(7, url='https://docs.example/private', skip_reason='robots')
    checkpoint(
        database,
        token,
        1,
        want=10,
        discovered=[
            private,
            *(found(number, found_on=str(UUID(int=1))) for number in numbers),
        ],
    )
    pages = [
        fetched(
            number,
            page={
                'url': f'https://docs.example/{number}',
                'content_hash': text,
                'title': f'Page {number}',
                'markdown': text,
            },
        )
        for number, text in texts.items()
    ]
    broken = [
        {
            'url_key': str(UUID(int=number)),
            'status': 'error',
            'error': 'http 404',
            'http_status': 404,
        }
        for number in numbers[len(texts) :]
    ]
    assert checkpoint(database, token, 2, finished=[*pages, *broken])['drained']
    database.call('complete_crawl_job', p_lease_token=token)
    return job_id


def test_every_command_and_exit_code_is_documented() -> None:
    help_text = subprocess.run(
        [sys.executable, '-m', 'silkline', '--help'],
        cwd=ROOT,
        env={**os.environ, 'COLUMNS': '200'},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    commands = set(re.findall(r'^  (\w+)', help_text.partition('Commands:')[2], re.MULTILINE))
    page = (ROOT / 'docs' / 'cli.md').read_text()

    assert commands == set(re.findall(r'`silkline (\w+)', page))
    assert {int(code) for code in re.findall(r'^\| (\d+) \|', page, re.MULTILINE)} == set(ExitCode)
