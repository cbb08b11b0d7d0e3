"""The table of a run: for each kill the seconds until each kind of work goes on."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from chaos.report import Report
from ha.kills import MEANINGS

COLUMNS = ("primary", "page taken", "job ran", "page found", "standby back")


@dataclass(slots=True)
class Recovery:
    """One kill; `seconds` of each column, None where it did not happen in time."""

    kind: str
    killed: str
    seconds: dict[str, float | None] = field(default_factory=lambda: dict.fromkeys(COLUMNS))
    failed_over_to: str = ""

    @property
    def never(self) -> list[str]:
        return [name for name, value in self.seconds.items() if value is None]

    def line(self) -> str:
        cells = ("never" if value is None else f"{value:.1f}" for value in self.seconds.values())
        widths = (len(name) for name in COLUMNS)
        numbers = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        return f"{MEANINGS[self.kind]:<38} {self.killed:>6} {self.failed_over_to:>7}  {numbers}"


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
