"""All commands mean the same local stack."""

from pathlib import Path

import pytest
from silkline.errors import SettingsError
from silkline.settings import read_project
from silkline_local.directory import StackDirectory
from silkline_local.launch import find_stack

VARIABLES = {'SUPABASE_URL': 'http://127.0.0.1:54421', 'SUPABASE_SECRET_KEY': 'sb_secret_x'}


def make_stack(directory: Path) -> StackDirectory:
    """One that has never been up."""
    stack = StackDirectory(directory / '.silkline')
    stack.make()
    return stack


def test_a_stack_above_is_meant_from_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = make_stack(tmp_path)
    stack.write_env(VARIABLES)
    below = tmp_path / 'a/b'
    below.mkdir(parents=True)
    monkeypatch.chdir(below)

    assert find_stack(None).path == stack.path
    assert read_project({}, below).url == VARIABLES['SUPABASE_URL']


def test_a_stack_that_has_never_been_up_is_meant_before_one_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_stack(tmp_path).write_env(VARIABLES)
    below = tmp_path / 'a'
    below.mkdir()
    stack = make_stack(below)
    monkeypatch.chdir(below)

    assert find_stack(None).path == stack.path
    with pytest.raises(SettingsError, match=f'{stack.path} has not been up yet: silkline up'):
        read_project({}, below)


def test_other_things_of_that_name_are_no_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = make_stack(tmp_path)
    stack.write_env(VARIABLES)
    below = tmp_path / 'a'
    (below / '.silkline').mkdir(parents=True)
    (below / '.silkline/env').write_text('PORT=1\n')
    monkeypatch.chdir(below)

    assert find_stack(None).path == stack.path
    assert read_project({}, below).url == VARIABLES['SUPABASE_URL']
