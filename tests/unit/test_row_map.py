"""The row map: a chunk that a row had is lost, one that it never had is new."""

from hypothesis import given, settings
from hypothesis import strategies as st

from usher.messages.front_end import ClusterMap, MappedServer, ServerRow
from usher.search.cluster_map import holdings_in
from usher.search.row_map import DEPARTED_SECONDS, RowMap, SearchRow


def see(seats: RowMap, drawn: dict[int, dict[str, list[int]]], now: float = 0.0) -> None:
    seats.update([ServerRow(row, list(servers)) for row, servers in drawn.items()], drawn, now)


def lost(seats: RowMap) -> list[int]:
    return [bench.lost for bench in seats.rows]


def test_the_chunks_of_a_departed_server_are_lost() -> None:
    seats = RowMap()
    see(seats, {1: {"a": [1, 2], "b": [3]}, 2: {"c": [1, 2, 3]}})
    assert seats.rows == (SearchRow(1, ("a", "b")), SearchRow(2, ("c",)))
    see(seats, {1: {"b": [3]}, 2: {"c": [1, 2, 3]}})
    assert lost(seats) == [2, 0]
    assert seats.missing_share(["b"]) == 2 / 3
    assert seats.missing_share(["b", "c"]) == 0
    assert seats.holders(2) == ["c"]
    see(seats, {1: {"b": [1, 3]}, 2: {"c": [1, 2, 3]}})
    assert lost(seats) == [1, 0]
    see(seats, {1: {"b": [1, 2, 3]}, 2: {"c": [1, 2, 3]}})
    assert lost(seats) == [0, 0]


def test_the_only_row_has_lost_chunks_that_no_other_row_has() -> None:
    seats = RowMap()
    see(seats, {1: {"a": [1, 2], "b": [3]}})
    see(seats, {1: {"b": [3]}}, 1.0)
    assert (lost(seats), seats.missing_share(["b"])) == ([2], 2 / 3)
    see(seats, {1: {"b": [3, 4]}}, 2.0)
    assert lost(seats) == [2]
    see(seats, {1: {"a": [1], "b": [3, 4]}}, 3.0)  # back, and what it lacks was dropped in order
    assert lost(seats) == [0]
    see(seats, {1: {"b": [3, 4]}}, 4.0)
    see(
        seats, {1: {"b": [3, 4]}}, 5.0 + DEPARTED_SECONDS
    )  # a server that is away for so long will not come back
    assert lost(seats) == [0]


def test_unrestored_chunks_are_lost_in_every_row() -> None:
    seats, rows = RowMap(), [ServerRow(1, ["a"]), ServerRow(2, ["b"])]
    seats.update(rows, {1: {"a": [1]}, 2: {"b": [1, 2]}}, 0.0, unrestored=[2, 3])
    assert lost(seats) == [2, 1]
    assert seats.missing_share(["a", "b"]) == 1 / 3
    seats.update(rows, {1: {"a": [1, 2, 3]}, 2: {"b": [1, 2]}}, 1.0, unrestored=[3])
    assert lost(seats) == [0, 1]
    seats.update(rows, {1: {"a": [1, 2]}, 2: {"b": [1, 2]}}, 2.0)
    assert lost(seats) == [0, 0], "its pages were crawled again"


def test_a_chunk_that_all_rows_drop_is_not_lost() -> None:
    seats = RowMap()
    see(seats, {1: {"a": [1, 2]}, 2: {"b": [1, 2]}})
    see(seats, {1: {"a": [1]}, 2: {"b": [1, 2]}})
    assert lost(seats) == [1, 0]  # the other row still has it
    see(seats, {1: {"a": [1]}, 2: {"b": [1]}})
    assert lost(seats) == [0, 0]


def test_a_row_that_loads_chunks_is_behind_but_has_lost_nothing() -> None:
    seats = RowMap()
    many = list(range(1000))
    see(seats, {1: {"a": many}, 2: {"b": many[:995]}, 3: {"c": many[:900]}, 4: {"d": []}})
    assert [bench.behind for bench in seats.rows] == [False, False, True, True]
    assert lost(seats) == [0, 0, 0, 0]


def test_a_map_without_chunks_or_servers() -> None:
    seats = RowMap()
    seats.update([ServerRow(1, ["a", "b"]), ServerRow(2, [])], {}, 0.0)
    assert seats.rows == (SearchRow(1, ("a", "b")),)
    assert seats.missing_share(["a"]) == 0


def test_a_row_that_is_incomplete_without_them_uses_servers_on_probation() -> None:
    seats = RowMap()
    see(seats, {1: {"a": [1, 2], "c": [3]}})
    seats.update([ServerRow(1, ["a"])], {1: {"a": [1, 2]}}, 1.0, {1: {"c": [3]}})
    assert seats.rows == (SearchRow(1, ("a", "c"), probation=True),)
    assert seats.missing_share(["a", "c"]) == 0
    seats.update([ServerRow(1, ["a"])], {1: {"a": [1, 2]}}, 2.0)  # it failed again
    assert lost(seats) == [1]
    seats.update(
        [ServerRow(1, ["a"])], {1: {"a": [1, 2, 3]}}, 3.0, {1: {"c": [3]}}
    )  # reseated meanwhile
    assert seats.rows == (SearchRow(1, ("a",)),)


def test_a_row_may_consist_of_servers_on_probation_only() -> None:
    seats = RowMap()
    seats.update([ServerRow(2, ["b"])], {2: {"b": [1, 2]}}, 0.0, {1: {"a": [1, 2]}})
    assert seats.rows == (SearchRow(1, ("a",), probation=True), SearchRow(2, ("b",)))


def test_a_renumbered_row_has_its_chunks_at_once() -> None:
    """Row 1 was removed, and row 2 got its number, but the holdings are still those of before."""
    seats, before = RowMap(), [ServerRow(1, ["old"]), ServerRow(2, ["new"])]
    old, new = MappedServer("old", [1, 2]), MappedServer("new", [1, 2])
    cluster = ClusterMap(rows=[[old], [new]])
    seats.update(before, holdings_in(before, cluster), 0.0)
    assert holdings_in(before, cluster) == {1: {"old": [1, 2]}, 2: {"new": [1, 2]}}
    after = [ServerRow(1, ["new"])]
    seats.update(after, holdings_in(after, cluster), 1.0)
    assert seats.rows == (SearchRow(1, ("new",)),)
    assert seats.missing_share(["new"]) == 0
    later = ClusterMap(rows=[[new]])
    seats = RowMap()
    seats.update(before, holdings_in(before, later), 2.0)
    assert [row.lost for row in seats.rows if row.servers == ("new",) and not row.behind] == [0]


drawings = st.dictionaries(
    st.integers(1, 3),
    st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(1, 8)), min_size=1),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(drawings, max_size=6))
def test_available_chunks_are_never_missing(history: list[dict[int, dict[str, list[int]]]]) -> None:
    seats = RowMap()
    for moment, drawn in enumerate(history):
        named = {
            row: {f"{row}{name}": chunks for name, chunks in one.items()}
            for row, one in drawn.items()
        }
        see(seats, named, float(moment))
        there = {chunk for one in named.values() for chunks in one.values() for chunk in chunks}
        assert there <= seats.chunks
        every_host = [host for one in named.values() for host in one]
        assert seats.missing_share(every_host) <= 1 - len(there) / max(1, len(seats.chunks)) + 1e-9
        for bench in seats.rows:
            here = {chunk for chunks in named[bench.row].values() for chunk in chunks}
            assert bench.lost <= len(seats.chunks - here)
