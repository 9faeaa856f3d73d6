"""The crawl engine on real parts: a site on loopback, a stack, a worker, and what is stored."""

import asyncio
import gzip
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web

from tests.support.site import Answer, Site, page, redirect
from tests.support.stack import StackProcess, own_stack
from tests.support.waiting import wait_until
from tests.support.worker import Queue, WorkerProcess

LOOPBACK = ('--allow-network', '127.0.0.1/32', '--allow-network', '127.0.0.3/32')


@pytest.fixture(scope='module')
def stack() -> Iterator[StackProcess]:
    with own_stack() as stack:
        yield stack


@pytest.fixture(scope='module')
def worker(stack: StackProcess) -> Iterator[WorkerProcess]:
    with (
        TemporaryDirectory(prefix='silkline-') as state,
        WorkerProcess(stack, Path(state), '--slots', '4', *LOOPBACK) as worker,
    ):
        yield worker


@pytest.fixture
def queue(stack: StackProcess, worker: WorkerProcess) -> Iterator[Queue]:
    queue = Queue(stack)
    yield queue
    queue.clear()
    queue.close()


def crawl(queue: Queue, site: Site, path: str = '/', **options: Any) -> str:
    """Crawl a site to its end; answers the job. Failed pages are tried again soon."""
    job = enqueue(queue, site, path, **options)
    queue.wait_for('completed', job)
    return job


def enqueue(queue: Queue, site: Site, path: str = '/', **options: Any) -> str:
    source = options.pop('source_id', uuid4().hex)
    payload = {'url': site.url + path, 'retry_seconds': 0.05, **options}
    if 'urls' in options:
        del payload['url']
    return queue.stack.rpc('enqueue_crawl_job', p_payload=payload, p_source_id=source)[0]['id']


def ends(queue: Queue, job: str, site: Site) -> dict[str, str]:
    """How each URL ended: done, or its reason or error. URLs of the site by their path."""
    rows = queue.rows(
        'select url, status, skip_reason, last_error from crawl_tasks where job_id = %s', [job]
    )
    return {
        row['url'].removeprefix(site.url): row['skip_reason'] or row['last_error'] or row['status']
        for row in rows
    }


def pages(queue: Queue, job: str, site: Site) -> dict[str, dict[str, Any]]:
    rows = queue.rows(
        'select page.* from crawl_tasks as task join crawl_pages as page on page.id = task.page_id'
        ' where task.job_id = %s',
        [job],
    )
    return {row['url'].removeprefix(site.url): row for row in rows}


def robots(*lines: str) -> Answer:
    return Answer('\n'.join(['User-agent: *', *lines]), type='text/plain')


# A site, whole


def test_a_site_is_crawled_whole_and_every_url_ends_with_its_reason(queue: Queue) -> None:
    site_pages = {
        '/': page('/a', 'b?x=1#top', '/old', '/gone', '/private/x', '/logo.png', 'mailto:a@b.c'),
        '/a': page('/', '/deep/1', 'https://elsewhere.example/', text='Words of a.', title='A'),
        '/b?x=1': page('/a'),
        '/deep/1': page('/deep/2'),
        '/deep/2': page('/deep/3'),
        '/old': redirect('/new'),
        '/new': page(),
        '/logo.png': Answer(b'\x89PNG', type='image/png'),
        '/robots.txt': robots('Disallow: /private/'),
    }
    with Site(site_pages) as site:
        job = crawl(queue, site, max_depth=3)
        assert ends(queue, job, site) == {
            '/': 'done',
            '/a': 'done',
            '/b?x=1': 'done',
            '/deep/1': 'done',
            '/deep/2': 'done',
            '/deep/3': 'too_deep',
            '/old': 'redirect',
            '/new': 'done',
            '/gone': 'HTTP 404 Not Found',
            '/private/x': 'robots',
            '/logo.png': 'content_type',
            'https://elsewhere.example/': 'out_of_scope',
        }
        assert max(site.asked().values()) == 1
        assert '/private/x' not in site.asked()
        a = pages(queue, job, site)['/a']
        assert (a['title'], a['http_status'], a['version']) == ('A', 200, 1)
        assert 'Words of a.' in a['markdown']
        assert a['links'] == [f'{site.url}/', f'{site.url}/deep/1', 'https://elsewhere.example/']
        assert a['metadata']['language'] == 'en'
        assert a['metadata']['headings'] == [[1, 'A']]
        assert (a['extractor'], a['extractor_version']) != (None, None)
        told = queue.progress(job)
        assert (told['pages_done'], told['pages_failed'], told['pages_skipped']) == (6, 1, 5)


