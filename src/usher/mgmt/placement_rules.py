"""The rules of placement: which index server of each row has which chunk.

    quotas              how many chunks each server of a row gives or takes, so that all have their share
    intake              the same for new chunks, when no server gives any
    moves               which chunks move to which server of a row
    place_new_chunks    where new chunks go, in all rows
    returned            what happens to the copies of a server that was away

A chunk has one placement in each row, `wanted` or `loaded`. A move makes the old copy `leaving`, or deletes it if it
was only `wanted`; the new one is `wanted`, or `loaded` if the taker still has the chunk. Chunks are placed in batches
of any size: the balance holds after each.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from usher.errors import BadInput
from usher.messages.components import EngineName
from usher.mgmt.anti_affinity import (
    HASH_MULTIPLIER,
    WORD_MASK,
    Assignment,
    ChunkGroup,
    deal_new_chunks,
    scatter,
)

Condition = Literal["fit", "unsure", "draining", "gone"]
PlacementState = Literal["wanted", "loaded", "leaving"]
OPENSEARCH: Final = "opensearch"
GIVES_ALL: Final = frozenset({"draining", "gone"})
ANSWERS: Final = frozenset({"fit", "draining"})


@dataclass(frozen=True, slots=True)
class PlacementServer:
    """An index server; one that is `unsure` keeps its chunks and gets no new ones."""

    id: int
    row: int
    machine: str
    weight: int = 1
    condition: Condition = "fit"
    engine: EngineName = "tantivy"

    def __post_init__(self) -> None:
        if self.weight < 1:
            raise BadInput(
                f"The weight of a server is 1 or more, not {self.weight}.",
                hint="Drain a server that should have no chunks.",
            )


class Quota(NamedTuple):
    """What each server of a row takes, or gives if negative; in addition `extra` servers of `more` take one each."""

    counts: dict[int, int]
    more: list[int]
    extra: int

    def room(self) -> tuple[dict[int, int], dict[int, int]]:
        """The placements that must be filled, and those of which `extra` are filled."""
        must = {name: count for name, count in self.counts.items() if count > 0}
        return must, dict.fromkeys(self.more, 1)


class MovableChunk(NamedTuple):
    """A chunk that may move within a row, or has no placement in it yet."""

    chunk: int
    giver: int | None = None
    wanted: bool = False  # the giver has not loaded it either, so moving it costs nothing
    elsewhere: Collection[str] = ()  # the machines of its placements in other rows
    holders: Collection[int] = ()  # servers of this row with a leaving copy


class Move(NamedTuple):
    chunk: int
    giver: int | None
    taker: int
    held: bool  # the taker's own leaving copy becomes its placement again


class NewPlacements(NamedTuple):
    """New chunks by server, and the rows in which no server can take any."""

    chunks: dict[int, list[int]]
    missing: list[int]


class PlacedCopy(NamedTuple):
    """A placement."""

    chunk: int
    row: int
    server: int
    state: PlacementState


class ReturnedServer(NamedTuple):
    """The new placements of a server that was away, and the chunks that it should delete."""

    copies: list[PlacedCopy]
    stray: list[int]


def machine(host: str) -> str:
    """The host name or address without its port."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0] if name.count(":") == 1 else name


def with_row_engines(servers: Iterable[PlacementServer]) -> list[PlacementServer]:
    """The servers; one on Tantivy in a row on OpenSearch gets no chunks, and gives those that it has."""
    given = list(servers)
    on_opensearch = {server.row for server in given if server.engine == OPENSEARCH}
    return [
        replace(server, condition="draining")
        if server.row in on_opensearch and server.engine != OPENSEARCH and server.condition == "fit"
        else server
        for server in given
    ]


def row_for(
    host: str, servers: Iterable[PlacementServer], rows: int, *, closed: Collection[int] = ()
) -> int:
    """The shortest row by weight; among equals a row with a server on the same machine, so that copies never meet."""
    stay = [server for server in servers if server.condition not in GIVES_ALL]
    length = Counter[int]()
    for server in stay:
        length[server.row] += server.weight
    same_machine = {server.row for server in stay if server.machine == machine(host)}
    return min(
        (row for row in range(1, rows + 1) if row not in closed),
        key=lambda row: (length[row], row not in same_machine),
        default=1,
    )


def quotas(
    servers: Collection[PlacementServer], counts: Mapping[int, int], waiting: int = 0
) -> Quota:
    """The fewest moves that give each fit server of a row its exact share, rounded up or down.

    `waiting` chunks have no placement in the row. Without a fit server nothing moves. With equal weights the remaining
    servers exchange nothing when another comes or goes; with different weights they may, because no rule keeps both
    that and the share.
    """
    fit = [server for server in servers if server.condition == "fit"]
    if not fit:
        return Quota(dict.fromkeys((server.id for server in servers), 0), [], 0)
    leavers = [server for server in servers if server.condition in GIVES_ALL]
    total = waiting + sum(counts.get(server.id, 0) for server in [*fit, *leavers])
    weights = sum(server.weight for server in fit)
    shares = {server.id: divmod(total * server.weight, weights) for server in fit}
    extra = total - sum(share for share, _ in shares.values())
    # A chunk above a rounded share stays where it is; the rest may go to any other server whose share was rounded.
    over = [name for name, (share, rest) in shares.items() if rest and counts.get(name, 0) > share]
    over = sorted(over, key=lambda name: (-shares[name][1], name))[:extra]
    change = {server.id: -counts.get(server.id, 0) for server in leavers}
    for name, (share, _) in shares.items():
        change[name] = share + (name in over) - counts.get(name, 0)
    more = [name for name, (_, rest) in shares.items() if rest and name not in over]
    more.sort(key=lambda name: (-shares[name][1], scatter(name, total)))
    extra -= len(over)
    return Quota(change, more if extra else [], extra)


