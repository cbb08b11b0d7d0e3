"""The table of a run: what must be zero, recovery time for each fault type, and every problem in words."""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

MAX_PROBLEMS_SHOWN = 15
MUST_BE_ZERO = (
    "lost",
    "duplicated without reason",
    "impolite",
    "wrongly complete",
    "failed searches",
    "stuck",
    "crashed",
)


@dataclass(frozen=True, slots=True)
class Injected:
    """One fault that was injected, and how long its recovery took; None if it did not recover in time."""

    kind: str
    machine: str
    seconds: float
    searches_after: float | None
    work_after: float | None


@dataclass(slots=True)
class Report:
    seed: int
    faults: list[Injected] = field(default_factory=list)
    problems: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    duplicates: dict[str, int] = field(default_factory=dict)  # those with a reason
    facts: dict[str, str] = field(default_factory=dict)
    name: str = "chaos"

    @property
    def failures(self) -> list[str]:
        """The columns that must be zero and are not."""
        return [name for name in MUST_BE_ZERO if self.problems[name]]

    def text(self) -> str:
        return "\n".join(
            [
                "",
                *self.columns(),
                "",
                *self.recovery(),
                "",
                *self.duplicate_lines(),
                *(f"{name}: {fact}" for name, fact in self.facts.items()),
                *self.problem_lines(),
                self.summary(),
            ]
        )

    def counts(self) -> dict[str, int]:
        return {name: len(self.problems[name]) for name in MUST_BE_ZERO}

    def columns(self) -> list[str]:
        """One line of names and one of numbers."""
        cells = {"faults": len(self.faults), "duplicated": sum(self.duplicates.values())}
        cells |= self.counts()
        widths = [max(len(name), len(str(number))) for name, number in cells.items()]
        names = (name.rjust(width) for name, width in zip(cells, widths, strict=True))
        numbers = (
            str(number).rjust(width) for number, width in zip(cells.values(), widths, strict=True)
        )
        return ["  ".join(names), "  ".join(numbers)]

    def recovery(self) -> Iterator[str]:
        yield f"{'recovery, seconds':<20} {'faults':>6} {'median':>7} {'longest':>8} {'searches':>9}"
        for kind in sorted({fault.kind for fault in self.faults}):
            own = [fault for fault in self.faults if fault.kind == kind]
            work = [fault.work_after for fault in own if fault.work_after is not None]
            complete = [fault.searches_after for fault in own if fault.searches_after is not None]
            middle = f"{statistics.median(work):.1f}" if work else "never"
            longest = f"{max(work):.1f}" if len(work) == len(own) else "never"
            searches = f"{max(complete):.1f}" if len(complete) == len(own) else "never"
            yield f"{kind:<20} {len(own):>6} {middle:>7} {longest:>8} {searches:>9}"

    def duplicate_lines(self) -> list[str]:
        return [f"duplicated, {reason}: {count}" for reason, count in self.duplicates.items()]

    def problem_lines(self) -> Iterator[str]:
        for name in MUST_BE_ZERO:
            problems = self.problems[name]
            for problem in problems[:MAX_PROBLEMS_SHOWN]:
                yield f"{name}: {problem}"
            if len(problems) > MAX_PROBLEMS_SHOWN:
                yield f"{name}: and {len(problems) - MAX_PROBLEMS_SHOWN} more"

    def summary(self) -> str:
        failed = len(self.failures)
        names = f": {', '.join(self.failures)}" if failed else ""
        return f"{len(MUST_BE_ZERO) - failed} passed, {failed} failed in {self.name} (seed {self.seed}){names}"


def add_all(report: Report, name: str, problems: Sequence[str]) -> None:
    report.problems[name] += problems
