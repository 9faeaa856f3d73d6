"""What is crawled and stored of a site: strategies, scope, options."""

import asyncio
import gzip
import os
import signal
import threading
from collections import Counter

from aiohttp import web

from tests.support.crawls import crawl, ends, enqueue, pages, robots
from tests.support.site import Answer, Site, page, redirect
from tests.support.worker import Queue, WorkerProcess

# A whole site


def test_a_whole_site_is_crawled_and_every_url_in_scope_ends_with_its_reason(queue: Queue) -> None:
    site_pages = {
        '/': page('/a', 'b?x=1#top', '/old', '/gone', '/private/x', '/logo.png', 'mailto:a@b.c'),
        '/a': page('/', '/deep/1', 'https://other.example/', text='Words of a.', title='A'),
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
        }
        assert max(site.request_counts().values()) == 1
        assert '/private/x' not in site.request_counts()
        a = pages(queue, job, site)['/a']
        assert (a['title'], a['http_status'], a['version']) == ('A', 200, 1)
        assert 'Words of a.' in a['markdown']
        assert a['links'] == [f'{site.url}/', f'{site.url}/deep/1', 'https://other.example/']
        assert a['metadata']['language'] == 'en'
        assert a['metadata']['headings'] == [[1, 'A']]
        assert (a['extractor'], a['extractor_version']) != (None, None)
        progress = queue.progress(job)
        assert (progress['pages_done'], progress['pages_failed'], progress['pages_skipped']) == (
            6,
            1,
            4,
        )
        assert progress['links_refused'] == {'out_of_scope': 1}


def test_redirects_cost_nothing_of_the_page_budget(queue: Queue) -> None:
    site_pages = {'/': redirect('/start'), '/start': page(*(f'/{n}' for n in range(50)))}
    for number in range(50):
        site_pages[f'/{number}'] = redirect(f'/to/{number}')
        site_pages[f'/to/{number}'] = page(text=f'Words {number}.')
    with Site(site_pages) as site:
        job = crawl(queue, site, max_pages=10)
        assert len(pages(queue, job, site)) == 10
        reasons = list(ends(queue, job, site).values())
        assert set(reasons) == {'done', 'redirect', 'budget'}


def test_a_start_redirected_to_another_host_moves_the_scope_even_over_a_crash(
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


def test_a_front_page_that_only_redirects_is_not_a_dead_end(queue: Queue) -> None:
    moved = '<meta http-equiv="refresh" content="0; url={}"><title>Moved</title>'
    with (
        Site({'/docs/': page('/docs/a'), '/docs/a': page()}, address='127.0.0.3') as other,
        Site({'/': Answer(moved.format(f'{other.url}/docs/'))}) as site,
    ):
        job = crawl(queue, site)
        assert ends(queue, job, other) == {
            f'{site.url}/': 'redirect',
            '/docs/': 'done',
            '/docs/a': 'done',
        }


def test_a_start_url_and_links_back_to_it_are_one_page(queue: Queue) -> None:
    with Site({'/docs': page('/docs#part', '/a'), '/a': page('/docs#other')}) as site:
        job = crawl(queue, site, '/docs#intro')
        assert ends(queue, job, site) == {'/docs': 'done', '/a': 'done'}
        assert pages(queue, job, site).keys() == {'/docs', '/a'}


def test_a_site_that_requires_cookies_gets_one_request_per_url_and_a_clear_error(
    queue: Queue,
) -> None:
    wall = Answer(status=302, headers={'Location': '/', 'Set-Cookie': 'seen=1'})
    consent = {'/a': redirect('/consent?to=/a'), '/consent?to=/a': redirect('/a')}
    with Site({'/': wall, '/b': page('/a'), **consent}) as site:
        job = crawl(queue, site)
        assert 'cookie' in ends(queue, job, site)['/']
        job = crawl(queue, site, '/b')
        reasons = ends(queue, job, site)
        assert (reasons['/b'], reasons['/a']) == ('done', 'redirect')
        assert 'cookie' in reasons['/consent?to=/a']
        assert max(site.request_counts().values()) == 1


def test_the_error_of_a_skipped_url_is_stored(queue: Queue) -> None:
    with Site({'/sitemap.xml': page(title='Not found')}) as site:
        job = crawl(queue, site, strategy='sitemap')
        [row] = queue.rows(
            'select skip_reason, last_error from silkline.tasks where job_id = %s', [job]
        )
        assert row == {'skip_reason': 'content_type', 'last_error': 'not a sitemap'}


def test_the_user_agent_of_a_job_is_sent_and_used_for_robots_txt(queue: Queue) -> None:
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


def test_a_page_or_a_list_is_fetched_and_nothing_else(queue: Queue) -> None:
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


def test_without_a_sitemap_in_robots_txt_the_usual_url_is_fetched(queue: Queue) -> None:
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


def test_noindex_and_nofollow_are_obeyed_unless_the_job_disables_that(queue: Queue) -> None:
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
        }
        assert queue.progress(job)['links_refused'] == {'out_of_scope': 1, 'excluded': 1}


