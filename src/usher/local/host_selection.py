"""Which hosts `usher crawl` crawls: the named ones, those that they lead to, and those of URLs that come in meanwhile.

Hosts whose pages waited before and that the user did not name are skipped: claims of this run do not hand out their
pages, and nothing is changed for them. `usher up` crawls them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.domain64 import MAX, Range
from usher.door.admin import HostDetails
from usher.door.scope import LinkScope, allows
from usher.private_files import write_file
from usher.urls import Url, parse

store = load_statements(__file__)
SKIPPED_HOSTS_FILE: Final = "skipped_hosts.json"  # in the data directory, for MGMT
MAX_REDIRECTS: Final = 1_000


@dataclass(frozen=True, slots=True)
class HostSelection:
    """The numbers of the named hosts, and of the waiting ones that this run skips."""

    named: Sequence[int] = ()
    skipped: Sequence[int] = ()


EVERY_HOST: Final = HostSelection()


async def select_hosts(conn: Connection, named: Sequence[HostDetails]) -> HostSelection:
    """Skip the waiting hosts that are not named, unless the start page or the scope of a named one leads there."""
    numbers = [host.domain64 for host in named]
    targets = await store.redirect_targets.column(conn, hosts=numbers, n=MAX_REDIRECTS)
    followed = {url.host for text in targets if isinstance(url := parse(text), Url)}
    waiting = await store.waiting_hosts.tuples(conn, hosts=numbers)
    skipped = [
        number
        for number, name in waiting
        if name not in followed and not any(leads_to(host, number, name) for host in named)
    ]
    return HostSelection(numbers, skipped)


def leads_to(host: HostDetails, number: int, name: str) -> bool:
    """Whether links on pages of the host may lead to the other one."""
    ranges = tuple(Range(part.lower or 0, part.upper or MAX) for part in host.scope_ranges)
    scope = LinkScope(host.scope, ranges)
    return allows(scope, found_on=host.name, target=name, target_range=Range(number, number + 1))


async def count_skipped(conn: Connection, selection: HostSelection) -> int:
    """The pages that wait on skipped hosts."""
    if not selection.skipped:
        return 0
    return int(await store.count_waiting.value(conn, hosts=list(selection.skipped)))


def write_skipped(data: Path, selection: HostSelection) -> None:
    write_file(data / SKIPPED_HOSTS_FILE, json.dumps(list(selection.skipped)).encode())


def read_skipped(data: Path) -> list[int]:
    """The hosts that the run in this data directory skips."""
    return [int(number) for number in json.loads((data / SKIPPED_HOSTS_FILE).read_bytes())]
