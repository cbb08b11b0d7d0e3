"""Anti-affinity: gives as many chunks as possible to machines that have no other copy of them.

Chunks that move are a maximum flow from givers over groups of chunks to takers: a greedy pass first, then augmenting
chains. New chunks are placed by a matching of machines to rows.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

WORD_MASK: Final = 2**64 - 1
HASH_MULTIPLIER: Final = 0x9E3779B97F4A7C15
MIN_PORTIONS: Final = 32


def scatter(name: int, turn: int) -> tuple[int, int]:
    """A sort key that puts equal items into another order each turn.

    Sorted by id, chunks would go round all rows in step: then only few servers could replace a dead one.
    """
    mixed = ((name * HASH_MULTIPLIER ^ turn) * HASH_MULTIPLIER) & WORD_MASK
    return ((mixed ^ mixed >> 32) * HASH_MULTIPLIER) & WORD_MASK, name


@dataclass(eq=False, slots=True)
class ChunkGroup:
    """Chunks of one giver that should avoid the blocked machines and preferably go back to their holders."""

    giver: int | None
    blocked: frozenset[str]
    holders: frozenset[int]
    chunks: list[int] = field(default_factory=list)
    sent: Counter[int] = field(default_factory=Counter)

    @property
    def spare(self) -> int:
        return len(self.chunks) - self.sent.total()

    def moves(self) -> Iterator[tuple[int, int]]:
        """Every chunk that moves, with its taker."""
        return zip(self.chunks, self.sent.elements(), strict=False)


class ReassignmentChain(NamedTuple):
    """A chain that places one more chunk: groups and the takers they send to, last first, and those they leave."""

    sends: list[tuple[ChunkGroup, int]]
    leaves: list[tuple[ChunkGroup, int]]


@dataclass(slots=True)
class Assignment:
    """Groups in order of preference, what givers must still give, and the machines and room of takers."""

    groups: Sequence[ChunkGroup]
    give: dict[int | None, int]
    takers: Mapping[int, str]
    room: dict[int, int]
    most: int = 0  # the number of chunks left to send at this stage

    def fill(self, more: Sequence[int], extra: int) -> None:
        """Fill all room and one more place at `extra` servers of `more`; share machines only if unavoidable."""
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
        for group in self.groups:
            self.pour(group, [name for name in sorted(group.holders) if self.suits(group, name)])
        for group in self.groups:
            self.pour(group, [name for name in self.takers if self.suits(group, name)])
        while self.most and (chain := self.chain()):
            self.change(chain)

    def together(self) -> None:
        for group in self.groups:
            self.pour(group, list(self.takers))

    def suits(self, group: ChunkGroup, name: int) -> bool:
        return self.takers[name] not in group.blocked

    def pour(self, group: ChunkGroup, names: Sequence[int]) -> None:
        """Send the chunks of a group to these takers, in proportion to their room."""
        space = sum(self.room[name] for name in names)
        left = min(group.spare, self.give[group.giver], self.most, space)
        self.give[group.giver] -= left
        self.most -= left
        for name in sorted(names, key=lambda name: -self.room[name]):
            if not left:
                return
            free = self.room[name]
            count = -(-left * free // space)
            left, space = left - count, space - free
            self.send(group, name, count)

    def send(self, group: ChunkGroup, name: int, count: int) -> None:
        group.sent[name] += count
        self.room[name] -= count

    def chain(self) -> ReassignmentChain | None:
        """The shortest chain that gives one more chunk a machine of its own, if there is one."""
        queue = [group for group in self.groups if self.give[group.giver] and group.spare]
        came: dict[ChunkGroup, ChunkGroup | int | None] = dict.fromkeys(queue)
        givers = {group.giver for group in queue}
        reached: dict[int, ChunkGroup] = {}
        for group in queue:
            for name in self.takers:
                if name in reached or not self.suits(group, name):
                    continue
                reached[name] = group
                if self.room[name]:
                    return _chain(name, reached, came)
                queue += _add_unvisited(
                    (other for other in self.groups if other.sent[name]), name, came
                )
            if group.giver not in givers:  # the giver may give another group instead
                givers.add(group.giver)
                others = (
                    other for other in self.groups if other.giver == group.giver and other.spare
                )
                queue += _add_unvisited(others, group, came)
        return None

    def change(self, chain: ReassignmentChain) -> None:
        giver = chain.sends[-1][0].giver
        leaving = {group for group, _ in chain.leaves}
        spare = [group.spare for group, _ in chain.sends if group not in leaving]
        sent = [group.sent[name] for group, name in chain.leaves]
        count = min(self.most, self.give[giver], self.room[chain.sends[0][1]], *spare, *sent)
        self.give[giver] -= count
        self.most -= count
        for group, name in chain.sends:
            self.send(group, name, count)
        for group, name in chain.leaves:
            self.send(group, name, -count)


def _add_unvisited(
    groups: Iterator[ChunkGroup],
    link: ChunkGroup | int,
    came: dict[ChunkGroup, ChunkGroup | int | None],
) -> list[ChunkGroup]:
    """Mark the groups that were not visited before, and return them."""
    new = [group for group in groups if group not in came]
    came.update(dict.fromkeys(new, link))
    return new


def _chain(
    end: int, reached: Mapping[int, ChunkGroup], came: Mapping[ChunkGroup, ChunkGroup | int | None]
) -> ReassignmentChain:
    chain = ReassignmentChain([], [])
    name: int | None = end
    while name is not None:
        group = reached[name]
        chain.sends.append((group, name))
        before = came[group]
        if isinstance(before, ChunkGroup):
            group, before = before, came[before]
        name = before if isinstance(before, int) else None
        if name is not None:
            chain.leaves.append((group, name))
    return chain


def deal_new_chunks(
    count: int,
    rooms: Mapping[int, Sequence[dict[int, int]]],
    where: Mapping[int, str],
    turn: int,
) -> Iterator[tuple[int, list[int]]]:
    """Yield how many new chunks go to which servers, one of every row, until all are placed; uses up the rooms.

    Fills the first room of a row before the next. The machine with most places left goes first: one with more places
    than chunks left would get a chunk twice.
    """
    while count and rooms:
        room = {row: next(filter(None, stages)) for row, stages in rooms.items()}
        names = _server_of_each_row(room, where, turn + count)
        # Small portions: with more than one in rows + 1, a machine that was left out could have too many places.
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
    """Choose a server of every row for one chunk."""
    left = Counter[str]()
    places: dict[str, dict[int, int]] = {}
    for row in sorted(room, key=lambda row: scatter(row, turn)):
        names = sorted(room[row], key=lambda name: scatter(name, turn))
        # Of several servers on one machine, the one with most room comes last and replaces the others.
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
    """Give as many rows as possible a machine of their own, machines with most places first (Kuhn's algorithm)."""
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
