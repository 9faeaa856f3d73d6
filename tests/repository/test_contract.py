"""docs/reference and the code say the same: functions, options, commands, errors, settings."""

import json
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, get_args

from typer.core import TyperGroup, TyperOption
from typer.main import get_command

from silkline import plugins, protocol
from silkline.cli import wording
from silkline.cli.main import app
from silkline.errors import ExitCode
from silkline.supervisor.outcome import ERROR_CODES
from tests.support.database import Database
from tests.support.queue import checkpoint, claim_one, enqueue, found, set_limits
from tests.support.servers import MIGRATIONS, ROOT


def read(page: str) -> str:
    return (ROOT / 'docs' / f'{page}.md').read_text()


def section(page: str, heading: str) -> str:
    """The part of a page below a heading of the second level."""
    parts = re.split(r'^## (.+)\n', read(page), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[heading]


def table(text: str) -> list[list[str]]:
    """The rows of all tables in a text, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith('|')]
    heads = {number - 1 for number, line in enumerate(lines) if line.startswith('|---')}
    return [
        [cell.strip() for cell in re.split(r'(?<!\\)\|', line)[1:-1]]
        for number, line in enumerate(lines)
        if number not in heads and not line.startswith('|---')
    ]


def names(cells: Iterable[str]) -> list[str]:
    """What is set as code in some cells, in order."""
    return re.findall(r'`([^`]+)`', ' '.join(cells))


def first_column(text: str) -> list[str]:
    return names(row[0] for row in table(text))


def migrations() -> str:
    return '\n'.join(path.read_text() for path in sorted(MIGRATIONS.glob('*.sql')))


CHECKPOINT = read('reference/checkpoint')


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

    assert set(re.findall(r'`(\w*crawl\w*\([^)`]*\))`', read('reference/functions'))) == functions


def test_every_option_is_documented_with_its_bounds_and_default(database: Database) -> None:
    options = {
        (
            row['kind'],
            f'`{row["name"]}`',
            allowed_values(row),
            '' if row['default_value'] is None else f'`{json.dumps(row["default_value"])}`',
            row['description'],
        )
        for row in database.query('select * from silkline.payload_options')
    }
    documented = {
        (kind, *row)
        for kind in ('crawl',)
        for row in table(section('reference/options', f'Kind `{kind}`'))
    }

    assert documented == options


def allowed_values(option: dict[str, Any]) -> str:
    """The values of an option, as its page writes them."""
    low, high = (
        f'{Decimal(bound):f}' if bound is not None else '?'
        for bound in (option['minimum'], option['maximum'])
    )
    match option['type']:
        case 'integer':
            return f'whole number, {low} to {high}'
        case 'number':
            return f'number, {low} to {high}'
        case 'boolean':
            return r'`true` \| `false`'
        case 'url':
            return f'http(s) URL, up to {high} characters'
        case 'texts':
            return f'list of up to {high} strings'
        case 'urls':
            return f'list of {low} to {high} URLs'
        case _ if option['choices']:
            return r' \| '.join(f'`{choice}`' for choice in option['choices'])
        case _:
            return f'string, {low} to {high} characters'


def test_every_setting_is_documented_with_its_default(database: Database) -> None:
    [settings] = database.query(
        "select to_jsonb(settings) - 'id' as row from crawl_settings as settings"
    )
    documented: dict[str, str] = {}
    for columns, defaults, _ in table(section('reference/settings', 'The table crawl_settings')):
        documented.update(zip(names([columns]), defaults.split(', '), strict=True))

    assert documented == {
        name: '{}' if value == [] else json.dumps(value) for name, value in settings['row'].items()
    }


def test_every_environment_variable_is_documented() -> None:
    code = '\n'.join(
        path.read_text()
        for package in ('worker/silkline', 'local/silkline_local')
        for path in (ROOT / package).rglob('*.py')
    )
    read_by_code = set(re.findall(r"'((?:SUPABASE|SILKLINE|SSL_CERT|XDG)_[A-Z_]+)'", code))
    # The mark of a runner's own processes; nobody sets it.
    internal = {'SILKLINE_RUNNER'}
    # Written by the local stack for other programs.
    text = section('reference/settings', 'Environment variables')
    written = set(re.findall(r'also writes `(\w+)` and `(\w+)`', text)[0])

    documented = [name for name in first_column(text) if name.isupper()]
    assert sorted(documented) == sorted(read_by_code - internal - written)
    assert written <= read_by_code


def test_every_error_of_a_function_is_documented() -> None:
    raised = set(re.findall(r"sqlstate '(\w+)'", migrations()))

    assert set(first_column(section('reference/errors', 'Errors of functions'))) == raised


def test_every_error_code_of_a_job_is_documented() -> None:
    documented = {
        names([code])[0]: (meaning, retried == 'yes')
        for code, retried, meaning in table(section('reference/errors', 'Error codes of jobs'))
    }
    # The database's own: nobody is left to report it.
    assert documented.pop('worker_lost')[1]
    assert re.search(r"then 'worker_lost'", migrations())

    assert documented == {
        code: (error.meaning, error.is_retryable) for code, error in ERROR_CODES.items()
    }


def test_every_skip_reason_is_documented_and_known_to_runners(database: Database) -> None:
    [rule] = database.query(
        """
        select pg_get_constraintdef(oid) as definition
        from pg_constraint
        where conname = 'tasks_skip_reason_is_known'
        """
    )
    reasons = set(re.findall(r"'(\w+)'::text", rule['definition']))

    assert set(first_column(section('reference/errors', 'Skip reasons of URLs'))) == reasons
    assert set(get_args(protocol.SkipReason)) == reasons


def test_every_warning_about_a_page_is_documented_and_known_to_all() -> None:
    rule = re.search(r'warnings\[\*\] \? \((.*?)\n {8}\)', migrations(), re.DOTALL)
    warnings = set(get_args(protocol.PageWarning))

    assert rule
    assert set(re.findall(r'@ != "(\w+)"', rule[1])) == warnings
    assert set(wording.PAGE_WARNINGS) == warnings
    assert set(first_column(section('reference/errors', 'Warnings about pages'))) == warnings


def test_every_reason_why_a_job_is_not_running_is_documented(database: Database) -> None:
    [function] = database.query(
        "select prosrc from pg_proc where oid = 'silkline.explain_job'::regproc"
    )
    codes = set(
        re.findall(r"'code',\s+(?:case when [^']+ then )?'(\w+)'", function['prosrc'])
        + re.findall(r"'code', case when .* then '\w+' else '(\w+)'", function['prosrc'])
    )
    # Of jobs that have ended, the code is the status.
    ended = {'completed', 'stopped', 'cancelled'}

    assert set(first_column(section('reference/errors', 'Why a job is not running'))) == (
        codes | ended
    )


def test_every_reason_in_the_history_is_documented(database: Database) -> None:
    """One job that goes through every change of status."""
    set_limits(database, max_jobs_per_host=2)
    job_id = enqueue(database)

    def end(function: str, **params: Any) -> None:
        database.query('update silkline.jobs set run_after = now() where id = %s', [job_id])
        database.call(function, p_lease_token=claim_one(database).token, **params)

    end('fail_crawl_job', p_error_code='oom', p_retry_after_seconds=0)
    end('release_crawl_job')
    end('release_crawl_job', p_reason='later', p_after_seconds=1)
    end('release_crawl_job', p_reason='worker_restarted')
    end('complete_crawl_job')
    database.call('retry_crawl_job', p_job_id=job_id, p_urls='all')
    for action in ('pause', 'resume', 'stop', 'resume', 'cancel'):
        database.call(f'{action}_crawl_job', p_job_id=job_id)
    enqueue(database)
    database.query(
        "update silkline.jobs set status = 'stopped', completed_at = now() where status = 'pending'"
    )

    reasons = {row['reason'] for row in database.query('select reason from silkline.events')}
    assert set(first_column(section('reference/errors', 'Reasons in the history'))) == reasons


def test_every_exit_code_is_documented() -> None:
    rows = table(section('reference/errors', 'Exit codes'))

    assert {int(code) for code, _ in rows} == set(ExitCode)


def test_every_reason_of_a_pending_job_to_wait_is_documented(database: Database) -> None:
    kinds = database.query('select unnest(enum_range(null::public.crawl_job_wait))::text as name')

    assert set(first_column(section('reference/functions', 'Which job runs next'))) == {
        row['name'] for row in kinds
    }


def test_the_snapshot_has_the_keys_that_are_documented(database: Database) -> None:
    job_id = enqueue(database)
    [answer] = database.call('crawl_progress', p_job_id=job_id)
    text = section('reference/live', 'The snapshot')
    snapshot, waits = text.split('`wait` has a `reason`')
    [function] = database.query(
        "select prosrc from pg_proc where prosrc like '%''reason'', ''retry''%'"
    )

    documented = names(row[0] for row in table(snapshot))
    assert sorted(documented) == sorted(answer['crawl_progress'])
    assert set(first_column(waits)) == set(re.findall(r"'reason', '(\w+)'", function['prosrc']))


def test_live_messages_have_the_topics_events_and_keys_that_are_documented(
    database: Database,
) -> None:
    user = database.user()
    job_id = enqueue(database, user=user)
    checkpoint(database, claim_one(database).token, 1)
    database.call('pause_crawl_job', user=user, p_job_id=job_id)
    database.call('cancel_crawl_job', user=user, p_job_id=job_id)
    sent = database.query('select topic, event, payload from realtime.messages')
    topics = {
        (names([topic])[0], names([event])[0])
        for topic, _, event, _ in table(read('reference/live').split('## ')[0])
    }
    keys = {
        names([event])[0]: set(names([listed]))
        for event, listed in table(section('reference/live', 'Payloads'))
    }

    keys['progress'] |= set(first_column(section('reference/live', 'The snapshot')))
    assert {
        (
            row['topic'].replace(str(job_id), '<id>').replace(str(user), '<uid>'),
            row['event'],
        )
        for row in sent
    } == topics
    for row in sent:
        # `id` is Realtime's own.
        assert set(row['payload']) - {'id'} <= keys[row['event']], row['event']


def test_a_checkpoint_has_the_keys_that_are_documented_and_known_to_runners(
    database: Database,
) -> None:
    enqueue(database)
    token = claim_one(database).token
    rules = (next((ROOT / 'supabase' / 'migrations').glob('*_checkpoint_input.sql'))).read_text()
    keys = re.search(r'entry.key not in \(([^)]*)\)', rules)
    documented = CHECKPOINT[CHECKPOINT.index('p_batch  seq') :].split('```')[0]
    batch, answer = documented.split('answer ')

    answered = checkpoint(
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
    assert set(re.findall(r'\w+', re.sub(r'\[.*?\]', '', answer, flags=re.DOTALL))) == set(answered)
    for key, kind in {
        'tasks': protocol.Task,
        'links': protocol.StoredLinks,
        'hosts': protocol.KnownHost,
    }.items():
        [entry] = answered[key]
        listed = re.search(rf'{key}: \[{{(.*?)}}\]', answer, re.DOTALL)
        assert listed
        assert set(entry) == set(kind.__struct_fields__) == set(re.findall(r'\w+', listed[1])), key


def test_every_command_is_documented_with_its_options_and_defaults() -> None:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    documented: dict[str, dict[tuple[str, ...], str]] = {}
    parts = re.split(r'^## (silkline .+)\n', read('reference/cli'), flags=re.MULTILINE)
    for heading, text in zip(parts[1::2], parts[2::2], strict=True):
        options = {tuple(sorted(names([row[0]]))): row[1] for row in table(text)}
        for command in re.findall(r'silkline (\w+)', heading):
            documented[command] = options

    assert documented == {
        name: {
            tuple(sorted((*option.opts, *option.secondary_opts))): default_text(option)
            for option in command.params
            if isinstance(option, TyperOption) and not option.hidden and option.name != 'help'
        }
        for name, command in group.commands.items()
    }


def default_text(option: TyperOption) -> str:
    default = option.default
    if default is None or isinstance(default, bool) or callable(default):
        return ''
    return (
        f'{default:g}'
        if isinstance(default, int | float)
        else str(getattr(default, 'value', default))
    )


def test_everything_public_for_plugins_is_exported() -> None:
    page = read('how-to/plugins')
    imported = {
        name
        for line in re.findall(r'^from silkline\.plugins import (.+)$', page, re.MULTILINE)
        for name in line.split(', ')
    }

    assert imported <= set(plugins.__all__)
    assert not re.search(r'(?:from|import) silkline(?!\.plugins)', page)
