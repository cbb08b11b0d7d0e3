"""An event as a row of a table."""

from datetime import datetime
from urllib.parse import quote

from usher.console.page import TableCell, TableRow
from usher.mgmt.components import RecordedEvent
from usher.wording import relative_time

EVENT_HEADINGS = ("Time", "Event", "Of", "Change", "By")


def event_row(event: RecordedEvent, now: datetime) -> TableRow:
    change = " → ".join(text for text in (event.before, event.after) if text)
    return TableRow(
        (
            TableCell(relative_time(event.at, now), more=f"{event.at:%Y-%m-%d %H:%M:%S} UTC"),
            TableCell(event.kind.removeprefix("console_").replace("_", " ")),
            event_subject(event),
            TableCell(change or "-", more=event.reason),
            TableCell(event.actor or "Usher", more=event.command or ""),
        )
    )


def event_subject(event: RecordedEvent) -> TableCell:
    if event.subject:
        return TableCell(event.subject)
    if event.host:
        return TableCell(event.host, f"/components/{quote(event.host)}")
    if event.chunk_id:
        return TableCell(f"chunk {event.chunk_id}", f"/chunks/{event.chunk_id}")
    return TableCell("-")
