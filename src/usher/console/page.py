"""What every page of the console is made of: values for its template, and the same as data for its JSON twin."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from usher.api.context import MgmtCall

CellKind = Literal["text", "long", "number", "time", "code", "bad", "good"]
REFRESH_SECONDS: Final = 10  # of lists that change by themselves


@dataclass(frozen=True, slots=True)
class ConsolePage:
    """A page: its template and heading, the values of the template, and its data for programs."""

    template: str
    heading: str
    values: Mapping[str, Any]
    data: Mapping[str, Any]
    command: str = ""  # that shows the same
    live_seconds: int = 0  # how often a browser with scripts reads the page again


ConsoleView = Callable[[MgmtCall[Any]], Awaitable[ConsolePage]]


@dataclass(frozen=True, slots=True)
class TableCell:
    """A cell of a table; with a link if `href` is set."""

    text: str
    href: str = ""
    kind: CellKind = "text"
    more: str = ""  # a second line
    depth: int = 0  # in a tree


@dataclass(frozen=True, slots=True)
class ActionLink:
    """A link to the form of an action, or to a page that helps."""

    label: str
    href: str


@dataclass(frozen=True, slots=True)
class TableRow:
    cells: Sequence[TableCell]
    actions: Sequence[ActionLink] = ()


@dataclass(frozen=True, slots=True)
class FilterField:
    """A condition of a list that the operator can change; with `options` one of them."""

    name: str
    label: str
    value: str
    options: Sequence[str] = ()
    empty: str = "any"  # what no option means
    example: str = ""


@dataclass(frozen=True, slots=True)
class ConsoleTable:
    """A table with filters and a link to the next rows."""

    headings: Sequence[str]
    rows: Sequence[TableRow]
    filters: Sequence[FilterField] = ()
    path: str = ""
    next_href: str = ""
    empty: str = "Nothing matches."
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def has_actions(self) -> bool:
        return any(row.actions for row in self.rows)


def list_page(
    heading: str,
    table: ConsoleTable,
    records: Sequence[Any],
    command: str,
    *,
    links: Sequence[ActionLink] = (),
    related: Sequence[ActionLink] = (),
    more: Sequence[tuple[str, ConsoleTable]] = (),
    live_seconds: int = 0,
) -> ConsolePage:
    """A page that shows a table, the links of its actions and to related pages, and more tables with headings."""
    data = {"records": records, "next": table.next_href or None}
    values = {"table": table, "links": links, "related": related, "more": more}
    return ConsolePage("list.html", heading, values, data, command, live_seconds)
