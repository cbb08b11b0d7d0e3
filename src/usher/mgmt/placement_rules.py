"""Seating: which index server of each row holds which chunk.

Comes from the servers, how many chunks each holds, and the chunks that may move, as the database picks them; goes to
the placements to write, which are only those that change.

    quotas   how many chunks each server of a row gives or takes, so that all hold their share
    intake   the same when nobody gives: how many arriving chunks each takes
    moves    which chunks go where, out of those offered in a row
    seat     where freshly built chunks go, in all rows
    droppable, returned   what becomes of copies that moved away, and of a server that was away

A chunk has one seat in each row, `wanted` or `loaded`; only seats are counted. A move makes the old copy `leaving`, or
nothing if it was only `wanted`, and the new one `wanted`, or `loaded` if the taker still has it. Any number of chunks
is seated in batches of any size: the balance holds after each.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from usher.errors import BadInput
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
GIVES_ALL: Final = frozenset({"draining", "gone"})
ANSWERS: Final = frozenset({"fit", "draining"})


@dataclass(frozen=True, slots=True)
class PlacementServer:
    """An index server; one that is `unsure` keeps what it has and gets nothing new."""

    id: int
    row: int
    machine: str
    weight: int = 1
    condition: Condition = "fit"

    def __post_init__(self) -> None:
        if self.weight < 1:
            raise BadInput(
                f"The weight of a server is 1 or more, not {self.weight}.",
                hint="Drain a server that should hold nothing.",
            )


class Quota(NamedTuple):
    """What each server of a row takes, or gives if negative; on top, so many of the `more` take one each."""

    counts: dict[int, int]
    more: list[int]
    extra: int

    def room(self) -> tuple[dict[int, int], dict[int, int]]:
        """The places that must be filled, and those of which some are."""
        must = {name: count for name, count in self.counts.items() if count > 0}
        return must, dict.fromkeys(self.more, 1)


class MovableChunk(NamedTuple):
    """A chunk that may move within a row, or that has no place_new_chunks in it yet."""

    chunk: int
    giver: int | None = None
    wanted: bool = False  # the giver has not loaded it either, so moving it costs nothing
    elsewhere: Collection[str] = ()  # the machines of its seats in other rows
    holders: Collection[int] = ()  # servers of this row with a leaving copy


class Move(NamedTuple):
    chunk: int
    giver: int | None
    taker: int
    held: bool  # the taker's own leaving copy becomes its seat again


class NewPlacements(NamedTuple):
    """Chunks by server, and the rows in which no server can take any."""

    chunks: dict[int, list[int]]
    missing: list[int]


class PlacedCopy(NamedTuple):
    """A placement."""

    chunk: int
    row: int
    server: int
    state: PlacementState


class ReturnedServer(NamedTuple):
    """The placements of a server that was away as they are now, and the chunks it has no use for."""

    copies: list[PlacedCopy]
    stray: list[int]


def machine(host: str) -> str:
    """The host name or address without its port."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0] if name.count(":") == 1 else name


def row_for(host: str, servers: Iterable[PlacementServer], rows: int) -> int:
    """The shortest row by weight; among equals one with the same machine, whose copies then never meet."""
    staying = [one for one in servers if one.condition not in GIVES_ALL]
    length = Counter[int]()
    for one in staying:
        length[one.row] += one.weight
    beside = {one.row for one in staying if one.machine == machine(host)}
    return min(range(1, rows + 1), key=lambda row: (length[row], row not in beside), default=1)


def quotas(
    servers: Collection[PlacementServer], counts: Mapping[int, int], waiting: int = 0
) -> Quota:
    """What leads to the exact share, rounded up or down, on each fit server of a row by the fewest moves.

    `waiting` chunks have no seat in the row. Without a fit server nothing moves: what waits is missing, and whoever
    should give keeps. With equal weights those who stay never exchange anything when another comes or goes; with others
    they may, since no rule keeps both that and the share.
    """
    fit = [one for one in servers if one.condition == "fit"]
    if not fit:
        return Quota(dict.fromkeys((one.id for one in servers), 0), [], 0)
    leavers = [one for one in servers if one.condition in GIVES_ALL]
    total = waiting + sum(counts.get(one.id, 0) for one in [*fit, *leavers])
    weights = sum(one.weight for one in fit)
    shares = {one.id: divmod(total * one.weight, weights) for one in fit}
    extra = total - sum(share for share, _ in shares.values())
    # What is left over stays where it is. The rest may go to any other server with a broken share.
    over = [name for name, (share, rest) in shares.items() if rest and counts.get(name, 0) > share]
    over = sorted(over, key=lambda name: (-shares[name][1], name))[:extra]
    change = {one.id: -counts.get(one.id, 0) for one in leavers}
    for name, (share, _) in shares.items():
        change[name] = share + (name in over) - counts.get(name, 0)
    more = [name for name, (_, rest) in shares.items() if rest and name not in over]
    more.sort(key=lambda name: (-shares[name][1], scatter(name, total)))
    extra -= len(over)
    return Quota(change, more if extra else [], extra)


