"""`silkline pages`: the pages of a job as a table, as JSON lines, as files."""

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from examples.demo.demo_site import DemoSite
from tests.support.plugins import python_with_generated_site
from tests.support.site import Answer, Site, page
from tests.support.stack import own_stack
from tests.support.user import User

ALLOW = ('--allow-network', '127.0.0.0/8')
GENERATED = ('-o', 'fetcher=generated', '-o', 'obey_robots=false')
# Four levels of two children each; the third level is too deep, every fourth page fails.
SITE = 'https://site.example/?pages=15&links=2&fail=4'
STORED = {0, 1, 2, 3, 5, 6}
FAILED = {4}
TOO_DEEP = {7, 8, 11, 12, 13, 14}


@pytest.fixture(scope='module')
def user() -> Iterator[User]:
    with own_stack() as stack:
        yield User(stack.directory.parent, python=python_with_generated_site())


@pytest.fixture(scope='module')
def job(user: User) -> str:
    return crawl(user, SITE, '--max-depth', '2')


def crawl(user: User, *words: str) -> str:
    job = user.run('enqueue', *words, *GENERATED).stdout.strip()
    user.run('worker', '--burst')
    return job


def pages_in(text: str) -> set[int]:
    """The pages of the generated site whose URLs are in a text."""
    urls = [word for word in text.split() if word.startswith('https://site.example/')]
    return {
        int(url.removeprefix('https://site.example/p/').partition('?')[0] or 0)
        for url in (url.replace('site.example/?', 'site.example/p/0?') for url in urls)
    }


def test_stored_pages_are_listed_with_their_changes_and_titles(user: User, job: str) -> None:
    done = user.run('pages', job)
    [head, *rows] = done.stdout.splitlines()

    assert head.split() == ['change', 'http', 'title', 'url']
    assert pages_in(done.stdout) == STORED
    assert ['new', '200', 'Page', '3', 'https://site.example/p/3?pages=15&links=2&fail=4'] in [
        row.split() for row in rows
    ]
    assert f'6 stored, 1 failed (silkline pages {job} --failed)' in done.stderr
    assert f'6 skipped (silkline pages {job} --skipped)' in done.stderr


def test_the_newest_job_is_the_default(user: User, job: str) -> None:
    done = user.run('pages')

    assert pages_in(done.stdout) == STORED
    assert '6 stored, 1 failed (silkline pages --failed)' in done.stderr


def test_titles_are_escaped_where_output_must_be_ascii(user: User) -> None:
    with DemoSite() as site:
        user.run('crawl', f'{site.url}/ja/', '-o', 'strategy=page', *ALLOW)
    listed = user.run('pages', PYTHONIOENCODING='ascii').stdout

    assert '\\u6f6e\\u4f4d' in listed


def test_failed_urls_are_listed_with_their_errors(user: User, job: str) -> None:
    listed = user.run('pages', job, '--failed').stdout

    assert pages_in(listed) == FAILED
    assert 'HTTP 404' in listed


def test_skipped_urls_are_listed_with_their_reasons(user: User, job: str) -> None:
    listed = user.run('pages', job, '--skipped').stdout

    assert pages_in(listed) == TOO_DEEP
    assert listed.count('too_deep: more than max_depth links from the start') == len(TOO_DEEP)


def test_json_lines_include_text_and_links(user: User, job: str) -> None:
    rows = user.lines('pages', job, '--jsonl')
    [third] = [row for row in rows if '/p/3?' in row['url']]

    assert len(rows) == len(STORED)
    assert user.lines('pages', job, '--json') == rows
    assert third['title'] == 'Page 3'
    assert third['markdown'].startswith('Page 3 of ')
    assert len(third['links']) == 3
    assert third['change'] == 'new'
    assert [row['last_error'] for row in user.lines('pages', job, '--failed', '--jsonl')] == [
        'HTTP 404 Not Found'
    ]


def test_all_pages_are_printed_when_they_take_several_requests(user: User) -> None:
    job = crawl(user, 'https://many.example/?pages=130&links=20&bytes=100000')

    assert len({row['url_key'] for row in user.lines('pages', job, '--jsonl')}) == 130


