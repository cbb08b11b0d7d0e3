"""Which network addresses are public, and how a URL's host splits into name and port."""

from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# The registries of special addresses, the narrower network before the wider.
_SPECIAL_IPV4: Final = {
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
_SPECIAL_IPV6: Final = {
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
_PUBLIC_IPV6: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")


def parse_address(text: str) -> Address:
    """Parse an address; an IPv6 address that wraps an IPv4 one gives the latter. Raise ValueError if it is invalid."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def address_literal(name: str) -> Address | None:
    """Return the address of a host that is an address, None for a name that needs DNS."""
    try:
        return parse_address(name.strip("[]"))
    except ValueError:
        return None


def split_host(host: str) -> tuple[str, int | None]:
    """Split a canonical URL host into its name, without brackets, and its port, if it has one."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        return host.strip("[]"), None
    return name.strip("[]"), int(port)


def is_loopback_name(name: str) -> bool:
    """Return whether a name is this machine, by RFC 6761."""
    return name == "localhost" or name.endswith(".localhost")


@lru_cache(maxsize=4096)
def describe_special(address: Address) -> str:
    """Describe an address that is not public, such as "a private address"; empty if it is public."""
    return next(_descriptions(address), "")


@lru_cache(maxsize=4096)
def is_private_host(host: str) -> bool:
    """Return whether a URL host is, by its text alone, an address or a name that is not public."""
    name = split_host(host)[0]
    address = address_literal(name)
    return bool(describe_special(address)) if address else is_loopback_name(name)


def _descriptions(address: Address) -> Iterator[str]:
    if isinstance(address, IPv4Address):
        yield from (word for network, word in _SPECIAL_IPV4.items() if address in network)
        return
    yield from (word for network, word in _SPECIAL_IPV6.items() if address in network)
    if address not in _PUBLIC_IPV6:
        yield "no public address"
