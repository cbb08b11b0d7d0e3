"""One run: build the cluster as the page says, crawl, search and run jobs, kill the primary again and again, check."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from chaos import checks
from chaos.checks import Window
from chaos.pages import Page
from chaos.run import Plan, Run
from chaos.scale import RECOVERY_SECONDS
from chaos.searches import Searcher, search
from ha.cluster import BALANCED_FRONT, HaCluster
from ha.kills import FAILING_OVER, KILLS, MEANINGS, is_redundant, primary, target
from ha.report import COLUMNS, HaReport, Recovery

PAUSE_SECONDS = 0.25
FRONTS = (1, 2, BALANCED_FRONT)
BETWEEN_SECONDS = 2  # of load before each kill


class HaRun(Run):
    cluster: HaCluster
    report: HaReport

    def __init__(
        self, directory: Path, kinds: Sequence[str], seed: int, *, is_bounded: bool
    ) -> None:
        plan = Plan(len(kinds), seed, 0, kinds, directory, "")
        super().__init__(plan, HaCluster(directory, is_bounded=is_bounded))
        self.is_bounded = is_bounded
        self.report = HaReport(seed)
        balanced = Searcher(self.cluster, BALANCED_FRONT, self.searchable, seed)
        self.searchers.append(balanced)

    def inject(self) -> None:
        """Kill machines in each of the planned ways; the next one waits until there is a synchronous standby."""
        for kind in self.plan.kinds:
            self.cluster.wait(is_redundant, RECOVERY_SECONDS, "a synchronous standby")
            time.sleep(BETWEEN_SECONDS)
            self.kill(kind)

    def kill(self, kind: str) -> None:
        name = target(kind)
        recovery = Recovery(kind, name, COLUMNS[:-1] if self.is_bounded else COLUMNS)
        self.report.recoveries.append(recovery)
        self.say(f"{MEANINGS[kind]}: {name}")
        begin = time.monotonic()
        with KILLS[kind](self.cluster, self.cluster.places[name]):
            self.measure(recovery, begin, self.progress(recovery))
        if not self.is_bounded:
            self.measure(recovery, time.monotonic(), {"standby back": is_redundant})
        self.windows.append(Window(kind, name, begin, time.monotonic()))
        for missed in recovery.never:
            self.report.problems["stuck"].append(f"{MEANINGS[kind]}: {missed} not within time")
        self.say(recovery.line())

    def progress(self, recovery: Recovery) -> dict[str, Callable[[], bool]]:
        """The conditions of the recovery, in the order in which they are asked."""
        pages: list[Page] = []
        jobs: list[int] = []

        def has_primary() -> bool:
            recovery.failed_over_to = primary()
            is_same = recovery.failed_over_to == recovery.killed
            return bool(recovery.failed_over_to) and not (recovery.kind in FAILING_OVER and is_same)

        def takes_page() -> bool:
            pages.extend([] if pages else self.load.add_pages(1))
            return bool(pages)

        def runs_job() -> bool:
            jobs.extend([] if jobs else self.load.add_jobs(1))
            return bool(jobs) and self.has_run(jobs[0])

        def finds_page() -> bool:
            return bool(pages) and self.finds(pages[0])

        return {
            "primary": has_primary,
            "page taken": takes_page,
            "job ran": runs_job,
            "page found": finds_page,
        }

    def measure(
        self, recovery: Recovery, begin: float, conditions: dict[str, Callable[[], bool]]
    ) -> None:
        """Ask for each condition again and again, and note when it first held."""
        while conditions and time.monotonic() - begin < RECOVERY_SECONDS:
            for name, holds in list(conditions.items()):
                if holds():
                    recovery.seconds[name] = time.monotonic() - begin
                    del conditions[name]
            time.sleep(PAUSE_SECONDS)

    def lost_pages(self) -> list[str]:
        """Look for each page in each row; in a bounded run only through each front-end."""
        if not self.is_bounded:
            return super().lost_pages()
        pages = self.load.record.pages
        return [
            page.url for front in FRONTS for page in checks.unsearchable(self.cluster, pages, front)
        ]

    def finds(self, page: Page) -> bool:
        return all(search(self.cluster, front, page).outcome == "found" for front in FRONTS)

    def check(self) -> None:
        super().check()
        partial = sum(searcher.counts["partial"] for searcher in self.searchers)
        if partial:
            self.report.problems["failed searches"].append(f"{partial} answers were partial")
        taken = checks.rows(self.cluster, "select pg_is_in_recovery()")
        self.report.facts["primary at the end"] = f"{primary()}, {taken}"
