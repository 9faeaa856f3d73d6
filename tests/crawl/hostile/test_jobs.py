"""Malicious sites crawled by `silkline worker` on a stack.

Whatever bytes a site sends, the stored text is valid in Postgres, the job completes, and a page
that kills its process is found and skipped.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.hostile import (
    GOOD,
    MEGABYTE,
    Case,
    End,
    HostileSite,
    Page,
    Pages,
    failed,
    html_page,
    peak_bytes_of,
    redirect,
    serve,
    skipped,
    web,
)
from tests.support.raw_site import answer
from tests.support.stack import StackProcess, own_stack
from tests.support.waiting import wait_until
from tests.support.worker import Queue, WorkerProcess

pytestmark = pytest.mark.skipif(sys.platform != 'linux', reason='reads /proc')


@pytest.fixture(scope='module')
def stack() -> Iterator[StackProcess]:
    with own_stack() as stack:
        yield stack


@pytest.fixture
def queue(stack: StackProcess) -> Iterator[Queue]:
    queue = Queue(stack)
    stack.execute('update crawl_settings set backoff_base_seconds = 1, backoff_cap_seconds = 1', [])
    yield queue
    queue.clear()
    queue.close()


@contextmanager
def served(
    pages: Pages, *, on_request: Callable[[str], None] | None = None
) -> Generator[HostileSite]:
    """Serve in a thread while a test waits for the database."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    context = serve(pages, on_request=on_request)
    try:
        yield asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result(60)
    finally:
        asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def crawl(
    queue: Queue,
    directory: Path,
    payload: dict[str, Any],
) -> str:
    """Run one job to its end, with a worker whose only internal address is 127.0.0.1."""
    options = {'retry_seconds': 0, 'tries': 2, 'timeout_seconds': 20, **payload}
    job = queue.stack.rpc('enqueue_crawl_job', p_payload=options)[0]['id']
    peak_bytes = 0

    def is_completed() -> bool:
        nonlocal peak_bytes
        peak_bytes = max(peak_bytes, *map(peak_bytes_of, worker.runners()), 0)
        return queue.status(job) == 'completed'

    with WorkerProcess(queue.stack, directory, '--allow-network', '127.0.0.1/32') as worker:
        wait_until(is_completed, seconds=100, what=f'the end of {job}')
        assert not worker.has_ended
    assert peak_bytes < 300 * MEGABYTE
    return job


def tasks(queue: Queue, job: str) -> dict[str, dict[str, Any]]:
    rows = queue.rows(
        'select url, status::text, skip_reason::text, http_status, last_error, crashes'
        ' from silkline.tasks where job_id = %s',
        [job],
    )
    return {row['url']: row for row in rows}


def assert_good(queue: Queue, job: str, site: HostileSite) -> None:
    rows = queue.rows('select url, title from crawl_pages where job_id = %s and is_latest', [job])
    titles = {row['url']: row['title'] for row in rows}
    for path in GOOD:
        assert titles[f'{site.url}{path}'] == f'Good {path}'


# Bytes that are not text

WORDS = 'Grüße, 世界 and שלום: a sentence with enough words to be the main content of a page.'
MARKS = '\u202e\u200f\u2066\ufeff\u0000\ufffe\U0010ffff'


def in_html(words: str) -> str:
    return f'<!doctype html><title>{words[:20]}</title><main><h1>Title</h1><p>{words}</p></main>'


def charset_page(charset: str, *, declared: str | None = None) -> bytes:
    body = in_html(WORDS).encode(charset, 'xmlcharrefreplace')
    return web(body, type=f'text/html; charset={declared or charset}')