def test_pages_are_exported_as_markdown_with_front_matter(
    user: User, job: str, directory: Path
) -> None:
    done = user.run('pages', job, '--export', str(directory / 'out'))
    names = {path.relative_to(directory / 'out').as_posix() for path in directory.rglob('*.md')}
    query = 'pages=15&links=2&fail=4'

    assert names == {
        f'p/{number}_{query}.md' if number else f'index_{query}.md' for number in STORED
    }
    lines = (directory / f'out/p/3_{query}.md').read_text().splitlines()
    assert lines[:3] == ['---', f'url: "https://site.example/p/3?{query}"', 'title: "Page 3"']
    assert 'http_status: 200' in lines
    assert 'extractor: "silkline"' in lines
    assert lines[-1].startswith('Page 3 of ')
    assert done.stderr.endswith('6 new\n')


def test_exporting_again_changes_nothing(user: User, job: str, directory: Path) -> None:
    words = ('pages', job, '--export', str(directory / 'out'))
    user.run(*words)

    assert user.run(*words).stderr.endswith('6 unchanged\n')


def test_a_crawl_of_the_same_site_updates_an_export(user: User, job: str, directory: Path) -> None:
    target = str(directory / 'out')
    user.run('pages', job, '--export', target)
    later = crawl(user, SITE, '--max-depth', '1')
    done = user.run('pages', later, '--export', target)

    assert done.stderr.endswith('3 unchanged, 3 removed\n')


def test_a_job_that_did_not_see_all_pages_removes_no_file(
    user: User, job: str, directory: Path
) -> None:
    target = str(directory / 'out')
    user.run('pages', job, '--export', target)
    cut = crawl(user, SITE, '--max-pages', '2')
    cancelled = user.run('enqueue', SITE).stdout.strip()
    user.run('cancel', cancelled)

    done = user.run('pages', cut, '--export', target)
    assert done.stderr.endswith('2 unchanged, 4 kept: not seen by this crawl\n')
    done = user.run('pages', cancelled, '--export', target)
    assert done.stderr.endswith(': 6 kept: not seen by this crawl\n')


@pytest.mark.parametrize('name', ['notes.txt', '.hidden'])
def test_a_directory_with_other_files_is_refused(
    user: User, job: str, directory: Path, name: str
) -> None:
    (directory / name).write_text('mine')
    done = user.run('pages', job, '--export', str(directory), code=2)

    assert 'contains other files' in done.stderr
    assert str(directory / 'pages') in done.stderr
    assert os.listdir(directory) == [name]


@pytest.mark.parametrize(
    ('words', 'code', 'message'),
    [
        (['--failed', '--skipped'], 2, 'choose one'),
        (['--warnings', '--skipped'], 2, 'choose one'),
        (['--failed', '--export', 'x'], 2, '--export writes all stored pages'),
        (['--warnings', '--export', 'x'], 2, '--export writes all stored pages'),
        ([str(UUID(int=0))], 1, str(UUID(int=0))),
        (['nonsense'], 2, "'nonsense' is not a job id"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    user: User, job: str, words: list[str], code: int, message: str
) -> None:
    assert message in user.run('pages', *words, code=code).stderr


def test_pages_with_warnings_are_counted_and_listed_with_the_reason(user: User) -> None:
    text = Answer('word ' * 1000, type='text/plain')
    with Site({'/': page('/long.txt'), '/long.txt': text}) as site:
        crawled = user.run('crawl', site.url, '-o', 'max_markdown_chars=1000', *ALLOW)
    listed = user.run('pages')
    warned = user.run('pages', '--warnings')
    [row] = user.lines('pages', '--warnings', '--jsonl')

    assert '  warnings 1 page: 1 cut' in crawled.stdout.splitlines()
    assert ' --warnings' in crawled.stdout
    assert listed.stdout.splitlines()[0].split() == ['change', 'http', 'title', 'url', 'warnings']
    assert [line.endswith(' cut') for line in listed.stdout.splitlines()[1:]] == [False, True]
    assert '1 with warnings (silkline pages --warnings)' in listed.stderr
    [head, line] = warned.stdout.splitlines()
    assert head.split() == ['url', 'kept', 'warning']
    assert line.startswith(f'{site.url}/long.txt ')
    assert '20 %' in line
    assert line.endswith('cut: longer than max_markdown_chars, its end is missing')
    assert (row['url'], row['quality']['warnings']) == (f'{site.url}/long.txt', ['cut'])


def test_a_job_without_pages_is_reported_with_its_status(user: User) -> None:
    job = user.run('enqueue', 'https://waiting.example/').stdout.strip()
    done = user.run('pages', job)
    user.run('cancel', job)

    assert done.stdout == ''
    assert '0 stored, the job is pending' in done.stderr
