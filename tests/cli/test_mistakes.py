"""Mistakes that are told at once, with what was meant."""

from pathlib import Path

import pytest
from silkline_local.directory import PASSWORD, StackDirectory

from tests.cli.test_advice import NOBODY
from tests.support.user import User


@pytest.mark.parametrize('port', ['91011', '0', 'http'])
@pytest.mark.parametrize('command', ['crawl', 'enqueue'])
def test_a_port_that_there_is_not_starts_nothing(tmp_path: Path, command: str, port: str) -> None:
    url = f'http://127.0.0.1:{port}/'
    said = User(tmp_path, **NOBODY).run(command, url, code=2).stderr

    assert said.startswith(f'silkline: {url!r} is no address of a site: ')
    assert 'a port is from 1 to 65535' in said
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_told_before_the_crawl(tmp_path: Path) -> None:
    words = ('crawl', 'https://a.example/', '--export', '/proc/x/y')
    said = User(tmp_path).run(*words, code=2).stderr

    assert said.startswith('silkline: /proc')
    assert said.endswith(': name another directory\n')
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_stays_empty_is_not_left(tmp_path: Path) -> None:
    (tmp_path / 'mine').mkdir()
    # The key is missing, which ends the command.
    user = User(tmp_path, SUPABASE_URL='http://127.0.0.1:9')
    for directory in ('out/pages', 'mine', 'mine/pages'):
        user.run('crawl', 'https://a.example/', '--export', directory, code=2)

    assert [path.name for path in tmp_path.iterdir()] == ['mine']
    assert list((tmp_path / 'mine').iterdir()) == []


@pytest.mark.parametrize('typed', ['tomorrow', '18:00', '2026-13-01', ''])
def test_what_is_no_time_is_told_with_some_that_are(tmp_path: Path, typed: str) -> None:
    words = ('enqueue', 'https://a.example/', '--run-after', typed)
    said = User(tmp_path, **NOBODY).run(*words, code=2).stderr

    assert said == (
        f'silkline: --run-after {typed!r} is no time: it is written like 2026-12-24,'
        ' 2026-12-24T18:00 (here) or 2026-12-24T18:00Z\n'
    )


@pytest.mark.parametrize(
    ('typed', 'said'),
    [
        ('2b829', "'2b829' is too short: give six or more characters of a job's id"),
        ('nonsense', "'nonsense' is no id of a job"),
        ('a' * 40, f"'{'a' * 40}' is no id of a job"),
    ],
)
def test_what_names_no_job_is_told_with_where_the_ids_are(
    tmp_path: Path, typed: str, said: str
) -> None:
    told = User(tmp_path, **NOBODY).run('show', typed, code=2).stderr

    assert told == f'silkline: {said}; silkline jobs lists them\n'


def test_a_question_that_nobody_can_answer_removes_nothing(tmp_path: Path) -> None:
    place = StackDirectory(tmp_path / '.silkline')
    place.make()
    place.postgres_path.mkdir()
    (place.postgres_path / PASSWORD).touch()
    said = User(tmp_path).run('reset', code=1).stderr

    assert said.endswith('\nsilkline: nothing was removed; --yes answers the question\n')
    assert place.has_database