def test_the_budget_is_of_pages_and_not_of_redirects(queue: Queue) -> None:
    site_pages = {'/': redirect('/start'), '/start': page(*(f'/{n}' for n in range(50)))}
    for number in range(50):
        site_pages[f'/{number}'] = redirect(f'/to/{number}')
        site_pages[f'/to/{number}'] = page(text=f'Words {number}.')
    with Site(site_pages) as site:
        job = crawl(queue, site, max_pages=10)
        assert len(pages(queue, job, site)) == 10
        reasons = list(ends(queue, job, site).values())
        assert set(reasons) == {'done', 'redirect', 'budget'}


def test_a_start_that_leads_to_another_host_takes_its_scope_along_over_a_crash(
    queue: Queue, worker: WorkerProcess
) -> None:
    queue.stack.execute('update crawl_settings set backoff_base_seconds = 1', [])
    reached, may_go_on = threading.Event(), threading.Event()

    async def answer(request: web.Request) -> Answer:
        if request.path == '/b':
            reached.set()
            await asyncio.to_thread(may_go_on.wait, 30)
        return {'/': page('/a'), '/a': page('/b'), '/b': page('/c'), '/c': page()}[request.path]

    with (
        Site({'/robots.txt': robots()}, answer=answer, address='127.0.0.3') as other,
        Site({'/': redirect(f'{other.url}/')}) as site,
    ):
        before = worker.runners()
        job = enqueue(queue, site)
        assert reached.wait(30)
        [runner] = worker.runners() - before
        os.kill(runner, signal.SIGKILL)
        may_go_on.set()
        queue.wait_for('completed', job)
        assert ends(queue, job, other) == {
            f'{site.url}/': 'redirect',
            '/': 'done',
            '/a': 'done',
            '/b': 'done',
            '/c': 'done',
        }
        assert queue.job(job)['attempt'] == 2


def test_a_user_agent_is_sent_and_known_to_robots(queue: Queue) -> None:
    rules = Answer('User-agent: nosy\nDisallow: /\n\nUser-agent: *\nAllow: /', type='text/plain')
    with Site({'/': page(), '/robots.txt': rules}) as site:
        job = crawl(queue, site, user_agent='Nosy/2.0 (+https://nosy.example)')
        assert ends(queue, job, site) == {'/': 'robots'}
        assert {asked.headers['User-Agent'] for asked in site.log} == {
            'Nosy/2.0 (+https://nosy.example)'
        }
    with Site({'/': page(), '/robots.txt': rules}) as site:
        job = crawl(queue, site)
        assert ends(queue, job, site) == {'/': 'done'}
        assert site.log[0].headers['User-Agent'].startswith('silkline/')


# Strategies


def test_a_page_and_a_list_are_fetched_and_nothing_else(queue: Queue) -> None:
    with Site({'/': page('/a'), '/a': page('/b'), '/b': page('/c')}) as site:
        job = crawl(queue, site, strategy='page')
        assert ends(queue, job, site) == {'/': 'done'}
        urls = [f'{site.url}/a', f'{site.url}/b']
        job = crawl(queue, site, strategy='list', urls=urls)
        assert ends(queue, job, site) == {'/a': 'done', '/b': 'done'}


