"""The watchdog: pings every component, ends the leases of failed ones, and keeps every chunk placed in every row.

Several may run. One leads, by a lock that ends with its connection; each statement is correct even if two run it.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from usher.background import wait_up_to
from usher.db.clock import DatabaseClock
from usher.db.pool import CONFLICT_ERRORS, Connection, stay_connected
from usher.db.statements import load_statements
from usher.mgmt import (
    anchors,
    chunk_objects,
    chunks,
    compaction,
    components,
    health,
    history,
    incarnation,
    page_versions,
    placements,
    reindexing,
    removal_sweep,
    retention,
    site_templates,
)
from usher.mgmt.components import ComponentRecord, NewEvent
from usher.mgmt.health import Action, HealthLimits, HealthRecord, Ping
from usher.mgmt.object_sweep import ObjectSweep
from usher.mgmt.ping import PING_TIMEOUT_SECONDS, has_address, ping_all
from usher.mgmt.retention import Retention
from usher.telemetry import (
    COMPACTED_CHUNKS,
    COMPONENTS_BY_HEALTH,
    LOST_CHUNKS,
    MOVED_PLACEMENTS,
    PINGS,
    ROUND_SECONDS,
    UNLOADED_PLACEMENTS,
    UNPLACED_CHUNKS,
    Log,
)

store = load_statements(__file__)
log = Log("watchdog")
WATCHDOG_LOCK: Final = 0x7573_6865_7222  # "usher", 34: one watchdog leads
TICK_SECONDS: Final = 5.0
MAX_SILENCE_SECONDS: Final = 120.0  # then PostgreSQL ends the connection of a leader
CALL_SECONDS: Final = (
    3.0  # that a call counts at least as a sign of life: MGMT writes one every two seconds
)
ANCHOR_CHECK_INTERVAL: Final = timedelta(minutes=10)  # after all anchors were checked
CHUNKS_PER_TRANSACTION: Final = 1_000  # chunks in one transaction
NO_STORE: Final = "chunks are in an object store, but the watchdog has no chunk_store"
DEFAULT_RETENTION: Final = Retention()


@dataclass(frozen=True, slots=True)
class WatchdogRound:
    """The last complete round of the leading watchdog."""

    ended_at: datetime
    seconds: float
    clock_skew_seconds: float
    machine: str
    silent_since: datetime | None = None  # no component answers or calls since then
    silent_components: int = 0
    store_problem: str = ""  # why the object store cannot be used


async def last_round(conn: Connection) -> WatchdogRound | None:
    """The last complete round; None before the first."""
    return await store.last_round.row(conn, WatchdogRound)


class Watchdog:
    """Run it with `await Watchdog(dsn).run(stop)`."""

    def __init__(
        self,
        dsn: str,
        *,
        role: str = "",
        tick: float = TICK_SECONDS,
        timeout: float = PING_TIMEOUT_SECONDS,
        silence: float = MAX_SILENCE_SECONDS,
        limits: HealthLimits = health.DEFAULT_LIMITS,
        retention: Retention = DEFAULT_RETENTION,
    ) -> None:
        self.dsn = dsn
        self.role = role
        self.tick = tick
        self.timeout = timeout
        self.silence = max(silence, 3 * tick)
        self.limits = limits
        self.retention = retention
        self.clock = DatabaseClock()
        self.leading = False
        self.silent_since: datetime | None = None
        self.silent_components = 0
        self.next_anchors = 0  # the page whose anchors are checked next
        self.anchors_checked_at = datetime.min.replace(tzinfo=UTC)  # all of them
        self.sweep: ObjectSweep | None = None  # of the object store, if there is one

    @property
    def suspects_itself(self) -> bool:
        return self.silent_since is not None

    async def run(self, stop: asyncio.Event) -> None:
        """Make rounds while this watchdog leads, until `stop` is set; reconnects when the database is lost."""

        async def work(conn: Connection) -> None:
            try:
                await self.serve(conn, stop)
            finally:
                self.leading = False

        await stay_connected(self.dsn, work, stop, role=self.role, patience=self.tick)

    async def serve(self, conn: Connection, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        while not stop.is_set():
            start = loop.time()
            if self.leading or await self.lead(conn):
                await self.timed_round(conn)
            await wait_up_to(max(self.tick / 10, self.tick - (loop.time() - start)), stop)

    async def lead(self, conn: Connection) -> bool:
        """Try to become the leader for as long as the connection lives."""
        silence = f"{self.silence * 1000:.0f}ms"
        [(self.leading, *_)] = await store.lead.tuples(conn, lock=WATCHDOG_LOCK, silence=silence)
        if self.leading:
            log.info("leads")
        return self.leading

    async def timed_round(self, conn: Connection) -> None:
        """Make a round and record how long it took; a round that a lock stops is repeated at the next tick."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            await self.round(conn)
        except CONFLICT_ERRORS as error:
            log.warning("round_cut_short", reason=error.diag.message_primary)
            return
        seconds = loop.time() - start
        ROUND_SECONDS.observe(seconds)
        await store.record_round.run(
            conn,
            now=self.clock.now(),
            seconds=seconds,
            skew=self.clock.skew.total_seconds(),
            machine=socket.gethostname(),
            silent_since=self.silent_since,
            silent_components=self.silent_components,
            store_problem=self.sweep.problem if self.sweep else await self.missing_store(conn),
        )

    async def missing_store(self, conn: Connection) -> str:
        """Without a store: whether there should be one."""
        return NO_STORE if await chunk_objects.has_objects(conn) else ""

    async def round(self, conn: Connection) -> None:
        """Make one round."""
        await self.clock.sync(conn)
        listed_at = self.clock.now()
        listed = await components.list_components(conn)
        answers = await ping_all(listed, timeout=self.timeout)
        pings = self.with_calls(listed, answers, listed_at)
        now = self.clock.now()
        await self.doubt(conn, pings, now)
        if not self.suspects_itself:
            records = await self.record(conn, listed, pings, now)
            await self.act(conn, records, now)
        await self.reap(conn, now)
        await self.retire(conn, now)
        await self.sweep_removals(conn, now)
        await incarnation.settle(conn)
        if not self.suspects_itself:
            await self.place(conn, now)
            await self.compact(conn, now)
            await self.reindex(conn, now)
        await self.prune(conn, now)
        async with conn.transaction():
            await history.record(conn, now=now)
        await self.measure(conn)

    def with_calls(
        self, listed: Sequence[ComponentRecord], pings: Sequence[Ping], listed_at: datetime
    ) -> list[Ping]:
        """The pings, each with whether its component had called recently when it was listed.

        A component without a health address is judged by its calls alone, for as long as a lease. One whose type is
        not known yet is alive as long as another component of its host calls.
        """
        latest: dict[str, datetime] = {}
        for component in listed:
            if component.called_at:
                previous = latest.get(component.host, component.called_at)
                latest[component.host] = max(previous, component.called_at)
        updated = []
        for component, ping in zip(listed, pings, strict=True):
            called = component.called_at if component.type else latest.get(component.host)
            window = self.limits.call if has_address(component) else self.limits.lease
            has_called = called is not None and listed_at - called <= window
            updated.append(replace(ping, has_called=has_called))
        return updated

    async def doubt(self, conn: Connection, pings: Sequence[Ping], now: datetime) -> None:
        """Record when all components are silent and when they are back; the watchdog takes no action meanwhile."""
        for ping in pings:
            PINGS.labels(_result(ping)).inc()
        is_silent = health.suspect_self(pings)
        self.silent_components = len(pings) if is_silent else 0
        if is_silent == self.suspects_itself:
            return
        self.silent_since = now if is_silent else None
        if is_silent:
            log.error("suspects_itself", silent=len(pings))
            reason = (
                f"none of {len(pings)} components answers or calls; the watchdog takes no action"
            )
        else:
            reason = "components answer or call again"
        after = "all_silent" if is_silent else "heard"
        await components.add_events(conn, NewEvent(now, "silence", after=after, reason=reason))

    async def record(
        self,
        conn: Connection,
        listed: Sequence[ComponentRecord],
        pings: Sequence[Ping],
        now: datetime,
    ) -> dict[int, HealthRecord]:
        """Judge the components and store the records; returns those that no other watchdog updated meanwhile."""
        judged = {
            component.id: health.judge(component.record, ping, now, self.limits)
            for component, ping in zip(listed, pings, strict=True)
        }
        records = [(id_, result.record) for id_, result in judged.items()]
        events = [(id_, event) for id_, result in judged.items() for event in result.events]
        async with conn.transaction():
            written = await components.record_health(conn, records, events)
        hosts = {component.id: component.host for component in listed}
        for id_, event in events:
            if id_ in written:
                tell = log.warning if event.after == "failure" else log.info
                tell(event.after, component=hosts[id_], reason=event.reason)
        return {id_: record for id_, record in records if id_ in written}

    async def act(self, conn: Connection, records: dict[int, HealthRecord], now: datetime) -> None:
        """Act on failures. Failed servers have left the map; the next plan moves the chunks of those that are gone."""
        due = {id_: health.due_actions(record, now, self.limits) for id_, record in records.items()}
        if ended := [id_ for id_, actions in due.items() if Action.END_LEASES in actions]:
            await store.end_leases.run(conn, components=ended, now=now)
        if gone := [id_ for id_, actions in due.items() if Action.REDO in actions]:
            await self.redo(conn, gone, now)

    async def redo(self, conn: Connection, gone: Sequence[int], now: datetime) -> None:
        """Have the chunks built and crawled again that only these had; builders first, as a crawler may be gone too."""
        for id_, type_, host in await store.lost_with.tuples(conn, components=list(gone)):
            why = f"{host} is gone"
            async with conn.transaction():
                if type_ == "crawler":
                    lost = await chunks.recrawl(
                        conn, id_, why=why, now=now, n=CHUNKS_PER_TRANSACTION
                    )
                else:
                    lost = await chunks.rebuild(conn, id_, why=why)
                await _add_chunk_events(conn, "lost", lost, id_, why, now)
            LOST_CHUNKS.labels(type_).inc(len(lost))
            log.warning("lost", component=host, chunks=len(lost), some=lost[:10])

    async def reap(self, conn: Connection, now: datetime) -> None:
        """Take back the crawls and builds whose lease ended."""
        done = CHUNKS_PER_TRANSACTION
        while done >= CHUNKS_PER_TRANSACTION:
            async with conn.transaction():
                crawls, builds = await chunks.reap(conn, n=CHUNKS_PER_TRANSACTION, now=now)
                await _add_chunk_events(conn, "crawl_expired", crawls, None, "the lease ended", now)
                await _add_chunk_events(conn, "build_expired", builds, None, "the lease ended", now)
            done = max(len(crawls), len(builds))
            if done:
                log.warning("leases_ended", crawls=len(crawls), builds=len(builds))

    async def retire(self, conn: Connection, now: datetime) -> None:
        """Remove pages that are gone, unless so many of a host are gone that the operator must decide."""
        async with conn.transaction():
            verdicts = await page_versions.judge(conn, n=CHUNKS_PER_TRANSACTION, now=now)
        for number, may_go in verdicts.items():
            if not may_go:
                log.warning("held_back", host=number, hint="usher hosts show, usher hosts release")

    async def sweep_removals(self, conn: Connection, now: datetime) -> None:
        """Take the pages of removals out of the index, and readmit those of undone ones."""
        if pages := await removal_sweep.sweep(conn, now=now):
            log.info("removals_swept", pages=pages)

    async def place(self, conn: Connection, now: datetime) -> None:
        planned = await placements.plan(conn, now=now, limits=self.limits)
        async with conn.transaction():
            released = await placements.drop(conn, now=now, limits=self.limits)
        if any(planned) or released:
            MOVED_PLACEMENTS.inc(planned.moved)
            log.info("seats", seated=planned.placed, moved=planned.moved, released=released)

    async def compact(self, conn: Connection, now: datetime) -> None:
        """Retire chunks without live pages, and merge those with few."""
        async with conn.transaction():
            done = await compaction.compact(conn, now=now)
        if not done:
            return
        COMPACTED_CHUNKS.labels("retired").inc(len(done.retired))
        COMPACTED_CHUNKS.labels("made").inc(len(done.made))
        COMPACTED_CHUNKS.labels("given_up").inc(len(done.given_up))
        begun = [merge.chunk_id for merge in done.begun]
        retired, given_up = len(done.retired), done.given_up
        log.info("compacted", retired=retired, begun=begun, made=done.made, given_up=given_up)

    async def reindex(self, conn: Connection, now: datetime) -> None:
        """Index pages again whose anchors or template changed much; forget the anchors of links that are gone."""
        if now >= self.anchors_checked_at + ANCHOR_CHECK_INTERVAL:
            self.next_anchors = await anchors.check_anchors(conn, first=self.next_anchors, now=now)
            if not self.next_anchors:
                self.anchors_checked_at = now
        await site_templates.update_templates(conn, now=now)
        async with conn.transaction():
            merge = await reindexing.reindex(conn, now=now)
        if merge:
            log.info("reindexing", chunk=merge.chunk_id, pages=merge.pages)

    async def prune(self, conn: Connection, now: datetime) -> None:
        """Delete old events and queries."""
        async with conn.transaction():
            pruned = await retention.prune(conn, now=now, retention=self.retention)
        if pruned.events or pruned.queries:
            log.info("pruned", events=pruned.events, queries=pruned.queries)

    async def measure(self, conn: Connection) -> None:
        """Update the metrics."""
        COMPONENTS_BY_HEALTH.clear()
        listed = await components.list_components(conn)
        kinds = Counter(
            (item.type or "unknown", health.measured_health(item.state, item.health))
            for item in listed
        )
        for kind, n in kinds.items():
            COMPONENTS_BY_HEALTH.labels(*kind).set(n)
        UNPLACED_CHUNKS.clear()
        UNLOADED_PLACEMENTS.clear()
        for row in await placements.row_shortages(conn):
            UNPLACED_CHUNKS.labels(str(row.row)).set(row.unseated)
            UNLOADED_PLACEMENTS.labels(str(row.row)).set(row.wanted)


def _result(ping: Ping) -> str:
    if ping.status is None:
        return "silent"
    return "bad" if health.complaint(ping) else "good"


async def _add_chunk_events(
    conn: Connection,
    kind: str,
    lost: Sequence[int],
    component: int | None,
    why: str,
    now: datetime,
) -> None:
    events = [NewEvent(now, kind, component, reason=why, chunk_id=id_) for id_ in lost]
    await components.add_events(conn, *events)
