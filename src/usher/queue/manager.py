"""The manager: takes jobs that this machine may run, runs their programs within limits, and settles how they ended.

Comes from the queue; goes to processes and back to the queue. Any number of managers work on any number of machines.
The first TERM or INT lets what runs end; the second stops it and gives it back.
"""

import asyncio
import random
import time
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final, NoReturn

from usher.db.clock import DatabaseClock
from usher.db.pool import Database
from usher.queue import jobs
from usher.queue.child_programs import permission
from usher.queue.job_states import JobState, ProcessEnd, job_outcome
from usher.queue.jobs import ClaimedJob, SettledRun
from usher.queue.metrics import JobTypeMetrics
from usher.queue.policy import Policies, Policy
from usher.queue.runners.accounts import in_private_directory
from usher.queue.runners.async_runner import AsyncRunner
from usher.queue.runners.process_runner import ProcessRunner, RunEnded, RunStarted
from usher.queue.runners.run_request import run_request
from usher.queue.running_jobs import JobRun, RunningJobs
from usher.telemetry import Log

log = Log("manager")
LEASE: Final = timedelta(seconds=60)
DISCOVER_SECONDS: Final = 10.0  # between looks for types nobody announced
MAX_SUMMARY_CHARS: Final = 200
SHORT_RUN_SECONDS: Final = 0.05  # seconds; runs below it are claimed ahead
MAX_CLAIMED_AHEAD: Final = 20
MAX_AHEAD_SECONDS: Final = 1.0  # that a job may be at hand without being begun
CLAIM_GRACE_SECONDS: Final = 2.0  # for a claim under way, when told twice to stop
MIN_RETRY_SECONDS: Final = 0.02  # until a job is asked for again that another claim was looking at


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerConfig:
    """Where a manager stands and what it may do."""

    host: str
    policies: Policies
    dsn: str  # logs in as usher_worker, for its jobs; empty if they get no database
    env: Mapping[str, str] = field(default_factory=dict)  # for every job
    types: frozenset[str] = frozenset()  # only these; all, if none is named
    most: int | None = None  # processes of all types together
    lease: timedelta = LEASE

    def dsn_for(self, policy: Policy) -> str:
        """No address for jobs of another user where only the server's own user can reach the socket."""
        return "" if policy.user and in_private_directory(self.dsn) else self.dsn


