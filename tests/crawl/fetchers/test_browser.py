"""Pages as a browser shows them, and browsers that are replaced, crash or hang."""

import asyncio
import json
import os
import signal
from typing import Any
from uuid import uuid4

import pytest

from silkline import protocol
from silkline.crawl.extract import read_html
from silkline.crawl.responses import NoResponse, Refused, TooLarge
from silkline.supervisor.job_run import limits_for
from tests.support.browser import (
    browser,
    drivers,
    html,
    needs_browser,
    processes_below,
    script,
    show,
)
from tests.support.egress import MEGABYTE, declines
from tests.support.raw_site import answer, raw_site, silent
from tests.support.runner import Frontier, run_job

pytestmark = needs_browser


# What the caller gets


def test_a_page_is_returned_as_its_scripts_leave_it() -> None:
    pages = {
        '/': html('<title>empty</title><body><div id=app></div><script src=/app.js></script>'),
        '/app.js': answer(
            b"""
            fetch('/data.json').then(answer => answer.json()).then(data => {
              document.title = data.title;
              app.innerHTML = `<a href="/made">about ${data.title}</a>`;
            });
            """,
            Content_Type='text/javascript; charset=latin-1',
        ),
        '/data.json': answer(b'{"title": "made"}', Content_Type='application/json'),
    }

    async def run() -> None:
        async with browser(pages) as (fetcher, site):
            response = await show(fetcher, site.url())
            assert response.status == 200
            assert response.headers.get('content-type') == 'text/html; charset=utf-8'
            assert '<title>made</title>' in response.body.decode()
            assert '<a href="/made">' in response.body.decode()
            assert response.address == '127.0.0.1'
            agents = {head.partition(b'User-Agent: ')[2].split(b'\r\n')[0] for head in site.heads}
            assert agents == {b'silkline-test'}

    asyncio.run(run())


def test_responses_without_a_page_are_returned_unchanged() -> None:
    pages = {
        '/moved': answer(b'x', status='301 Moved', Location='/'),
        '/text': answer(b'plain', Content_Type='text/plain'),
        '/file': answer(b'%PDF', Content_Type='application/pdf'),
        '/gone': html('<script>document.write("no")</script>', status='404 Not Found'),
    }

    async def run() -> None:
        async with browser(pages) as (fetcher, site):
            moved = await show(fetcher, site.url('/moved'))
            assert (moved.status, moved.headers['location']) == (301, '/')
            text = await show(fetcher, site.url('/text'))
            assert (text.body, text.headers['content-type']) == (b'plain', 'text/plain')
            declined = await show(fetcher, site.url('/file'), wants=declines)
            assert (declined.status, declined.body) == (200, b'')
            gone = await show(fetcher, site.url('/gone'))
            assert gone.status == 404
            with pytest.raises(Refused):
                await show(fetcher, site.url(host='127.0.0.2'))

    asyncio.run(run())


@pytest.mark.parametrize(
    'page',
    [
        script('location.href = "/other"'),
        script('setTimeout(() => location.replace("/other"), 50)'),
        html('<meta http-equiv=refresh content="0; url=/other">'),
        html('<form action=/other></form><script>document.forms[0].submit()</script>'),
    ],
)
def test_a_page_that_navigates_to_another_url_is_a_redirect(page: bytes) -> None:
    async def run() -> None:
        async with browser({'/': page, '/other': html('here')}) as (fetcher, site):
            response = await show(fetcher, site.url())
            assert response.status == 302
            assert response.headers['location'].rstrip('?') == site.url('/other')
            assert not any(b'other' in head for head in site.heads)

    asyncio.run(run())


STAYS = {
    '/download': answer(
        b'<!doctype html><p>to read</p>',
        Content_Type='text/html',
        Content_Disposition='attachment; filename=page.html',
    ),
    '/reset': html('<p>to read</p>', status='205 Reset Content'),
    '/reload': html('<script>location.reload()</script><p>to read</p>'),
    '/post': html('<form method=post></form><script>document.forms[0].submit()</script>to read'),
    '/back': html('<p>to read</p><script>history.back()</script>'),
    '/blank': html('<p>to read</p><script>location = "about:blank"</script>'),
    '/file': html('<p>to read</p><script>onload = () => location = "file:///etc/passwd"</script>'),
    '/reload-later': script("""
        setTimeout(() => { document.body.append('to ' + 'read'); location.reload() }, 100)
    """),
    '/asks': script(
        'alert(1); confirm(2); prompt(3); print(); document.body.append("to " + "read")'
    ),
}


