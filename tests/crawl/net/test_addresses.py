"""Which addresses may be dialed."""

from ipaddress import ip_address

import pytest

from silkline.crawl.net.addresses import AddressRules, is_own

FORBIDDEN = """
0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255
127.0.0.1 127.255.255.254 168.63.129.16 169.254.0.1 169.254.169.254 169.254.170.2
172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.8 192.0.0.170 192.0.0.192 192.0.2.1 192.31.196.1
192.52.193.1 192.88.99.1 192.168.0.1 192.168.255.255 192.175.48.1 198.18.0.1 198.19.255.255
198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255
:: ::1 ::2 ::7f00:1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254
::ffff:0:127.0.0.1 ::ffff:0:8.8.8.8 64:ff9b::7f00:1 64:ff9b::10.0.0.1 64:ff9b::169.254.169.254
64:ff9b:1::1 64:ff9b:1::8.8.8.8 64:ff9b:1:ffff:: 100::1 100:0:0:1::1 2001::1 2001:0:4136:e378::1
2001:1::1 2001:2::1 2001:10::1 2001:20::1 2001:1ff::1 2001:db8::1 2002:7f00:1:: 2002:808:808::1
2002:a00:1::1 2620:4f:8000::1 3fff::1 3fff:fff::1 4000::1 5f00::1 8000::1 e000::1 fc00::1 fd00::1
fd00:ec2::254 fd20:ce::254 fe80::1 fe80::1%eth0 febf::1 fec0::1 feff::1 ff00::1 ff02::1 ff0e::1
2606:4700::5efe:127.0.0.1 2606:4700::200:5efe:10.0.0.1
""".split()

PUBLIC = """
1.1.1.1 8.8.8.8 11.0.0.1 93.184.215.14 100.63.255.255 100.128.0.1 126.255.255.255 128.0.0.1
168.63.129.15 169.253.0.1 172.15.255.255 172.32.0.1 192.0.1.1 192.167.0.1 198.17.0.1 223.255.255.255
2606:4700:4700::1111 2a00:1450:4001:81b::200e 2001:4860:4860::8888 2001:200::1 2400:cb00::1
64:ff9b::8.8.8.8 ::ffff:8.8.8.8 2606:4700::5efe:8.8.8.8
""".split()

NO_ADDRESS = ['', 'localhost', '127.1', '0x7f.0.0.1', '010.0.0.1', '2130706433', '1.2.3', '[::1]']


@pytest.mark.parametrize('address', FORBIDDEN)
def test_an_address_that_is_not_public_is_forbidden(address: str) -> None:
    assert not AddressRules().allow(address)


@pytest.mark.parametrize('address', PUBLIC)
def test_a_public_address_is_allowed(address: str) -> None:
    assert AddressRules().allow(address)


@pytest.mark.parametrize('text', NO_ADDRESS)
def test_text_that_is_not_an_address_is_forbidden_even_if_every_network_is_allowed(
    text: str,
) -> None:
    assert not AddressRules(['0.0.0.0/0', '::/0']).allow(text)


def test_an_operator_can_allow_networks() -> None:
    rules = AddressRules(['127.0.0.0/8', ' fd12::/16 '])
    assert rules.allow('127.0.0.1')
    assert rules.allow('127.9.9.9')
    assert rules.allow('fd12::1')
    assert not rules.allow('10.0.0.1')
    assert not rules.allow('fd13::1')
    assert not rules.allow('::1')


def test_an_allowed_ipv4_network_is_open_embedded_in_ipv6_too() -> None:
    rules = AddressRules(['10.0.0.0/8'])
    assert rules.allow('::ffff:10.0.0.1')
    assert rules.allow('64:ff9b::10.0.0.1')
    assert not rules.allow('::ffff:127.0.0.1')


def test_an_allowed_ipv6_network_does_not_open_the_ipv4_embedded_in_it() -> None:
    assert not AddressRules(['::/0']).allow('::ffff:127.0.0.1')
    assert AddressRules(['::/0']).allow('::1')


def test_an_allowed_link_local_network_is_open_in_every_zone() -> None:
    assert AddressRules(['fe80::/10']).allow('fe80::1%eth0')


@pytest.mark.parametrize('text', ['localhost', '10.0.0.1/8', '10.0.0.0/33', '', 'fd00::/200'])
def test_an_invalid_network_is_named_in_the_error(text: str) -> None:
    with pytest.raises(ValueError, match='is not a network: expected something like') as caught:
        AddressRules([text])
    assert repr(text) in str(caught.value)


def test_the_cache_of_checked_addresses_is_bounded() -> None:
    rules = AddressRules()
    for number in range(10_000):
        assert rules.allow(f'8.8.{number // 256}.{number % 256}')
    assert len(rules._verdicts) <= 4096  # pyright: ignore[reportPrivateUsage]


def test_the_addresses_of_the_machine_itself_are_recognised() -> None:
    assert is_own(ip_address('127.0.0.1'))
    assert is_own(ip_address('::1'))
    assert not is_own(ip_address('8.8.8.8'))
    assert not is_own(ip_address('2606:4700:4700::1111'))
