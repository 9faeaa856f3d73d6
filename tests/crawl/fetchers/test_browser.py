"""Pages as a browser shows them, and the walls around the browser."""

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from silkline import protocol
from silkline.crawl.extract import read_html
from silkline.crawl.fetchers.browser import BrowserFetcher
from silkline.crawl.fetchers.chromium import BrowserMissing, find_chromium
from silkline.crawl.net.egress import Refused, TooLarge, Unreachable
from silkline.runner.isolation import descendants, processes
from silkline.supervisor.job_run import limits_for

from tests.support.egress import MEGABYTE, declines, egress, resolving
from tests.support.raw_site import RawSite, answer, raw_site, silent
from tests.support.runner import Frontier, run_job


def why_not() -> str:
    if importlib.util.find_spec('playwright') is None:
        return "no Playwright: pip install 'silkline[browser]'"
    try:
        find_chromium('')
    except BrowserMissing as error:
        return str(error)
    return ''


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


@pytest.fixture(autouse=True)
def own_directory(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a browser that was killed leaves its profile; with a short name, for its socket."""
    monkeypatch.setenv('TMPDIR', str(directory))


def html(text: str, *, status: str = '200 OK') -> bytes:
    return answer(f'<!doctype html>{text}'.encode(), status=status, Content_Type='text/html')


def script(text: str) -> bytes:
    return html(f'<title>scripted</title><body><script>{text}</script>')


@asynccontextmanager
async def browser(pages: Any, **options: Any) -> AsyncGenerator[tuple[BrowserFetcher, RawSite]]:
    """A browser that may reach one address of loopback, and a site there."""
    fetching = {'pages_per_browser': options.pop('pages_per_browser', 100)}
    options.setdefault('allow_networks', ['127.0.0.1/32'])
    async with raw_site(pages) as site, egress(**options) as out:
        async with BrowserFetcher(out, **fetching) as fetcher:
            yield fetcher, site


async def show(fetcher: BrowserFetcher, url: str, **options: Any) -> Any:
    options.setdefault('max_bytes', MEGABYTE)
    options.setdefault('timeout_seconds', 60)
    return await fetcher.fetch(url, **options)


# What a caller gets


def test_a_page_is_what_its_scripts_make_of_it() -> None:
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


def test_whatever_is_no_page_is_answered_as_it_is() -> None:
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
        script('location.href = "/elsewhere"'),
        script('setTimeout(() => location.replace("/elsewhere"), 50)'),
        html('<meta http-equiv=refresh content="0; url=/elsewhere">'),
        html('<form action=/elsewhere></form><script>document.forms[0].submit()</script>'),
    ],
)
def test_a_page_that_leads_elsewhere_is_a_redirect(page: bytes) -> None:
    async def run() -> None:
        async with browser({'/': page, '/elsewhere': html('here')}) as (fetcher, site):
            response = await show(fetcher, site.url())
            assert response.status == 302
            assert response.headers['location'].rstrip('?') == site.url('/elsewhere')
            assert not any(b'elsewhere' in head for head in site.heads)

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


def test_a_page_that_leads_nowhere_is_still_that_page() -> None:
    async def run() -> None:
        async with browser(STAYS) as (fetcher, site):
            shown = await asyncio.gather(*(show(fetcher, site.url(path)) for path in STAYS))
            for path, response in zip(STAYS, shown, strict=True):
                assert 200 <= response.status < 300, path
                assert b'to read' in response.body, path

    asyncio.run(run())


def test_what_web_components_show_is_in_the_page_where_it_is_shown() -> None:
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


def test_a_page_opens_no_windows() -> None:
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


def test_pictures_fonts_and_films_are_not_loaded() -> None:
    page = html("""<style>@font-face { font-family: f; src: url(/font) } body { font-family: f }
        </style><body>text<img src=/image><video src=/video autoplay></video>
        <script src=/script></script>""")

    async def run() -> None:
        async with browser({'/': page}) as (fetcher, site):
            await show(fetcher, site.url())
            paths = sorted(head.split(b' ')[1] for head in site.heads)
            assert paths == [b'/', b'/script']

    asyncio.run(run())


def test_a_page_that_grows_too_large_says_so() -> None:
    page = script('document.body.append("x".repeat(3e6))')

    async def run() -> None:
        async with browser({'/': page}) as (fetcher, site):
            with pytest.raises(TooLarge):
                await show(fetcher, site.url())

    asyncio.run(run())


def test_a_page_that_never_ends_loading_is_taken_as_it_is() -> None:
    pages = {
        '/': html('<p>text</p><script>fetch("/never")</script><script src=/never></script>'),
        '/never': silent(),
        '/ready': html('<p>text</p>'),
    }

    async def run() -> None:
        async with browser(pages) as (fetcher, site):
            # The browser is there by then: the time is for the page.
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


# The walls


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.count = 0

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.count += 1


# All on one page.
WAYS = """
<script src="{inside}/a.js"></script>
<link rel=stylesheet href="{inside}/a.css">
<img src="{inside}/a.png"><iframe src="{inside}/"></iframe><object data="{inside}/"></object>
<iframe srcdoc="<script src={inside}/framed.js></script>"></iframe>
<iframe srcdoc="<script>
  let peer = new RTCPeerConnection({{iceServers: [{{urls: `stun:{udp}`}}]}});
  peer.createDataChannel(`x`); peer.createOffer().then(offer => peer.setLocalDescription(offer))
</script>"></iframe>
<link rel=preconnect href="{inside}"><link rel=dns-prefetch href="{inside}">
<link rel=prefetch href="{inside}/prefetched"><link rel=preload as=script href="{inside}/loaded">
<script type=speculationrules>{{
  "prerender": [{{"source": "list", "urls": ["{inside}/prerendered"]}}],
  "prefetch": [{{"source": "list", "urls": ["{inside}/speculated"]}}]
}}</script>
<script src="/redirect"></script><iframe src="/redirect"></iframe>
<script>fetch("/redirect", {{mode: "no-cors"}})</script>
<script>fetch("{inside}/", {{mode: "no-cors"}})</script>
<script>x = new XMLHttpRequest(); x.open("GET", "{inside}/"); x.send()</script>
<script>navigator.sendBeacon("{inside}/", "x"); new EventSource("{inside}/")</script>
<script>new WebSocket("{inside}/".replace("http", "ws"))</script>
<script>new WebTransport("https://{udp}/")</script>
<script>navigator.serviceWorker.register("/worker.js")</script>
<script>new Worker(URL.createObjectURL(new Blob([`
  fetch("{inside}/", {{mode: "no-cors"}}); new WebSocket("{inside}/".replace("http", "ws"))
`])))</script>
<script>
  {{
    let peer = new RTCPeerConnection({{iceServers: [{{urls: "stun:{udp}"}}]}});
    peer.createDataChannel("x"); peer.createOffer().then(offer => peer.setLocalDescription(offer))
  }}
</script>
<script type=module>import("{inside}/module.js")</script>
<a ping="{inside}/" href="#x" id=pinging></a><script>pinging.click()</script>
"""
# Each on a page that it leads away from.
WAYS_OUT = (
    '<script>window.open("{inside}/")</script>',
    '<script>location = "{inside}/"</script>',
    '<meta http-equiv=refresh content="0; url={inside}/">',
    '<form method=post action="{inside}/" id=f></form><script>f.submit()</script>',
    '<a download href="{inside}/" id=a></a><script>a.click()</script>',
)


async def try_every_way(allowed: str, hosts: list[str]) -> tuple[set[bytes], int, int]:
    """Show a page for each way; answer what was asked for inside, and what came at all."""
    loop = asyncio.get_running_loop()
    names = resolving({'inside.example': ['127.0.0.2']})
    transport, datagrams = await loop.create_datagram_endpoint(
        Datagrams, local_addr=('127.0.0.2', 0)
    )
    udp = '127.0.0.2:{}'.format(transport.get_extra_info('sockname')[1])
    async with raw_site({'*': html('inside')}, host='127.0.0.2') as inside:
        targets = [f'http://{host}:{inside.port}' for host in hosts]
        texts = [WAYS.format(inside=target, udp=udp) for target in targets]
        texts += [way.format(inside=targets[0]) for way in WAYS_OUT]
        pages: dict[str, Any] = {f'/{number}': html(text) for number, text in enumerate(texts)}
        pages['/redirect'] = answer(b'', status='302 Found', Location=f'{targets[0]}/redirected')
        pages['/worker.js'] = answer(
            f'fetch("{targets[0]}/", {{mode: "no-cors"}})'.encode(), Content_Type='text/javascript'
        )
        options: dict[str, Any] = {'allow_networks': [allowed], 'resolve': names}
        async with browser(pages, **options) as (fetcher, site):
            async with asyncio.TaskGroup() as group:
                for number in range(len(texts)):
                    group.create_task(show(fetcher, site.url(f'/{number}')))
            assert sum(b'GET /redirect ' in head for head in site.heads) >= 3
        transport.close()
        asked = {head.split(b' ')[1] for head in inside.heads}
        return asked, inside.connections, datagrams.count


def test_nothing_in_a_page_reaches_a_forbidden_address() -> None:
    hosts = ['127.0.0.2', 'inside.example', '[::ffff:127.0.0.2]', '2130706434']
    asked, connections, datagrams = asyncio.run(try_every_way('127.0.0.1/32', hosts))
    assert (asked, connections, datagrams) == (set(), 0, 0)


def test_those_ways_do_lead_to_an_address_that_is_allowed_but_for_peers() -> None:
    asked, _, datagrams = asyncio.run(try_every_way('127.0.0.0/8', ['127.0.0.2']))
    assert {b'/', b'/a.js', b'/a.css', b'/framed.js', b'/redirected', b'/module.js'} <= asked
    assert datagrams == 0


def test_loopback_is_not_left_out_of_the_proxy() -> None:
    page = '<script>fetch("http://localhost:{0}/"); fetch("http://[::1]:{0}/")</script>'

    async def run() -> None:
        async with raw_site({'*': html('inside')}, host='::1') as inside:
            pages = {'/': html(page.format(inside.port))}
            names = resolving({'localhost': ['::1']})
            async with browser(pages, resolve=names) as (fetcher, site):
                await show(fetcher, site.url())
            assert inside.connections == 0

    asyncio.run(run())


# Browsers come and go


def processes_below() -> set[int]:
    """Of this process, but for the databases of other tests, whose helpers come and go."""
    return {pid for pid in descendants(os.getpid()) if name_of(pid) not in (None, 'postgres')}


def name_of(pid: int) -> str | None:
    try:
        return Path(f'/proc/{pid}/comm').read_text().strip()
    except OSError:
        return None


def drivers() -> set[int]:
    """The direct children of this process: one driver for each browser."""
    mine = os.getpid()
    return {process.pid for process in processes() if process.parent == mine} & processes_below()


def test_a_browser_is_replaced_after_some_pages_and_none_is_left() -> None:
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


def test_a_browser_that_dies_is_an_error_of_its_page_and_the_next_page_works() -> None:
    before = processes_below()

    async def run() -> None:
        pages = {'/': html('<script src=/never></script>'), '/never': silent(), '/ok': script('1')}
        async with browser(pages) as (fetcher, site):
            shown = asyncio.ensure_future(show(fetcher, site.url()))
            while not any(b'/never' in head for head in site.heads):
                await site.wait_for_request()
            for pid in processes_below() - before - drivers():
                with_signal(pid)
            with pytest.raises(Unreachable, match='the browser broke down') as caught:
                await shown
            assert caught.value.kind == 'protocol'
            assert (await show(fetcher, site.url('/ok'))).status == 200

    asyncio.run(run())
    assert processes_below() <= before


def with_signal(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def test_a_page_that_keeps_its_process_busy_runs_out_of_time() -> None:
    before = processes_below()

    async def run() -> None:
        pages = {'/': script('while (true) {}'), '/ok': script('1')}
        async with browser(pages) as (fetcher, site):
            with pytest.raises(Unreachable) as caught:
                await show(fetcher, site.url(), timeout_seconds=3)
            assert caught.value.kind == 'timeout'
            assert (await show(fetcher, site.url('/ok'))).status == 200

    asyncio.run(run())
    assert processes_below() <= before


def test_a_cancelled_page_leaves_nothing() -> None:
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


def test_a_crawl_by_browser_runs_inside_the_walls_of_a_runner() -> None:
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


# What is missing is named


def open_fetcher() -> None:
    async def run() -> None:
        async with egress() as out, BrowserFetcher(out):
            pass

    asyncio.run(run())


def test_a_program_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before = processes_below()
    monkeypatch.setenv('SILKLINE_CHROMIUM', '/no/such/chromium')
    with pytest.raises(BrowserMissing, match='SILKLINE_CHROMIUM names /no/such/chromium'):
        open_fetcher()
    assert processes_below() <= before


def test_a_program_that_is_no_browser_is_said_not_to_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv('SILKLINE_CHROMIUM', '/bin/false')
    with pytest.raises(BrowserMissing, match='Chromium does not start'):
        open_fetcher()


def test_a_machine_without_chromium_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv('PATH', '/nowhere')
    with pytest.raises(BrowserMissing, match='apt-get install chromium'):
        find_chromium('/no/such/program')


def test_a_machine_without_playwright_is_told_what_to_install() -> None:
    program = """
import sys
sys.modules['playwright'] = None
from tests.integration.test_browser import open_fetcher
try:
    open_fetcher()
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, '-c', program], check=True, capture_output=True, text=True
    )
    assert 'BrowserMissing the browser fetcher needs Playwright: pip install' in done.stdout
