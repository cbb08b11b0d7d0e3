"""Which index servers there are, in which rows, and what each row lacks: as MGMT drew it, and as it was before.

Comes from MGMT's two maps, again and again; goes to the broker, which asks the row that lacks least. A chunk that a row
had and has no more is lost to it, until one of its servers has it again. A chunk that it never had is only new.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import Final

from usher.messages.front_end import ServerRow

GONE_SECONDS: Final = 3_600.0  # so long the chunks of a server that is away are missed
NEW: Final = (0.01, 2)  # of all chunks, and chunks: so many a row may lack while it loads them

Holdings = Mapping[int, Mapping[str, Collection[int]]]  # of each row, what each server answers for
NO_HOLDINGS: Final[Holdings] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SearchRow:
    """One row as it can be asked now: its servers, how many chunks it has lost, and whether others have far more.

    A row that is not complete without its servers on probation includes them.
    """

    row: int
    servers: tuple[str, ...]
    lost: int = 0
    behind: bool = False
    probation: bool = False  # whether servers on probation are among them


@dataclass(slots=True)
class DepartedServer:
    """What a server had that is not in the map any more, and since when."""

    since: float
    chunks: set[int]


@dataclass(slots=True)
class RowMap:
    """The last map, and what is remembered of those before it."""

    benches: tuple[SearchRow, ...] = ()
    held: dict[str, set[int]] = field(default_factory=dict)  # by each server that is there
    every: set[int] = field(default_factory=set)  # chunks that there are, lost ones too
    _had: dict[int, set[int]] = field(default_factory=dict)
    _gone: dict[int, dict[str, DepartedServer]] = field(default_factory=dict)
    _last: dict[int, dict[str, set[int]]] = field(default_factory=dict)
    _unrestored: set[int] = field(default_factory=set)

    def see(
        self,
        rows: Sequence[ServerRow],
        holdings: Holdings,
        now: float,
        probation: Holdings = NO_HOLDINGS,
        *,
        unrestored: Collection[int] = (),
    ) -> None:
        """Take note of a map; `holdings` may be older than `rows`, or not be known at all.

        Every row that lacks a chunk of `unrestored` has lost it: the database was restored, and believes it searchable.
        """
        self._unrestored = set(unrestored)
        healthy = {
            one.row: {host: set(holdings.get(one.row, {}).get(host, ())) for host in one.servers}
            for one in rows
            if one.servers
        }
        spare = {
            row: {host: set(chunks) for host, chunks in servers.items()}
            for row, servers in probation.items()
            if servers
        }
        every_row = [*healthy.values(), *spare.values()]
        there = union(chain.from_iterable(servers.values() for servers in every_row))
        drawn: dict[int, dict[str, set[int]]] = {}
        benches = []
        for row in sorted(healthy.keys() | spare.keys()):
            servers = healthy.get(row, {})
            bench = self._bench(row, servers, there, now)
            if row in spare and (not servers or bench.lost or bench.behind):
                servers = servers | spare[row]
                bench = replace(self._bench(row, servers, there, now), probation=True)
            drawn[row] = servers
            benches.append(bench)
        self.benches, self._last = tuple(benches), drawn
        self.held = {host: chunks for servers in drawn.values() for host, chunks in servers.items()}
        self.every = there.union(*(self._had[row] for row in drawn))

    def _bench(
        self, row: int, servers: Mapping[str, set[int]], there: set[int], now: float
    ) -> SearchRow:
        """The row with these servers; `there` are the chunks of all rows."""
        here = union(servers.values())
        missed = self._missed(row, servers, here, now)
        had = (self._had.get(row, set()) | here) & (there | missed) | self._unrestored
        self._had[row] = had
        behind = bool(there) and (not here or len(there - here) > most_new(len(there)))
        return SearchRow(row, tuple(servers), len(had - here), behind)

    def _missed(
        self, row: int, servers: Mapping[str, set[int]], here: set[int], now: float
    ) -> set[int]:
        """What servers had that have left the row, and nobody in it has instead."""
        gone = self._gone.setdefault(row, {})
        for host, chunks in self._last.get(row, {}).items():
            if host not in servers and chunks:
                gone[host] = DepartedServer(now, chunks)
        for host, one in list(gone.items()):
            one.chunks = one.chunks - here
            if host in servers or not one.chunks or now - one.since > GONE_SECONDS:
                del gone[host]
        return union(one.chunks for one in gone.values())

    def missing(self, servers: Collection[str]) -> float:
        """How much of all chunks none of these servers has, from 0 to 1; 0 also if nobody knows."""
        if not self.every:
            return 0.0
        found = union(self.held.get(host, set()) for host in servers)
        return len(self.every - found) / len(self.every)

    def holders(self, chunk: int) -> list[str]:
        return [host for host, chunks in self.held.items() if chunk in chunks]


def most_new(chunks: int) -> float:
    return max(NEW[0] * chunks, NEW[1])


def union(sets: Iterable[set[int]]) -> set[int]:
    return set[int]().union(*sets)
