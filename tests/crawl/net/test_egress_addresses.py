"""Where requests may go, however a forbidden address is written or reached."""

import asyncio
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

from silkline.crawl.responses import Refused
from tests.support.egress import OK, egress, fetch_from, resolving
from tests.support.raw_site import answer, raw_site

# Every way to write a forbidden address in a URL.
FORBIDDEN_HOSTS = """
127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.1 0177.0.0.1 017700000001 0x7F.0.0.0x1
127.0.0.1. 0 0.0.0.0 0x0 00.0.0.0 %31%32%37.0.0.1 127%2e0%2e0%2e1
\uff11\uff12\uff17.0.0.1 127\u30020\u30020\u30021
\u2460\u2461\u2466.0.0.1 0x7f\u30021 10.1.2.3 167838211 012.1.2.3
100.64.0.1 100.100.100.200 169.254.169.254
2852039166 0xa9fea9fe 0xA9.0xFE.0xA9.0xFE 0251.0376.0251.0376 169.254.43518 172.16.0.1
172.31.255.255 192.168.0.1 3232235521 192.0.0.192 192.88.99.1 198.18.0.1 203.0.113.5 224.0.0.1
239.255.255.250 240.0.0.1 255.255.255.255 4294967295 168.63.129.16
[::1] [::] [0:0:0:0:0:0:0:1] [::0001] [::127.0.0.1] [::ffff:127.0.0.1] [::ffff:7f00:1]
[::FFFF:7F00:1] [0:0:0:0:0:ffff:127.0.0.1] [::ffff:169.254.169.254] [::ffff:a9fe:a9fe]
[::ffff:0:127.0.0.1] [64:ff9b::127.0.0.1] [64:ff9b::a9fe:a9fe] [64:ff9b:1::1]
[64:ff9b:1::169.254.169.254] [2002:7f00:1::] [2002:a9fe:a9fe::] [2001:0:7f00:1::]
[2001::1] [2606:4700::5efe:7f00:1] [fe80::1] [fec0::1] [fc00::1] [fd00:ec2::254] [ff02::1]
[ff0e::1] [2001:db8::1] [100::1] [5f00::1] [4000::1]
""".split()


@pytest.mark.parametrize('host', FORBIDDEN_HOSTS)
def test_a_forbidden_address_is_refused_however_it_is_written(host: str) -> None:
    async def run() -> None:
        async with egress(allow_networks=()) as out:
            for scheme in ('http', 'https'):
                with pytest.raises(Refused) as caught:
                    await fetch_from(out, f'{scheme}://{host}/')
                assert caught.value.skip_reason == 'forbidden_address'
                assert 'operator of the worker' in str(caught.value)

    asyncio.run(run())


@pytest.mark.parametrize(
    'url',
    [
        '',
        'nonsense',
        '/path',
        'http://',
        'http://[::1',
        'http://[fe80::1%25eth0]/',
        'http://[fe80::1%eth0]/',
        'http://1.2.3.4.5/',
        'http://256.0.0.1/',
        'http://08.0.0.1/',
        'http://a b/',
        'http://x:70000/',
        'http://\x00/',
        'http://%00/',
        'http://a%2fb/',
        'ftp://example.com/',
        'file:///etc/passwd',
        'javascript:alert(1)',
        'data:text/html,x',
        'ws://example.com/',
        'gopher://example.com/',
        'http://user:secret@example.com/',
        'http://user@example.com/',
        'http://:secret@example.com/',
        'http://127.0.0.1\ud800/',
    ],
)
def test_other_schemes_and_malformed_urls_are_refused(url: str) -> None:
    async def run() -> None:
        async with egress(resolve=resolving({'example.com': ['127.0.0.1']})) as out:
            with pytest.raises(Refused) as caught:
                await fetch_from(out, url)
            assert caught.value.skip_reason == 'invalid_url'
            assert 'secret' not in str(caught.value)
            assert str(caught.value).encode()

    asyncio.run(run())


@pytest.mark.parametrize('port', [0, 22, 25, 6667, 10080])
def test_a_port_of_another_protocol_is_refused(port: int) -> None:
    async def run() -> None:
        async with egress() as out:
            with pytest.raises(Refused, match=f'port {port} of 127.0.0.1') as caught:
                await fetch_from(out, f'http://127.0.0.1:{port}/')
            assert caught.value.skip_reason == 'forbidden_address'

    asyncio.run(run())


