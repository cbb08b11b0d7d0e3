"""What holds things up, from values alone: the right words, worst first, each with a command."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from usher.mgmt.incarnation import UnrestoredState
from usher.mgmt.placements import RowShortage
from usher.mgmt.watchdog import WatchdogRound
from usher.observe.blockers import Blocker, SystemState, find_blockers
from usher.observe.stages import (
    ChunkCounts,
    ClosedHost,
    ComponentGroup,
    FailingComponent,
    FullDiskComponent,
    HeldBackHost,
    HostCounts,
    JobTypeCounts,
    LastHour,
    OutdatedCopies,
    PageCounts,
    QueueStatus,
    RestingHost,
    SuspectComponent,
    WorkStatus,
)

NOW = datetime(2026, 11, 16, 11, 58, tzinfo=UTC)
AGO = NOW - timedelta(minutes=7)
CRAWLER = ComponentGroup("crawler", None, "online", "healthy", silent=False, number=2)
BUILDER = ComponentGroup("index-builder", None, "online", "healthy", silent=False, number=1)
SERVER = ComponentGroup("index-server", 1, "online", "healthy", silent=False, number=1)
WELL = WorkStatus(
    PageCounts(5, 50, 3, 1_000, exact=True, oldest=NOW),
    HostCounts(1, 2, 0, 0, 0, 0, 4),
    ChunkCounts(1, 1, NOW, 1, 0, 1, NOW),
    [RowShortage(1, 10, 0, 1)],
    OutdatedCopies(3, 0, 0),
    [CRAWLER, BUILDER, SERVER],
    [],
    LastHour(100, None, 5, 9),
    watched=True,
    last_round=WatchdogRound(NOW, 0.2, 0.0, "here"),
)
IDLE = QueueStatus([JobTypeCounts("fetch", 3, AGO, 1, 0)], 5, 1, NOW, scheduled=True)


def found(
    work: WorkStatus | None = WELL, queue: QueueStatus | None = IDLE, **around: object
) -> list[Blocker]:
    return find_blockers(SystemState(**around), work, queue, NOW)  # type: ignore[arg-type]


def one(work: WorkStatus) -> tuple[str, str, str]:
    [only] = found(work)
    return only.kind, only.words, only.command


def crew(type_: str, **change: object) -> list[ComponentGroup]:
    """Everybody, but those of a type changed; none of it left with number 0."""
    every = [replace(one, **change) if one.type == type_ else one for one in WELL.crews]  # type: ignore[arg-type]
    return [one for one in every if one.number]


def test_nothing_does_when_everything_flows() -> None:
    assert found() == []
    assert found(None, None) == []


def test_the_databases_come_first() -> None:
    work = replace(WELL, crews=[])
    kinds = [
        one.kind
        for one in found(work, behind={"work": 2, "control": 1}, ahead=["feeds"], free=10**8)
    ]
    assert kinds[:4] == ["schema_behind", "schema_behind", "schema_ahead", "disk"]
    assert kinds[4:] == ["no_crawler", "no_builder", "row_empty"]
    words = [one.words for one in found(behind={"work": 2, "control": 1}, free=10**8)]
    assert words == [
        "The database is 2 migrations behind (schema work).",
        "The database is 1 migration behind (schema control).",
        "The disk is nearly full: 0.09 GB are left for data.",
    ]
    assert found(free=10**12) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"number": 0}, "No crawler is online although 5 pages wait."),
        ({"silent": True}, "No crawler is online (2 fail or have stopped) although 5 pages wait."),
        ({"health": "failure"}, "No crawler is online (2 fail or have stopped) although 5 pages wait."),
        ({"state": "paused"}, "5 pages wait, and all 2 crawlers are paused."),
        ({"state": "paused", "number": 1}, "5 pages wait, and the only crawler is paused."),
    ],
)  # fmt: skip
def test_pages_wait_and_nobody_fetches_them(change: dict[str, object], words: str) -> None:
    work = replace(WELL, crews=crew("crawler", **change))
    assert one(work)[1] == words
    assert found(replace(work, pages=replace(WELL.pages, waiting=0))) == []


def test_crawlers_that_take_nothing() -> None:
    work = replace(WELL, pages=replace(WELL.pages, oldest=AGO))
    assert one(work) == (
        "crawlers_behind",
        "Pages could be fetched for 7m, and no crawler takes them.",
        "usher components list --type crawler",
    )


def test_a_full_disk_is_named() -> None:
    reason = "Disk full: only 3 MB are free at /var/lib/usher."
    work = replace(WELL, full_disks=[FullDiskComponent("c:1", "crawler", reason)])
    assert one(work) == (
        "disk_full",
        f"The crawler c:1 takes no more work. {reason}",
        "usher components show c:1",
    )


def test_everything_waits_for_a_host() -> None:
    resting = RestingHost("x.example", NOW + timedelta(minutes=5), 3, "HTTP 429")
    hosts = HostCounts(0, 1, 0, 1, 0, 0, 0, longest=[resting])
    assert one(replace(WELL, hosts=hosts)) == (
        "hosts_rest",
        "Everything waits for host x.example until 12:03 UTC (HTTP 429).",
        "usher hosts show x.example",
    )
    tomorrow = replace(resting, name="y.example", until=NOW + timedelta(days=1), troubles=0)
    both = replace(hosts, resting=2, longest=[tomorrow, resting])
    words = one(replace(WELL, hosts=both))[1]
    assert (
        words
        == "Everything waits for 2 hosts, the first of them x.example, until 12:03 UTC (HTTP 429)."
    )
    polite = replace(hosts, longest=[replace(resting, until=NOW + timedelta(seconds=9))])
    for fine in (polite, replace(hosts, ready=1), replace(hosts, held=1)):
        assert found(replace(WELL, hosts=fine)) == []


def test_hosts_that_are_shut_while_pages_wait() -> None:
    shut = [ClosedHost("[::1]:81", "paused", "too slow", 1_000)]
    work = replace(WELL, hosts=replace(WELL.hosts, shut=shut))
    assert one(work) == (
        "host_shut",
        "[::1]:81 is paused (too slow), and 1,000 or more of its pages wait.",
        "usher hosts open '[::1]:81'",
    )


def test_chunks_wait() -> None:
    work = replace(WELL, crews=crew("index-builder", number=0))
    assert one(work)[1] == "No builder is online although 1 chunk waits to be built."
    late = replace(WELL, chunks=replace(WELL.chunks, to_build_since=AGO))
    assert one(late)[0] == "builders_behind"
    parked = replace(WELL, chunks=replace(WELL.chunks, parked=10_000))
    assert one(parked)[1].startswith("at least 10,000 chunks could not be built")


def test_rows() -> None:
    rows = [RowShortage(1, 10, 0, 1), RowShortage(2, 0, 10, 0)]
    assert one(replace(WELL, rows=rows)) == (
        "row_empty",
        "Row 2 has no server that answers: 10 chunks cannot be found there.",
        "usher index-server --row 2",
    )
    probation = replace(WELL, crews=crew("index-server", health="probation"))
    assert one(probation)[0] == "row_empty"
    late = replace(WELL, chunks=replace(WELL.chunks, to_load_since=AGO))
    assert one(late)[1] == "Built chunks have waited for 7m to be loaded: row 1 lacks 1."
    nothing_built = replace(
        WELL, rows=[RowShortage(1, 0, 0, 0)], crews=crew("index-server", number=0)
    )
    assert found(nothing_built) == []


def test_pages_that_are_held_back() -> None:
    work = replace(WELL, copies=OutdatedCopies(0, 0, 9, [HeldBackHost("x.example", 9)]))
    assert one(work)[::2] == ("held_back", "usher hosts release x.example")


def test_components_that_fail_count_if_they_hold_something() -> None:
    failing = FailingComponent("h:1", "crawler", "failure", "online", AGO, "no answer", held=True)
    assert one(replace(WELL, failing=[failing]))[1] == (
        "The crawler h:1 has what is wanted and fails since 11:51 UTC: no answer."
    )
    assert found(replace(WELL, failing=[replace(failing, held=False)])) == []


def test_components_that_brought_foreign_pages() -> None:
    reason = "index-builder b:1 dropped 3 foreign pages"
    work = replace(WELL, poisoned=[SuspectComponent("h:1", "crawler", 2, AGO, reason)])
    assert one(work) == (
        "foreign_pages",
        f"The crawler h:1 put pages into 2 chunks that it was not given. Last report, 11:51 UTC: {reason}.",
        "usher components show h:1",
    )


def test_chunks_that_are_not_confirmed_since_a_restore() -> None:
    work = replace(WELL, unrestored=UnrestoredState(AGO, "restored from monday", 2))
    words = (
        "The database was restored at 11:51 UTC (restored from monday). "
        "Index servers have not confirmed 2 chunks yet, and searches are marked partial."
    )
    assert one(work) == ("restoring", words, "usher components rows")
    assert found(replace(WELL, unrestored=UnrestoredState(AGO, "created", 0))) == []


def test_nobody_watches() -> None:
    assert one(replace(WELL, watched=False))[::2] == ("no_watchdog", "usher watchdog")


def test_the_queue() -> None:
    stuck = replace(IDLE, types=[JobTypeCounts("fetch", 1, AGO, 0, 0)])
    [late] = found(queue=stuck)
    assert (late.words, late.command) == (
        "1 job of type fetch has waited for 7m, and none runs.",
        "usher manager --type fetch",
    )
    [none] = found(queue=replace(IDLE, scheduled=False, next_run=AGO))
    assert none.words == "No scheduler runs although tasks are due."
    again = [JobTypeCounts("fetch", 0, None, 0, 4)]
    [none] = found(queue=replace(IDLE, scheduled=False, types=again))
    assert none.command == "usher scheduler"
    assert found(queue=replace(IDLE, scheduled=False)) == []


def test_the_pace_of_the_last_hour() -> None:
    assert LastHour(3_600, None, 0, 0).pace(NOW) == 1
    assert LastHour(10_000, NOW - timedelta(seconds=100), 0, 0).pace(NOW) == 100
    assert LastHour(5, NOW, 0, 0).pace(NOW) == 5


def test_a_watchdog_whose_rounds_do_not_end_is_late() -> None:
    last = WatchdogRound(NOW - timedelta(minutes=7), 0.2, 0.0, "m1")
    words = "The watchdog's last round ended 7m ago: see its log on m1."
    assert one(replace(WELL, last_round=last)) == ("watchdog_late", words, "usher doctor")
    assert found(replace(WELL, last_round=None)) == []


def test_when_no_component_is_heard_the_watchdog_may_be_cut_off() -> None:
    last = WatchdogRound(NOW, 0.2, 0.0, "m1", NOW - timedelta(minutes=7), 5)
    words = (
        "None of 5 components has answered or called since 11:51 UTC: perhaps the network of m1, "
        "where the watchdog runs, is down. Nothing is done about them."
    )
    assert one(replace(WELL, last_round=last)) == ("all_silent", words, "usher components list")


def test_clock_skew_is_told_of_both_machines() -> None:
    last = WatchdogRound(NOW, 0.2, -3600.0, "m1")
    words = (
        "The clock of the watchdog's machine m1 is 3600.0 s behind the database's: run NTP there."
    )
    assert one(replace(WELL, last_round=last)) == ("clock_skew", words, "usher doctor")
    [here] = found(clock_skew_seconds=6.0)
    assert (
        here.words == "The clock of this machine is 6.0 s ahead of the database's: run NTP there."
    )
    assert found(clock_skew_seconds=4.9) == []
