"""The manager: claims jobs that this machine may run, runs their programs within limits, and settles their ends.

Any number of managers work on any number of machines. On the first TERM or INT a manager lets running jobs finish; on
the second it stops them and gives them back.
"""

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final, NoReturn

from usher.db.pool import Database
from usher.queue import jobs
from usher.queue.child_programs import permission
from usher.queue.jobs import ClaimedJob
from usher.queue.metrics import JobTypeMetrics
from usher.queue.policy import Policies, Policy
from usher.queue.runners.accounts import in_private_directory
from usher.queue.runners.async_runner import AsyncRunner
from usher.queue.runners.process_runner import ProcessRunner, RunEnded, RunStarted
from usher.queue.runners.run_request import run_request
from usher.queue.running_jobs import JobRun, RunningJobs, settled_run
from usher.telemetry import Log

log = Log("manager")
LEASE: Final = timedelta(seconds=60)
DISCOVER_SECONDS: Final = 10.0  # between searches for types that sent no notification
SHORT_RUN_SECONDS: Final = 0.05  # types with shorter runs are claimed ahead
MAX_CLAIMED_AHEAD: Final = 20
MAX_AHEAD_SECONDS: Final = 1.0  # after which a job claimed ahead is given back
CLAIM_GRACE_SECONDS: Final = 2.0  # for a claim in progress when the manager must stop now
MIN_RETRY_SECONDS: Final = 0.02  # until a claim that found jobs locked by others is repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerConfig:
    """The machine that a manager works on, and its limits."""

    host: str
    policies: Policies
    dsn: str  # logs in as usher_worker, for its jobs; empty if they get no database
    env: Mapping[str, str] = field(default_factory=dict)  # for every job
    types: frozenset[str] = frozenset()  # only these; all, if empty
    max_processes: int | None = None  # of all types together
    lease: timedelta = LEASE

    def dsn_for(self, policy: Policy) -> str:
        """Return no DSN for jobs of another user if only the server's own user can reach the socket."""
        return "" if policy.user and in_private_directory(self.dsn) else self.dsn