def sitemap(site: Site, tag: str, *paths: str) -> str:
    entry = {'urlset': 'url', 'sitemapindex': 'sitemap'}[tag]
    entries = ''.join(f'<{entry}><loc>{site.url}{path}</loc></{entry}>' for path in paths)
    return f'<{tag} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</{tag}>'


def test_a_sitemap_leads_to_its_pages_through_indexes_and_gzip(queue: Queue) -> None:
    with Site({path: page('/unlisted') for path in ('/1', '/2', '/3')}) as site:
        site.pages['/robots.txt'] = robots(f'Sitemap: {site.url}/index.xml')
        site.pages['/index.xml'] = Answer(
            sitemap(site, 'sitemapindex', '/a.xml', '/b.xml.gz'), type='application/xml'
        )
        site.pages['/a.xml'] = Answer(sitemap(site, 'urlset', '/1', '/2'), type='text/xml')
        site.pages['/b.xml.gz'] = Answer(
            gzip.compress(sitemap(site, 'urlset', '/3').encode()), type='application/x-gzip'
        )
        job = crawl(queue, site, strategy='sitemap', max_pages=3)
        assert set(pages(queue, job, site)) == {'/1', '/2', '/3'}
        assert '/unlisted' not in ends(queue, job, site)


def test_without_a_named_sitemap_the_usual_place_is_asked(queue: Queue) -> None:
    with Site({'/only': page()}) as site:
        site.pages['/sitemap.xml'] = Answer(sitemap(site, 'urlset', '/only'), type='text/xml')
        job = crawl(queue, site, strategy='sitemap')
        assert set(pages(queue, job, site)) == {'/only'}
    with Site() as site:
        job = crawl(queue, site, strategy='sitemap')
        assert ends(queue, job, site) == {'/sitemap.xml': 'HTTP 404 Not Found'}


def test_llms_txt_leads_to_the_documents_it_lists(queue: Queue) -> None:
    text = '# Docs\n\n> About.\n\n- [Guide](/guide.md): how to\n- [API](api)\n'
    with Site() as site:
        site.pages['/llms.txt'] = Answer(text, type='text/plain')
        site.pages['/guide.md'] = Answer('# Guide\n\n[more](/more)\n', type='text/markdown')
        site.pages['/api'] = page('/more')
        job = crawl(queue, site, strategy='llms_txt')
        stored = pages(queue, job, site)
        assert set(stored) == {'/llms.txt', '/guide.md', '/api'}
        assert stored['/guide.md']['title'] == 'Guide'
        assert stored['/guide.md']['markdown'] == '# Guide\n\n[more](/more)\n'


# Options


def test_noindex_and_nofollow_are_obeyed_unless_the_job_says_otherwise(queue: Queue) -> None:
    hidden = '<title>H</title><meta name="robots" content="noindex"><a href="/behind">b</a>'
    site_pages = {
        '/': page('/hidden', '/header', '/closed'),
        '/hidden': Answer(hidden),
        '/header': Answer('<p>Words.</p>', headers={'X-Robots-Tag': 'noindex'}),
        '/closed': Answer('<meta name=robots content=nofollow><a href="/never">n</a><p>Words.</p>'),
        '/behind': Answer('<a rel="nofollow noopener" href="/marked">m</a><p>Words.</p>'),
        '/never': page(),
        '/marked': page(),
    }
    with Site(site_pages) as site:
        job = crawl(queue, site)
        assert set(pages(queue, job, site)) == {'/', '/closed', '/behind'}
        assert ends(queue, job, site)['/hidden'] == 'noindex'
        job = crawl(queue, site, keep_noindex=True, follow_nofollow=True)
        assert set(pages(queue, job, site)) == set(site_pages)


