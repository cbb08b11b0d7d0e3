"""What a caller may see of an event: operators of the queue leave commands and reasons, which can contain secrets."""

from dataclasses import replace
from typing import Any, Final

from usher.api.context import MgmtCall
from usher.api.queue_calls import HIDDEN, sees_arguments
from usher.mgmt.components import RecordedEvent

# The kinds of actions on the queue in the console begin with these.
QUEUE_KINDS: Final = ("console_job", "console_task", "console_type", "console_resource")
HIDDEN_FIELDS: Final = ("before", "after", "reason", "command")


def visible_event(call: MgmtCall[Any], event: RecordedEvent) -> RecordedEvent:
    """The event as this caller may see it: only the scope admin sees what was done to the queue, others that it was."""
    if sees_arguments(call) or not event.kind.startswith(QUEUE_KINDS):
        return event
    hidden: dict[str, Any] = {name: HIDDEN for name in HIDDEN_FIELDS if getattr(event, name)}
    return replace(event, **hidden)
