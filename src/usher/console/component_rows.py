"""A component with its chunks, as a row of a table."""

from datetime import datetime
from urllib.parse import quote

from usher.console.actions.registry import ACTIONS
from usher.console.page import CellKind, TableCell, TableRow
from usher.mgmt.component_chunks import HOLDING_FIELDS, ComponentView
from usher.mgmt.queries import ComponentHoldings
from usher.wording import relative_time


def holding_text(holding: ComponentHoldings) -> str:
    """`12 loaded, 3 wanted`."""
    counts = ((name, getattr(holding, name)) for name in HOLDING_FIELDS)
    return ", ".join(f"{number:,} {name}" for name, number in counts if number) or "-"


def component_row(view: ComponentView, now: datetime, *, with_actions: bool = False) -> TableRow:
    component = view.component
    row = f", row {component.row}" if component.row else ""
    kind: CellKind = "good" if component.health == "healthy" else "bad"
    cells = (
        TableCell(component.host, f"/components/{quote(component.host)}"),
        TableCell(f"{component.type or 'unknown'}{row}"),
        TableCell(
            "draining" if component.draining else component.state, more=component.state_reason
        ),
        TableCell(component.health, kind=kind, more=component.health_reason),
        TableCell(relative_time(component.seen_at, now)),
        TableCell(component.version or "-"),
        TableCell(holding_text(view.holding)),
    )
    if not with_actions or component.type != "index-server":
        return TableRow(cells)
    name = "component-undrain" if component.draining else "component-drain"
    return TableRow(cells, (ACTIONS[name].link(component=component.host),))
