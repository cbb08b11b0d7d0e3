"""The recent log lines of the MGMT that serves the console; only admin sees them."""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.console.lists.list_query import choice, condition
from usher.console.page import (
    CellKind,
    ConsolePage,
    ConsoleTable,
    FilterField,
    TableCell,
    TableRow,
    list_page,
)
from usher.telemetry import fields_of
from usher.wording import relative_time

MAX_LINES: Final = 500
MAX_ROWS: Final = 100
LEVELS: Final = ("debug", "info", "warning", "error")
LOGGER_NAME: Final = "usher"


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the log: when, how severe, of which part of Usher, which event, and its fields."""

    at: datetime
    level: str
    area: str
    event: str
    fields: Mapping[str, str]

    @property
    def text(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.fields.items())


class RecentLog(logging.Handler):
    """The last lines that this process logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[LogLine] = deque(maxlen=MAX_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        at = datetime.fromtimestamp(record.created, UTC)
        area = record.name.removeprefix(f"{LOGGER_NAME}.")
        fields = {name: str(value) for name, value in fields_of(record).items()}
        self.lines.append(LogLine(at, record.levelname.lower(), area, record.getMessage(), fields))

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Receive the lines of this process until the block ends."""
        logger = logging.getLogger(LOGGER_NAME)
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)


def log_view(recent: RecentLog) -> Callable[[MgmtCall[Any]], Awaitable[ConsolePage]]:
    """The view of these lines, the latest first."""

    async def log_page(call: MgmtCall[Any]) -> ConsolePage:
        now, least = database_time(call), choice(call, "level", LEVELS)
        given = {name: condition(call, name) for name in ("level", "area", "contains")}
        levels = LEVELS[LEVELS.index(least) if least else 0 :]
        shown = [
            line
            for line in reversed(recent.lines)
            if line.level in levels
            and given["area"] in ("", line.area)
            and given["contains"] in f"{line.event} {line.text}"
        ][:MAX_ROWS]
        table = ConsoleTable(
            ("Time", "Level", "Part", "Event", "Fields"),
            [line_row(line, now) for line in shown],
            (
                FilterField("level", "At least", given["level"], LEVELS),
                FilterField("area", "Part", given["area"]),
                FilterField("contains", "Contains", given["contains"]),
            ),
            path="/log",
            empty="No line matches.",
            notes=(f"The last {MAX_LINES} lines of this MGMT are kept; {MAX_ROWS} are shown.",),
        )
        return list_page("Log of this MGMT", table, shown, "")

    return log_page


def line_row(line: LogLine, now: datetime) -> TableRow:
    kind: CellKind = "text" if line.level in ("debug", "info") else "bad"
    time = TableCell(relative_time(line.at, now), more=f"{line.at:%Y-%m-%d %H:%M:%S} UTC")
    cells = (
        time,
        TableCell(line.level, kind=kind),
        TableCell(line.area),
        TableCell(line.event),
        TableCell(line.text or "-", kind="code"),
    )
    return TableRow(cells)
