"""Copies that name another page as canonical are dropped only if that page is stored."""

import asyncio
import os
import signal
import threading

import pytest
from aiohttp import web

from tests.support.crawls import crawl, ends, enqueue, pages, robots
from tests.support.site import NOT_FOUND, Answer, Site, page, redirect
from tests.support.worker import Queue, WorkerProcess


def copy(canonical: str, *links: str, title: str = 'Page') -> Answer:
    anchors = ''.join(f'<a href="{link}">{link}</a>' for link in links)
    return Answer(
        f'<link rel="canonical" href="{canonical}"><title>{title}</title><p>Words.</p>{anchors}'
    )


def test_a_copy_is_dropped_whether_it_or_its_original_is_fetched_first(queue: Queue) -> None:
    site_pages = {
        '/': page('/shop/shirt', '/shirt?colour=red', '/old'),
        '/shop/shirt': copy('/shirt', '/x'),
        '/shirt?colour=red': copy('/shirt', '/shirt?colour=blue'),
        '/shirt?colour=blue': copy('shirt'),
        '/shirt': copy('/shirt'),
        '/old': copy('/shop/shirt'),
        '/x': page(),
    }
    with Site(site_pages) as site:
        job = crawl(queue, site)
        assert ends(queue, job, site) == {
            '/': 'done',
            '/shop/shirt': 'canonical',
            '/shirt?colour=red': 'canonical',
            '/shirt?colour=blue': 'canonical',
            '/shirt': 'done',
            '/x': 'done',
            # Its original names another one in turn: that is not followed.
            '/old': 'done',
        }
        assert {path for path, times in site.request_counts().items() if times > 1} <= {'/old'}


@pytest.mark.parametrize(
    'original',
    [
        NOT_FOUND,
        Answer(status=500),
        Answer(b'\x89PNG', type='image/png'),
        Answer('<meta name="robots" content="noindex"><title>Page</title>'),
        redirect('/copy'),
        redirect('/another'),
        page(title='Another page'),
    ],
    ids=[
        'gone',
        'failing',
        'an image',
        'noindex',
        'redirects back',
        'redirects to another page',
        'another page',
    ],
)
def test_a_copy_is_kept_if_its_original_cannot_replace_it(queue: Queue, original: Answer) -> None:
    site_pages = {
        '/': page('/copy', title='Home'),
        '/copy': copy('/original', '/late'),
        '/original': original,
        '/late': copy('/original'),
        '/another': page('/copy', title='Another'),
    }
    with Site(site_pages) as site:
        job = crawl(queue, site)
        stored = pages(queue, job, site)
        assert {'/', '/copy', '/late'} <= stored.keys()
        assert stored['/copy']['metadata']['canonical'] == f'{site.url}/original'
        assert site.request_counts()['/copy'] <= 2
        progress = queue.progress(job)
        assert progress['pages_done'] == len(stored)


def test_a_copy_is_kept_at_once_if_its_original_may_not_be_fetched(queue: Queue) -> None:
    site_pages = {
        '/': page('/a', '/b', '/c', '/d', '/e'),
        '/a': copy('/private/a'),
        '/b': copy('/excluded/b'),
        '/c': copy('https://another.example/c'),
        '/d': copy('/'),
        '/robots.txt': robots('Disallow: /private/'),
    }
    with Site(site_pages) as site:
        site.pages['/e'] = copy(site.url.replace('http://', 'https://') + '/e')
        job = crawl(queue, site, exclude=['/excluded/'])
        assert dict.fromkeys(['/', '/a', '/b', '/c', '/d', '/e'], 'done') == ends(queue, job, site)
        assert max(site.request_counts().values()) == 1


def test_pages_that_all_name_one_page_as_canonical_by_mistake_are_all_kept(queue: Queue) -> None:
    paths = [f'/en/{number}' for number in range(30)]
    with Site({'/': page('/en/', title='Start')}) as site:
        site.pages['/en/'] = copy('/en/', *paths, title='Home')
        for path in paths:
            site.pages[path] = copy('/en/', title=f'About {path}')
        job = crawl(queue, site)
        assert pages(queue, job, site).keys() == {'/', '/en/', *paths}


