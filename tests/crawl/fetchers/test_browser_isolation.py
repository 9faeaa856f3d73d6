"""Nothing in a page reaches an address that the egress forbids."""

import asyncio
from typing import Any

from tests.support.browser import (
    browser,
    html,
    needs_browser,
    show,
)
from tests.support.egress import resolving
from tests.support.raw_site import answer, raw_site

pytestmark = needs_browser


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
# Each on a page of its own, because it navigates away.
WAYS_OUT = (
    '<script>window.open("{inside}/")</script>',
    '<script>location = "{inside}/"</script>',
    '<meta http-equiv=refresh content="0; url={inside}/">',
    '<form method=post action="{inside}/" id=f></form><script>f.submit()</script>',
    '<a download href="{inside}/" id=a></a><script>a.click()</script>',
)


async def try_every_way(allowed: str, hosts: list[str]) -> tuple[set[bytes], int, int]:
    """Show a page for each way; return requested paths, connections and datagrams inside."""
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


def test_the_same_ways_reach_an_allowed_address_except_by_webrtc() -> None:
    asked, _, datagrams = asyncio.run(try_every_way('127.0.0.0/8', ['127.0.0.2']))
    assert {b'/', b'/a.js', b'/a.css', b'/framed.js', b'/redirected', b'/module.js'} <= asked
    assert datagrams == 0


def test_requests_to_loopback_do_not_bypass_the_proxy() -> None:
    page = '<script>fetch("http://localhost:{0}/"); fetch("http://[::1]:{0}/")</script>'

    async def run() -> None:
        async with raw_site({'*': html('inside')}, host='::1') as inside:
            pages = {'/': html(page.format(inside.port))}
            names = resolving({'localhost': ['::1']})
            async with browser(pages, resolve=names) as (fetcher, site):
                await show(fetcher, site.url())
            assert inside.connections == 0

    asyncio.run(run())
