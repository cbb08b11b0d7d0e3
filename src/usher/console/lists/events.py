"""Events and actions of operators, by what happened, to what, by whom and when."""

import shlex
from typing import Any, Final

from usher.api.context import MgmtCall
from usher.api.event_access import visible_event
from usher.api.mgmt_calls import database_time
from usher.api.queue_calls import check_contains
from usher.console.event_rows import EVENT_HEADINGS, event_row
from usher.console.lists.list_query import ROWS_PER_PAGE, choice, condition, next_href, number
from usher.console.page import ConsolePage, ConsoleTable, FilterField, list_page
from usher.console.text_values import time_ago
from usher.mgmt import event_list
from usher.mgmt.event_list import MAX_EVENTS_READ, EventConditions
from usher.observe.status_report import read_transaction

OPTIONS: Final = {
    "kind": "--kind",
    "of": "--of",
    "by": "--by",
    "contains": "--contains",
    "newer": "--since",
}


async def events_page(call: MgmtCall[Any]) -> ConsolePage:
    """Events and actions of operators, the latest first."""
    now = database_time(call)
    given = {name: condition(call, name) for name in ("show", *OPTIONS)}
    conditions = EventConditions(
        only_actions=choice(call, "show", ("actions",)) is not None,
        kind=given["kind"] or None,
        subject=given["of"] or None,
        actor=given["by"] or None,
        contains=given["contains"] or None,
        since=time_ago(given["newer"], now),
    )
    check_contains(call, conditions.contains)
    async with read_transaction(call.context.mgmt_db) as conn:
        listing = await event_list.list_events(
            conn, conditions, before=number(call, "after"), n=ROWS_PER_PAGE
        )
    events = [visible_event(call, event) for event in listing.events]
    table = ConsoleTable(
        EVENT_HEADINGS,
        [event_row(event, now) for event in events],
        (
            FilterField("show", "Only", given["show"], ("actions",)),
            FilterField("newer", "In the last", given["newer"], example="1h"),
            FilterField("kind", "Event", given["kind"]),
            FilterField("of", "Of", given["of"]),
            FilterField("contains", "Change contains", given["contains"]),
            FilterField("by", "By", given["by"]),
        ),
        path="/events",
        next_href=next_href("/events", given, listing.next_after),
        empty=f"None of these {MAX_EVENTS_READ:,} events matches; the search continues below."
        if listing.next_after
        else "No event matches.",
    )
    return list_page("Events", table, events, list_command(given))


def list_command(given: dict[str, str]) -> str:
    words = ["usher", "components", "events", *(["--actions"] if given["show"] else [])]
    options = [word for name in OPTIONS if given[name] for word in (OPTIONS[name], given[name])]
    return shlex.join([*words, *options])
