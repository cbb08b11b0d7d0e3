"""Chunks are seated evenly, moved as little as possible, and never dropped before they are elsewhere."""

from collections import Counter
from itertools import product
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support.models.placements import House, grid, takes
from usher.errors import BadInput
from usher.mgmt.placement_rules import (
    ANSWERS,
    Condition,
    MovableChunk,
    Move,
    PlacedCopy,
    PlacementServer,
    PlacementState,
    intake,
    machine,
    moves,
    place_new_chunks,
    quotas,
    returned,
    row_for,
)


@pytest.mark.seed("001.25", "001.26")
def test_the_example_of_the_seed() -> None:
    house = House(5, grid(5, 5))
    house.build(100)
    assert set(house.counts().values()) == {20}
    assert len(house.copies) == 500
    assert house.clashes() == 0
    assert house.plan() == []


def test_a_dead_servers_chunks_are_spread_over_the_other_rows() -> None:
    for batch in (1, 200):
        house = House(2, grid(2, 5))
        while house.chunks < 200:
            house.build(batch)
        its = {chunk for chunk, _, server in house.copies if server == 100}
        others = {server for chunk, row, server in house.copies if row == 2 and chunk in its}
        assert len(others) == 5


@given(n=st.integers(0, 60), k=st.integers(1, 8), rows=st.integers(1, 3), shared=st.booleans())
def test_a_server_that_joins_gets_its_share_and_nothing_else_moves(
    *, n: int, k: int, rows: int, shared: bool
) -> None:
    house = House(rows, grid(rows, k, shared=shared))
    house.build(n)
    house.load()
    house.servers[999] = PlacementServer(999, 1, "new")
    done = house.plan()
    assert len(done) == n // (k + 1)
    assert all(move.taker == 999 for move in done)
    house.check_balance()
    assert house.plan() == []


@given(
    n=st.integers(0, 60),
    k=st.integers(2, 8),
    how=st.sampled_from(["gone", "draining"]),
    loaded=st.booleans(),
)
def test_when_a_server_goes_only_its_chunks_move(
    *, n: int, k: int, how: Condition, loaded: bool
) -> None:
    house = House(2, grid(2, k))
    house.build(n)
    if loaded:
        house.load()
    its = [chunk for chunk, _, server in house.copies if server == 100]
    house.be(100, how)
    done = house.plan()
    assert sorted(move.chunk for move in done) == sorted(its)
    assert all(move.giver == 100 for move in done)
    house.check_balance()
    leaving = [key for key, state in house.copies.items() if state == "leaving"]
    assert leaving == [(chunk, 1, 100) for chunk in its if loaded]
    house.drop()
    assert [key for key in leaving if key in house.copies] == leaving
    house.load()
    house.drop()
    assert not any(key in house.copies for key in leaving)


WEIGHED = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 12), st.sampled_from(["fit", "fit", "gone"])),
    min_size=1,
    max_size=5,
)