BYTES: dict[str, Page] = {
    '/utf-16': web(in_html(WORDS).encode('utf-16'), type='text/html'),
    '/utf-16 without a mark': web(in_html(WORDS).encode('utf-16-le'), type='text/html'),
    '/utf-16 that is utf-8': charset_page('utf-8', declared='utf-16'),
    '/utf-32': web(in_html(WORDS).encode('utf-32'), type='text/html'),
    '/utf-7': web(in_html(WORDS).encode('utf-7'), type='text/html; charset=utf-7'),
    '/utf-8 that is latin-1': charset_page('latin-1', declared='utf-8'),
    '/latin-1 that is utf-8': charset_page('utf-8', declared='latin-1'),
    '/shift_jis that is utf-8': charset_page('utf-8', declared='shift_jis'),
    '/no such charset': charset_page('utf-8', declared='klingon'),
    '/charset of noise': charset_page('utf-8', declared='"\x01<>;;='),
    '/noise': web(bytes(range(256)) * 400, type='text/html'),
    '/noise as text': web(bytes(range(256)) * 400, type='text/plain; charset=utf-8'),
    '/noise as utf-16': web(bytes(range(256)) * 400, type='text/plain; charset=utf-16'),
    '/zeros': web(b'<title>a\0b</title><main><p>' + b'zero \0 ' * 500, type='text/html'),
    '/surrogates': web(
        b'<title>&#xD800;</title><main><p>&#xDFFF;&#0;&#x110000; \xed\xa0\x80\xed\xb0\x80 words'
        b'<a href="/\xed\xa0\x80">&#xD83D;&#xDE00;</a>'
    ),
    '/marks': web(in_html(MARKS * 50 + WORDS).encode('utf-8', 'replace')),
    '/escapes': web(rb'<title>\u0000 \ud800</title><main><p>' + rb'\u0000 \x00 \ud800 ' * 99),
    '/facts': web(
        b'<html lang="\0\xff"><title>t</title><meta name=description content="\0&#xD800;">'
        b'<link rel=canonical href="http://127.0.0.1:1/\0"><main><h1>\0</h1><p>words'
    ),
    '/text of control characters': web(
        b'word ' * 300 + b'\x01\x02"\\' * 500_000, type='text/plain'
    ),
    '/words': web(b'<main><p>' + b'word ' * 1_900_000),
    '/headers': b'HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: "\xff\x80"\r\n'
    b'Last-Modified: \xffno\r\nX-Robots-Tag: \xff\r\nContent-Length: 36\r\n\r\n'
    b'<title>headers</title><main><p>words',
    '/long tag': web(b'<title>t</title><main><p>words', ETag=f'"{"e" * 9000}"'),
    '/no type': answer(b'<title>no type</title><main><p>words'),
}
OTHERS: dict[str, Page] = {
    '/type-of-noise': b'HTTP/1.1 200 OK\r\nContent-Type: \xff\xfe;;=,\r\n'
    b'Content-Length: 5\r\n\r\nhello',
    '/two-types': b'HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Type: image/png\r\n'
    b'Content-Length: 5\r\n\r\nhello',
    # No errors: the responses are valid, but empty.
    '/204': answer(status='204 No Content'),
    '/205': answer(status='205 Reset Content'),
    '/206': web(b'<title>part</title><main><p>part of it').replace(b'200 OK', b'206 Partial'),
    '/226': web(b'<title>delta</title><main><p>a delta').replace(b'200 OK', b'226 IM Used'),
    '/interim': b'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nX: y\r\n\r\n'
    + web(b'<title>after</title><main><p>after'),
    '/402': answer(b'pay', status='402 Payment Required'),
    '/416': answer(status='416 Range Not Satisfiable'),
    '/418': b'HTTP/1.1 418 \xff\xfe\r\nContent-Length: 2\r\n\r\n\xff\0',
    '/599': answer(b'x', status='599 Nonsense'),
    '/999': answer(b'x', status='999 No'),
}
NOT_DONE: Mapping[str, End] = {
    '/noise%20as%20text': skipped('content_type', 200),
    '/type-of-noise': skipped('content_type', 200),
    '/204': skipped('content_type', 204),
    '/205': skipped('content_type', 205),
    '/402': failed('HTTP 402 Payment Required', 402),
    '/416': failed('HTTP 416', 416),
    '/418': failed('HTTP 418', 418),
    '/599': failed('HTTP 599', 599),
    '/999': failed('HTTP 999', 999),
}


def quoted(path: str) -> str:
    return path.replace(' ', '%20')


