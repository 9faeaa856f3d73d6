"""What people type: URLs, ports, times, networks, ids, directories; mistakes start nothing."""

from pathlib import Path

import pytest

from silkline.cli.arguments import LIST_OPTIONS, add_scheme, read_options, use_ascii_hosts
from tests.support.servers import ROOT
from tests.support.user import User

# Nothing listens there: a command that reached the network would exit with 3.
UNREACHABLE = {'SUPABASE_URL': 'http://127.0.0.1:9', 'SUPABASE_SECRET_KEY': 'x'}


@pytest.mark.parametrize(
    ('typed', 'url'),
    [
        ('docs.example.com', 'https://docs.example.com'),
        ('docs.example.com/a?b=c', 'https://docs.example.com/a?b=c'),
        ('localhost:8000', 'http://localhost:8000'),
        ('192.168.1.20', 'http://192.168.1.20'),
        ('bücher.example', 'https://bücher.example'),
        ('https://a.example/', 'https://a.example/'),
        ('ftp://a.example/', 'ftp://a.example/'),
        ('javascript:alert(1)', 'javascript:alert(1)'),
        ('mailto:a@b.example', 'mailto:a@b.example'),
    ],
)
def test_a_host_without_a_scheme_gets_one(typed: str, url: str) -> None:
    assert add_scheme(typed) == url


def test_every_url_of_a_job_is_sent_with_its_host_in_ascii() -> None:
    assert use_ascii_hosts(
        {
            'url': 'https://bücher.example/ü',
            'urls': ['https://EXAMPLE.com:443/', 7],
            'scope': 'host',
        }
    ) == {
        'url': 'https://xn--bcher-kva.example/ü',
        'urls': ['https://example.com/', 7],
        'scope': 'host',
    }
    assert use_ascii_hosts({'url': 7, 'urls': 'all'}) == {'url': 7, 'urls': 'all'}


@pytest.mark.parametrize(
    ('words', 'options'),
    [
        (['include=a,b'], {'include': ['a', 'b']}),
        (['include=a', 'include=b,c'], {'include': ['a', 'b', 'c']}),
        (['exclude=/[0-9]{1,3}/'], {'exclude': ['/[0-9]{1,3}/']}),
        (['exclude=["a,b"]', 'exclude=2024'], {'exclude': ['a,b', '2024']}),
        (['max_pages=3', 'max_pages=4', 'user_agent=a,b'], {'max_pages': 4, 'user_agent': 'a,b'}),
    ],
)
def test_an_option_that_takes_a_list_may_be_repeated(
    words: list[str], options: dict[str, object]
) -> None:
    assert read_options(words) == options


def test_the_options_that_take_lists_are_those_of_the_queue() -> None:
    rows = (ROOT / 'docs/reference/options.md').read_text().splitlines()

    assert {row.split('`')[1] for row in rows if '| list of ' in row} == LIST_OPTIONS


@pytest.mark.parametrize('typed', ['http://', 'https:///path', 'not a url', 'htp://a.example/', ''])
def test_crawl_refuses_what_is_not_a_url_and_starts_nothing(tmp_path: Path, typed: str) -> None:
    message = User(tmp_path).run('crawl', typed, code=2).stderr

    assert message == (
        f'silkline: {typed!r} is not a URL: expected something like https://example.com\n'
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize('port', ['91011', '0', 'http'])
@pytest.mark.parametrize('command', ['crawl', 'enqueue'])
def test_an_invalid_port_is_refused_and_starts_nothing(
    tmp_path: Path, command: str, port: str
) -> None:
    url = f'http://127.0.0.1:{port}/'
    message = User(tmp_path, **UNREACHABLE).run(command, url, code=2).stderr

    assert message == (
        f'silkline: {url!r} is not a URL: its host or port is invalid'
        ' (a port is a number from 1 to 65535)\n'
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize('command', [['crawl', 'https://a.example/'], ['worker']])
def test_an_invalid_network_is_refused_with_a_valid_example(
    tmp_path: Path, command: list[str]
) -> None:
    user = User(tmp_path, **UNREACHABLE)
    message = user.run(*command, '--allow-network', 'lan', code=2).stderr

    assert message.startswith("silkline: --allow-network: 'lan' ")
    assert message.endswith('; expected something like 127.0.0.0/8\n')


@pytest.mark.parametrize('typed', ['tomorrow', '18:00', '2026-13-01', ''])
def test_an_invalid_time_is_refused_with_valid_examples(tmp_path: Path, typed: str) -> None:
    words = ('enqueue', 'https://a.example/', '--run-after', typed)
    message = User(tmp_path, **UNREACHABLE).run(*words, code=2).stderr

    assert message == (
        f'silkline: --run-after {typed!r} is not a time: expected something like 2026-12-24,'
        ' 2026-12-24T18:00 (local time) or 2026-12-24T18:00Z\n'
    )


@pytest.mark.parametrize(
    ('typed', 'reason'),
    [
        ('2b829', "'2b829' is too short: type six or more characters of the job's id"),
        ('nonsense', "'nonsense' is not a job id"),
        ('a' * 40, f"'{'a' * 40}' is not a job id"),
    ],
)
def test_an_invalid_job_id_is_refused_with_how_to_list_ids(
    tmp_path: Path, typed: str, reason: str
) -> None:
    message = User(tmp_path, **UNREACHABLE).run('show', typed, code=2).stderr

    assert message == f'silkline: {reason}; silkline jobs lists ids\n'


def test_an_export_directory_that_cannot_be_created_is_refused_before_the_crawl(
    tmp_path: Path,
) -> None:
    words = ('crawl', 'https://a.example/', '--export', '/proc/x/y')
    message = User(tmp_path).run(*words, code=2).stderr

    assert message.startswith('silkline: ')
    assert '/proc' in message
    assert message.endswith('choose another directory\n')
    assert list(tmp_path.iterdir()) == []


def test_an_export_directory_that_stays_empty_is_removed_again(tmp_path: Path) -> None:
    (tmp_path / 'mine').mkdir()
    # The key is missing, so the command fails after it created the directory.
    user = User(tmp_path, SUPABASE_URL='http://127.0.0.1:9')
    for directory in ('out/pages', 'mine', 'mine/pages'):
        user.run('crawl', 'https://a.example/', '--export', directory, code=2)

    assert [path.name for path in tmp_path.iterdir()] == ['mine']
    assert list((tmp_path / 'mine').iterdir()) == []
