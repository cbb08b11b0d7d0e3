"""Which permission a URL needs that the operator names: its host resolved now."""

import asyncio
import socket
from typing import Final

from usher.addresses import address_literal, describe_special, parse_address
from usher.private_hosts import PrivateHostPermission, name_and_port
from usher.urls import Url

MAX_ADDRESSES: Final = 16
RESOLVE_SECONDS: Final = 10.0


async def needed_permission(url: Url) -> PrivateHostPermission | None:
    """Return the permission that a URL needs now: its host's addresses that are not public; None if it has none."""
    name, port = name_and_port(url)
    texts = [name] if address_literal(name) else await _resolved(name)
    private = [text for text in texts if describe_special(parse_address(text))]
    if not private:
        return None
    return PrivateHostPermission(name, port, tuple(dict.fromkeys(private))[:MAX_ADDRESSES])


async def _resolved(name: str) -> list[str]:
    """Resolve a name; empty if it does not resolve in time: then the crawl says so."""
    lookup = asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            found = await lookup
    except (OSError, TimeoutError, UnicodeError):
        return []
    return [str(address[0]).partition("%")[0] for *_, address in found]