@pytest.mark.parametrize(
    'addresses',
    [
        ['127.0.0.1'],
        ['::1'],
        ['::ffff:127.0.0.1'],
        ['64:ff9b::7f00:1'],
        ['fe80::1%lo'],
        ['8.8.8.8', '10.0.0.1'],
        ['10.0.0.1', '8.8.8.8'],
        ['8.8.8.8'] * 20 + ['127.0.0.1'],
        ['nonsense'],
    ],
)
def test_a_name_with_any_forbidden_address_is_refused_without_revealing_which(
    addresses: list[str],
) -> None:
    async def run() -> None:
        out = egress(allow_networks=(), resolve=resolving({'inside.example': addresses}))
        async with raw_site({'/': OK}) as site, out:
            with pytest.raises(Refused) as caught:
                await fetch_from(out, site.url(host='inside.example'))
            assert caught.value.skip_reason == 'forbidden_address'
            assert 'inside.example is at a forbidden address' in str(caught.value)
            assert not any(address in str(caught.value) for address in addresses)
            assert site.connections == 0

    asyncio.run(run())


def test_a_forbidden_name_is_refused_in_any_case_and_with_a_trailing_dot() -> None:
    async def run() -> None:
        async def resolve(host: str) -> list[str]:
            return {'localhost': ['127.0.0.1'], 'localhost.': ['::1', '127.0.0.1']}[host]

        out = egress(allow_networks=(), resolve=resolve)
        async with raw_site({'/': OK}) as site, out:
            for host in ('localhost', 'LOCALHOST', 'localhost.', '\uff4cocalhost', '%6cocalhost'):
                with pytest.raises(Refused):
                    await fetch_from(out, site.url(host=host))
            assert site.connections == 0

    asyncio.run(run())


def test_names_that_resolve_into_an_allowed_network_are_fetched() -> None:
    async def run() -> None:
        out = egress(resolve=resolving({'docs.example': ['127.0.0.1']}))
        async with raw_site({'/': OK}) as site, out:
            response = await fetch_from(out, site.url(host='docs.example'))
            assert response.body == b'hello'
            assert f'Host: docs.example:{site.port}\r\n'.encode() in site.heads[0]

    asyncio.run(run())


def test_an_invalid_network_is_refused_when_the_egress_is_made() -> None:
    with pytest.raises(ValueError, match=r"'10\.0\.0\.1/8' is not a network"):
        egress(allow_networks=['10.0.0.1/8'])


def test_an_address_that_changes_after_the_check_is_not_dialed() -> None:
    """The second address is the one that a DNS rebinding attack aims at."""
    answers = iter([['127.0.0.1'], ['127.0.0.2'], ['10.0.0.1']])
    asked: list[str] = []

    async def resolve(host: str) -> list[str]:
        asked.append(host)
        return next(answers)

    async def run() -> None:
        out = egress(allow_networks=['127.0.0.1/32'], resolve=resolve)
        async with raw_site({'/': answer(b'x', Connection='close')}) as site, out:
            for _ in range(3):
                response = await fetch_from(out, site.url(host='rebind.example'))
                assert response.address == '127.0.0.1'
            assert asked == ['rebind.example']

    asyncio.run(run())


def test_a_name_that_moves_to_a_forbidden_address_is_refused_once_the_cache_expires() -> None:
    answers = iter([['127.0.0.1'], ['127.0.0.2']])

    async def resolve(_: str) -> list[str]:
        return next(answers)

    async def run() -> None:
        out = egress(allow_networks=['127.0.0.1/32'], resolve=resolve)
        async with raw_site({'/': answer(b'x', Connection='close')}) as site, out:
            await fetch_from(out, site.url(host='rebind.example'))
            out.names.forget()
            with pytest.raises(Refused):
                await fetch_from(out, site.url(host='rebind.example'))
            assert len(site.heads) == 1

    asyncio.run(run())


def test_the_socket_factory_refuses_an_address_that_passed_every_other_check() -> None:
    async def run() -> None:
        async with raw_site({'/': OK}) as site, egress() as out:
            # As if the address had been allowed when the URL was parsed, and no longer were.
            out.read_url(site.url())
            out.rules.__init__(())
            with pytest.raises(Refused) as caught:
                await fetch_from(out, site.url())
            assert caught.value.skip_reason == 'forbidden_address'
            with pytest.raises(Refused):
                await out.dial('127.0.0.1', site.port, timeout_seconds=60)
            assert site.connections == 0

    asyncio.run(run())


