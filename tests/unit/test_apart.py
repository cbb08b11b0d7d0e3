"""Copies of a chunk sit on different machines wherever the balance leaves a way."""

from collections import Counter
from collections.abc import Iterable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.models.placements import House, grid
from usher.mgmt.placement_rules import MovableChunk, Move, PlacementServer, Quota, moves

MACHINES = st.sampled_from("ABC")
OFFERS = st.lists(st.tuples(st.sampled_from([None, 0, 1]), st.sets(MACHINES)), max_size=6)


@pytest.mark.parametrize("batch", [1, 3, 7, 100])
@pytest.mark.parametrize(("rows", "servers"), [(5, 5), (5, 6), (3, 4), (2, 2), (1, 1)])
def test_machines_that_serve_every_row_hold_one_copy_of_each_chunk(
    rows: int, servers: int, batch: int
) -> None:
    house = House(rows, grid(rows, servers, shared=True))
    while house.chunks < 100:
        house.build(min(batch, 100 - house.chunks))
        house.check_balance()
    assert house.clashes() == 0


@pytest.mark.parametrize("batch", [1, 50, 500])
def test_there_is_room_apart_for_what_a_dead_server_held_and_a_new_one_takes(batch: int) -> None:
    house = House(4, grid(4, 10, shared=True))
    while house.chunks < 500:
        house.build(batch)
    house.load()
    house.be(100, "gone")
    assert len(house.plan()) == 50
    house.servers[999] = PlacementServer(999, 2, "m3")
    assert len(house.plan()) == 500 // 11
    assert house.clashes() == 0


@given(st.lists(MACHINES, min_size=1, max_size=3), OFFERS, st.integers(0, 3), st.integers(0, 3))
def test_as_many_moves_as_possible_lead_to_a_machine_without_a_copy(
    machines: list[str], offered: list[tuple[int | None, set[str]]], one: int, other: int
) -> None:
    """Compared with every way to move."""
    offers = [MovableChunk(n, giver, elsewhere=its) for n, (giver, its) in enumerate(offered)]
    have = Counter(offer.giver for offer in offers)
    give = {0: min(one, have[0]), 1: min(other, have[1])}
    total = have[None] + sum(give.values())
    takers = {n + 10: name for n, name in enumerate(machines)}
    share, extra = divmod(total, len(takers))
    counts = dict.fromkeys(takers, share) | {name: -count for name, count in give.items()}
    quota = Quota(counts, list(takers) if extra else [], extra)
    servers = [PlacementServer(n, 1, name) for n, name in {**takers, 0: "A", 1: "B"}.items()]
    found = moves(servers, quota, offers)
    assert fills(found, quota, offers, takers)
    best = 0
    for names in product([None, *takers], repeat=len(offers)):
        way = [
            Move(offer.chunk, offer.giver, name, held=False)
            for offer, name in zip(offers, names, strict=True)
            if name is not None
        ]
        if fills(way, quota, offers, takers):
            best = max(best, apart(way, offers, takers))
    assert apart(found, offers, takers) == best


def fills(way: list[Move], quota: Quota, offers: list[MovableChunk], takers: Iterable[int]) -> bool:
    gives, gets = Counter(move.giver for move in way), Counter(move.taker for move in way)
    gives_all = gives[None] == sum(offer.giver is None for offer in offers)
    over = [gets[name] - quota.counts[name] for name in takers]
    return (
        gives_all
        and all(gives[name] == -quota.counts[name] for name in (0, 1))
        and all(one in {0, 1} for one in over)
        and sum(over) == quota.extra
    )


def apart(way: list[Move], offers: list[MovableChunk], takers: dict[int, str]) -> int:
    return sum(takers[move.taker] not in offers[move.chunk].elsewhere for move in way)


@given(st.lists(st.lists(st.sampled_from("ABCDE"), min_size=1, max_size=5), min_size=1, max_size=4))
def test_new_chunks_are_all_apart_if_no_machine_must_hold_more_than_there_are(
    rows: list[list[str]],
) -> None:
    servers = [
        PlacementServer(row * 10 + n, row, name)
        for row, machines in enumerate(rows, 1)
        for n, name in enumerate(machines)
    ]
    house = House(len(rows), servers)
    house.build(600)
    house.check_balance()
    load = Counter[str]()
    for server, count in house.counts().items():
        load[house.servers[server].machine] += count
    assert (house.clashes() == 0) == all(count <= 600 for count in load.values())


def test_a_new_machine_takes_what_shares_a_machine_and_no_chunk_twice() -> None:
    house = House(2, [PlacementServer(1, 1, "old"), PlacementServer(2, 2, "old")])
    house.build(30)
    house.load()
    house.servers |= {3: PlacementServer(3, 1, "new"), 4: PlacementServer(4, 2, "new")}
    assert house.clashes() == 30
    assert len(house.plan()) == 30
    assert house.clashes() == 0
