"""Which rows of index servers can be queried, and which chunks each row lacks.

A chunk that a row had and no longer has is lost, until one of its servers has it again. A chunk that the row never had
is new.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import Final

from usher.messages.front_end import ServerRow

DEPARTED_SECONDS: Final = 3_600.0  # during which the chunks of a departed server count as lost
NEW_SHARE, NEW_CHUNKS = 0.01, 2  # so many new chunks a row may lack without being behind

Holdings = Mapping[int, Mapping[str, Collection[int]]]  # chunks by row and server
NO_HOLDINGS: Final[Holdings] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SearchRow:
    """One row: its servers, the number of chunks that it has lost, and whether other rows have many more.

    A row that is incomplete without its servers on probation includes them.
    """

    row: int
    servers: tuple[str, ...]
    lost: int = 0
    behind: bool = False
    probation: bool = False  # whether servers on probation are included


@dataclass(slots=True)
class DepartedServer:
    """When a server left the map, and the chunks that it had."""

    since: float
    chunks: set[int]


@dataclass(slots=True)
class RowMap:
    """The latest map, and what earlier maps had."""

    rows: tuple[SearchRow, ...] = ()
    held: dict[str, set[int]] = field(default_factory=dict)  # chunks by server
    chunks: set[int] = field(default_factory=set)  # of all rows, including lost ones
    _had: dict[int, set[int]] = field(default_factory=dict)
    _departed: dict[int, dict[str, DepartedServer]] = field(default_factory=dict)
    _last: dict[int, dict[str, set[int]]] = field(default_factory=dict)
    _unrestored: set[int] = field(default_factory=set)

    def update(
        self,
        rows: Sequence[ServerRow],
        holdings: Holdings,
        now: float,
        probation: Holdings = NO_HOLDINGS,
        *,
        unrestored: Collection[int] = (),
    ) -> None:
        """Apply a new map; `holdings` may be older than `rows`, or empty.

        A row that lacks a chunk of `unrestored` has lost it: the restored database says that it is searchable.
        """
        self._unrestored = set(unrestored)
        healthy = {
            row.row: {host: set(holdings.get(row.row, {}).get(host, ())) for host in row.servers}
            for row in rows
            if row.servers
        }
        spare = {
            row: {host: set(chunks) for host, chunks in servers.items()}
            for row, servers in probation.items()
            if servers
        }
        every_server = chain(*(row.values() for row in (*healthy.values(), *spare.values())))
        available = union(every_server)
        current: dict[int, dict[str, set[int]]] = {}
        search_rows = []
        for row in sorted(healthy.keys() | spare.keys()):
            servers = healthy.get(row, {})
            search_row = self._search_row(row, servers, available, now)
            if row in spare and (not servers or search_row.lost or search_row.behind):
                servers = servers | spare[row]
                search_row = self._search_row(row, servers, available, now)
                search_row = replace(search_row, probation=True)
            current[row] = servers
            search_rows.append(search_row)
        self.rows, self._last = tuple(search_rows), current
        self.held = {host: had for servers in current.values() for host, had in servers.items()}
        self.chunks = available.union(*(self._had[row] for row in current))

    def _search_row(
        self, row: int, servers: Mapping[str, set[int]], available: set[int], now: float
    ) -> SearchRow:
        """The row with these servers; `available` are the chunks of all rows."""
        here = union(servers.values())
        departed = self._departed_chunks(row, servers, here, now)
        had = (self._had.get(row, set()) | here) & (available | departed) | self._unrestored
        self._had[row] = had
        max_new = max(NEW_SHARE * len(available), NEW_CHUNKS)
        behind = bool(available) and (not here or len(available - here) > max_new)
        return SearchRow(row, tuple(servers), len(had - here), behind)

    def _departed_chunks(
        self, row: int, servers: Mapping[str, set[int]], here: set[int], now: float
    ) -> set[int]:
        """The chunks of departed servers that no other server of the row has."""
        departed = self._departed.setdefault(row, {})
        for host, chunks in self._last.get(row, {}).items():
            if host not in servers and chunks:
                departed[host] = DepartedServer(now, chunks)
        for host, server in list(departed.items()):
            server.chunks = server.chunks - here
            is_old = now - server.since > DEPARTED_SECONDS
            if host in servers or not server.chunks or is_old:
                del departed[host]
        return union(server.chunks for server in departed.values())

    def missing_share(self, servers: Collection[str]) -> float:
        """The share of all chunks that none of these servers has; 0 if the chunks are unknown."""
        if not self.chunks:
            return 0.0
        present = union(self.held.get(host, set()) for host in servers)
        return len(self.chunks - present) / len(self.chunks)

    def holders(self, chunk: int) -> list[str]:
        return [host for host, chunks in self.held.items() if chunk in chunks]


def union(sets: Iterable[set[int]]) -> set[int]:
    return set[int]().union(*sets)
