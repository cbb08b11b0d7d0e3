"""Which private hosts may be requested, and which pages may link to them.

The setting `allow_private` lists hosts for a process. A `HostPermission` is for one host that the operator
named.
"""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Final

from usher.addresses import (
    Address,
    Network,
    address_literal,
    is_loopback_name,
    is_private_host,
    parse_address,
    split_host,
)
from usher.errors import BadInput
from usher.urls import Scheme, Url

DEFAULT_PORTS: Final = {Scheme.HTTPS: 443, Scheme.HTTP: 80, Scheme.SFTP: 22, Scheme.FTP: 21}
_WEB_PORTS: Final = (DEFAULT_PORTS[Scheme.HTTP], DEFAULT_PORTS[Scheme.HTTPS])
_MAX_PORT: Final = 65_535
_LOOPBACK: Final = (IPv4Address("127.0.0.1"), IPv6Address("::1"))
_NAME: Final = re.compile(r"(?:\*\.)?(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{0,62}[a-z_]\.?")
_ITEM: Final = re.compile(r"(?:\[([^]]+)\]|([^:[]+))(?::([0-9]{1,5}))?")
_EXAMPLES: Final = "Examples: localhost, *.local, 10.0.0.0/8, 127.0.0.1:8080 or [::1]:8080."


@dataclass(frozen=True, slots=True)
class AllowListEntry:
    """One item of the list: a name (`.local` is all below it) or a network, at one port or at any."""

    name: str = ""
    network: Network | None = None
    port: int | None = None

    def covers(self, host: str, address: Address, port: int) -> bool:
        """Return whether this host may be connected to at this address and port.

        A network covers URLs with an address, and names of this machine. Any other name must be listed itself, because
        its owner decides which address it has.
        """
        if self.port not in (None, port):
            return False
        if self.network is not None:
            by_address = address_literal(host) is not None or is_loopback_name(host)
            return by_address and address in self.network
        return host == self.name or (self.name[0] == "." and host.endswith(self.name))

    def lists(self, host: str) -> bool:
        """Return whether this item covers a URL host, by its text alone."""
        name, port = split_host(host)
        ports = _WEB_PORTS if port is None else (port,)
        if self.port is not None and self.port not in ports:
            return False
        if self.network is None:
            return name == self.name or (self.name[0] == "." and name.endswith(self.name))
        addresses = _LOOPBACK if is_loopback_name(name) else (address_literal(name),)
        return any(address in self.network for address in addresses if address is not None)


@dataclass(frozen=True, slots=True)
class AllowList:
    """What the setting `allow_private` lists."""

    entries: tuple[AllowListEntry, ...] = ()

    def lists(self, host: str) -> bool:
        return any(entry.lists(host) for entry in self.entries)


@dataclass(frozen=True, slots=True)
class HostPermission:
    """The operator's permission for one host name at one port, at these addresses and no others."""

    name: str
    port: int
    addresses: tuple[str, ...]

    def covers(self, name: str, address: Address, port: int) -> bool:
        pinned = (name, port) == (self.name, self.port)
        return pinned and address in map(parse_address, self.addresses)


def name_and_port(url: Url) -> tuple[str, int]:
    """Return the name, without brackets, and the port that a URL is requested from."""
    name, port = split_host(url.host)
    return name, DEFAULT_PORTS[url.scheme] if port is None else port


def may_lead(allowed: AllowList, source: str, target: str, *, permitted: bool = False) -> bool:
    """Return whether a page of the host `source` may cause a request to the host `target`.

    A private host is requested only for its own pages. Hosts that `allow_private` lists trust each other. An empty
    source is an unknown page. `permitted` means that the operator named the target as a private host.
    """
    if source == target:
        return True
    listed = allowed.lists(target)
    if listed and source and allowed.lists(source):
        return True
    return not (permitted or listed or is_private_host(target))


def parse_allow_list(text: str) -> AllowList:
    """Parse a list of names, addresses and networks, each with or without a port."""
    return AllowList(tuple(_entry(item.lower()) for item in re.split(r"[,\s]+", text) if item))


def _entry(item: str) -> AllowListEntry:
    name, port = _split_item(item)
    if port is not None and not 0 < port <= _MAX_PORT:
        raise _invalid(item)
    try:
        return AllowListEntry(network=ip_network(name, strict=False), port=port)
    except ValueError:
        pass
    if not _NAME.fullmatch(name):
        raise _invalid(item)
    return AllowListEntry(name.removeprefix("*").removesuffix("."), port=port)


def _split_item(item: str) -> tuple[str, int | None]:
    if item[0] != "[" and item.count(":") > 1:  # an IPv6 address or network
        return item, None
    match = _ITEM.fullmatch(item)
    if match is None:
        raise _invalid(item)
    return match[1] or match[2], int(match[3]) if match[3] else None


def _invalid(item: str) -> BadInput:
    return BadInput(f"{item[:60]!a} is not a host, an address or a network.", hint=_EXAMPLES)