class Manager:
    """`await Manager(db, config).run(stop, stop_now)`; both are events."""

    def __init__(self, db: Database, config: ManagerConfig) -> None:
        self.db = db
        self.config = config
        self.clock = db.clock
        self.running = RunningJobs(db, config.host, self.clock, lease=config.lease)
        self.busy: Counter[str] = Counter()
        self._claim_at: dict[str, float] = dict.fromkeys(config.types, 0.0)  # monotonic, by type
        self._ahead: defaultdict[str, deque[JobRun]] = defaultdict(deque)  # claimed, not started
        self._with_resources: set[str] = set()  # types whose jobs use resources
        self._is_stopping = False
        self._run_seconds: dict[str, float] = {}  # by type, a moving average
        self._metrics: dict[str, JobTypeMetrics] = {}
        self._woken = asyncio.Event()
        self._idle = asyncio.Event()
        self._runner: ProcessRunner
        self._async_runner = AsyncRunner(config.dsn, self.handle)

    async def run(self, stop: asyncio.Event, stop_now: asyncio.Event) -> None:
        """Work until `stop` is set, and then until all runs have ended or `stop_now` is set."""
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
            group.create_task(self.handle_events())
            group.create_task(self.give_back_late())
            group.create_task(self.running.settle())
            group.create_task(self._async_runner.watch())
            group.create_task(self.running.report(self.output))
            group.create_task(self.running.send_heartbeats(self.stop, self.kill))
            group.create_task(self.running.watch_leases(self.kill))
            log.info("works", host=self.config.host, types=sorted(self.config.types) or "all")
            await stop.wait()
            listening.cancel()
            await self.stop_claiming(claiming, stop_now)
            await self.drain(stop_now)
            raise ManagerStopped

    async def stop_claiming(self, claiming: asyncio.Task[None], stop_now: asyncio.Event) -> None:
        """Let a claim in progress finish: if it were cancelled, its jobs would wait for their leases to end."""
        self._is_stopping = True
        self._woken.set()
        stopping_now = asyncio.create_task(stop_now.wait())
        await asyncio.wait({claiming, stopping_now}, return_when=asyncio.FIRST_COMPLETED)
        stopping_now.cancel()
        if not claiming.done():
            await asyncio.wait({claiming}, timeout=CLAIM_GRACE_SECONDS)
            claiming.cancel()

    def preload(self) -> tuple[str, ...]:
        policies = (self.config.policies.defaults, *self.config.policies.named.values())
        return tuple({module for policy in policies for module in policy.preload})

    # -- claiming

    async def listen(self) -> None:
        """Claim jobs of a type when the database announces some; of all types after a lost connection."""
        async for notification in self.db.listen("usher_job", "usher_cancel"):
            if notification.channel == "usher_cancel":
                for run in await self.running.cancelled():
                    self.stop(run)
            elif notification.missed:
                await self.discover()
            else:
                self.claim_soon(notification.payload)

    async def discover(self) -> None:
        for type_ in await self.db.run(jobs.waiting_types, autocommit=True):
            self.claim_soon(type_)

    def claim_soon(self, type_: str) -> None:
        if self.config.types and type_ not in self.config.types:
            return
        self._claim_at[type_] = 0.0
        self._woken.set()

    async def claim(self) -> None:
        """Claim jobs of each type whenever there may be some."""
        discovered = time.monotonic()
        while not self._is_stopping:
            self._woken.clear()
            now = time.monotonic()
            if now - discovered > DISCOVER_SECONDS:
                discovered = now
                await self.discover()
            for type_ in [type_ for type_, at in self._claim_at.items() if at <= now]:
                if not self._is_stopping:
                    await self.fill(type_)
            waits = (at - time.monotonic() for at in self._claim_at.values())
            try:
                await asyncio.wait_for(self._woken.wait(), max(min([DISCOVER_SECONDS, *waits]), 0))
            except TimeoutError:
                continue

    async def fill(self, type_: str) -> None:
        """Claim jobs for the free places of one type, and set the time of its next claim."""
        policy = self.config.policies.of(type_)
        self._claim_at[type_] = time.monotonic() + policy.poll_interval.total_seconds()
        limit = self.room(type_, policy) + self.ahead(type_, policy)
        if limit <= 0:
            return  # the next end of a run claims again
        claimed_at = time.monotonic()
        claimed = await self.db.run(
            lambda conn: jobs.claim(
                conn,
                type_,
                self.config.host,
                limit,
                lease=self.config.lease,
                max_attempts=policy.max_attempts,
                now=self.clock.now(),
            ),
            autocommit=True,
        )
        startable = await self.startable(claimed)
        self._ahead[type_] += [self.running.add(job, policy, claimed_at) for job in startable]
        self.begin(type_)
        if any(job.resource_id for job in claimed):
            self._with_resources.add(type_)
            await self.give_back([run for run in self._ahead[type_] if run.job.resource_id])
        if len(claimed) < limit:
            await self.wait_for_due(type_)

    async def startable(self, claimed: list[ClaimedJob]) -> list[ClaimedJob]:
        """Give back jobs whose lost run has not ended here yet: its end would count as that of the new run."""
        early = [job for job in claimed if job.id in self.running.runs]
        if not early:
            return claimed
        fences = [(job.id, job.claim) for job in early]
        await self.db.run(lambda conn: jobs.give_back(conn, fences, now=self.clock.now()))
        return [job for job in claimed if job.id not in self.running.runs]

    def ahead(self, type_: str, policy: Policy) -> int:
        """Return how many jobs to claim beyond the free places, where runs are shorter than a claim takes.

        None of a type whose jobs use resources: only a running job may occupy one.
        """
        count = len(self._ahead[type_])
        is_short = self._run_seconds.get(type_, SHORT_RUN_SECONDS) < SHORT_RUN_SECONDS
        limit = ahead_limit(policy)
        if not is_short or type_ in self._with_resources or not policy.max_processes:
            return -count
        return limit - count if count <= limit // 2 else -count

    def room(self, type_: str, policy: Policy) -> int:
        """Return how many more jobs of a type may run now."""
        if policy.in_manager and self._async_runner.is_blocked:
            return 0
        free = policy.max_processes - self.busy[type_] - self._async_runner.stuck[type_]
        if self.config.max_processes is None:
            return free
        return min(free, self.config.max_processes - self.busy.total())

    async def wait_for_due(self, type_: str) -> None:
        """Claim again when the next job of the type is due, if that is before the next poll."""
        due = await self.db.run(
            lambda conn: jobs.next_due(conn, type_, self.config.host), autocommit=True
        )
        if due is not None:
            wait = max((due - self.clock.now()).total_seconds(), MIN_RETRY_SECONDS)
            self._claim_at[type_] = min(self._claim_at[type_], time.monotonic() + wait)

    # -- running

    def begin(self, type_: str) -> None:
        """Start claimed jobs as far as there is room."""
        waiting, now = self._ahead[type_], self.clock.now()
        while waiting and not self._is_stopping and self.room(type_, waiting[0].policy) > 0:
            self.start(waiting.popleft(), now)

    async def give_back_late(self) -> None:
        """Give back jobs claimed ahead that do not start soon: the runs before them take longer than expected."""
        while True:
            await asyncio.sleep(MAX_AHEAD_SECONDS / 2)
            limit = time.monotonic() - MAX_AHEAD_SECONDS
            runs = [run for queue in self._ahead.values() for run in queue]
            late = [run for run in runs if run.claimed_at < limit]
            self._run_seconds.update(
                dict.fromkeys((run.job.type for run in late), SHORT_RUN_SECONDS)
            )
            await self.give_back(late)

    def start(self, run: JobRun, now: datetime) -> None:
        job, policy = run.job, run.policy
        self.busy[job.type] += 1
        self.metrics(job.type).waited.observe((now - job.scheduled).total_seconds())
        if policy.in_manager:
            allowed = permission(self.config.policies, job.origin, job.type, job.program)
            self._async_runner.start(job, policy, allowed)
        else:
            self._runner.start(run_request(job, policy, self.config))

    def metrics(self, type_: str) -> JobTypeMetrics:
        if type_ not in self._metrics:
            running = partial(self.busy.__getitem__, type_)
            self._metrics[type_] = JobTypeMetrics(type_, running=running)
        return self._metrics[type_]

    def runner_of(self, run: JobRun) -> ProcessRunner | AsyncRunner:
        return self._async_runner if run.policy.in_manager else self._runner

    def output(self, key: int) -> str:
        run = self.running.runs.get(key)
        return self.runner_of(run).output(key) if run else ""

    def stop(self, run: JobRun) -> None:
        """Stop a cancelled run."""
        if self.drop_claimed(run):
            end = RunEnded(run.job.id, None, None, "cancelled", "", "", 0.0)
            self.running.end(run, settled_run(run, end, self.clock))
        else:
            self.runner_of(run).stop(run.job.id)

    def kill(self, run: JobRun) -> None:
        """Kill a run whose lease is lost."""
        if self.drop_claimed(run):
            self.running.runs.pop(run.job.id, None)
        else:
            self.runner_of(run).kill(run.job.id)

    def drop_claimed(self, run: JobRun) -> bool:
        """Keep a run from starting; return False if it has started."""
        waiting = self._ahead[run.job.type]
        if run not in waiting:
            return False
        waiting.remove(run)
        return True

    async def handle_events(self) -> None:
        events = self._runner.events
        while True:
            batch = [await events.get()]
            while not events.empty():
                batch.append(events.get_nowait())
            self.handle(batch)

    def handle(self, events: Iterable[RunStarted | RunEnded]) -> None:
        """Note starts and ends of runs, then start others in their places."""
        types: set[str] = set()
        for event in events:
            run = self.running.runs.get(event.key)
            if run and isinstance(event, RunStarted):
                self.running.note_start(run, event.pid)
            elif run and isinstance(event, RunEnded):
                types.add(run.job.type)
                self.end(run, event)
        self.refill(list(self._claim_at) if self.config.max_processes is not None else types)

    def end(self, run: JobRun, event: RunEnded) -> None:
        """Free the place of a run, and settle it unless it was lost or is given back."""
        type_ = run.job.type
        self.busy[type_] -= 1
        metrics = self.metrics(type_)
        metrics.seconds.observe(event.seconds)
        average = self._run_seconds.get(type_, event.seconds)
        self._run_seconds[type_] = 0.8 * average + 0.2 * event.seconds
        if run.lost:
            self.running.runs.pop(run.job.id, None)
        elif not run.given_back:
            settled = settled_run(run, event, self.clock)
            metrics.runs(settled.state).inc()
            self.running.end(run, settled)

    def refill(self, types: Iterable[str]) -> None:
        for type_ in types:
            self.begin(type_)
            if len(self._ahead[type_]) <= ahead_limit(self.config.policies.of(type_)) // 2:
                self.claim_soon(type_)
        if not self.busy.total():
            self._idle.set()

    # -- stopping

    async def drain(self, stop_now: asyncio.Event) -> None:
        """Let runs finish; once `stop_now` is set, stop them and give them back."""
        await self.give_back([run for queue in self._ahead.values() for run in queue])
        log.info("drains", running=self.busy.total())
        ending = asyncio.create_task(self.wait_until_idle())
        stopping_now = asyncio.create_task(stop_now.wait())
        await asyncio.wait({ending, stopping_now}, return_when=asyncio.FIRST_COMPLETED)
        stopping_now.cancel()
        if not ending.done():
            runs = list(self.running.runs.values())
            for run in runs:
                run.given_back = True
                self.kill(run)
            await self.wait_until_idle()
            await self.give_back(runs)
        await ending
        await self.running.flush()

    async def wait_until_idle(self) -> None:
        while self.busy.total():
            self._idle.clear()
            await self._idle.wait()

    async def give_back(self, runs: Collection[JobRun]) -> None:
        if runs:
            log.info("gives_back", jobs=len(runs))
            for run in runs:
                self.drop_claimed(run)
            await self.running.give_back(list(runs))


def ahead_limit(policy: Policy) -> int:
    """Return how many jobs to claim ahead; inside the manager jobs can be so short that claims must overlap runs."""
    if policy.in_manager:
        return max(MAX_CLAIMED_AHEAD, policy.max_processes)
    return MAX_CLAIMED_AHEAD


class ManagerStopped(Exception):
    """Ends the manager's task group."""
