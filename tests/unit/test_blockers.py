"""Blockers from values alone: the right texts, worst first, each with a command."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from usher.mgmt.incarnation import UnrestoredState
from usher.mgmt.placements import RowShortage
from usher.mgmt.watchdog import WatchdogRound
from usher.observe.blockers import DISK_STEP, Blocker, SystemState, find_blockers
from usher.observe.stages import (
    ChunkCounts,
    ClosedHost,
    ClusterServer,
    ComponentGroup,
    FailingComponent,
    ForeignPageSource,
    GuestbookCounts,
    HeldBackHost,
    HostCounts,
    JobTypeCounts,
    LastHour,
    OutdatedCopies,
    PausedEntry,
    QueueStatus,
    RestingHost,
    WaitingComponent,
    WorkStatus,
)

NOW = datetime(2026, 11, 16, 11, 58, tzinfo=UTC)
AGO = NOW - timedelta(minutes=7)
REPAIR = "Repair the cluster; the index server then continues."
CRAWLER = ComponentGroup("crawler", None, "online", "healthy", silent=False, number=2)
BUILDER = ComponentGroup("index-builder", None, "online", "healthy", silent=False, number=1)
SERVER = ComponentGroup("index-server", 1, "online", "healthy", silent=False, number=1)
WELL = WorkStatus(
    GuestbookCounts(5, 50, 3, 1_000, exact=True, oldest=NOW),
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


def blockers(
    work: WorkStatus | None = WELL, queue: QueueStatus | None = IDLE, **around: object
) -> list[Blocker]:
    return find_blockers(SystemState(**around), work, queue, NOW)  # type: ignore[arg-type]


def only_blocker(work: WorkStatus) -> tuple[str, str, str]:
    [only] = blockers(work)
    return only.kind, only.words, only.command


def groups(type_: str, **change: object) -> list[ComponentGroup]:
    """All components, with those of a type changed; groups with number 0 are left out."""
    every = [replace(group, **change) if group.type == type_ else group for group in WELL.crews]  # type: ignore[arg-type]
    return [group for group in every if group.number]


def test_there_are_none_when_all_stages_are_healthy() -> None:
    assert blockers() == []
    assert blockers(None, None) == []


def test_problems_of_the_databases_come_first() -> None:
    work = replace(WELL, crews=[])
    kinds = [
        blocker.kind
        for blocker in blockers(work, behind={"work": 2, "control": 1}, ahead=["feeds"], free=10**8)
    ]
    assert kinds[:4] == ["schema_behind", "schema_behind", "schema_ahead", "disk"]
    assert kinds[4:] == ["no_crawler", "no_builder", "row_empty"]
    words = [
        blocker.words
        for blocker in blockers(behind={"work": 2, "control": 1}, free=10**8, data=Path("here"))
    ]
    assert words == [
        "The database is 2 migrations behind (schema work).",
        "The database is 1 migration behind (schema control).",
        "The disk is nearly full: 100 MB are free at here.",
    ]
    assert blockers(free=10**12) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"number": 0}, "Waiting: 5 pages, but no crawler is online."),
        ({"silent": True}, "Waiting: 5 pages, but no crawler is online (2 failed or stopped)."),
        ({"health": "failure"}, "Waiting: 5 pages, but no crawler is online (2 failed or stopped)."),
        ({"state": "paused"}, "Waiting: 5 pages, but all 2 crawlers are paused."),
        ({"state": "paused", "number": 1}, "Waiting: 5 pages, but the only crawler is paused."),
    ],
)  # fmt: skip
def test_pages_wait_without_a_crawler(change: dict[str, object], words: str) -> None:
    work = replace(WELL, crews=groups("crawler", **change))
    assert only_blocker(work)[1] == words
    assert blockers(replace(work, pages=replace(WELL.pages, waiting=0))) == []


def test_crawlers_that_claim_nothing() -> None:
    work = replace(WELL, pages=replace(WELL.pages, oldest=AGO))
    assert only_blocker(work) == (
        "crawlers_behind",
        "Pages have been ready for 7m, but no crawler claims them.",
        "usher components list --type crawler",
    )


def test_a_full_disk_is_named() -> None:
    reason = "Disk full: only 3 MB are free at /var/lib/usher."
    work = replace(WELL, waiting_components=[WaitingComponent("c:1", "crawler", reason)])
    assert only_blocker(work) == (
        "disk_full",
        f"The crawler c:1 accepts no more work. {reason} {DISK_STEP}",
        "usher components show c:1",
    )


def test_a_component_that_waits_for_the_object_store_is_named() -> None:
    """It notices an outage before the watchdog does."""
    reason = (
        "Object store: The content of chunk 7 in the object store at s3.test cannot be reached."
    )
    waiting = [
        WaitingComponent("c:1", "crawler", reason),
        WaitingComponent("c:2", "crawler", reason),
    ]
    work = replace(WELL, waiting_components=waiting)
    assert only_blocker(work) == (
        "chunk_store",
        f"The crawler c:1 waits. {reason}",
        "usher doctor",
    )


def test_all_pages_wait_for_resting_hosts() -> None:
    resting = RestingHost("x.example", NOW + timedelta(minutes=5), 3, "HTTP 429")
    hosts = HostCounts(0, 1, 0, 1, 0, 0, 0, longest=[resting])
    assert only_blocker(replace(WELL, hosts=hosts)) == (
        "hosts_rest",
        "All waiting pages belong to host x.example, which rests until 12:03 UTC (HTTP 429).",
        "usher hosts show x.example",
    )
    tomorrow = replace(resting, name="y.example", until=NOW + timedelta(days=1), troubles=0)
    both = replace(hosts, resting=2, longest=[tomorrow, resting])
    assert only_blocker(replace(WELL, hosts=both))[1] == (
        "All waiting pages belong to 2 hosts, which rest; x.example rests until 12:03 UTC (HTTP 429)."
    )
    polite = replace(hosts, longest=[replace(resting, until=NOW + timedelta(seconds=9))])
    for fine in (polite, replace(hosts, ready=1), replace(hosts, held=1)):
        assert blockers(replace(WELL, hosts=fine)) == []


def test_paused_hosts_with_waiting_pages() -> None:
    shut = [ClosedHost("[::1]:81", "paused", "too slow", 1_000)]
    work = replace(WELL, hosts=replace(WELL.hosts, shut=shut))
    assert only_blocker(work) == (
        "host_shut",
        "[::1]:81 is paused (too slow), and 1,000 or more of its pages wait.",
        "usher hosts open '[::1]:81'",
    )


def test_chunks_wait() -> None:
    work = replace(WELL, crews=groups("index-builder", number=0))
    assert only_blocker(work)[1] == "Waiting: 1 chunk, but no builder is online."
    late = replace(WELL, chunks=replace(WELL.chunks, to_build_since=AGO))
    assert only_blocker(late)[0] == "builders_behind"
    parked = replace(WELL, chunks=replace(WELL.chunks, parked=10_000))
    assert only_blocker(parked)[1].startswith("at least 10,000 chunks could not be built")


def test_rows_without_servers_or_chunks() -> None:
    rows = [RowShortage(1, 10, 0, 1), RowShortage(2, 0, 10, 0)]
    assert only_blocker(replace(WELL, rows=rows)) == (
        "row_empty",
        "Row 2 has no healthy server: 10 chunks are not searchable there.",
        "usher index-server --row 2",
    )
    probation = replace(WELL, crews=groups("index-server", health="probation"))
    assert only_blocker(probation)[0] == "row_empty"
    cluster = ClusterServer(2, "c:1", runs=True, problem="OpenSearch does not answer.")
    empty = "Row 2 has no healthy server: 10 chunks are not searchable there."
    assert only_blocker(replace(WELL, rows=rows, clusters=[cluster])) == (
        "row_empty",
        f"{empty} Its index server c:1 is on OpenSearch and reports: OpenSearch does not answer. {REPAIR}",
        "usher components show c:1",
    )
    probed = replace(WELL, rows=rows, clusters=[replace(cluster, problem="")])
    assert only_blocker(probed)[1:] == (
        f"{empty} Its index server c:1 is on OpenSearch and runs, but is not healthy yet.",
        "usher components show c:1",
    )
    dead = replace(WELL, rows=rows, clusters=[replace(cluster, runs=False, problem="")])
    assert only_blocker(dead)[1:] == (
        f"{empty} Its index server c:1 is on OpenSearch and does not run. Start it again, with the engine that it had.",
        "usher index-server --row 2 --engine opensearch --engine-url URL,...",
    )
    late = replace(WELL, chunks=replace(WELL.chunks, to_load_since=AGO))
    assert only_blocker(late)[1] == "Built chunks have waited for 7m to be loaded: row 1 lacks 1."
    nothing_built = replace(
        WELL, rows=[RowShortage(1, 0, 0, 0)], crews=groups("index-server", number=0)
    )
    assert blockers(nothing_built) == []


def test_pages_that_are_held_back() -> None:
    work = replace(WELL, copies=OutdatedCopies(0, 0, 9, [HeldBackHost("x.example", 9)]))
    assert only_blocker(work)[::2] == ("held_back", "usher hosts release x.example")


def test_components_that_fail_count_if_they_hold_something() -> None:
    failing = FailingComponent("h:1", "crawler", "failure", "online", AGO, "no answer", held=True)
    assert only_blocker(replace(WELL, failing=[failing]))[1] == (
        "The crawler h:1 holds needed chunks and fails since 11:51 UTC: no answer."
    )
    sentence = replace(failing, reason="The disk is unavailable.")
    assert only_blocker(replace(WELL, failing=[sentence]))[1].endswith("The disk is unavailable.")
    assert ".." not in only_blocker(replace(WELL, failing=[sentence]))[1]
    assert blockers(replace(WELL, failing=[replace(failing, held=False)])) == []


def test_components_with_foreign_pages() -> None:
    reason = "index-builder b:1 dropped 3 foreign pages"
    work = replace(WELL, poisoned=[ForeignPageSource("h:1", "crawler", 2, AGO, reason)])
    assert only_blocker(work) == (
        "foreign_pages",
        f"The crawler h:1 put pages into 2 chunks that were not assigned to it. Last report, 11:51 UTC: {reason}.",
        "usher components show h:1",
    )


def test_chunks_that_are_not_confirmed_since_a_restore() -> None:
    work = replace(WELL, unrestored=UnrestoredState(AGO, "restored from monday", 2))
    words = (
        "The database was restored at 11:51 UTC (restored from monday). "
        "Index servers have not confirmed 2 chunks yet, and searches are marked partial."
    )
    assert only_blocker(work) == ("restoring", words, "usher components rows")
    assert blockers(replace(WELL, unrestored=UnrestoredState(AGO, "created", 0))) == []


STOPPED = ComponentGroup("crawler", None, "waiting", "healthy", silent=True, number=1, stopped=True)
NOTHING_WAITS = replace(
    WELL,
    pages=GuestbookCounts(0, 0, 3, 1_000, exact=True),
    chunks=ChunkCounts(0, 0, None, 0, 0, 0, None),
    crews=[STOPPED],
    watched=False,
)
NO_JOBS = QueueStatus([], 5, 1, None, scheduled=False)


def test_an_orderly_stop_is_no_problem_unless_work_waits() -> None:
    assert blockers(NOTHING_WAITS, NO_JOBS) == []
    crashed = replace(STOPPED, state="online", stopped=False)
    [vanished] = blockers(replace(NOTHING_WAITS, crews=[STOPPED, crashed]), NO_JOBS)
    assert vanished.words == "Usher is not running. Its components did not stop in order."
    waiting = replace(NOTHING_WAITS, pages=GuestbookCounts(2, 0, 3, 1_000, exact=True, oldest=AGO))
    [only] = blockers(waiting, NO_JOBS)
    assert (only.kind, only.command) == ("not_running", "usher up")
    assert only.words == "Usher is not running. Waiting: 2 pages."
    jobs = replace(NO_JOBS, types=[JobTypeCounts("fetch", 3, AGO, 0, 0)])
    assert [blocker.kind for blocker in blockers(NOTHING_WAITS, jobs)] == ["not_running"]
    restored = replace(NOTHING_WAITS, unrestored=UnrestoredState(AGO, "restored from monday", 2))
    [unloaded] = blockers(restored, NO_JOBS)
    assert unloaded.words == "Usher is not running. Waiting: 2 chunks to load after the restore."
    assert [blocker.kind for blocker in blockers(NOTHING_WAITS, replace(jobs, scheduled=True))] == [
        "no_watchdog", "row_empty", "jobs_wait",
    ]  # fmt: skip


def test_a_paused_type_is_a_problem_while_nothing_runs_too() -> None:
    fetch = JobTypeCounts("fetch", 3, AGO, 0, 0)
    jobs = replace(NO_JOBS, types=[fetch], paused=[PausedEntry("type", "fetch")])
    [paused] = blockers(NOTHING_WAITS, jobs)
    assert (paused.kind, paused.command) == ("type_paused", "usher jobs resume fetch")


def test_no_watchdog() -> None:
    assert only_blocker(replace(WELL, watched=False))[::2] == ("no_watchdog", "usher watchdog")


def test_jobs_without_manager_or_scheduler() -> None:
    stuck = replace(IDLE, types=[JobTypeCounts("fetch", 1, AGO, 0, 0)])
    [late] = blockers(queue=stuck)
    assert (late.words, late.command) == (
        "1 job of type fetch has waited for 7m, and none is running.",
        "usher manager --type fetch",
    )
    [none] = blockers(queue=replace(IDLE, scheduled=False, next_run=AGO))
    assert none.words == "No scheduler is running, but tasks are due."
    again = [JobTypeCounts("fetch", 0, None, 0, 4)]
    [none] = blockers(queue=replace(IDLE, scheduled=False, types=again))
    assert none.command == "usher scheduler"
    assert blockers(queue=replace(IDLE, scheduled=False)) == []


def test_the_rate_of_the_last_hour() -> None:
    assert LastHour(3_600, None, 0, 0).pace(NOW) == 1
    assert LastHour(10_000, NOW - timedelta(seconds=100), 0, 0).pace(NOW) == 100
    assert LastHour(5, NOW, 0, 0).pace(NOW) == 5


def test_a_watchdog_whose_rounds_do_not_end_is_late() -> None:
    last = WatchdogRound(NOW - timedelta(minutes=7), 0.2, 0.0, "m1")
    words = "The watchdog's last round ended 7m ago: see its log on m1."
    assert only_blocker(replace(WELL, last_round=last)) == ("watchdog_late", words, "usher doctor")
    assert blockers(replace(WELL, last_round=None)) == []


def test_when_all_components_are_silent_the_network_may_be_down() -> None:
    last = WatchdogRound(NOW, 0.2, 0.0, "m1", NOW - timedelta(minutes=7), 5)
    words = (
        "None of 5 components has answered or called since 11:51 UTC. The network of m1, where the watchdog runs, "
        "may be down. The watchdog takes no action."
    )
    assert only_blocker(replace(WELL, last_round=last)) == (
        "all_silent",
        words,
        "usher components list",
    )


def test_clock_skew_of_both_machines() -> None:
    last = WatchdogRound(NOW, 0.2, -3600.0, "m1")
    words = "The clock of the watchdog's machine m1 is 3600.0 s behind the database's."
    assert only_blocker(replace(WELL, last_round=last)) == (
        "clock_skew",
        words,
        "Run NTP there: timedatectl set-ntp true",
    )
    [here] = blockers(clock_skew_seconds=6.0)
    assert here.words == "The clock of this machine is 6.0 s ahead of the database's."
    assert blockers(clock_skew_seconds=4.9) == []