def intake(servers: Collection[PlacementServer], counts: Mapping[int, int], arriving: int) -> Quota:
    """What each fit server of a row takes of new chunks when no server gives any; no counts without a fit server."""
    fit = [server for server in servers if server.condition == "fit"]
    while True:
        quota = quotas(fit, counts, arriving)
        below = [server for server in fit if quota.counts[server.id] >= 0]
        if len(below) == len(fit):
            return quota
        fit = below  # servers above their share keep their chunks


def moves(
    servers: Iterable[PlacementServer], quota: Quota, offers: Iterable[MovableChunk]
) -> list[Move]:
    """The moves that fill the quota of a row, as many as possible to machines without another copy of the chunk.

    Every giver offers at least as many chunks as it gives; more leave more choice. Chunks that a taker still has go
    first, then those that share a machine now, then those that are not loaded yet, then those offered first.
    """
    where = {server.id: server.machine for server in servers}
    room = {name: max(0, quota.counts.get(name, 0)) for name in [*quota.more, *sorted(where)]}
    takers = {name: where[name] for name in room if room[name] or name in quota.more}
    give: dict[int | None, int] = {name: max(0, -count) for name, count in quota.counts.items()}
    give[None] = sum(room.values()) + quota.extra
    groups = _chunk_groups(offers, give, where, takers)
    Assignment(groups, give, takers, room).fill(quota.more, quota.extra)
    return [
        Move(chunk, group.giver, taker, taker in group.holders)
        for group in groups
        for chunk, taker in group.moves()
    ]


def _chunk_groups(
    offers: Iterable[MovableChunk],
    give: Mapping[int | None, int],
    where: Mapping[int, str],
    takers: Mapping[int, str],
) -> list[ChunkGroup]:
    """Group the offers, the preferred groups first."""
    names, machines = frozenset(takers), frozenset(takers.values())
    groups: dict[
        tuple[int | None, tuple[bool, ...], frozenset[str], frozenset[int]], ChunkGroup
    ] = {}
    seen: set[int] = set()
    for chunk, giver, wanted, elsewhere, holders in offers:
        limit = give.get(giver, 0)
        if not limit or chunk in seen:
            continue
        blocked, holding = machines.intersection(elsewhere), names.intersection(holders)
        alone = giver is not None and where.get(giver) not in elsewhere
        key = (giver, (giver is not None, alone, not wanted), blocked, holding)
        group = groups.setdefault(key, ChunkGroup(giver, blocked, holding))
        if len(group.chunks) < limit:  # its giver gives no more
            group.chunks.append(chunk)
            seen.add(chunk)
    return [groups[key] for key in sorted(groups, key=lambda key: key[1])]


def place_new_chunks(
    chunks: Iterable[int],
    servers: Collection[PlacementServer],
    counts: Mapping[int, int],
    rows: int,
) -> NewPlacements:
    """Place new chunks on one server of every row, evenly, and on different machines where possible."""
    new = list(dict.fromkeys(chunks))
    where = {server.id: server.machine for server in servers}
    quota = {
        row: intake([server for server in servers if server.row == row], counts, len(new))
        for row in range(1, rows + 1)
    }
    placed = NewPlacements({}, [row for row, quota_ in quota.items() if not quota_.counts])
    machines = Counter(name for row in quota for name in {where[n] for n in quota[row].counts})
    shared: dict[int, Quota] = {}
    for row, quota_ in quota.items():
        if any(machines[where[name]] > 1 for name in quota_.counts):
            shared[row] = quota_
        elif quota_.counts:
            _place_in_row(row, new, quota_, placed.chunks)
    rooms = {row: quota_.room() for row, quota_ in shared.items()}
    start = 0
    for size, names in deal_new_chunks(len(new), rooms, where, turn=sum(counts.values())):
        for name in names:
            placed.chunks.setdefault(name, []).extend(new[start : start + size])
        start += size
    return placed


def _place_in_row(row: int, new: list[int], quota: Quota, placed: dict[int, list[int]]) -> None:
    """Place chunks in a row with machines of its own; each row has another order, for the reason of `scatter`."""
    order = sorted(new, key=lambda chunk: (chunk * (2 * row + 1) * HASH_MULTIPLIER) & WORD_MASK)
    base, more = quota.room()
    sizes = Counter(base) + Counter(list(more)[: quota.extra])
    start = 0
    for name, size in sizes.items():
        placed[name] = order[start : start + size]
        start += size


def returned(copies: Iterable[PlacedCopy], held: Collection[int]) -> ReturnedServer:
    """The placements of a server that comes back with these chunks, which it has verified."""
    current: list[PlacedCopy] = []
    known: set[int] = set()
    for copy in copies:
        known.add(copy.chunk)
        if copy.chunk in held:
            current.append(copy._replace(state="leaving" if copy.state == "leaving" else "loaded"))
        elif copy.state != "leaving":
            current.append(copy._replace(state="wanted"))
    return ReturnedServer(current, sorted(set(held) - known))
