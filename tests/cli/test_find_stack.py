"""All commands find the same local stack."""

from pathlib import Path

import pytest

from silkline.errors import SettingsError
from silkline.settings import read_project
from silkline_local.directory import StackDirectory
from silkline_local.launch import find_stack

VARIABLES = {'SUPABASE_URL': 'http://127.0.0.1:54421', 'SUPABASE_SECRET_KEY': 'sb_secret_x'}


def make_stack(directory: Path) -> StackDirectory:
    """A stack that was never started."""
    stack = StackDirectory(directory / '.silkline')
    stack.create()
    return stack


def test_a_stack_is_found_from_a_directory_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = make_stack(tmp_path)
    stack.write_env(VARIABLES)
    below = tmp_path / 'a/b'
    below.mkdir(parents=True)
    monkeypatch.chdir(below)

    assert find_stack(None).path == stack.path
    assert read_project({}, below).url == VARIABLES['SUPABASE_URL']


def test_a_nearer_stack_is_found_first_even_if_it_was_never_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_stack(tmp_path).write_env(VARIABLES)
    below = tmp_path / 'a'
    below.mkdir()
    stack = make_stack(below)
    monkeypatch.chdir(below)

    assert find_stack(None).path == stack.path
    with pytest.raises(SettingsError, match=f'{stack.path} was never started: run silkline up'):
        read_project({}, below)


def test_a_directory_of_that_name_without_a_lock_is_not_a_stack(
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
