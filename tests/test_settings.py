"""Which project a command uses, and with which key."""

from pathlib import Path

import pytest

from silkline.errors import SettingsError
from silkline.settings import read_project

URL = 'https://ref.supabase.co'


def test_the_environment_names_the_project_and_its_key(tmp_path: Path) -> None:
    project = read_project(
        {'SUPABASE_URL': f'{URL}/', 'SUPABASE_SECRET_KEY': 'sb_secret_x'}, tmp_path
    )

    assert (project.url, project.key, project.bearer) == (URL, 'sb_secret_x', 'sb_secret_x')
    assert not project.is_local


def test_the_legacy_name_of_the_secret_key_works(tmp_path: Path) -> None:
    project = read_project({'SUPABASE_URL': URL, 'SUPABASE_SERVICE_ROLE_KEY': 'a.b.c'}, tmp_path)

    assert project.key == 'a.b.c'


def test_a_worker_token_is_the_bearer_next_to_the_publishable_key(tmp_path: Path) -> None:
    project = read_project(
        {
            'SUPABASE_URL': URL,
            'SUPABASE_PUBLISHABLE_KEY': 'sb_publishable_x',
            'SUPABASE_WORKER_TOKEN': 'a.b.c',
        },
        tmp_path,
    )

    assert (project.key, project.bearer) == ('sb_publishable_x', 'a.b.c')


def test_without_a_project_the_local_stack_of_a_directory_above_is_used(tmp_path: Path) -> None:
    (tmp_path / '.silkline').mkdir()
    (tmp_path / '.silkline/lock').touch()
    (tmp_path / '.silkline/env').write_text(
        'SUPABASE_URL=http://127.0.0.1:54421\nSUPABASE_SECRET_KEY=sb_secret_x\n'
    )
    below = tmp_path / 'a/b'
    below.mkdir(parents=True)
    project = read_project({}, below)

    assert project.url == 'http://127.0.0.1:54421'
    assert project.is_local
    named = read_project({'SILKLINE_DIRECTORY': str(tmp_path / '.silkline')}, Path('/'))
    assert named == project


@pytest.mark.parametrize(
    ('environment', 'named'),
    [
        ({}, 'SUPABASE_URL'),
        ({'SUPABASE_URL': 'ref.supabase.co'}, 'SUPABASE_URL'),
        ({'SUPABASE_URL': 'https://user:pass@ref.supabase.co'}, 'SUPABASE_URL'),
        ({'SUPABASE_URL': 'postgresql://postgres@db.ref.supabase.co/postgres'}, 'SUPABASE_URL'),
        ({'SUPABASE_URL': URL}, 'SUPABASE_SECRET_KEY'),
        ({'SUPABASE_URL': URL, 'SUPABASE_SECRET_KEY': ' '}, 'SUPABASE_SECRET_KEY'),
        ({'SUPABASE_URL': URL, 'SUPABASE_WORKER_TOKEN': 'a.b.c'}, 'SUPABASE_PUBLISHABLE_KEY'),
        ({'SILKLINE_DIRECTORY': '/nowhere'}, 'SUPABASE_URL'),
    ],
)
def test_a_missing_or_wrong_variable_is_named(
    tmp_path: Path, environment: dict[str, str], named: str
) -> None:
    with pytest.raises(SettingsError, match=named):
        read_project(environment, tmp_path)


def test_keys_are_left_out_of_the_repr(tmp_path: Path) -> None:
    environment = {
        'SUPABASE_URL': URL,
        'SUPABASE_ANON_KEY': 'the-key',
        'SUPABASE_WORKER_TOKEN': 'the-token',
    }
    shown = repr(read_project(environment, tmp_path))

    assert 'the-key' not in shown
    assert 'the-token' not in shown


def test_a_password_in_a_wrong_url_is_not_repeated(tmp_path: Path) -> None:
    for url in ('postgresql://postgres:hunter2@db.ref.supabase.co', 'https://a:hunter2@b.example'):
        with pytest.raises(SettingsError) as refused:
            read_project({'SUPABASE_URL': url}, tmp_path)
        assert 'hunter2' not in str(refused.value)
