"""`silkline crawl --json`: one object about a crawl that ended."""

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


def test_a_crawl_prints_one_json_object_at_its_end(user: User) -> None:
    site = Site(
        {
            '/': page('/gone', '/hidden', '/here'),
            '/here': page(text='Another page of words.'),
            '/robots.txt': Answer('User-agent: *\nDisallow: /hidden', type='text/plain'),
        }
    )
    with site:
        done = user.run('crawl', site.url, *ALLOW, '--export', 'out', '--json')
    summary = json.loads(done.stdout)

    assert done.stdout.count('\n') == 1
    assert (summary['status'], summary['pages_done'], summary['pages_failed']) == (
        'completed',
        2,
        1,
    )
    assert summary['failed'] == {'HTTP 404': 1}
    assert summary['skipped'] == {'robots': 1}
    assert summary['failures'] == [
        {'url': f'{site.url}/gone', 'http_status': 404, 'error': 'HTTP 404 Not Found'}
    ]
    assert summary['export'] == str(user.directory / 'out')
    assert summary['project_url'] in done.stderr
    [shown] = user.lines('show', summary['job_id'], '--json')
    assert shown['status'] == 'completed'


def test_a_crawl_that_stored_nothing_prints_its_object_and_exits_with_4(user: User) -> None:
    with Site() as site:
        done = user.run('crawl', site.url, *ALLOW, '--json', code=4)
    summary = json.loads(done.stdout)

    assert (summary['status'], summary['pages_done'], summary['export']) == ('completed', 0, None)
    assert summary['failed'] == {'HTTP 404': 1}


def test_an_interrupted_crawl_prints_its_object(user: User) -> None:
    with Site({'/': page('/a'), '/robots.txt': Answer(status=404)}) as site:
        # Only robots.txt and the start URL are answered.
        site.answer_only(2)
        process = user.start('crawl', site.url, *ALLOW, '--json')
        assert process.stderr is not None
        assert any(line.startswith('processing  1 done') for line in process.stderr)
        os.kill(process.pid, signal.SIGINT)
        output = process.communicate(timeout=60)[0]

    assert process.returncode == 130
    assert json.loads(output)['status'] == 'stopped'


def test_a_mistake_in_the_command_prints_nothing_on_stdout(user: User) -> None:
    assert user.run('crawl', 'htp://a.example/', '--json', code=2).stdout == ''