@given(WEIGHED, st.integers(0, 9))
def test_quotas_are_met_by_the_fewest_moves(
    row: list[tuple[int, int, Condition]], waiting: int
) -> None:
    servers = [PlacementServer(n, 1, f"m{n}", one[0], one[2]) for n, one in enumerate(row)]
    counts = {n: count for n, (_, count, _) in enumerate(row)}
    quota = quotas(servers, counts, waiting)
    fit = [one for one in servers if one.condition == "fit"]
    if not fit:
        assert not any(quota.counts.values())
        return
    total, weights = sum(counts.values()) + waiting, sum(one.weight for one in fit)
    shares = [(total * o.weight // weights, ceil(total * o.weight / weights)) for o in fit]
    ends = [end for end in product(*map(set, shares)) if sum(end) == total]
    least = min(
        sum(max(0, count - counts[one.id]) for one, count in zip(fit, end, strict=True))
        for end in ends
    )
    assert takes(quota) == least
    assert sum(quota.counts.values()) + quota.extra == waiting
    for one, (low, high) in zip(fit, shares, strict=True):
        end = counts[one.id] + quota.counts[one.id]
        assert low <= end <= end + (one.id in quota.more) <= high


@given(WEIGHED, st.integers(0, 9))
def test_arriving_chunks_fill_the_lowest_first(
    row: list[tuple[int, int, Condition]], arriving: int
) -> None:
    servers = [PlacementServer(n, 1, f"m{n}", 1, one[2]) for n, one in enumerate(row)]
    counts = {n: count for n, (_, count, _) in enumerate(row)}
    quota = intake(servers, counts, arriving)
    level = {one.id: counts[one.id] for one in servers if one.condition == "fit"}
    for _ in range(arriving if level else 0):
        level[min(level, key=lambda name: level[name])] += 1
    found = {name: counts[name] + quota.counts.get(name, 0) for name in level}
    for name in quota.more[: quota.extra]:
        found[name] += 1
    assert sorted(found.values()) == sorted(level.values())
    assert all(count >= 0 for count in quota.counts.values())


def test_what_is_not_loaded_yet_moves_first() -> None:
    house = House(1, [PlacementServer(1, 1, "a")])
    house.build(10)
    house.load()
    house.build(10)
    house.servers[2] = PlacementServer(2, 1, "b")
    assert sorted(move.chunk for move in house.plan()) == list(range(10, 20))
    assert "leaving" not in house.copies.values()


def test_a_server_that_returns_takes_back_what_it_still_holds() -> None:
    house = House(1, [PlacementServer(n, 1, f"m{n}") for n in range(3)])
    house.build(30)
    house.load()
    before = dict(house.copies)
    house.be(0, "gone")
    assert len(house.plan()) == 10
    house.be(0, "fit")
    back = house.plan()
    assert len(back) == 10
    assert all(move.held for move in back)
    assert house.copies == before


def test_one_that_is_unsure_keeps_what_it_has_and_gets_no_more() -> None:
    house = House(1, [PlacementServer(n, 1, f"m{n}") for n in range(3)])
    house.build(30)
    house.be(0, "unsure")
    assert house.plan() == []
    house.build(10)
    assert house.counts() == {0: 10, 1: 15, 2: 15}
    house.be(0, "fit")
    assert len(house.plan()) == 3


def test_no_copy_is_dropped_for_one_on_a_server_that_does_not_answer() -> None:
    house = House(1, [PlacementServer(1, 1, "a")])
    house.build(1)
    house.load()
    house.be(1, "draining")
    house.servers[2] = PlacementServer(2, 1, "b")
    house.plan()
    house.load()
    for condition in ("unsure", "gone"):
        house.be(2, condition)
        house.drop()
        assert house.copies == {(0, 1, 1): "leaving", (0, 1, 2): "loaded"}
    house.be(2, "fit")
    house.drop()
    assert house.copies == {(0, 1, 2): "loaded"}


def test_fewer_servers_than_rows_or_none_wait_and_are_repaired() -> None:
    house = House(3)
    house.build(10)
    assert place_new_chunks(range(10), [], {}, 3).missing == [1, 2, 3]
    assert house.plan() == []
    for n in (1, 2, 3):
        row = row_for("alone:1", house.servers.values(), 3)
        assert row == n
        house.servers[n] = PlacementServer(n, row, "alone")
        assert len(house.plan()) == 10
        house.build(0)
        house.check_balance()
        missing = [row for row in (1, 2, 3) if house.missing(row)]
        assert missing == place_new_chunks([99], list(house.servers.values()), {}, 3).missing


def test_the_last_server_of_a_row_keeps_what_nobody_can_take() -> None:
    house = House(1, [PlacementServer(1, 1, "a")])
    house.build(5)
    house.load()
    for condition in ("draining", "gone", "unsure"):
        house.be(1, condition)
        assert house.plan() == []
    house.build(1)
    assert house.missing(1) == [5]


def test_a_server_without_a_row_gets_the_shortest() -> None:
    servers = [
        PlacementServer(1, 1, "a"),
        PlacementServer(2, 1, "b"),
        PlacementServer(3, 2, "c"),
        PlacementServer(4, 3, "d"),
    ]
    assert row_for("x", servers, 3) == 2
    assert row_for("D:5001", servers, 3) == 3
    assert row_for("x", [*servers, PlacementServer(5, 2, "e", weight=5)], 3) == 3
    assert row_for("x", [*servers[1:], PlacementServer(1, 1, "a", condition="gone")], 2) == 1
    assert row_for("x", servers, 4) == 4
    assert row_for("x", [], 1) == row_for("x", [], 0) == 1


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("10.10.127.102:5000", "10.10.127.102"),
        ("10.10.127.102", "10.10.127.102"),
        ("Index-1.Example:80", "index-1.example"),
        ("[2001:DB8::1]:5000", "2001:db8::1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("", ""),
        ("[", ""),
    ],
)
def test_the_machine_is_the_host_without_its_port(host: str, name: str) -> None:
    assert machine(host) == name


def test_a_weight_is_at_least_one() -> None:
    with pytest.raises(BadInput, match="1 or more") as caught:
        PlacementServer(1, 1, "a", weight=0)
    assert "Drain" in caught.value.hint


def test_offers_that_nobody_asked_for_are_passed_over() -> None:
    servers = [PlacementServer(1, 1, "a"), PlacementServer(2, 1, "b")]
    quota = quotas(servers, {1: 4, 2: 2})
    offers = [
        MovableChunk(1, 2),
        MovableChunk(2, 77),
        MovableChunk(3, None),
        MovableChunk(3, 1),
        MovableChunk(4, 1),
        MovableChunk(5, 1),
    ]
    assert moves(servers, quota, offers) == [Move(3, None, 2, held=False)]
    assert moves(servers, quota, offers[3:]) == [Move(3, 1, 2, held=False)]
    assert moves(servers, quota, []) == []
    assert (
        len(moves(servers, quotas(servers, {}, 4), [MovableChunk(1)] * 3 + [MovableChunk(2)] * 3))
        == 2
    )
    assert place_new_chunks([7, 7], servers, {1: 4, 2: 2}, 1).chunks == {2: [7]}


def test_a_server_that_was_away_keeps_what_is_sound() -> None:
    states: list[PlacementState] = ["loaded", "loaded", "wanted", "wanted", "leaving", "leaving"]
    copies = [PlacedCopy(n, 1, 5, state) for n, state in enumerate(states)]
    now = returned(copies, {0, 2, 4, 9})
    assert [(one.chunk, one.state) for one in now.copies] == [
        (0, "loaded"),
        (1, "wanted"),
        (2, "loaded"),
        (3, "wanted"),
        (4, "leaving"),
    ]
    assert now.stray == [9]


@pytest.mark.parametrize("shared", [False, True])
def test_many_chunks_are_seated_in_batches_and_a_join_moves_only_its_share(*, shared: bool) -> None:
    servers, counts = grid(5, 20, shared=shared), Counter[int]()
    held: list[int] = []
    for start in range(0, 200_000, 10_000):
        found = place_new_chunks(range(start, start + 10_000), servers, counts, 5).chunks
        counts.update({name: len(chunks) for name, chunks in found.items()})
        held += found[100]
    assert set(counts.values()) == {10_000}
    assert len(set(held)) == 10_000
    row = [*grid(1, 20), PlacementServer(999, 1, "new")]
    quota = quotas(row, counts)
    assert takes(quota) == 200_000 // 21
    offers = (MovableChunk(chunk, 100 + chunk % 20) for chunk in range(200_000))
    done = moves(row, quota, offers)
    assert len({move.chunk for move in done}) == len(done) == 200_000 // 21
    assert Counter(move.giver for move in done) == Counter(
        {name: -count for name, count in quota.counts.items() if count < 0}
    )


class Days(RuleBasedStateMachine):
    """Servers come, fall silent, die, return and drain while chunks are built, loaded, moved and dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.house = House(3)
        self.loaded: set[tuple[int, int]] = set()

    @precondition(lambda self: len(self.house.servers) < 9)
    @rule(name=st.sampled_from("ABCDE"), weight=st.sampled_from([1, 1, 1, 2, 3]))
    def join(self, name: str, weight: int) -> None:
        servers = self.house.servers
        row = row_for(name, servers.values(), 3)
        servers[len(servers)] = PlacementServer(len(servers), row, name, weight)

    @precondition(lambda self: self.house.servers)
    @rule(data=st.data(), condition=st.sampled_from(["fit", "fit", "unsure", "draining", "gone"]))
    def change(self, data: st.DataObject, condition: Condition) -> None:
        self.house.be(data.draw(st.sampled_from(sorted(self.house.servers))), condition)

    @precondition(lambda self: self.house.chunks < 40)
    @rule(count=st.integers(1, 8))
    def build(self, count: int) -> None:
        self.house.build(count)

    @rule()
    def plan(self) -> None:
        self.house.plan()
        self.house.check_balance()
        assert self.house.plan() == []

    @rule(data=st.data())
    def load(self, data: st.DataObject) -> None:
        wanted = [key for key, state in self.house.copies.items() if state == "wanted"]
        ready = [key for key in wanted if self.house.servers[key[2]].condition in ANSWERS]
        for key in data.draw(st.sets(st.sampled_from(ready))) if ready else ():
            self.house.copies[key] = "loaded"

    @rule()
    def drop(self) -> None:
        before = self.answering()
        self.house.drop()
        assert self.answering() == before

    def answering(self) -> set[tuple[int, int]]:
        """What can be had in each row from servers that answer."""
        return {
            (chunk, row)
            for (chunk, row, server), state in self.house.copies.items()
            if state != "wanted" and self.house.servers[server].condition in ANSWERS
        }

    @invariant()
    def a_chunk_has_at_most_one_seat_in_a_row(self) -> None:
        seats = Counter((chunk, row) for chunk, row, _ in self.house.seats())
        assert all(count == 1 for count in seats.values())

    @invariant()
    def what_was_loaded_stays_somewhere(self) -> None:
        held = {key[:2] for key, state in self.house.copies.items() if state != "wanted"}
        assert self.loaded <= held
        self.loaded = held

    def teardown(self) -> None:
        """When all is well again, every row holds every chunk once and nothing else."""
        for name in self.house.servers:
            self.house.be(name, "fit")
        self.house.plan()
        self.house.load()
        self.house.drop()
        self.house.check_balance()
        rows = {one.row for one in self.house.servers.values()}
        assert len(self.house.copies) == self.house.chunks * len(rows)
        assert set(self.house.copies.values()) <= {"loaded"}


Days.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestDays = Days.TestCase
