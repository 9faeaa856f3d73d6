"""`silkline crawl --json`: how a crawl ended, for scripts."""

import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.support.site import Answer, Site, page
from tests.support.stack import own_stack
from tests.support.user import User

ALLOW = ('--allow-network', '127.0.0.0/8')


@pytest.fixture(scope='module')
def user() -> Iterator[User]:
    with own_stack() as stack:
        yield User(stack.directory.parent)


def test_the_end_of_a_crawl_is_one_json_object(user: User) -> None:
    site = Site(
        {
            '/': page('/gone', '/hidden', '/here'),
            '/here': page(text='Another page of words.'),
            '/robots.txt': Answer('User-agent: *\nDisallow: /hidden', type='text/plain'),
        }
    )
    with site:
        done = user.run('crawl', site.url, *ALLOW, '--export', 'out', '--json')
    told = json.loads(done.stdout)

    assert done.stdout.count('\n') == 1
    assert (told['status'], told['pages_done'], told['pages_failed']) == ('completed', 2, 1)
    assert told['failed'] == {'HTTP 404': 1}
    assert told['skipped'] == {'robots': 1}
    assert told['failures'] == [
        {'url': f'{site.url}/gone', 'http_status': 404, 'error': 'HTTP 404 Not Found'}
    ]
    assert told['export'] == str(user.directory / 'out')
    assert told['project_url'] in done.stderr
    [shown] = user.lines('show', told['job_id'], '--json')
    assert shown['status'] == 'completed'


def test_a_crawl_that_stored_nothing_tells_so_and_ends_with_4(user: User) -> None:
    with Site() as site:
        done = user.run('crawl', site.url, *ALLOW, '--json', code=4)
    told = json.loads(done.stdout)

    assert (told['status'], told['pages_done'], told['export']) == ('completed', 0, None)
    assert told['failed'] == {'HTTP 404': 1}


def test_an_interrupted_crawl_tells_what_it_has(user: User) -> None:
    with Site({'/': page('/a'), '/robots.txt': Answer(status=404)}) as site:
        # robots.txt and the start are answered, and nothing after them.
        site.answer_only(2)
        process = user.start('crawl', site.url, *ALLOW, '--json')
        assert process.stderr is not None
        assert any(line.startswith('processing  1 done') for line in process.stderr)
        os.kill(process.pid, signal.SIGINT)
        output = process.communicate(timeout=60)[0]

    assert process.returncode == 130
    assert json.loads(output)['status'] == 'stopped'


def test_a_mistake_prints_no_data(user: User) -> None:
    assert user.run('crawl', 'htp://a.example/', '--json', code=2).stdout == ''
