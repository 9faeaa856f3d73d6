"""Which addresses a crawl may reach: public ones, and those the operator allows.

`ipaddress.is_global` alone is not enough: it lets through multicast, site-local addresses and IPv4
addresses embedded in IPv6. Here all of IPv6 is closed except the allocated space, and an embedded
IPv4 address is checked as itself. The machine's own addresses are closed too, because no firewall
protects them from a local process. Nothing is resolved or dialed here.
"""

import errno
import socket
from collections.abc import Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# IANA's special-purpose registry, multicast, and 168.63.129.16: the address at which virtual
# machines of Azure find their host, although it is in public space.
CLOSED_IPV4 = tuple(
    IPv4Network(text)
    for text in (
        '0.0.0.0/8',
        '10.0.0.0/8',
        '100.64.0.0/10',
        '127.0.0.0/8',
        '168.63.129.16/32',
        '169.254.0.0/16',
        '172.16.0.0/12',
        '192.0.0.0/24',
        '192.0.2.0/24',
        '192.31.196.0/24',
        '192.52.193.0/24',
        '192.88.99.0/24',
        '192.168.0.0/16',
        '192.175.48.0/24',
        '198.18.0.0/15',
        '198.51.100.0/24',
        '203.0.113.0/24',
        '224.0.0.0/4',
        '240.0.0.0/4',
    )
)
OPEN_IPV6 = IPv6Network('2000::/3')
# Inside of it: protocol assignments such as Teredo, documentation, 6to4 and AS112.
CLOSED_IPV6 = tuple(
    IPv6Network(text)
    for text in (
        '2001::/23',
        '2001:db8::/32',
        '2002::/16',
        '2620:4f:8000::/48',
        '3fff::/20',
    )
)
# All of IPv4, as an IPv6-only network sees it (RFC 6052). 64:ff9b:1::/48 is for use inside one
# network and stays closed, like everything else outside of 2000::/3.
NAT64 = IPv6Network('64:ff9b::/96')
ISATAP = (0x00005EFE, 0x02005EFE)

MAX_VERDICTS = 4096


class AddressRules:
    """The rules of one egress, with the networks that the operator allows."""

    def __init__(self, allow_networks: Sequence[str] = ()) -> None:
        self.allowed = tuple(network_of(text) for text in allow_networks)
        self._verdicts: dict[str, bool] = {}

    def allow(self, address: str) -> bool:
        """Whether an address, as a resolver or a URL gives it, may be dialed."""
        verdict = self._verdicts.get(address)
        if verdict is None:
            if len(self._verdicts) >= MAX_VERDICTS:
                self._verdicts.clear()
            verdict = self._verdicts[address] = self._judge(address)
        return verdict

    def _judge(self, text: str) -> bool:
        try:
            address = ip_address(text)
        except ValueError:
            return False
        address = plain(address)
        if any(
            address.version == network.version and address in network for network in self.allowed
        ):
            return True
        return is_public(address) and not is_own(address)


def plain(address: Address) -> Address:
    """The address that packets really go to: without a zone, and IPv4 taken out of IPv6."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    address = IPv6Address(int(address))
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return address.is_global and not any(address in network for network in CLOSED_IPV4)
    if address not in OPEN_IPV6 or any(address in network for network in CLOSED_IPV6):
        return False
    if (int(address) >> 32) & 0xFFFFFFFF in ISATAP:
        return address.is_global and is_public(IPv4Address(int(address) & 0xFFFFFFFF))
    return address.is_global


def is_own(address: Address) -> bool:
    """Whether the address belongs to this machine, by its routes; nothing is sent."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        probe = socket.socket(family, socket.SOCK_DGRAM)
    except OSError as error:
        if error.errno != errno.EAFNOSUPPORT:
            raise
        return False
    with probe:
        try:
            probe.connect((str(address), 9))
        except OSError:
            return False
        return ip_address(probe.getsockname()[0]) == address


def network_of(text: str) -> Network:
    try:
        return ip_network(text.strip())
    except ValueError as error:
        raise ValueError(
            f'{text!r} is not a network: expected something like 10.1.0.0/16, fd00::/8 or '
            '127.0.0.1/32'
        ) from error