# Run as root in its own network namespace, where the machine has a public address.
OWN_ADDRESS = """
import asyncio, sys
from tests.support.egress import OK, egress, fetch_from, resolving
from tests.support.raw_site import raw_site
from silkline.crawl.responses import Refused

async def run():
    names = resolving({'home.example': ['93.184.215.14']})
    async with raw_site({'/': OK}, host='93.184.215.14') as site:
        async with egress(allow_networks=sys.argv[1:], resolve=names) as out:
            for host in ('93.184.215.14', 'home.example'):
                try:
                    print((await fetch_from(out, site.url(host=host))).status)
                except Refused as error:
                    print(error.skip_reason)

asyncio.run(run())
"""


@pytest.mark.parametrize(
    ('allowed', 'outcome'), [([], 'forbidden_address'), (['93.184.215.14/32'], '200')]
)
def test_a_public_address_of_the_machine_itself_is_forbidden_unless_it_is_allowed(
    allowed: list[str], outcome: str
) -> None:
    network = ['unshare', '--map-root-user', '--net', 'sh', '-ec']
    address = 'ip link set lo up; ip address add 93.184.215.14/32 dev lo; exec "$@"'
    if (
        shutil.which('unshare') is None
        or subprocess.run([*network, address, '-', 'true']).returncode
    ):
        pytest.skip('needs a network of its own: unshare, ip and the right to use them')
    python = [sys.executable, '-c', OWN_ADDRESS, *allowed]
    ran = subprocess.run(
        [*network, address, '-', *python], capture_output=True, text=True, timeout=60
    )
    assert ran.stdout.split() == [outcome, outcome], ran.stderr


def test_every_address_of_a_name_is_tried() -> None:
    async def run() -> None:
        out = egress(resolve=resolving({'two.example': ['127.0.0.9', '127.0.0.1']}))
        async with raw_site({'/': OK}) as site, out:
            response = await fetch_from(out, site.url(host='two.example'))
            assert response.address == '127.0.0.1'

    asyncio.run(run())


def test_an_ipv4_address_is_tried_however_many_ipv6_addresses_are_dead() -> None:
    async def run() -> None:
        dead = [f'::ffff:127.0.0.{number}' for number in range(2, 40)]
        out = egress(resolve=resolving({'many.example': [*dead, '127.0.0.1']}))
        async with raw_site({'/': OK}) as site, out:
            response = await fetch_from(out, site.url(host='many.example'))
            assert response.address == '127.0.0.1'

    asyncio.run(run())


def test_ipv6_is_dialed_as_written() -> None:
    async def run() -> None:
        async with raw_site({'/': OK}, host='::1') as site, egress() as out:
            response = await fetch_from(out, site.url(host='[::1]'))
            assert response.address == '::1'
            assert f'Host: [::1]:{site.port}\r\n'.encode() in site.heads[0]

    asyncio.run(run())


def test_proxies_and_passwords_from_the_environment_are_ignored(tmp_path: Any) -> None:
    netrc = tmp_path / '.netrc'
    netrc.write_text('machine 127.0.0.1 login me password secret\n')
    netrc.chmod(0o600)
    program = f"""
import asyncio
from tests.support.egress import OK, egress, fetch_from
from tests.support.raw_site import raw_site
async def run():
    async with raw_site({{'/': OK}}) as proxy, raw_site({{'/': OK}}) as site:
        import os
        for name in ('http_proxy', 'HTTP_PROXY', 'https_proxy', 'all_proxy', 'ALL_PROXY'):
            os.environ[name] = proxy.url('')
        os.environ['NETRC'] = {str(netrc)!r}
        async with egress() as out:
            assert (await fetch_from(out, site.url())).body == b'hello'
        assert proxy.connections == 0 and len(site.heads) == 1
        assert b'uthorization' not in site.heads[0]
asyncio.run(run())
"""
    environment = {**os.environ, 'HOME': str(tmp_path)}
    subprocess.run([sys.executable, '-c', program], check=True, env=environment)
