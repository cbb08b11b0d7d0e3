"""Apart: as many chunks as possible on machines that hold no other copy of them.

Comes from `seating`: chunks, and how many of them each server of a row gives and takes; goes back as what every taker
gets. Chunks that move are a greatest flow from givers over packs to takers, poured first and completed by chains of
changes; new chunks are dealt by matching machines to rows.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

WORD_MASK: Final = 2**64 - 1
HASH_MULTIPLIER: Final = 0x9E3779B97F4A7C15
MIN_PORTIONS: Final = 32


def scatter(name: int, turn: int) -> tuple[int, int]:
    """Sorts equals in another order each turn.

    By id, chunks would go round all rows in step, and what a dead server held could be had from, and go to, only few.
    """
    mixed = ((name * HASH_MULTIPLIER ^ turn) * HASH_MULTIPLIER) & WORD_MASK
    return ((mixed ^ mixed >> 32) * HASH_MULTIPLIER) & WORD_MASK, name


@dataclass(eq=False, slots=True)
class ChunkGroup:
    """Chunks of one giver that may not go to the blocked machines, and would best go back to the holders."""

    giver: int | None
    blocked: frozenset[str]
    holders: frozenset[int]
    chunks: list[int] = field(default_factory=list)
    sent: Counter[int] = field(default_factory=Counter)

    @property
    def spare(self) -> int:
        return len(self.chunks) - self.sent.total()

    def dealt(self) -> Iterator[tuple[int, int]]:
        """Every chunk that goes, with its taker."""
        return zip(self.chunks, self.sent.elements(), strict=False)


class ReassignmentChain(NamedTuple):
    """How one more chunk finds a place: packs and the takers they send to, last to first, and those they leave."""

    sends: list[tuple[ChunkGroup, int]]
    leaves: list[tuple[ChunkGroup, int]]


@dataclass(slots=True)
class Assignment:
    """The packs in order of preference, what givers must still give, the takers' machines and their room."""

    packs: Sequence[ChunkGroup]
    give: dict[int | None, int]
    takers: Mapping[int, str]
    room: dict[int, int]
    most: int = 0  # how many more may be sent at this stage

    def fill(self, more: Sequence[int], extra: int) -> None:
        """Fill all room, and one place at so many of the `more`; together only what cannot be apart."""
        self.most = sum(self.room.values())
        self.apart()
        left, self.most = self.most, extra
        self.open(more)
        self.apart()
        unused = [name for name in more if self.room[name]]
        for name in unused:
            self.room[name] -= 1
        extra, self.most = self.most, left
        self.together()
        self.most = extra
        self.open(unused)
        self.together()

    def open(self, more: Sequence[int]) -> None:
        for name in more:
            self.room[name] += 1

    def apart(self) -> None:
        for pack in self.packs:
            self.pour(pack, [name for name in sorted(pack.holders) if self.suits(pack, name)])
        for pack in self.packs:
            self.pour(pack, [name for name in self.takers if self.suits(pack, name)])
        while self.most and (chain := self.chain()):
            self.change(chain)

    def together(self) -> None:
        for pack in self.packs:
            self.pour(pack, list(self.takers))

    def suits(self, pack: ChunkGroup, name: int) -> bool:
        return self.takers[name] not in pack.blocked

    def pour(self, pack: ChunkGroup, names: Sequence[int]) -> None:
        """Send what a pack can give to these takers, in proportion to their room."""
        space = sum(self.room[name] for name in names)
        left = min(pack.spare, self.give[pack.giver], self.most, space)
        self.give[pack.giver] -= left
        self.most -= left
        for name in sorted(names, key=lambda name: -self.room[name]):
            if not left:
                return
            free = self.room[name]
            count = -(-left * free // space)
            left, space = left - count, space - free
            self.send(pack, name, count)

    def send(self, pack: ChunkGroup, name: int, count: int) -> None:
        pack.sent[name] += count
        self.room[name] -= count

    def chain(self) -> ReassignmentChain | None:
        """The shortest chain of changes that puts one more chunk apart, if there is any."""
        queue = [pack for pack in self.packs if self.give[pack.giver] and pack.spare]
        came: dict[ChunkGroup, ChunkGroup | int | None] = dict.fromkeys(queue)
        givers = {pack.giver for pack in queue}
        reached: dict[int, ChunkGroup] = {}
        for pack in queue:
            for name in self.takers:
                if name in reached or not self.suits(pack, name):
                    continue
                reached[name] = pack
                if self.room[name]:
                    return _chain(name, reached, came)
                queue += _add_unvisited((one for one in self.packs if one.sent[name]), name, came)
            if pack.giver not in givers:  # it keeps this one, and may give another instead
                givers.add(pack.giver)
                others = (one for one in self.packs if one.giver == pack.giver and one.spare)
                queue += _add_unvisited(others, pack, came)
        return None

    def change(self, chain: ReassignmentChain) -> None:
        giver = chain.sends[-1][0].giver
        leaving = {pack for pack, _ in chain.leaves}
        spare = [pack.spare for pack, _ in chain.sends if pack not in leaving]
        sent = [pack.sent[name] for pack, name in chain.leaves]
        count = min(self.most, self.give[giver], self.room[chain.sends[0][1]], *spare, *sent)
        self.give[giver] -= count
        self.most -= count
        for pack, name in chain.sends:
            self.send(pack, name, count)
        for pack, name in chain.leaves:
            self.send(pack, name, -count)


def _add_unvisited(
    packs: Iterator[ChunkGroup],
    link: ChunkGroup | int,
    came: dict[ChunkGroup, ChunkGroup | int | None],
) -> list[ChunkGroup]:
    """Those not met before, which are now."""
    found = [pack for pack in packs if pack not in came]
    came.update(dict.fromkeys(found, link))
    return found


def _chain(
    end: int, reached: Mapping[int, ChunkGroup], came: Mapping[ChunkGroup, ChunkGroup | int | None]
) -> ReassignmentChain:
    chain = ReassignmentChain([], [])
    name: int | None = end
    while name is not None:
        pack = reached[name]
        chain.sends.append((pack, name))
        before = came[pack]
        if isinstance(before, ChunkGroup):
            pack, before = before, came[before]
        name = before if isinstance(before, int) else None
        if name is not None:
            chain.leaves.append((pack, name))
    return chain


def deal_new_chunks(
    count: int,
    rooms: Mapping[int, Sequence[dict[int, int]]],
    where: Mapping[int, str],
    turn: int,
) -> Iterator[tuple[int, list[int]]]:
    """How many new chunks sit on which servers, one of every row, until all are seated; the rooms are used up.

    The first of a row's rooms is filled before the next. The machine with most places left goes first: one that has
    more of them than there are chunks left gets some chunk twice.
    """
    while count and rooms:
        room = {row: next(filter(None, stages)) for row, stages in rooms.items()}
        names = _server_of_each_row(room, where, turn + count)
        # Few go the same way. With more than one in rows + 1, a machine left out could then have too many places.
        size = count // max(MIN_PORTIONS, len(rooms) + 1)
        size = max(1, min(size, *(room[row][name] for row, name in names.items())))
        yield size, list(names.values())
        count -= size
        for row, name in names.items():
            room[row][name] -= size
            if not room[row][name]:
                del room[row][name]


def _server_of_each_row(
    room: Mapping[int, Mapping[int, int]], where: Mapping[int, str], turn: int
) -> dict[int, int]:
    """A server of every row for one chunk, by row."""
    left = Counter[str]()
    places: dict[str, dict[int, int]] = {}
    for row in sorted(room, key=lambda row: scatter(row, turn)):
        names = sorted(room[row], key=lambda name: scatter(name, turn))
        # Of several servers on one machine, the one with most room is last and stays.
        for name in sorted(names, key=room[row].__getitem__):
            left[where[name]] += room[row][name]
            places.setdefault(where[name], {})[row] = name
    met = _match_machines(places, left)
    return {
        row: places[met[row]][row] if row in met else max(free, key=free.__getitem__)
        for row, free in room.items()
    }


def _match_machines(
    places: Mapping[str, Mapping[int, int]], left: Mapping[str, int]
) -> dict[int, str]:
    """A machine of its own for as many rows as possible, the fullest machines first (Kuhn's matching)."""
    met: dict[int, str] = {}

    def place(machine: str, tried: set[int]) -> bool:
        for row in places[machine]:
            if row not in tried:
                tried.add(row)
                if row not in met or place(met[row], tried):
                    met[row] = machine
                    return True
        return False

    for machine in sorted(places, key=lambda machine: -left[machine]):
        place(machine, set())
    return met
