"""The addresses and ports of Usher itself, which crawlers and feed jobs must not request."""

import json
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from usher.addresses import Address, split_host
from usher.settings import Settings

PORTS_FILE: Final = "ports.json"  # `usher up` and `usher crawl` write it to the data directory
DEMO_SITE: Final = "site"  # the only port in that file that may be crawled
LOOPBACK: Final = "127.0.0.1"
_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "postgresql": 5432, "postgres": 5432}


@dataclass(frozen=True, slots=True)
class OwnEndpoint:
    """A host, by name or address, and a port where a component of Usher listens."""

    host: str
    port: int


def own_endpoints(settings: Settings, others: Iterable[str] = ()) -> frozenset[OwnEndpoint]:
    """Return the endpoints of the settings and of the data directory; `others` are further HOST:PORT texts."""
    urls = (
        settings.mgmt_url,
        settings.database_url,
        settings.work_url,
        settings.control_url,
        settings.worker_url,
        settings.search_url,
    )
    endpoints = {endpoint for url in urls if (endpoint := _of_url(url))}
    endpoints |= {OwnEndpoint(name, port) for name, port in map(split_host, others) if port}
    endpoints |= {OwnEndpoint(LOOPBACK, port) for port in _local_ports(settings.data)}
    if settings.pg_port:
        endpoints.add(OwnEndpoint(LOOPBACK, settings.pg_port))
    return frozenset(endpoints)


def is_local(address: Address) -> bool:
    """Return whether an address belongs to this machine: then a socket can be bound to it."""
    if address.is_loopback or address.is_unspecified:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004
    with socket.socket(family, socket.SOCK_DGRAM) as trial:
        try:
            trial.bind((str(address), 0))
        except OSError:
            return False
    return True


def _of_url(url: str) -> OwnEndpoint | None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    return OwnEndpoint(host, port) if host and port else None


def _local_ports(data: Path) -> list[int]:
    try:
        ports = json.loads((data / PORTS_FILE).read_text(encoding="utf-8"))
        return [port for name, port in ports.items() if name != DEMO_SITE and isinstance(port, int)]
    except (OSError, ValueError, TypeError, AttributeError):
        return []


def same_machine(address: Address, other: Address) -> bool:
    return address == other or (is_local(address) and is_local(other))
