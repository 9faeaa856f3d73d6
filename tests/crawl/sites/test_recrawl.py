"""A recrawl fetches only changes, and loses no page and no link."""

import asyncio
import math
from typing import Any

from aiohttp import web

from silkline.crawl.extract import EXTRACTOR_VERSION
from tests.support.crawls import crawl, ends, enqueue, pages
from tests.support.site import NOT_FOUND, Answer, Handler, Site, page
from tests.support.waiting import wait_until
from tests.support.worker import Queue


def test_a_recrawl_sends_conditional_requests_and_a_304_keeps_its_links(queue: Queue) -> None:
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
        assert set(site.request_counts()) == {'/', '/a', '/b', '/c'}
        versions = {path: row['version'] for path, row in pages(queue, job, site).items()}
        assert versions == {'/': 1, '/a': 1, '/b': 2, '/c': 1}
        progress = queue.progress(job)
        assert (progress['pages_new'], progress['pages_changed'], progress['pages_unchanged']) == (
            0,
            1,
            3,
        )

        site.log.clear()
        crawl(queue, site, source_id='again', only_changes=False)
        assert all('If-None-Match' not in asked.headers for asked in site.log)


def with_etags(site_pages: dict[str, Answer], *, delay_seconds: float = 0.0) -> Handler:
    """Serve pages with ETags, and 304 for a matching one."""

    async def answer(request: web.Request) -> Answer:
        await asyncio.sleep(delay_seconds)
        known = site_pages.get(request.path)
        if known is None:
            return NOT_FOUND
        tag = f'"{hash(known.body)}"'
        if request.headers.get('If-None-Match') == tag:
            return Answer(status=304, headers={'ETag': tag})
        return Answer(known.body, type=known.type, headers={'ETag': tag})

    return answer


def tree(width: int) -> dict[str, Answer]:
    """Pages that only one other page links to."""
    site_pages = {'/': page(*(f'/hub/{n}' for n in range(width)))}
    for number in range(width):
        site_pages[f'/hub/{number}'] = page(f'/leaf/{number}', text=f'Hub {number}.')
        site_pages[f'/leaf/{number}'] = page(text=f'Leaf {number}.')
    return site_pages


def test_links_of_unchanged_pages_are_not_lost_in_a_slow_recrawl(queue: Queue) -> None:
    with Site(answer=with_etags(tree(15), delay_seconds=0.2)) as site:
        assert len(ends(queue, crawl(queue, site, source_id='slow'), site)) == 31
        again = crawl(queue, site, source_id='slow')
        assert len(ends(queue, again, site)) == 31
        assert queue.progress(again)['pages_unchanged'] == 31


def test_links_of_unchanged_pages_are_not_lost_when_the_job_is_paused(queue: Queue) -> None:
    with Site(answer=with_etags(tree(30))) as site:
        crawl(queue, site, source_id='pauses')
        site.log.clear()
        site.answer_only(1)
        again = enqueue(queue, site, source_id='pauses')
        for more in (10, 20, math.inf):
            wait_until(lambda: len(site.log) > site.most, what='a request that has to wait')
            queue.control(again, 'pause')
            wait_until(lambda: not queue.progress(again)['is_saving'], what='the pause')
            site.answer_only(len(site.log) + more)
            queue.control(again, 'resume')
        queue.wait_for('completed', again)
        assert len(ends(queue, again, site)) == 61


def test_links_that_changed_without_the_text_are_kept_by_the_next_304(queue: Queue) -> None:
    def front(*links: str) -> Answer:
        menu = ''.join(f'<a href="{link}">x</a>' for link in links)
        return Answer(str(page().body).replace('<main>', f'<nav>{menu}</nav><main>'))

    site_pages = {'/': front('/a'), '/a': page(text='A.'), '/b': page(text='B.')}
    with Site(answer=with_etags(site_pages)) as site:
        crawl(queue, site, source_id='menu')
        site_pages['/'] = front('/a', '/b')
        crawl(queue, site, source_id='menu')
        third = crawl(queue, site, source_id='menu')
        assert ends(queue, third, site) == {'/': 'done', '/a': 'done', '/b': 'done'}
        assert {row['version'] for row in pages(queue, third, site).values()} == {1}


def test_a_page_stored_with_other_options_is_fetched_in_full(queue: Queue) -> None:
    marked = Answer(str(page().body).replace('<main>', '<main><a rel="nofollow" href="/n">n</a>'))
    with Site(answer=with_etags({'/': marked, '/n': page(text='N.')})) as site:
        first = crawl(queue, site, source_id='options', markdown='none', follow_nofollow=True)
        assert pages(queue, first, site).keys() == {'/', '/n'}
        second = crawl(queue, site, source_id='options')
        assert ends(queue, second, site) == {'/': 'done'}
        assert pages(queue, second, site)['/']['markdown']


def test_a_page_is_read_again_when_the_options_for_markdown_change(queue: Queue) -> None:
    with Site(answer=with_etags({'/': page('/a', text='Words.'), '/a': page(text='A.')})) as site:
        crawl(queue, site, source_id='links')
        changes: list[dict[str, Any]] = [
            {'links': 'none'},
            {'max_markdown_chars': 2000},
            {'links': 'references'},
        ]
        for options in changes:
            site.log.clear()
            job = crawl(queue, site, source_id='links', **options)
            assert not any('If-None-Match' in asked.headers for asked in site.log), options
            assert ends(queue, job, site) == {'/': 'done', '/a': 'done'}
        site.log.clear()
        crawl(queue, site, source_id='links', links='references')
        assert {asked.path for asked in site.log if 'If-None-Match' in asked.headers} == {'/', '/a'}


def test_a_page_is_read_again_when_the_version_of_the_extractor_rises(queue: Queue) -> None:
    with Site(answer=with_etags({'/': page(text='Words.')})) as site:
        crawl(queue, site, source_id='version')
        queue.stack.execute(
            """
            update crawl_pages
            set
              extractor_version = '0',
              quality = null,
              metadata = jsonb_set(
                metadata,
                '{made_with}',
                to_jsonb(replace(metadata ->> 'made_with', %s, 'extractor=silkline/0'))
              )
            where source_id = 'version'
            """,
            [f'extractor=silkline/{EXTRACTOR_VERSION}'],
        )
        site.log.clear()
        job = crawl(queue, site, source_id='version')
        assert not any('If-None-Match' in asked.headers for asked in site.log)
        row = pages(queue, job, site)['/']
        assert (row['version'], row['extractor_version']) == (1, EXTRACTOR_VERSION)
        crawl(queue, site, source_id='version')
        assert any('If-None-Match' in asked.headers for asked in site.log)


def test_a_page_that_is_not_modified_keeps_its_warnings(queue: Queue) -> None:
    text = Answer('word ' * 1000, type='text/plain')
    with Site(answer=with_etags({'/': page('/long.txt'), '/long.txt': text})) as site:
        first = crawl(queue, site, source_id='warnings', max_markdown_chars=1000)
        again = crawl(queue, site, source_id='warnings', max_markdown_chars=1000)
        assert queue.progress(again)['pages_unchanged'] == 2
        for job in (first, again):
            assert pages(queue, job, site)['/long.txt']['quality']['kept'] == 0.2
            assert queue.progress(job)['pages_with_warnings'] == 1
            assert queue.progress(job)['page_warnings'] == {'cut': 1}