def test_a_page_whose_navigation_leads_nowhere_is_returned() -> None:
    async def run() -> None:
        async with browser(STAYS) as (fetcher, site):
            shown = await asyncio.gather(*(show(fetcher, site.url(path)) for path in STAYS))
            for path, response in zip(STAYS, shown, strict=True):
                assert 200 <= response.status < 300, path
                assert b'to read' in response.body, path

    asyncio.run(run())


def test_the_content_of_web_components_is_where_it_is_shown() -> None:
    page = html("""
        <my-card>body of it<b slot=name>Name</b><template shadowrootmode=open>
          <h2><slot name=name>Nobody</slot></h2><my-frame><slot>Nothing</slot></my-frame>
          <a href=/deep>more</a>
        </template></my-card>
        <script>
          customElements.define('my-frame', class extends HTMLElement {
            connectedCallback() {
              const tree = this.attachShadow({mode: 'open'})
              tree.innerHTML = '<p>framed: <slot></slot></p><slot name=x>!</slot>'
            }
          })
        </script>
    """)

    async def run() -> None:
        async with browser({'/': page}) as (fetcher, site):
            body = (await show(fetcher, site.url())).body.decode()
            shown = read_html(body, url=site.url(), markdown='full')
            assert shown.markdown is not None
            words = f'## Name framed: body of it ! [more]({site.url("/deep")})'
            assert shown.markdown.split() == words.split()
            assert [anchor.href for anchor in shown.anchors] == ['/deep']

    asyncio.run(run())


def test_a_page_cannot_open_windows() -> None:
    page = script("""
        let count = 0
        for (let number = 0; number < 100; number++) count += !!window.open('/window')
        document.body.append(`opened ${count}`)
    """)

    async def run() -> None:
        async with browser({'/': page}) as (fetcher, site):
            assert b'opened 0<' in (await show(fetcher, site.url())).body

    asyncio.run(run())


def test_pages_share_nothing() -> None:
    page = script("""
        document.body.append(`${document.cookie}|${localStorage.length}`);
        document.cookie = 'seen=1'; localStorage.seen = 1;
    """)

    async def run() -> None:
        async with browser({'/': page}) as (fetcher, site):
            for _ in range(2):
                response = await show(fetcher, site.url())
                assert '</script>|0</body>' in response.body.decode()
            assert not any(b'Cookie' in head for head in site.heads)

    asyncio.run(run())


def test_images_fonts_and_videos_are_not_loaded() -> None:
    page = html("""<style>@font-face { font-family: f; src: url(/font) } body { font-family: f }
        </style><body>text<img src=/image><video src=/video autoplay></video>
        <script src=/script></script>""")

    async def run() -> None:
        async with browser({'/': page}) as (fetcher, site):
            await show(fetcher, site.url())
            paths = sorted(head.split(b' ')[1] for head in site.heads)
            assert paths == [b'/', b'/script']

    asyncio.run(run())


def test_a_page_that_grows_too_large_is_an_error() -> None:
    page = script('document.body.append("x".repeat(3e6))')

    async def run() -> None:
        async with browser({'/': page}) as (fetcher, site):
            with pytest.raises(TooLarge):
                await show(fetcher, site.url())

    asyncio.run(run())


def test_a_page_that_never_finishes_loading_is_taken_as_it_is() -> None:
    pages = {
        '/': html('<p>text</p><script>fetch("/never")</script><script src=/never></script>'),
        '/never': silent(),
        '/ready': html('<p>text</p>'),
    }

    async def run() -> None:
        async with browser(pages) as (fetcher, site):
            # The browser has started by then: the time is for the page.
            await show(fetcher, site.url('/ready'))
            response = await show(fetcher, site.url(), timeout_seconds=6)
            assert b'<p>text</p>' in response.body

    asyncio.run(run())