def test_a_page_that_names_another_as_its_own_leads_there(queue: Queue) -> None:
    copy = '<link rel="canonical" href="/real"><title>C</title><p>Words.</p><a href="/x">x</a>'
    to_front = '<link rel="canonical" href="/"><title>F</title><p>Words.</p>'
    site_pages = {
        '/': page('/copy', '/front'),
        '/copy': Answer(copy),
        '/front': Answer(to_front),
        '/real': page(),
        '/x': page(),
    }
    with Site(site_pages) as site:
        job = crawl(queue, site)
        assert ends(queue, job, site) == {
            '/': 'done',
            '/copy': 'canonical',
            '/front': 'done',
            '/real': 'done',
            '/x': 'done',
        }


def test_scope_and_patterns_choose_what_is_crawled(queue: Queue) -> None:
    site_pages = {
        '/docs/': page('/docs/a', '/docs/b.pdf.html', '/blog/1'),
        '/docs/a': page('/docs/c'),
        '/docs/c': page(),
        '/docs/b.pdf.html': page(),
        '/blog/1': page(),
    }
    with Site(site_pages) as site:
        job = crawl(queue, site, '/docs/', scope='prefix', exclude=[r'\.pdf'])
        assert ends(queue, job, site) == {
            '/docs/': 'done',
            '/docs/a': 'done',
            '/docs/c': 'done',
            '/docs/b.pdf.html': 'excluded',
            '/blog/1': 'out_of_scope',
        }


def test_a_pattern_that_cannot_be_read_fails_the_job_with_a_sentence(queue: Queue) -> None:
    with Site({'/': page()}) as site:
        job = enqueue(queue, site, include=['(('])
        queue.wait_for('failed', job)
        row = queue.job(job)
        assert row['error_code'] == 'payload'
        assert '((' in row['error_message']


def test_markdown_of_the_full_page_or_none_is_a_choice(queue: Queue) -> None:
    html = (
        '<title>T</title><nav><a href="/x">Menu</a></nav>'
        f'<article><h1>T</h1>{"<p>A sentence of the article, long enough to be one.</p>" * 9}'
        '</article><footer>Imprint</footer>'
    )
    with Site({'/': Answer(html)}) as site:
        stored = {
            kind: pages(queue, crawl(queue, site, strategy='page', markdown=kind), site)['/']
            for kind in ('main', 'full', 'none')
        }
    assert 'sentence of the article' in stored['main']['markdown']
    assert 'Imprint' not in stored['main']['markdown']
    assert 'Imprint' in stored['full']['markdown']
    assert stored['none']['markdown'] is None
    assert stored['none']['extractor'] is None


def test_what_is_no_page_is_skipped_and_texts_are_kept_as_they_are(queue: Queue) -> None:
    site_pages = {
        '/': page('/t.txt', '/m.md', '/latin', '/zip', '/big', '/feed', '/bare'),
        '/t.txt': Answer('Plain  words.\n', type='text/plain'),
        '/m.md': Answer('# Mark\n\n`x`\n', type='text/markdown; charset=utf-8'),
        '/latin': Answer('<title>Übér</title>'.encode('latin-1'), type='text/html'),
        '/zip': Answer(b'PK', type='application/zip'),
        '/big': Answer('x' * 30_000, type='text/plain'),
        '/feed': Answer('<data></data>', type='application/xml'),
        '/bare': Answer(b'<title>Bare</title><p>Words.', type=''),
    }
    with Site(site_pages) as site:
        job = crawl(queue, site, max_page_bytes=20_000)
        reasons = ends(queue, job, site)
        assert reasons['/zip'] == reasons['/feed'] == 'content_type'
        assert reasons['/big'] == 'too_large'
        stored = pages(queue, job, site)
        assert stored['/t.txt']['markdown'] == 'Plain  words.\n'
        assert stored['/m.md']['title'] == 'Mark'
        assert stored['/latin']['title'] == 'Übér'
        assert stored['/latin']['metadata']['charset'] == 'windows-1252'
        assert stored['/bare']['title'] == 'Bare'


# Again


