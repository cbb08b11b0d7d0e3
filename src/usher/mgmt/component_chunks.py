"""Components with the number of their chunks, for lists of the operator."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from usher.db.pool import Connection
from usher.mgmt import queries
from usher.mgmt.components import ComponentRecord, RecordedEvent
from usher.mgmt.queries import ComponentHoldings

HOLDING_FIELDS: Final = ("crawling", "crawled", "building", "built", "wanted", "loaded", "leaving")


@dataclass(frozen=True, slots=True)
class ComponentView:
    """A component and its chunks."""

    component: ComponentRecord
    holding: ComponentHoldings
    events: Sequence[RecordedEvent] = ()


async def with_holdings(conn: Connection, listed: Sequence[ComponentRecord]) -> list[ComponentView]:
    holdings = await queries.holdings(conn, [component.id for component in listed])
    return [ComponentView(component, holdings[component.id]) for component in listed]
