"""The guard: which addresses and ports of the web may be dialled, whatever a name or a link says.

Comes from the setting that lists what is allowed besides the public web, and from whoever is about to connect.
Goes to `dial`, which asks about the very address it connects to, after the name was looked up.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final

from usher.errors import BadInput

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Where browsers do not go either: other services listen there, and some of them would take a request for an order.
BAD_PORTS: Final = frozenset(
    {1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95}
    | {101, 102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179}
    | {389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601}
    | {636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566}
    | {6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080}
    | {0, 445, 1433, 2375, 3306, 3389, 5432, 6379, 11211, 27017}  # and where databases listen
)

# The registries of special addresses, the narrower network before the wider.
_FOUR: Final = {
    IPv4Network(network): word
    for network, word in {
        "169.254.169.254/32": "a cloud's metadata service",
        "168.63.129.16/32": "a cloud's metadata service",
        "100.100.100.200/32": "a cloud's metadata service",
        "192.0.0.192/32": "a cloud's metadata service",
        "0.0.0.0/8": "no address of a host",
        "10.0.0.0/8": "a private address",
        "100.64.0.0/10": "a provider's private address",
        "127.0.0.0/8": "this machine itself",
        "169.254.0.0/16": "a link-local address",
        "172.16.0.0/12": "a private address",
        "192.0.0.0/24": "a reserved address",
        "192.0.2.0/24": "an address for examples",
        "192.31.196.0/24": "a reserved address",
        "192.52.193.0/24": "a reserved address",
        "192.88.99.0/24": "a relay of old tunnels",
        "192.168.0.0/16": "a private address",
        "192.175.48.0/24": "a reserved address",
        "198.18.0.0/15": "an address for benchmarks",
        "198.51.100.0/24": "an address for examples",
        "203.0.113.0/24": "an address for examples",
        "224.0.0.0/4": "a multicast address",
        "255.255.255.255/32": "the broadcast address",
        "240.0.0.0/4": "a reserved address",
    }.items()
}
_SIX: Final = {
    IPv6Network(network): word
    for network, word in {
        "fd00:ec2::254/128": "a cloud's metadata service",
        "fd20:ce::254/128": "a cloud's metadata service",
        "::/128": "no address of a host",
        "::1/128": "this machine itself",
        "fe80::/10": "a link-local address",
        "fec0::/10": "a private address",
        "fc00::/7": "a private address",
        "ff00::/8": "a multicast address",
        "64:ff9b:1::/48": "a private address",
        "2001::/32": "a tunnel",  # Teredo
        "2002::/16": "a tunnel",  # 6to4
        "2001:db8::/32": "an address for examples",
        "3fff::/20": "an address for examples",
        "2001::/23": "a reserved address",
        "2620:4f:8000::/48": "a reserved address",
    }.items()
}
_PUBLIC_SIX: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")

_NAME: Final = re.compile(r"(?:\*\.)?(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{0,62}[a-z_]\.?")
_ITEM: Final = re.compile(r"(?:\[([^]]+)\]|([^:[]+))(?::([0-9]{1,5}))?")
_EXAMPLES: Final = "Such as localhost, *.local, 10.0.0.0/8, 127.0.0.1:8080 or [::1]:8080."
_HIGHEST_PORT: Final = 65_535


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that is allowed: a name (`.local` is all below it) or a network, at one port or at any."""

    name: str = ""
    network: Network | None = None
    port: int | None = None

    def covers(self, host: str, address: Address, port: int) -> bool:
        if self.port not in (None, port):
            return False
        if self.network is not None:
            return address in self.network
        return host == self.name or (self.name[0] == "." and host.endswith(self.name))


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may be dialled besides the public web."""

    entries: tuple[Entry, ...] = ()


def parse(text: str) -> Allowed:
    """Read a list of names, addresses and networks, each with or without a port."""
    return Allowed(tuple(_entry(item.lower()) for item in re.split(r"[,\s]+", text) if item))


def refusal(allowed: Allowed, host: str, address: str, port: int) -> str:
    """Say why this address of a host is not to be dialled at this port; nothing if it may be.

    An entry opens a port where other services listen only if it names that port.
    """
    plain = _plain(ip_address(address.partition("%")[0]))
    covering = [entry for entry in allowed.entries if entry.covers(host, plain, port)]
    if port in BAD_PORTS and not any(entry.port for entry in covering):
        return f"port {port} is not one of the web"
    special = "" if covering else _special(plain)
    return f"{address} is {special}" if special else ""


def _entry(item: str) -> Entry:
    name, port = _apart(item)
    if port == 0 or (port is not None and port > _HIGHEST_PORT):
        raise _unreadable(item)
    try:
        return Entry(network=ip_network(name, strict=False), port=port)
    except ValueError:
        pass
    if not _NAME.fullmatch(name):
        raise _unreadable(item)
    return Entry(name.removeprefix("*").removesuffix("."), port=port)


def _apart(item: str) -> tuple[str, int | None]:
    if item[0] != "[" and item.count(":") > 1:  # an address of version 6, or a network of such
        return item, None
    match = _ITEM.fullmatch(item)
    if match is None:
        raise _unreadable(item)
    return match[1] or match[2], int(match[3]) if match[3] else None


def _unreadable(item: str) -> BadInput:
    return BadInput(f"{item[:60]!a} is no host, address or network.", hint=_EXAMPLES)


def _plain(address: Address) -> Address:
    """Take an address of version 4 out of its wrapping."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


@lru_cache(maxsize=4096)
def _special(address: Address) -> str:
    return next(_words(address), "")


def _words(address: Address) -> Iterator[str]:
    if isinstance(address, IPv4Address):
        yield from (word for network, word in _FOUR.items() if address in network)
        return
    yield from (word for network, word in _SIX.items() if address in network)
    if address not in _PUBLIC_SIX:
        yield "no public address"