def test_a_recrawl_asks_for_changes_and_a_304_keeps_its_links(queue: Queue) -> None:
    def tagged(answer: Answer, tag: str) -> Answer:
        return Answer(answer.body, headers={'ETag': f'"{tag}"'})

    first = {'/': page('/a', '/b'), '/a': page('/c'), '/b': page(), '/c': page()}

    async def answer(request: web.Request) -> Answer:
        if (known := current.get(request.path)) is None:
            return Answer(status=404)
        tag = known.headers['ETag']
        if request.headers.get('If-None-Match') == tag:
            return Answer(status=304, headers={'ETag': tag})
        return known

    current = {path: tagged(one, path) for path, one in first.items()}
    with Site(answer=answer) as site:
        crawl(queue, site, source_id='again')
        current['/b'] = tagged(page(text='Other words.'), 'new')
        site.log.clear()
        job = crawl(queue, site, source_id='again')
        assert set(ends(queue, job, site).values()) == {'done'}
        assert set(site.asked()) == {'/', '/a', '/b', '/c'}
        versions = {path: row['version'] for path, row in pages(queue, job, site).items()}
        assert versions == {'/': 1, '/a': 1, '/b': 2, '/c': 1}
        told = queue.progress(job)
        assert (told['pages_new'], told['pages_changed'], told['pages_unchanged']) == (0, 1, 3)

        site.log.clear()
        crawl(queue, site, source_id='again', only_changes=False)
        assert all('If-None-Match' not in asked.headers for asked in site.log)


# Trouble


def failing(status: int, headers: Mapping[str, str] = {}) -> Answer:
    return Answer('<title>Sorry</title>', status=status, headers=headers)


def test_a_site_where_every_page_fails_ends_as_completed_with_its_failures(queue: Queue) -> None:
    with Site({'/': page(*(f'/{n}' for n in range(40)))}) as site:
        for number in range(40):
            site.pages[f'/{number}'] = failing(500)
        job = crawl(queue, site)
        reasons = ends(queue, job, site)
        assert reasons.pop('/') == 'done'
        assert len(reasons) == 40
        assert all('HTTP 500 Internal Server Error' in error for error in reasons.values())
        assert max(site.asked().values()) <= 3
        told = queue.progress(job)
        assert (told['status'], told['pages_failed']) == ('completed', 40)


def test_a_start_that_nobody_serves_ends_as_completed_with_its_error(queue: Queue) -> None:
    with Site() as site:
        pass
    job = crawl(queue, site, obey_robots=False)
    [error] = ends(queue, job, site).values()
    assert error == '127.0.0.1 takes no connection'
    assert queue.progress(job)['pages_failed'] == 1


def test_a_host_that_resets_every_connection_is_given_up_with_the_reason(queue: Queue) -> None:
    async def answer(request: web.Request) -> Answer:
        if request.path == '/':
            return page(*(f'/{number}' for number in range(60)))
        assert request.transport is not None
        request.transport.abort()
        return Answer()

    with Site({'/robots.txt': robots()}, answer=answer) as site:
        job = crawl(queue, site)
        reasons = ends(queue, job, site)
        assert reasons.pop('/') == 'done'
        assert len(reasons) == 60
        assert all('closed' in error or 'given up' in error for error in reasons.values())
        assert queue.progress(job)['pages_failed'] == 60
        # Given up, not asked three times each.
        assert sum(site.asked().values()) < 60


def test_a_page_that_fails_at_first_is_tried_again(queue: Queue) -> None:
    tries: dict[str, int] = {}

    async def answer(request: web.Request) -> Answer:
        tries[request.path] = tries.get(request.path, 0) + 1
        if request.path == '/busy' and tries['/busy'] == 1:
            return failing(429, {'Retry-After': '1'})
        if request.path == '/flaky' and tries['/flaky'] < 3:
            return failing(502)
        return page('/flaky', '/busy')

    with Site({'/robots.txt': robots()}, answer=answer) as site:
        job = crawl(queue, site)
        assert ends(queue, job, site) == {'/': 'done', '/flaky': 'done', '/busy': 'done'}
        times = [asked.at for asked in site.log if asked.path == '/busy']
        assert times[1] - times[0] >= 1


