"""Which permission a URL needs that the operator names, by the addresses that its host has now."""

import asyncio
from typing import Final

from usher.addresses import address_literal, describe_special, parse_address
from usher.crawl.http.dns import system_lookup
from usher.private_hosts import HostPermission, name_and_port
from usher.urls import Url

MAX_ADDRESSES: Final = 16
RESOLVE_SECONDS: Final = 10.0


async def needed_permission(url: Url) -> HostPermission | None:
    """Return a permission for the host's private addresses; None if it has none or does not resolve in time."""
    name, port = name_and_port(url)
    addresses = [name]
    if not address_literal(name):
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                addresses = list(await asyncio.to_thread(system_lookup, name))
        except (OSError, TimeoutError, UnicodeError):
            return None
    plain = dict.fromkeys(address.partition("%")[0] for address in addresses)
    private = [address for address in plain if describe_special(parse_address(address))]
    return HostPermission(name, port, tuple(private[:MAX_ADDRESSES])) if private else None
