"""Recrawls of pages that name another as their original."""

from aiohttp import web

from tests.support.crawls import crawl, ends, pages
from tests.support.site import NOT_FOUND, Answer, Site, page
from tests.support.worker import Queue


def test_a_copy_that_was_kept_is_dropped_once_its_original_is_there(queue: Queue) -> None:
    copy = Answer('<link rel="canonical" href="/original"><title>Page</title><p>Words.</p>')
    site_pages = {'/': page('/copy', title='Home'), '/copy': copy}

    async def answer(request: web.Request) -> Answer:
        known = site_pages.get(request.path, NOT_FOUND)
        # As a server of files does: a page that was seen has not changed.
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