def test_an_invalid_pattern_fails_the_job_with_a_clear_message(queue: Queue) -> None:
    with Site({'/': page()}) as site:
        job = enqueue(queue, site, include=['(('])
        queue.wait_for('failed', job)
        row = queue.job(job)
        assert row['error_code'] == 'payload'
        assert '((' in row['error_message']


def test_a_job_can_ask_for_full_markdown_or_none(queue: Queue) -> None:
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


def test_other_content_types_are_skipped_and_text_is_stored_unchanged(queue: Queue) -> None:
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


def test_a_sitemap_index_is_followed_outside_of_the_scope(queue: Queue) -> None:
    with Site({path: page(text=path) for path in ('/docs/1', '/docs/2', '/blog/3')}) as site:
        site.pages['/docs/index.xml'] = Answer(
            sitemap(site, 'sitemapindex', '/maps/a.xml', '/maps/b.txt'), type='text/xml'
        )
        site.pages['/maps/a.xml'] = Answer(
            sitemap(site, 'urlset', '/docs/1', '/blog/3'), type='text/xml'
        )
        site.pages['/maps/b.txt'] = Answer(f'{site.url}/docs/2\n', type='text/plain')
        job = crawl(queue, site, '/docs/index.xml', strategy='sitemap', include=['/docs/'])
        assert pages(queue, job, site).keys() == {'/docs/1', '/docs/2'}
        assert queue.progress(job)['links_refused'] == {'excluded': 1}
        job = crawl(queue, site, '/docs/index.xml', strategy='sitemap', scope='prefix')
        assert pages(queue, job, site).keys() == {'/docs/1', '/docs/2'}


def test_a_url_found_too_deep_is_fetched_once_a_shorter_path_leads_to_it(
    queue: Queue,
) -> None:
    tries = Counter[str]()

    async def answer(request: web.Request) -> Answer:
        tries[request.path] += 1
        if request.path == '/late' and tries['/late'] == 1:
            return Answer(status=500)
        return {
            '/': page('/early', '/late'),
            '/early': page('/deeper'),
            '/deeper': page('/goal'),
            '/late': page('/goal'),
            '/goal': page(text='The goal.'),
        }[request.path]

    with Site({'/robots.txt': robots()}, answer=answer) as site:
        job = crawl(queue, site, max_depth=2, retry_seconds=1)
        assert ends(queue, job, site)['/goal'] == 'done'


def test_pages_that_are_too_large_cost_budget_and_urls_without_a_request_do_not(
    queue: Queue,
) -> None:
    with Site({'/': page(*(f'/{n}' for n in range(40)), '/private/x', '/private/y')}) as site:
        site.pages['/robots.txt'] = robots('Disallow: /private/')
        for number in range(40):
            site.pages[f'/{number}'] = page(text='x' * 9000)
        crawl(queue, site, max_pages=5, max_page_bytes=8000)
        assert len(site.request_counts()) == 5
