"""One run: start the cluster, crawl, inject faults under load, wait until all is quiet, check."""

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from chaos import checks
from chaos.checks import Window
from chaos.cluster import Cluster
from chaos.faults import FaultType, fault_types
from chaos.load import Load
from chaos.machines import Machine
from chaos.pages import Page, first_pages
from chaos.report import Injected, Report, add_all
from chaos.scale import FAULT_SECONDS, RECOVERY_SECONDS, START_SECONDS, elapsed
from chaos.searches import Searchable, Searcher, search

SECOND_FAULT_SHARE = 0.25  # of all faults have another one at the same time
ALONE = frozenset({"pg-restart", "pg-standby", "pg-failover"})


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asks for."""

    faults: int
    seed: int
    minutes: float
    kinds: Sequence[str]
    directory: Path
    pg_bin: str


class Run:
    def __init__(self, plan: Plan, cluster: Cluster | None = None) -> None:
        self.plan = plan
        self.dice = random.Random(plan.seed)  # noqa: S311 - the same faults for the same seed
        self.cluster = cluster or Cluster(plan.directory, plan.pg_bin)
        self.searchable = Searchable()
        self.searchers = [
            Searcher(self.cluster, front, self.searchable, plan.seed) for front in (1, 2)
        ]
        self.load = Load(self.cluster, self.searchable, plan.seed)
        self.report = Report(plan.seed)
        self.windows: list[Window] = []
        self.deck: list[str] = []  # fault types that are still to come in this round

    def say(self, text: str) -> None:
        print(f"{elapsed():7.1f}  {text}", flush=True)  # noqa: T201

    # -- the phases

    def prepare(self) -> None:
        """Start everything and crawl the first pages, until both front-ends find each."""
        self.cluster.start(self.say)
        self.say("first crawl")
        pages = set(first_pages())

        def is_searchable() -> bool:
            nonlocal pages
            missing = (checks.unsearchable(self.cluster, pages, front) for front in (1, 2))
            pages = {page for group in missing for page in group}
            return not pages

        self.cluster.wait(is_searchable, START_SECONDS, "the first pages are searchable")
        self.load.note_searchable()
        self.load.start()
        for searcher in self.searchers:
            searcher.start()
        self.say(f"{len(first_pages())} pages searchable; faults begin")

    def inject(self) -> None:
        """Inject faults one after the other, sometimes two at once, each with its recovery."""
        types = self.enabled()
        last_begin = self.plan.minutes * 60
        while len(self.report.faults) < self.plan.faults and elapsed() < last_begin:
            chosen = [self.choose(types)]
            if chosen[0][0] not in ALONE and self.dice.random() < SECOND_FAULT_SHARE:
                second = self.choose(types)
                if second[0] in ALONE or second[1] is chosen[0][1]:
                    self.deck.append(second[0])
                else:
                    chosen.append(second)
            self.inject_one(types, chosen, self.dice.choice(FAULT_SECONDS))

    def enabled(self) -> dict[str, FaultType]:
        """The chosen fault types that this machine can do; says which it cannot."""
        types = fault_types()
        unknown = set(self.plan.kinds) - types.keys()
        if unknown:
            raise SystemExit(f"Unknown fault types: {sorted(unknown)}. Try {sorted(types)}.")
        for kind in self.plan.kinds:
            if types[kind].missing:
                self.say(f"{kind} is skipped: {types[kind].missing}")
        return {kind: types[kind] for kind in self.plan.kinds if not types[kind].missing}

    def choose(self, types: dict[str, FaultType]) -> tuple[str, Machine]:
        """Choose a fault type and a machine; each type comes once before the first comes again."""
        if not self.deck:
            self.deck = sorted(types)
            self.dice.shuffle(self.deck)
        kind = self.deck.pop()
        machine = self.dice.choice(self.cluster.of_role(self.dice.choice(types[kind].roles)))
        if kind in ALONE:
            pair = self.cluster.pair
            machine = pair.standby if kind == "pg-standby" else pair.primary
        return kind, machine

    def inject_one(
        self, types: dict[str, FaultType], chosen: Sequence[tuple[str, Machine]], seconds: float
    ) -> None:
        seconds = max([seconds, *(types[kind].min_seconds for kind, _ in chosen)])
        names = " and ".join(f"{kind} {machine.name}" for kind, machine in chosen)
        begin = time.monotonic()
        disturbed = self.disturbed_by([machine.name for _, machine in chosen])
        for searcher in disturbed:
            searcher.disturbed.set()
            searcher.disturbances += 1
        self.say(f"fault {len(self.report.faults) + 1}: {names} for {seconds} s")
        with ExitStack() as faults:
            for kind, machine in chosen:
                faults.enter_context(types[kind].begin(self.cluster, machine))
            time.sleep(seconds)
        searches_after, work_after = self.recover()
        self.cluster.pair.repair()
        for searcher in disturbed:
            searcher.disturbed.clear()
        for kind, machine in chosen:
            self.windows.append(Window(kind, machine.name, begin, time.monotonic()))
            injected = Injected(kind, machine.name, seconds, searches_after, work_after)
            self.report.faults.append(injected)
        if work_after is None:
            self.report.problems["stuck"].append(f"{names}: not recovered")
        shown = [
            "never" if value is None else f"{value:.1f} s" for value in (searches_after, work_after)
        ]
        self.say(f"  searches complete after {shown[0]}, new page and job after {shown[1]}")

    def disturbed_by(self, names: Sequence[str]) -> list[Searcher]:
        """The searchers whose searches may fail: a fault is on their front-end, or on the servers of both rows."""
        if {"server-1", "server-2"} <= set(names):
            return self.searchers
        return [searcher for searcher in self.searchers if f"front-{searcher.front}" in names]

    def recover(self) -> tuple[float | None, float | None]:
        """Time until both front-ends answer completely, and until a new page is searchable and a new job has run."""
        begin = time.monotonic()
        pages: list[Page] = []
        jobs: list[int] = []
        searches_after: float | None = None
        while time.monotonic() - begin < RECOVERY_SECONDS:
            if searches_after is None and self.finds(self.known_page()):
                searches_after = time.monotonic() - begin
            pages = pages or self.load.add_pages(1)
            jobs = jobs or self.load.add_jobs(1)
            is_done = searches_after is not None and pages and jobs and self.has_run(jobs[0])
            if is_done and self.finds(pages[0]):
                return searches_after, time.monotonic() - begin
            time.sleep(0.5)
        return searches_after, None

    def known_page(self) -> Page:
        return random.choice(list(self.searchable.since))  # noqa: S311 - not from the seed: how often varies

    def finds(self, page: Page) -> bool:
        return all(search(self.cluster, front, page).outcome == "found" for front in (1, 2))

    def has_run(self, job: int) -> bool:
        return any(line.split()[0] == str(job) for line in checks.job_lines(self.cluster))

    def settle(self) -> None:
        """Stop the load, wait until all is quiet, and check every invariant."""
        self.load.stopping.set()
        self.load.join(60)
        self.say("load stopped; waiting until all is quiet")
        checks.wait_quiet(self.cluster, self.load.record)
        for searcher in self.searchers:
            searcher.stopping.set()
            searcher.join(60)
        self.say("checking")
        self.check()

    def check(self) -> None:
        cluster, record, report = self.cluster, self.load.record, self.report
        add_all(report, "stuck", checks.unfinished(cluster))
        add_all(report, "stuck", checks.hold_ups(cluster))
        jobs = checks.job_runs(cluster, record)
        add_all(report, "lost", [f"job {id_}" for id_ in jobs.lost])
        add_all(report, "lost", self.lost_pages())
        requests = checks.fetches(cluster)
        add_all(report, "impolite", checks.impolite(requests))
        reasons, unexplained = checks.duplicate_fetches(cluster, record, requests, self.windows)
        add_all(report, "duplicated without reason", unexplained + jobs.unexplained)
        report.duplicates = dict(reasons + jobs.repeated)
        self.count_searches()
        for machine in cluster.machines.values():
            add_all(report, "crashed", [str(crash) for crash in machine.crashes])
        report.facts["pages"] = f"{len(record.pages)} searchable, {len(requests)} requests"
        report.facts["tracebacks in logs"] = checks.tracebacks(cluster)
        report.facts["jobs"] = f"{len(record.jobs)} added"

    def lost_pages(self) -> list[str]:
        return checks.lost_in_rows(self.cluster, self.load.record)

    def count_searches(self) -> None:
        for searcher in self.searchers:
            for problem in searcher.problems:
                name = "wrongly complete" if problem.startswith("missing") else "failed searches"
                self.report.problems[name].append(problem)
        counts = sum((searcher.counts for searcher in self.searchers[1:]), self.searchers[0].counts)
        excused = sum(searcher.excused for searcher in self.searchers)
        self.report.facts["searches"] = (
            f"{counts.total()}, of which {counts['partial']} partial; "
            f"{excused} more failed at a front-end that a fault hit"
        )

    def all(self) -> None:
        try:
            self.prepare()
            self.inject()
            self.settle()
        finally:
            self.cluster.stop()