def test_bytes_that_are_not_text_are_stored_as_valid_text(queue: Queue, directory: Path) -> None:
    pages = {quoted(path): page for path, page in (BYTES | OTHERS).items()}
    case = Case('bytes', pages, {}, links=list(pages))
    with served(case.page) as site:
        first = crawl(queue, directory, {'url': f'{site.url}/'})
        assert_good(queue, first, site)
        # The second crawl sends the stored validators.
        second = crawl(queue, directory, {'url': f'{site.url}/'})
    for job in (first, second):
        ended = tasks(queue, job)
        for path in pages:
            task, end = ended[f'{site.url}{path}'], NOT_DONE.get(path, End())
            assert (task['status'], task['skip_reason']) == (end.status, end.skip_reason), task
            assert end.http_status in (None, task['http_status']), task
            assert (end.error or '') in (task['last_error'] or ''), task
    progress = queue.progress(second)
    assert (progress['pages_new'], progress['pages_changed']) == (0, 0), progress


def test_text_survives_a_wrong_charset_where_possible(queue: Queue, directory: Path) -> None:
    paths = ['/utf-16', '/no such charset', '/charset of noise', '/marks']
    pages = {quoted(path): BYTES[path] for path in paths}
    case = Case('words', pages, {}, links=list(pages))
    with served(case.page) as site:
        job = crawl(queue, directory, {'url': f'{site.url}/'})
    rows = queue.rows('select url, markdown from crawl_pages where job_id = %s', [job])
    markdown = {row['url'].removeprefix(site.url): row['markdown'] for row in rows}
    for path in pages:
        assert WORDS[7:] in markdown[path], path


# Pages that kill their process


def test_a_page_that_kills_its_process_twice_is_skipped_and_the_job_completes(
    queue: Queue, directory: Path
) -> None:
    case = Case('poison', {'/poison': html_page(title='Poison')}, {}, links=['/poison'])
    killed: list[int] = []
    workers: list[WorkerProcess] = []

    def kill_the_runner(path: str) -> None:
        if path == '/poison':
            for runner in workers[0].runners():
                killed.append(runner)
                os.kill(runner, signal.SIGKILL)

    with served(case.page, on_request=kill_the_runner) as site:
        payload = {'url': f'{site.url}/', 'concurrency': 2}
        with WorkerProcess(queue.stack, directory, '--allow-network', '127.0.0.1/32') as worker:
            workers.append(worker)
            job = queue.stack.rpc('enqueue_crawl_job', p_payload=payload)[0]['id']
            queue.wait_for('completed', job)
            assert not worker.has_ended
    assert_good(queue, job, site)
    assert site.requests['/poison'] == len(killed) == 2
    poison = tasks(queue, job)[f'{site.url}/poison']
    assert poison['status'] == 'error'
    assert poison['last_error'].startswith('poison: ')
    progress = queue.progress(job)
    assert (progress['pages_done'], progress['pages_failed']) == (11, 1)


# Lists


def test_a_list_of_urls_that_all_redirect_to_forbidden_addresses_completes(
    queue: Queue, directory: Path
) -> None:
    """More redirected starts than fit into one checkpoint."""

    def pages(path: str) -> Page | None:
        number = path[3:]
        return (
            redirect(f'http://10.0.{int(number) // 250}.{int(number) % 250}/')
            if number.isdigit()
            else None
        )

    with served(pages) as site:
        urls = [f'{site.url}/r/{number}' for number in range(400)]
        job = crawl(queue, directory, {'urls': urls, 'strategy': 'list'})
    ended = tasks(queue, job)
    assert {ended[url]['skip_reason'] for url in urls} == {'redirect'}
    targets = [task for url, task in ended.items() if url.startswith('http://10.')]
    assert len(targets) == 400
    assert {task['skip_reason'] for task in targets} == {'forbidden_address'}


def test_a_site_where_every_page_fails_completes_with_an_error_for_each(
    queue: Queue, directory: Path
) -> None:
    def pages(path: str) -> Page | None:
        if path in ('/', '/robots.txt'):
            return (
                html_page(*(f'/broken/{number}' for number in range(30))) if path == '/' else None
            )
        return answer(b'oops', status='500 Internal Server Error')

    with served(pages) as site:
        job = crawl(queue, directory, {'url': f'{site.url}/', 'retry_seconds': 0})
    ended = tasks(queue, job)
    broken = [task for url, task in ended.items() if '/broken/' in url]
    assert len(broken) == 30
    assert {(task['status'], task['last_error']) for task in broken} == {
        ('error', 'HTTP 500 Internal Server Error')
    }
    assert queue.progress(job)['pages_failed'] == 30