def intake(servers: Collection[PlacementServer], counts: Mapping[int, int], arriving: int) -> Quota:
    """What each fit server of a row takes of arriving chunks when nobody gives; no counts if there is none."""
    fit = [one for one in servers if one.condition == "fit"]
    while True:
        quota = quotas(fit, counts, arriving)
        below = [one for one in fit if quota.counts[one.id] >= 0]
        if len(below) == len(fit):
            return quota
        fit = below  # those above their share keep what they have


def moves(
    servers: Iterable[PlacementServer], quota: Quota, offers: Iterable[MovableChunk]
) -> list[Move]:
    """The moves that fill a row's quota, as many as possible to machines without another copy of the chunk.

    Every giver offers as many as it gives; more of them leave more choice. Preferred is what a taker still holds, then
    what shares a machine now, then what is not loaded yet, then what was offered first.
    """
    where = {one.id: one.machine for one in servers}
    room = {name: max(0, quota.counts.get(name, 0)) for name in [*quota.more, *sorted(where)]}
    takers = {name: where[name] for name in room if room[name] or name in quota.more}
    give: dict[int | None, int] = {name: max(0, -count) for name, count in quota.counts.items()}
    give[None] = sum(room.values()) + quota.extra
    packs = _chunk_groups(offers, give, where, takers)
    Assignment(packs, give, takers, room).fill(quota.more, quota.extra)
    return [
        Move(chunk, pack.giver, taker, taker in pack.holders)
        for pack in packs
        for chunk, taker in pack.dealt()
    ]


def _chunk_groups(
    offers: Iterable[MovableChunk],
    give: Mapping[int | None, int],
    where: Mapping[int, str],
    takers: Mapping[int, str],
) -> list[ChunkGroup]:
    """The offers in packs, the preferred first."""
    names, machines = frozenset(takers), frozenset(takers.values())
    packs: dict[
        tuple[int | None, tuple[bool, ...], frozenset[str], frozenset[int]], ChunkGroup
    ] = {}
    seen: set[int] = set()
    for chunk, giver, wanted, elsewhere, holders in offers:
        most = give.get(giver, 0)
        if not most or chunk in seen:
            continue
        blocked, back = machines.intersection(elsewhere), names.intersection(holders)
        alone = giver is not None and where.get(giver) not in elsewhere
        key = (giver, (giver is not None, alone, not wanted), blocked, back)
        pack = packs.setdefault(key, ChunkGroup(giver, blocked, back))
        if len(pack.chunks) < most:  # more than its giver gives would never be looked at
            pack.chunks.append(chunk)
            seen.add(chunk)
    return [packs[key] for key in sorted(packs, key=lambda key: key[1])]


def place_new_chunks(
    chunks: Iterable[int],
    servers: Collection[PlacementServer],
    counts: Mapping[int, int],
    rows: int,
) -> NewPlacements:
    """Where new chunks go: to one server of every row, evenly, on different machines where possible."""
    new = list(dict.fromkeys(chunks))
    where = {one.id: one.machine for one in servers}
    quota = {
        row: intake([one for one in servers if one.row == row], counts, len(new))
        for row in range(1, rows + 1)
    }
    found = NewPlacements({}, [row for row, one in quota.items() if not one.counts])
    machines = Counter(name for row in quota for name in {where[n] for n in quota[row].counts})
    meeting: dict[int, Quota] = {}
    for row, one in quota.items():
        if any(machines[where[name]] > 1 for name in one.counts):
            meeting[row] = one
        elif one.counts:
            _place_in_row(row, new, one, found.chunks)
    rooms = {row: one.room() for row, one in meeting.items()}
    start = 0
    for size, names in deal_new_chunks(len(new), rooms, where, turn=sum(counts.values())):
        for name in names:
            found.chunks.setdefault(name, []).extend(new[start : start + size])
        start += size
    return found


def _place_in_row(row: int, new: list[int], quota: Quota, seats: dict[int, list[int]]) -> None:
    """Seat a row whose machines are its own, each row in another order for the reason of `scatter`."""
    order = sorted(new, key=lambda chunk: (chunk * (2 * row + 1) * HASH_MULTIPLIER) & WORD_MASK)
    base, more = quota.room()
    sizes = Counter(base) + Counter(list(more)[: quota.extra])
    start = 0
    for name, size in sizes.items():
        seats[name] = order[start : start + size]
        start += size


def droppable(
    copies: Collection[PlacedCopy], servers: Iterable[PlacementServer]
) -> list[PlacedCopy]:
    """The leaving copies whose successor is loaded on a server that answers."""
    sure = {one.id for one in servers if one.condition in ANSWERS}
    safe = {(one.chunk, one.row) for one in copies if one.state == "loaded" and one.server in sure}
    return [one for one in copies if one.state == "leaving" and (one.chunk, one.row) in safe]


def returned(copies: Iterable[PlacedCopy], held: Collection[int]) -> ReturnedServer:
    """What holds of the placements of a server that comes back with these chunks, checked and sound."""
    now: list[PlacedCopy] = []
    known: set[int] = set()
    for one in copies:
        known.add(one.chunk)
        if one.chunk in held:
            now.append(one._replace(state="leaving" if one.state == "leaving" else "loaded"))
        elif one.state != "leaving":
            now.append(one._replace(state="wanted"))
    return ReturnedServer(now, sorted(set(held) - known))
