"""Errors of settings and API: one message, the exit code, and what to do next."""

from pathlib import Path

import pytest

from silkline.cli.runtime import COMMAND_NAMES
from tests.cli.test_arguments import UNREACHABLE
from tests.support.servers import MIGRATIONS
from tests.support.user import User


def test_without_a_project_a_command_names_the_variable_and_the_stack(tmp_path: Path) -> None:
    message = User(tmp_path).run('jobs', code=2).stderr

    assert 'SUPABASE_URL is not set' in message
    assert 'silkline up' in message


def test_a_missing_key_is_reported_with_where_to_find_it(tmp_path: Path) -> None:
    message = User(tmp_path, SUPABASE_URL='https://a.example').run('jobs', code=2).stderr

    assert message == (
        'silkline: SUPABASE_SECRET_KEY is not set in the environment:'
        ' find it in the settings of your project, under API Keys\n'
    )


def test_an_unreachable_api_exits_with_3_and_names_the_variable_to_check(tmp_path: Path) -> None:
    message = User(tmp_path, **UNREACHABLE).run('jobs', code=3).stderr

    assert message.startswith('silkline: http://127.0.0.1:9 ')
    assert message.endswith('SUPABASE_URL right?\n')


@pytest.mark.parametrize('phrase', COMMAND_NAMES)
def test_each_phrase_that_is_translated_is_one_that_the_queue_says(phrase: str) -> None:
    hints = ''.join(path.read_text() for path in MIGRATIONS.glob('*.sql'))

    assert f"'{phrase}" in hints
