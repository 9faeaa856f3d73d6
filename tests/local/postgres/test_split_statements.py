"""Where a script is split; test_supabase_cli.py shows that the Supabase CLI does the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silkline_local.postgres.migrations import split_statements

STATEMENTS = [
    'select 1',
    "-- it's; a comment\nselect 1",
    "/* ; /* ; */ ' */ select 2",
    "select 'it''s; fine', E'a\\';b', \"odd;name\"",
    "select 'a backslash ends nothing \\', 1",
    "do $$ begin perform ';'; end; $$",
    'do $body$ begin perform $$;$$; end; $body$',
    'select a$b$c, $1',
    'create rule r as on delete to t do also (select 1; select 2)',
    'create function f(n int) returns int begin atomic'
    ' select case when n > 1 then 2 else 3 end; select 4; end',
    "select 'ünïcode; ✓'",
]


@given(st.lists(st.sampled_from(STATEMENTS), max_size=6), st.sampled_from([';', ' ;\n', ';;\n\n']))
def test_joined_statements_are_split_again(statements: list[str], separator: str) -> None:
    assert split_statements(separator.join(statements)) == statements


@given(st.text(alphabet='ab;\'"$-/*()\\ \n'))
def test_nothing_but_semicolons_and_space_is_lost(text: str) -> None:
    def rest(text: str) -> str:
        return ''.join(character for character in text if character not in '; \n')

    assert rest(''.join(split_statements(text))) == rest(text)


@pytest.mark.parametrize('text', ['', ' \n', ';', ' ; ;'])
def test_an_empty_script_has_no_statements(text: str) -> None:
    assert split_statements(text) == []
