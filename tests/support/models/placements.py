"""Placements in memory, written by the rules of seating as the database will write them."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from usher.mgmt.placement_rules import (
    ANSWERS,
    GIVES_ALL,
    Condition,
    MovableChunk,
    Move,
    PlacedCopy,
    PlacementServer,
    PlacementState,
    Quota,
    moves,
    place_new_chunks,
    quotas,
)

Key = tuple[int, int, int]  # chunk, row, server


class House:
    """Rows of servers, their placements, and the number of chunks built."""

    def __init__(self, rows: int, servers: Iterable[PlacementServer] = ()) -> None:
        self.rows = rows
        self.servers = {one.id: one for one in servers}
        self.copies: dict[Key, PlacementState] = {}
        self.chunks = 0

    def seats(self) -> Iterator[Key]:
        return (key for key, state in self.copies.items() if state != "leaving")

    def counts(self) -> Counter[int]:
        return Counter(server for _, _, server in self.seats())

    def row(self, row: int) -> list[PlacementServer]:
        return [one for one in self.servers.values() if one.row == row]

    def missing(self, row: int) -> list[int]:
        seated = {chunk for chunk, at, _ in self.seats() if at == row}
        return [chunk for chunk in range(self.chunks) if chunk not in seated]

    def build(self, count: int) -> None:
        new = range(self.chunks, self.chunks + count)
        self.chunks += count
        found = place_new_chunks(new, list(self.servers.values()), self.counts(), self.rows)
        for server, chunks in found.chunks.items():
            for chunk in chunks:
                key = (chunk, self.servers[server].row, server)
                assert key not in self.copies
                self.copies[key] = "wanted"

    def offers(self, row: int) -> Iterator[MovableChunk]:
        holders, elsewhere = defaultdict(set), defaultdict(set)
        for (chunk, at, server), state in self.copies.items():
            if at == row and state == "leaving":
                holders[chunk].add(server)
            elif at != row and state != "leaving":
                elsewhere[chunk].add(self.servers[server].machine)
        for chunk in self.missing(row):
            yield MovableChunk(chunk, elsewhere=elsewhere[chunk], holders=holders[chunk])
        for chunk, at, server in list(self.seats()):
            if at == row:
                wanted = self.copies[chunk, at, server] == "wanted"
                yield MovableChunk(chunk, server, wanted, elsewhere[chunk], holders[chunk])

    def plan(self) -> list[Move]:
        done = []
        for row in range(1, self.rows + 1):
            here = self.row(row)
            quota = quotas(here, self.counts(), len(self.missing(row)))
            found = moves(here, quota, self.offers(row))
            assert len(found) == takes(quota)
            for move in found:
                self.write(row, move)
            done += found
        return done

    def write(self, row: int, move: Move) -> None:
        if move.giver is not None:
            old = (move.chunk, row, move.giver)
            if self.copies.pop(old) == "loaded":
                self.copies[old] = "leaving"
        new = (move.chunk, row, move.taker)
        assert self.copies.get(new) == ("leaving" if move.held else None)
        self.copies[new] = "loaded" if move.held else "wanted"

    def load(self) -> None:
        """Every server that answers loads what is wanted on it."""
        for key, state in self.copies.items():
            if state == "wanted" and self.servers[key[2]].condition in ANSWERS:
                self.copies[key] = "loaded"

    def drop(self) -> None:
        copies = [PlacedCopy(*key, state) for key, state in self.copies.items()]
        for chunk, row, server, _ in droppable(copies, self.servers.values()):
            del self.copies[chunk, row, server]

    def be(self, server: int, condition: Condition) -> None:
        self.servers[server] = replace(self.servers[server], condition=condition)

    def check_balance(self) -> None:
        counts = self.counts()
        for row in range(1, self.rows + 1):
            fit = [one for one in self.row(row) if one.condition == "fit"]
            if fit:
                assert not self.missing(row)
                assert not any(counts[o.id] for o in self.row(row) if o.condition in GIVES_ALL)
                total = sum(counts[one.id] for one in fit)
                weights = sum(one.weight for one in fit)
                assert all(abs(counts[o.id] * weights - total * o.weight) < weights for o in fit)

    def clashes(self) -> int:
        """How many chunks have two seats on one machine."""
        where = defaultdict(list)
        for chunk, _, server in self.seats():
            where[chunk].append(self.servers[server].machine)
        return sum(len(set(machines)) < len(machines) for machines in where.values())


def takes(quota: Quota) -> int:
    return sum(count for count in quota.counts.values() if count > 0) + quota.extra


def grid(rows: int, servers: int, *, shared: bool = False) -> list[PlacementServer]:
    return [
        PlacementServer(row * 100 + n, row, f"m{n}" if shared else f"m{row}-{n}")
        for row in range(1, rows + 1)
        for n in range(servers)
    ]


def droppable(
    copies: Collection[PlacedCopy], servers: Iterable[PlacementServer]
) -> list[PlacedCopy]:
    """The leaving copies whose successor is loaded on a server that answers."""
    sure = {server.id for server in servers if server.condition in ANSWERS}
    safe = {
        (copy.chunk, copy.row) for copy in copies if copy.state == "loaded" and copy.server in sure
    }
    return [copy for copy in copies if copy.state == "leaving" and (copy.chunk, copy.row) in safe]