def test_what_scripts_load_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('silkline.crawl.fetchers.browser.TRAFFIC_BYTES', MEGABYTE)
    is_cut = asyncio.Event()

    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'HTTP/1.1 200 OK\r\n\r\n')
        try:
            while True:
                writer.write(b'x' * 65536)
                await writer.drain()
        except ConnectionError:
            is_cut.set()

    async def run() -> None:
        pages: dict[str, Any] = {'/': script('fetch("/endless")'), '/endless': endless}
        async with browser(pages) as (fetcher, site):
            shown = asyncio.ensure_future(show(fetcher, site.url()))
            await asyncio.wait_for(is_cut.wait(), 60)
            assert (await shown).status == 200

    asyncio.run(run())


# Browsers that are replaced, crash or hang


def test_a_browser_is_replaced_after_some_pages_and_none_is_left_running() -> None:
    before = processes_below()

    async def run() -> None:
        async with browser({'/': script('1')}, pages_per_browser=2) as (fetcher, site):
            seen: list[int] = []
            for _ in range(5):
                await show(fetcher, site.url())
                [driver] = drivers() - before
                seen.append(driver)
            assert seen[0] == seen[1] != seen[2] == seen[3] != seen[4]

    asyncio.run(run())
    assert processes_below() <= before


def test_a_crashed_browser_fails_its_page_and_the_next_page_works() -> None:
    before = processes_below()

    async def run() -> None:
        pages = {'/': html('<script src=/never></script>'), '/never': silent(), '/ok': script('1')}
        async with browser(pages) as (fetcher, site):
            shown = asyncio.ensure_future(show(fetcher, site.url()))
            while not any(b'/never' in head for head in site.heads):
                await site.wait_for_request()
            for pid in processes_below() - before - drivers():
                kill(pid)
            with pytest.raises(NoResponse, match='the browser crashed') as caught:
                await shown
            assert caught.value.kind == 'protocol'
            assert (await show(fetcher, site.url('/ok'))).status == 200

    asyncio.run(run())
    assert processes_below() <= before


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def test_a_page_that_blocks_its_process_ends_with_the_timeout() -> None:
    before = processes_below()

    async def run() -> None:
        pages = {'/': script('while (true) {}'), '/ok': script('1')}
        async with browser(pages) as (fetcher, site):
            with pytest.raises(NoResponse) as caught:
                await show(fetcher, site.url(), timeout_seconds=3)
            assert caught.value.kind == 'timeout'
            assert (await show(fetcher, site.url('/ok'))).status == 200

    asyncio.run(run())
    assert processes_below() <= before


def test_a_cancelled_page_leaves_no_process() -> None:
    before = processes_below()

    async def run() -> None:
        pages = {'/': html('<script src=/never></script>'), '/never': silent()}
        async with browser(pages) as (fetcher, site):
            shown = asyncio.ensure_future(show(fetcher, site.url()))
            while not any(b'/never' in head for head in site.heads):
                await site.wait_for_request()
            shown.cancel()
            with pytest.raises(asyncio.CancelledError):
                await shown
        await site.wait_until_idle()

    asyncio.run(run())
    assert processes_below() <= before


def test_a_crawl_with_a_browser_runs_in_an_isolated_runner() -> None:
    numbers = range(1, 6)
    pages = {
        '/': script(f'document.body.innerHTML = {json.dumps(links(numbers))}'),
        **{f'/{number}': script(f'document.title = "page {number}"') for number in numbers},
    }

    async def run() -> None:
        async with raw_site(pages) as site:
            payload = {'url': site.url(), 'fetcher': 'browser', 'concurrency': 2}
            start = protocol.Start(
                job_id=uuid4(),
                kind='crawl',
                payload=payload,
                limits=limits_for(payload),
                allow_networks=['127.0.0.1/32'],
                alive_seconds=0.2,
            )
            frontier = Frontier()
            outcome = await run_job(start, frontier)
            assert outcome.error_code is None, outcome.error_message
            titles = {ended.page.title for ended in frontier.ended.values() if ended.page}
            assert titles == {'scripted', *(f'page {number}' for number in numbers)}

    before = processes_below()
    asyncio.run(run())
    assert processes_below() <= before


def links(numbers: range) -> str:
    return ''.join(f'<a href=/{number}>{number}</a>' for number in numbers)