class Manager:
    """An actor: `await Manager(db, post).run(stop, now)`; both are events."""

    def __init__(self, db: Database, post: ManagerConfig) -> None:
        self.db = db
        self.post = post
        self.clock = db.clock
        self.ledger = RunningJobs(db, post.host, self.clock, lease=post.lease)
        self.busy: Counter[str] = Counter()
        self._ask: dict[str, float] = dict.fromkeys(post.types, 0.0)
        self._ahead: defaultdict[str, deque[JobRun]] = defaultdict(deque)  # ours, and not begun yet
        self._bound: set[str] = set()  # types whose jobs use resources
        self._leaving = False
        self._pace: dict[str, float] = {}  # seconds that runs of a type take of late
        self._meters: dict[str, JobTypeMetrics] = {}
        self._woken = asyncio.Event()
        self._idle = asyncio.Event()
        self._runner: ProcessRunner
        self._async_runner = AsyncRunner(post.dsn, self.heard)

    async def run(self, stop: asyncio.Event, stop_now: asyncio.Event) -> None:
        """Until told to stop, and then until what runs has ended or `stop_now` is set."""
        async with ProcessRunner(preload=self.preload()) as self._runner, self._async_runner:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self.serve(stop, stop_now))
            except* ManagerStopped:
                pass
        log.info("stopped")

    async def serve(self, stop: asyncio.Event, stop_now: asyncio.Event) -> NoReturn:
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self.listen())
            claiming = group.create_task(self.claim())
            group.create_task(self.hear())
            group.create_task(self.tidy())
            group.create_task(self.ledger.settle())
            group.create_task(self._async_runner.watch())
            group.create_task(self.ledger.report(self.output))
            group.create_task(self.ledger.beat(self.stop, self.kill))
            group.create_task(self.ledger.watch(self.kill))
            log.info("works", host=self.post.host, types=sorted(self.post.types) or "all")
            await stop.wait()
            listening.cancel()
            await self.claim_no_more(claiming, stop_now)
            await self.drain(stop_now)
            raise ManagerStopped

    async def claim_no_more(self, claiming: asyncio.Task[None], stop_now: asyncio.Event) -> None:
        """Let a claim that is under way end: cut off, nobody would know what it had brought."""
        self._leaving = True
        self._woken.set()
        hurried = asyncio.create_task(stop_now.wait())
        await asyncio.wait({claiming, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not claiming.done():
            await asyncio.wait({claiming}, timeout=CLAIM_GRACE_SECONDS)
            claiming.cancel()

    def preload(self) -> tuple[str, ...]:
        named = (self.post.policies.defaults, *self.post.policies.named.values())
        return tuple({module for policy in named for module in policy.preload})

    # -- taking jobs

    async def listen(self) -> None:
        """Types are asked for when somebody says that they have jobs; after a broken line, all are."""
        async for wake in self.db.listen("usher_job", "usher_cancel"):
            if wake.channel == "usher_cancel":
                for run in await self.ledger.cancelled():
                    self.stop(run)
            elif wake.missed:
                await self.discover()
            else:
                self.ask(wake.payload)

    async def discover(self) -> None:
        for type_ in await self.db.run(jobs.waiting_types, autocommit=True):
            self.ask(type_)

    def ask(self, type_: str, at: float = 0.0) -> None:
        if self.post.types and type_ not in self.post.types:
            return
        self._ask[type_] = min(at, self._ask.get(type_, at))
        self._woken.set()

    async def claim(self) -> None:
        """Fill the pools, whenever there may be something for one."""
        discovered = time.monotonic()
        while not self._leaving:
            self._woken.clear()
            now = time.monotonic()
            if now - discovered > DISCOVER_SECONDS:
                discovered = now
                await self.discover()
            for type_ in [type_ for type_, at in self._ask.items() if at <= now]:
                if not self._leaving:
                    await self.fill(type_)
            pause = min([DISCOVER_SECONDS, *(at - time.monotonic() for at in self._ask.values())])
            try:
                await asyncio.wait_for(self._woken.wait(), max(pause, 0))
            except TimeoutError:
                continue

    async def fill(self, type_: str) -> None:
        """Claim for the free places of one pool, and know when to ask again."""
        policy = self.post.policies.of(type_)
        self._ask[type_] = time.monotonic() + policy.poll_interval.total_seconds()
        free = self.room(type_, policy)
        wanted = free + self.ahead(type_, policy)
        if wanted <= 0:
            return  # the next end asks
        asked = time.monotonic()
        claimed = await self.db.run(
            lambda conn: jobs.claim(
                conn,
                type_,
                self.post.host,
                wanted,
                lease=self.post.lease,
                tries=policy.max_attempts,
                now=self.clock.now(),
            ),
            autocommit=True,
        )
        runs = [self.ledger.enter(job, policy, asked) for job in await self.startable(claimed)]
        self._ahead[type_] += runs
        self.begin(type_)
        if any(job.resource_id for job in claimed):
            self._bound.add(type_)
            await self.give_back([run for run in self._ahead[type_] if run.job.resource_id])
        if len(claimed) < wanted:
            await self.wait_for(type_)

    async def startable(self, claimed: list[ClaimedJob]) -> list[ClaimedJob]:
        """Give back jobs whose lost run has not ended here yet: its end would count as that of the new run."""
        early = [job for job in claimed if job.id in self.ledger.runs]
        if not early:
            return claimed
        fences = [(job.id, job.claim) for job in early]
        await self.db.run(lambda conn: jobs.give_back(conn, fences, now=self.clock.now()))
        return [job for job in claimed if job.id not in self.ledger.runs]

    def ahead(self, type_: str, policy: Policy) -> int:
        """How many more to have at hand than can begin now: some, where runs are so short that asking takes longer.

        None of a type whose jobs use resources: a seat is for who runs.
        """
        here = len(self._ahead[type_])
        short = (
            self._pace.get(type_, SHORT_RUN_SECONDS) < SHORT_RUN_SECONDS
            and type_ not in self._bound
        )
        most = ahead_limit(policy)
        return most - here if short and policy.max_processes and here <= most // 2 else -here

    def room(self, type_: str, policy: Policy) -> int:
        if policy.in_manager and self._async_runner.is_blocked:
            return 0
        free = policy.max_processes - self.busy[type_] - self._async_runner.stuck[type_]
        return free if self.post.most is None else min(free, self.post.most - self.busy.total())

    async def wait_for(self, type_: str) -> None:
        """Nothing more now: ask again when the next one is due, if that is before the next poll."""
        due = await self.db.run(
            lambda conn: jobs.next_due(conn, type_, self.post.host), autocommit=True
        )
        if due is not None:
            wait = max((due - self.clock.now()).total_seconds(), MIN_RETRY_SECONDS)
            self._ask[type_] = min(self._ask[type_], time.monotonic() + wait)

    # -- running them

    def begin(self, type_: str) -> None:
        """Start what is at hand, as far as there is room."""
        here, now = self._ahead[type_], self.clock.now()
        while here and not self._leaving and self.room(type_, here[0].policy) > 0:
            self.start(here.popleft(), now)

    async def tidy(self) -> None:
        """Give back what does not get its turn here: the runs before it take longer than those so far."""
        while True:
            await asyncio.sleep(MAX_AHEAD_SECONDS / 2)
            late = time.monotonic() - MAX_AHEAD_SECONDS
            stuck = [run for here in self._ahead.values() for run in here if run.since < late]
            self._pace.update(dict.fromkeys((run.job.type for run in stuck), SHORT_RUN_SECONDS))
            await self.give_back(stuck)

    def start(self, run: JobRun, now: datetime) -> None:
        job, policy = run.job, run.policy
        self.busy[job.type] += 1
        self.meters(job.type).waited.observe((now - job.scheduled).total_seconds())
        if policy.in_manager:
            allowed = permission(self.post.policies, job.origin, job.type, job.program)
            self._async_runner.start(job, policy, allowed)
        else:
            self._runner.start(run_request(job, policy, self.post))

    def meters(self, type_: str) -> JobTypeMetrics:
        if type_ not in self._meters:
            self._meters[type_] = JobTypeMetrics(
                type_, running=partial(self.busy.__getitem__, type_)
            )
        return self._meters[type_]

    def runner_of(self, run: JobRun) -> ProcessRunner | AsyncRunner:
        return self._async_runner if run.policy.in_manager else self._runner

    def output(self, key: int) -> str:
        run = self.ledger.runs.get(key)
        return self.runner_of(run).output(key) if run else ""

    def stop(self, run: JobRun) -> None:
        """Somebody cancelled it."""
        if self.put_down(run):
            end = RunEnded(run.job.id, None, None, "cancelled", "", "", 0.0)
            self.ledger.end(run, settled_run(run, end, self.clock))
        else:
            self.runner_of(run).stop(run.job.id)

    def kill(self, run: JobRun) -> None:
        """It is no longer ours."""
        if self.put_down(run):
            self.ledger.runs.pop(run.job.id, None)
        else:
            self.runner_of(run).kill(run.job.id)

    def put_down(self, run: JobRun) -> bool:
        """Whether it had not begun, and now will not."""
        here = self._ahead[run.job.type]
        if run not in here:
            return False
        here.remove(run)
        return True

    async def hear(self) -> None:
        events = self._runner.events
        while True:
            batch = [await events.get()]
            while not events.empty():
                batch.append(events.get_nowait())
            self.heard(batch)

    def heard(self, events: Iterable[RunStarted | RunEnded]) -> None:
        """Write down what became of runs, then fill their places."""
        types: set[str] = set()
        for event in events:
            run = self.ledger.runs.get(event.key)
            if run and isinstance(event, RunStarted):
                self.ledger.note_start(run, event.pid)
            elif run and isinstance(event, RunEnded):
                types.add(run.job.type)
                self.ended(run, event)
        self.refill(list(self._ask) if self.post.most is not None else types)

    def ended(self, run: JobRun, event: RunEnded) -> None:
        """A process has gone: its place is free, and how it ended is to be written down."""
        type_ = run.job.type
        self.busy[type_] -= 1
        meters = self.meters(type_)
        meters.seconds.observe(event.seconds)
        self._pace[type_] = 0.8 * self._pace.get(type_, event.seconds) + 0.2 * event.seconds
        if run.lost:
            self.ledger.runs.pop(run.job.id, None)
        elif not run.given_up:
            settled = settled_run(run, event, self.clock)
            meters.runs(settled.state).inc()
            self.ledger.end(run, settled)

    def refill(self, types: Iterable[str]) -> None:
        for type_ in types:
            self.begin(type_)
            if len(self._ahead[type_]) <= ahead_limit(self.post.policies.of(type_)) // 2:
                self.ask(type_)
        if not self.busy.total():
            self._idle.set()

    # -- leaving

    async def drain(self, stop_now: asyncio.Event) -> None:
        """Let what runs end; when told a second time, stop it and give it back."""
        await self.give_back([run for here in self._ahead.values() for run in here])
        log.info("drains", running=self.busy.total())
        ending = asyncio.create_task(self.idle())
        hurried = asyncio.create_task(stop_now.wait())
        await asyncio.wait({ending, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not ending.done():
            runs = list(self.ledger.runs.values())
            for run in runs:
                run.given_up = True
                self.kill(run)
            await self.idle()
            await self.give_back(runs)
        await ending
        await self.ledger.flush()

    async def idle(self) -> None:
        while self.busy.total():
            self._idle.clear()
            await self._idle.wait()

    async def give_back(self, runs: Collection[JobRun]) -> None:
        if runs:
            log.info("gives_back", jobs=len(runs))
            for run in runs:
                self.put_down(run)
            await self.ledger.give_back(list(runs))


def ahead_limit(policy: Policy) -> int:
    """How many jobs to have at hand at most; inside the manager jobs can be so short that claims must overlap runs."""
    return max(MAX_CLAIMED_AHEAD, policy.max_processes) if policy.in_manager else MAX_CLAIMED_AHEAD


class ManagerStopped(Exception):
    """The way out of the task group."""


def settled_run(run: JobRun, event: RunEnded, clock: DatabaseClock) -> SettledRun:
    """How a run ended, in the words of the queue."""
    ending = ProcessEnd(event.code, event.why, event.detail)
    luck = random.random()  # noqa: S311 - spreads retries
    found = job_outcome(ending, attempts=run.job.attempts, policy=run.policy, luck=luck)
    failed = found.state in {JobState.TEMPORARY_ERROR, JobState.PERMANENT_ERROR}
    return SettledRun(
        *run.fence,
        state=found.state,
        exit_code=found.exit_code,
        pid=event.pid,
        message=found.message,
        last_words=failure_summary(event.output, found.note) if failed else None,
        output=event.output or None,
        result=event.result or None,
        retry_at=None if found.retry_in is None else clock.now() + found.retry_in,
    )


def failure_summary(output: str, note: str) -> str | None:
    """The last line of what a failed program said, and why it is not tried again."""
    line = output.rstrip().rpartition("\n")[2].strip()[:MAX_SUMMARY_CHARS]
    return "; ".join(filter(None, (line, note))) or None