def test_a_site_that_wants_no_more_visitors_is_given_up(queue: Queue) -> None:
    with Site({'/': page('/a', '/b'), '/a': failing(503), '/b': failing(503)}) as site:
        job = crawl(queue, site)
        reasons = ends(queue, job, site)
        assert all('HTTP 503' in reasons[path] for path in ('/a', '/b'))


def test_a_site_that_wants_much_patience_gives_its_slot_back_meanwhile(queue: Queue) -> None:
    with Site({'/': page('/a'), '/a': failing(429, {'Retry-After': '1800'})}) as site:
        job = enqueue(queue, site)
        wait_until(
            lambda: (row := queue.job(job))['attempt'] == 1 and row['status'] == 'pending',
            seconds=20,
            what='the job back in line',
        )
        assert queue.job(job)['retry_count'] == 0
        [wait] = queue.rows(
            'select extract(epoch from run_after - now())::float as seconds from crawl_jobs'
            ' where id = %s',
            [job],
        )
        assert 1500 < wait['seconds'] <= 1800
        assert pages(queue, job, site).keys() == {'/'}


def test_crawl_delay_lies_between_requests(queue: Queue) -> None:
    site_pages = {'/': page('/a', '/b'), '/a': page(), '/b': page()}
    with Site({**site_pages, '/robots.txt': robots('Crawl-delay: 0.5')}) as site:
        crawl(queue, site)
        times = [asked.at for asked in site.log if asked.path != '/robots.txt']
        assert len(times) == 3
        assert all(later - earlier >= 0.45 for earlier, later in pairwise(times))


def test_robots_txt_is_fetched_once_for_all_jobs(queue: Queue) -> None:
    with Site({'/': page(), '/robots.txt': robots()}) as site:
        crawl(queue, site)
        crawl(queue, site)
        assert sum(asked.path == '/robots.txt' for asked in site.log) == 1


def test_no_page_is_fetched_while_robots_txt_is_not_to_be_had(queue: Queue) -> None:
    with Site({'/': page(), '/robots.txt': failing(500)}) as site:
        job = crawl(queue, site)
        assert ends(queue, job, site) == {'/': 'host_unavailable'}
        assert site.asked() == {}
        assert sum(asked.path == '/robots.txt' for asked in site.log) == 3
        job = crawl(queue, site, obey_robots=False)
        assert ends(queue, job, site) == {'/': 'done'}


def test_a_network_that_the_operator_did_not_allow_is_not_reached(queue: Queue) -> None:
    with Site({'/': page()}, address='127.0.0.2') as site:
        job = crawl(queue, site)
        assert ends(queue, job, site) == {'/': 'forbidden_address'}
        assert site.log == []


def test_a_slow_host_holds_up_no_other_of_a_list(queue: Queue) -> None:
    with (
        Site({'/robots.txt': robots('Crawl-delay: 60')}) as slow,
        Site({'/robots.txt': robots()}, address='127.0.0.3') as fast,
    ):
        urls: list[str] = []
        for site in (slow, fast):
            for number in range(40):
                site.pages[f'/{number}'] = page(text=f'Words {number}.')
                urls.append(f'{site.url}/{number}')
        job = enqueue(queue, slow, strategy='list', urls=urls, concurrency=4)
        wait_until(lambda: len(fast.asked()) == 40, seconds=20, what='the pages of the fast host')
        assert len(slow.asked()) == 1
        queue.press('cancel', job)


def test_a_page_that_comes_back_under_endless_urls_is_a_trap(queue: Queue) -> None:
    async def answer(request: web.Request) -> Answer:
        number = int(request.query.get('page', 0))
        return page('/?page=1') if not number else page(*(f'/?page={n}' for n in range(1, 500)))

    with Site({'/robots.txt': robots()}, answer=answer) as site:
        job = crawl(queue, site)
        reasons = Counter(ends(queue, job, site).values())
        assert reasons['done'] < 60
        assert reasons['trap'] > 400