def test_pages_that_name_each_other_are_not_all_dropped(queue: Queue) -> None:
    site_pages = {
        '/': page('/a', '/b', '/1'),
        '/a': copy('/b'),
        '/b': copy('/a'),
        '/1': copy('/2'),
        '/2': copy('/3'),
        '/3': copy('/1'),
    }
    with Site(site_pages) as site:
        job = crawl(queue, site)
        stored = pages(queue, job, site).keys()
        assert stored & {'/a', '/b'}
        assert stored & {'/1', '/2', '/3'}
        assert max(site.request_counts().values()) <= 2


def test_listed_urls_are_stored_even_if_they_name_another_page_as_canonical(queue: Queue) -> None:
    with Site({'/copy': copy('/real'), '/real': page(), '/robots.txt': robots()}) as site:
        site.pages['/sitemap.xml'] = Answer(
            f'<urlset><url><loc>{site.url}/copy</loc></url></urlset>', type='text/xml'
        )
        for options in (
            {'strategy': 'page'},
            {'strategy': 'list', 'urls': [f'{site.url}/copy']},
            {'strategy': 'sitemap'},
        ):
            job = crawl(queue, site, '/copy', **options)
            assert pages(queue, job, site).keys() == {'/copy'}


@pytest.mark.parametrize('is_there', [True, False])
def test_copies_and_missing_originals_cost_nothing_of_the_page_budget(
    queue: Queue, is_there: bool
) -> None:
    with Site({'/': page(*(f'/copy/{number}' for number in range(30)))}) as site:
        for number in range(30):
            site.pages[f'/copy/{number}'] = copy(f'/original/{number}')
            site.pages[f'/original/{number}'] = page() if is_there else NOT_FOUND
        job = crawl(queue, site, max_pages=6)
        stored = pages(queue, job, site)
        assert len(stored) == 6
        assert any(path.startswith('/original' if is_there else '/copy') for path in stored)


def test_a_copy_is_kept_even_if_its_process_dies_before_its_original_fails(
    queue: Queue, worker: WorkerProcess
) -> None:
    queue.stack.execute('update crawl_settings set backoff_base_seconds = 1', [])
    reached, may_go_on = threading.Event(), threading.Event()

    async def answer(request: web.Request) -> Answer:
        if request.path == '/original':
            reached.set()
            await asyncio.to_thread(may_go_on.wait, 30)
            return NOT_FOUND
        return {'/': page('/copy', '/other'), '/copy': copy('/original')}.get(request.path, page())

    with Site({'/robots.txt': robots()}, answer=answer) as site:
        before = worker.runners()
        job = enqueue(queue, site, concurrency=1)
        assert reached.wait(30)
        [runner] = worker.runners() - before
        os.kill(runner, signal.SIGKILL)
        may_go_on.set()
        queue.wait_for('completed', job)
        assert pages(queue, job, site).keys() == {'/', '/copy', '/other'}
        row = queue.job(job)
        assert row['attempt'] == 2
        assert row['result'] == {'done': 3, 'error': 1, 'skipped': 0}


def test_a_recrawl_drops_a_copy_once_its_original_is_there(queue: Queue) -> None:
    site_pages = {'/': page('/copy', title='Home'), '/copy': copy('/original')}

    async def answer(request: web.Request) -> Answer:
        known = site_pages.get(request.path, NOT_FOUND)
        # Like a file server: a page that was seen has not changed.
        if 'If-None-Match' in request.headers:
            return Answer(status=304)
        return Answer(known.body, status=known.status, headers={'ETag': '"1"'})

    with Site(answer=answer) as site:
        kept = crawl(queue, site, source_id='copies')
        assert pages(queue, kept, site).keys() == {'/', '/copy'}

        site_pages['/original'] = page(title='Page')
        again = crawl(queue, site, source_id='copies')
        assert ends(queue, again, site) == {'/': 'done', '/copy': 'canonical', '/original': 'done'}
        assert queue.progress(again)['pages_unchanged'] == 1
