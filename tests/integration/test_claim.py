"""The rules of claiming, against a model on random histories, and with eight claimers at once."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from usher.db.pool import Connection, connect
from usher.queue import jobs
from usher.queue.host_rules import may_run
from usher.queue.job_states import JobState
from usher.queue.jobs import JobRequest, SettledRun

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
LEASE = timedelta(seconds=60)
HOSTS = ("one", "two")
# name, capacity, seconds between starts
RESOURCES = {"single": (1, 10), "pair": (2, 5), "wide": (3, 0)}
OPERATIONS = st.lists(
    st.one_of(
        st.builds(
            lambda *given: ("enter", *given),
            st.sampled_from([0, 0, 1, 5]),
            st.sampled_from(["", "", "one", "allow:one,two", "deny:one"]),
            st.sampled_from([None, *RESOURCES]),
            st.sampled_from([0, 0, 3, 20]),
            st.integers(1, 4),
        ),
        st.tuples(st.just("tick"), st.sampled_from([0.5, 3, 10])),
        st.tuples(st.just("claim"), st.sampled_from(HOSTS), st.integers(1, 5)),
        st.tuples(
            st.just("end"), st.sampled_from(["completed", "temporary-error"]), st.integers(0, 9)
        ),
        st.tuples(st.just("back"), st.integers(0, 9)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("lose"), st.none()),
    ),
    min_size=5,
    max_size=40,
)


@dataclass
class Known:
    """A job as the model sees it."""

    id: int
    priority: int
    rule: str
    resource: str | None
    scheduled: datetime
    state: str = "pending"
    claim: UUID | None = None
    attempts: int = 0

    @property
    def turn(self) -> tuple[int, datetime, int]:
        return self.priority, self.scheduled, self.id


@dataclass
class Model:
    """The queue by its rules alone."""

    now: datetime = NOW
    known: dict[int, Known] = field(default_factory=dict)
    latest: dict[str, datetime] = field(default_factory=dict)

    def running(self) -> list[Known]:
        return [job for job in self.known.values() if job.state == "running"]

    def room(self, resource: str | None) -> bool:
        """Whether a job of the resource may start now."""
        if resource is None:
            return True
        capacity, rest = RESOURCES[resource]
        busy = sum(job.resource == resource for job in self.running())
        rested = (
            resource not in self.latest
            or self.latest[resource] + timedelta(seconds=rest) <= self.now
        )
        return busy < capacity and (rested or rest == 0)

    def waiting(self, host: str) -> list[Known]:
        """What could start now on that machine, one by one."""
        return [
            job
            for job in self.known.values()
            if job.state == "pending"
            and job.scheduled <= self.now
            and may_run(job.rule, host)
            and self.room(job.resource)
        ]

    def start(self, claimed: jobs.ClaimedJob, host: str) -> None:
        """Check one start against every rule, then believe it."""
        job = self.known[claimed.id]
        assert job in self.waiting(host)
        assert claimed.attempts == job.attempts + 1
        job.state, job.claim, job.attempts = "running", claimed.claim, claimed.attempts
        if job.resource:
            self.latest[job.resource] = self.now


def in_order(model: Model, host: str, claimed: list[jobs.ClaimedJob]) -> None:
    """A claim takes no job while one that goes before it could have been taken."""
    taken = [model.known[one.id] for one in claimed]
    for left in model.waiting(host):
        for job in taken:
            if left.resource == job.resource and left.rule == job.rule:
                assert left.turn > job.turn
            elif left.resource is None:
                assert left.priority >= job.priority


async def play(conn: Connection, model: Model, operation: tuple[object, ...]) -> None:
    match operation:
        case ("enter", int(priority), str(rule), resource, int(delay), int(number)):
            scheduled = model.now + timedelta(seconds=delay)
            new = JobRequest("t", "p", (), scheduled, resource, priority, rule)  # type: ignore[arg-type]
            for one in await jobs.enqueue(conn, [new] * number, now=model.now):
                model.known[one.id] = Known(one.id, priority, rule, resource, scheduled)  # type: ignore[arg-type]
        case ("tick", float() | int() as seconds):
            model.now += timedelta(seconds=seconds)
        case ("claim", str(host), int(n)):
            await claim(conn, model, host, n)
        case ("end", str(state), int(index)) if running := model.running():
            job = running[index % len(running)]
            await end(conn, model, job, JobState(state))
        case ("back", int(index)) if running := model.running():
            job = running[index % len(running)]
            assert job.claim
            assert await jobs.give_back(conn, [(job.id, job.claim)], now=model.now) == {job.id}
            job.state, job.attempts = "pending", job.attempts - 1
        case ("cancel", int(index)) if pending := [
            job for job in model.known.values() if job.state == "pending"
        ]:
            job = pending[index % len(pending)]
            found = await jobs.cancel(conn, [job.id], reason="no need", now=model.now)
            assert found == {job.id: JobState.CANCELLED}
            job.state = "cancelled"
        case ("lose", None):
            await lose(conn, model)


async def claim(conn: Connection, model: Model, host: str, n: int) -> None:
    claimed = await jobs.claim(conn, "t", host, n, lease=LEASE, max_attempts=3, now=model.now)
    assert len(claimed) <= n
    for one in claimed:
        model.start(one, host)
    in_order(model, host, claimed)
    if len(claimed) < n:
        assert not model.waiting(host)
    due = await jobs.next_due(conn, "t", host)
    if model.waiting(host):
        assert due is not None
        assert due <= model.now


async def end(conn: Connection, model: Model, job: Known, state: JobState) -> None:
    assert job.claim
    settled = SettledRun(job.id, job.claim, state, retry_at=model.now)
    assert await jobs.settle(conn, [settled], now=model.now) == {job.id}
    job.state = state.value
    assert await jobs.settle(conn, [settled], now=model.now) == set()
    if state is JobState.TEMPORARY_ERROR:
        await conn.execute("update control.job set state = 'pending' where id = %s", [job.id])
        job.state, job.scheduled = "pending", model.now


async def lose(conn: Connection, model: Model) -> None:
    """All leases run out."""
    model.now += LEASE + timedelta(seconds=1)
    lost = model.running()
    rows = await conn.execute("select control.requeue_lost(100, %s)", [model.now])
    assert {id_ for (id_,) in await rows.fetchall()} == {job.id for job in lost}
    for job in lost:
        job.state = "permanent-error" if job.attempts >= 3 else "pending"
        job.scheduled = model.now
    await conn.execute("update control.job set state = 'pending' where state = 'temporary-error'")


@pytest.mark.seed("002.23", "002.31")
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(operations=OPERATIONS)
async def test_claims_keep_every_rule(
    conn: Connection, operations: list[tuple[object, ...]]
) -> None:
    model = Model()
    async with conn.transaction(force_rollback=True):
        await conn.execute("delete from control.job")
        for name, (capacity, rest) in RESOURCES.items():
            await conn.execute(
                "insert into control.resource (name, capacity, interval) "
                "values (%s, %s, make_interval(secs => %s))",
                [name, capacity, rest],
            )
        for operation in operations:
            await play(conn, model, operation)
        rows = await conn.execute("select id, state from control.job")
        live = {job.id: job.state for job in model.known.values() if job.state in LIVE}
        assert dict(await rows.fetchall()) == live


LIVE = {"pending", "running"}
CLAIMERS, JOBS, NAMES = 8, 2_000, 20


@dataclass
class Floor:
    """What eight claimers did, seen from outside."""

    runs: Counter[int] = field(default_factory=Counter)
    live: Counter[int] = field(default_factory=Counter)
    most: Counter[int] = field(default_factory=Counter)


async def work(dsn: str, host: str, floor: Floor, luck: random.Random) -> None:
    """Claim and settle until nothing is left."""
    async with await connect(dsn) as conn:
        while True:
            batch = luck.choice([1, 3, 20])
            mine = await jobs.claim(
                conn, "t", host, batch, lease=LEASE, max_attempts=3, now=datetime.now(UTC)
            )
            for job in mine:
                floor.runs[job.id] += 1
                if job.resource_id:
                    floor.live[job.resource_id] += 1
                    floor.most[job.resource_id] = max(
                        floor.most[job.resource_id], floor.live[job.resource_id]
                    )
            if not mine and not await more(conn, host):
                return
            for job in mine:
                if job.resource_id:
                    floor.live[job.resource_id] -= 1
            done = [SettledRun(job.id, job.claim, JobState.COMPLETED, 0) for job in mine]
            await jobs.settle(conn, done, now=datetime.now(UTC))


async def more(conn: Connection, host: str) -> bool:
    rows = await conn.execute("select count(*) from control.job where type = 't'")
    [left] = await rows.fetchone() or [0]
    if left:
        due = await jobs.next_due(conn, "t", host)
        await asyncio.sleep(0.01 if due and due <= datetime.now(UTC) else 0.02)
    return bool(left)


@pytest.mark.seed("002.29", "002.30")
async def test_eight_claimers_at_once(database: str) -> None:
    luck = random.Random(8)  # noqa: S311 - repeatable
    async with await connect(database) as conn:
        await conn.execute("alter table control.resource add check (running <= capacity)")
        await conn.execute(
            "insert into control.resource (name, capacity, interval) "
            "select 'r' || i, 1 + i %% 3, make_interval(secs => 0.005 * (i %% 2)) "
            "from generate_series(1, %s) i",
            [NAMES],
        )
        new = [
            JobRequest(
                "t",
                "p",
                resource=luck.choice([None, f"r{luck.randint(1, NAMES)}"]),
                priority=luck.choice([0, 1]),
                host_rule=luck.choice(["", "", "allow:h0,h1,h2", "deny:h0"]),
            )
            for _ in range(JOBS)
        ]
        entered = await jobs.enqueue(conn, new, now=datetime.now(UTC))
        floor = Floor()
        luckies = [random.Random(i) for i in range(CLAIMERS)]  # noqa: S311 - repeatable
        workers = [work(database, f"h{i}", floor, one) for i, one in enumerate(luckies)]
        await asyncio.wait_for(asyncio.gather(*workers), 120)

        assert floor.runs == Counter(one.id for one in entered)
        rows = await conn.execute("select id, capacity, running from control.resource")
        for id_, capacity, running in await rows.fetchall():
            assert running == 0
            assert floor.most[id_] <= capacity
        rows = await conn.execute(TOO_CLOSE)
        assert await rows.fetchall() == []
        rows = await conn.execute("select count(*), count(distinct id) from control.job_log")
        assert await rows.fetchone() == (JOBS, JOBS)
        rows = await conn.execute(WRONG_HOST)
        assert await rows.fetchall() == []


TOO_CLOSE = """
select * from (
    select l.start - lag(l.start) over (partition by l.resource_id order by l.start) as apart, r.interval
    from control.job_log l join control.resource r on r.id = l.resource_id
) s where apart < "interval"
"""
WRONG_HOST = "select id from control.job_log where not control.may_run(host_rule, hostname)"


FILLINGS = {
    "pending": "insert into control.job (type, program) select 't', 'p' from generate_series(1, 50000)",
    "future": "insert into control.job (type, program, scheduled) "
    "select 't', 'p', now() + interval '1 day' from generate_series(1, 50000)",
    "for others": "insert into control.job (type, program, host_rule) "
    "select 't', 'p', 'elsewhere' from generate_series(1, 50000)",
    "held back": "with r as (insert into control.resource (name) values ('busy') returning id) "
    "insert into control.job (type, program, resource_id, held_until, priority) "
    "select 't', 'p', r.id, 'infinity', -1 from r, generate_series(1, 50000)",
    "logged": 'insert into control.job_log (id, type, program, state, scheduled, "end") '
    "select i, 't', 'p', 'completed', now(), now() from generate_series(1, 50000) i",
}


async def touched(conn: Connection, call: str, *given: object) -> int:
    """How many pages a call reads once its plans are made."""
    rows = await conn.execute(f"explain (analyze, buffers, format json) {call}".encode(), given)
    [[[plan]]] = await rows.fetchall()
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


@pytest.mark.seed("002.27")
@pytest.mark.parametrize("filling", FILLINGS)
async def test_a_claim_reads_little_whatever_else_there_is(database: str, filling: str) -> None:
    async with await connect(database) as conn:
        await conn.execute(FILLINGS[filling].encode())
        await conn.execute(
            "insert into control.job (type, program) select 't', 'p' from generate_series(1, 100)"
        )
        call = "select * from control.claim('t', 'here', 5, '1 minute', 4, now())"
        counts = [await touched(conn, call) for _ in range(4)]
        rows = await conn.execute("select count(*) from control.job where state = 'running'")
        assert await rows.fetchone() == (20,)
        assert min(counts) < 150


@pytest.mark.parametrize("stale", [True, False])
async def test_settling_reads_little_whatever_the_statistics(database: str, *, stale: bool) -> None:
    """Nothing but the jobs themselves, although the planner may believe that the table is empty."""
    async with await connect(database) as conn:
        await conn.execute("analyze control.job")
        await conn.execute(FILLINGS["pending"].encode())
        if not stale:
            await conn.execute("analyze control.job")
        counts = []
        for _ in range(3):
            now = datetime.now(UTC)
            mine = await jobs.claim(conn, "t", "here", 100, lease=LEASE, max_attempts=1, now=now)
            call = (
                "select control.settle(%s::bigint[], %s::uuid[], array_fill('completed'::text, array[100]), "
                "null, null, null, null, null, null, %s)"
            )
            ids, claims = [job.id for job in mine], [job.claim for job in mine]
            counts.append(await touched(conn, call, ids, claims, now))
        assert min(counts) < 2_500
