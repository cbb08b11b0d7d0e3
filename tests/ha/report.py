"""The table of a run: for each kill the seconds until each kind of work goes on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from chaos.report import Report
from ha.kills import MEANINGS

COLUMNS = ("primary", "page taken", "job ran", "page found", "standby back")


@dataclass(slots=True)
class Recovery:
    """One kill; `seconds` of each column that happened in time."""

    kind: str
    killed: str
    columns: Sequence[str] = COLUMNS  # those that this run measures
    seconds: dict[str, float] = field(default_factory=dict)
    failed_over_to: str = ""

    @property
    def never(self) -> list[str]:
        return [name for name in self.columns if name not in self.seconds]

    def line(self) -> str:
        numbers = "  ".join(self.cell(name).rjust(len(name)) for name in COLUMNS)
        return f"{MEANINGS[self.kind]:<38} {self.killed:>6} {self.failed_over_to:>7}  {numbers}"

    def cell(self, name: str) -> str:
        if name not in self.columns:
            return "-"
        return f"{self.seconds[name]:.1f}" if name in self.seconds else "never"


@dataclass(slots=True)
class HaReport(Report):
    recoveries: list[Recovery] = field(default_factory=list)
    name: str = "ha"

    def columns(self) -> list[str]:
        """One line for each condition: the number must be zero."""
        return [f"{name:<26} {count:>3}" for name, count in self.counts().items()]

    def recovery(self) -> Iterator[str]:
        heading = "  ".join(COLUMNS)
        yield f"{'seconds after the kill':<38} {'killed':>6} {'primary':>7}  {heading}"
        for recovery in self.recoveries:
            yield recovery.line()
