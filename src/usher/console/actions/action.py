"""An action of the console: its form, the command line with the same effect, and the change, which is audited."""

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlencode

from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time, reject_unstorable
from usher.api.queue_calls import NUMBER
from usher.console.page import ActionLink
from usher.db.pool import Connection, Database
from usher.errors import BadInput
from usher.mgmt import components
from usher.mgmt.components import NewEvent

MAX_FIELD_CHARACTERS: Final = 8_192
BECAUSE: Final = "because"  # the reason of an action whose field `reason` is a condition
ActionFields = Mapping[str, str]
Area = Literal["door", "mgmt", "control"]


@dataclass(frozen=True, slots=True)
class ActionField:
    """A field of the form of an action."""

    name: str
    label: str
    required: bool = True
    help: str = ""
    options: Sequence[str] = ()
    is_long: bool = False  # several lines


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The value before and after a change, for the audit, and a sentence for the operator."""

    before: str
    after: str
    message: str


@dataclass(frozen=True, slots=True)
class PrefilledForm:
    """Fields that the form of an action shows at first, and what the action would affect, if that was read for them."""

    fields: ActionFields
    notes: Sequence[str] = ()


Change = Callable[[Connection, MgmtCall[Any], ActionFields], Awaitable[ActionResult]]

Preview = Callable[[Connection, ActionFields], Awaitable[list[str]]]
Prefill = Callable[[Connection, ActionFields], Awaitable[PrefilledForm]]


@dataclass(frozen=True, slots=True)
class ConsoleAction:
    """An action; its first field is what it acts on, and `words` is its command line for given fields.

    `area` is the database and role of the change. Changes by the doorkeeper, which has its own transactions, use mgmt.
    """

    name: str
    label: str
    effect: str
    fields: Sequence[ActionField]
    words: Callable[[ActionFields], Sequence[str]]
    area: Area
    change: Change
    back: Callable[[ActionFields], str]  # the page that shows the result
    preview: Preview | None = None  # what the action would affect, as sentences
    prefill: Prefill | None = None  # fields that the form shows at first

    @property
    def event_kind(self) -> str:
        return f"console_{self.name.replace('-', '_')}"

    def command(self, fields: ActionFields) -> str:
        return shlex.join(["usher", *self.words(fields)])

    def link(self, label: str = "", **fields: str) -> ActionLink:
        """A link to the form, with these fields filled in."""
        return ActionLink(label or self.label, f"/actions/{self.name}?{urlencode(fields)}")

    def subject(self, fields: ActionFields) -> str:
        return fields[self.fields[0].name] or "all"


def read_fields(action: ConsoleAction, given: ActionFields) -> dict[str, str]:
    """The fields of an action from a form; BadInput if a required one is missing or a value is not an option."""
    unknown = given.keys() - {field.name for field in action.fields}
    if unknown:
        raise BadInput(f"The form has no field {min(unknown)[:40]!a}.")
    fields = {}
    for field in action.fields:
        value = given.get(field.name, "").strip()
        if field.required and not value:
            raise BadInput(f"Fill in the field {field.label}.")
        if len(value) > MAX_FIELD_CHARACTERS or "\0" in value:
            raise BadInput(f"The field {field.label} is too long or contains a NUL.")
        if value and field.options and value not in field.options:
            raise BadInput(f"{field.label} is one of {', '.join(field.options)}.")
        fields[field.name] = value
    return fields


async def run_action(
    action: ConsoleAction, call: MgmtCall[Any], fields: ActionFields
) -> ActionResult:
    """Change what the action changes, and store who did it, in one transaction.

    The queue may be in another database: the event of an action on it is committed just before the change.
    """
    with reject_unstorable():
        async with database_of(action, call).transaction() as conn:
            result = await action.change(conn, call, fields)
            event = audit_event(action, call, fields, result)
            if action.area == "control":
                async with call.context.mgmt_db.transaction() as audit:
                    await components.add_events(audit, event)
            else:
                await components.add_events(conn, event)
            return result


def audit_event(
    action: ConsoleAction, call: MgmtCall[Any], fields: ActionFields, result: ActionResult
) -> NewEvent:
    return NewEvent(
        database_time(call),
        action.event_kind,
        before=result.before,
        after=result.after,
        reason=fields.get(BECAUSE, fields.get("reason", "")),
        actor=actor(call),
        subject=action.subject(fields),
        command=action.command(fields),
    )


def database_of(action: ConsoleAction, call: MgmtCall[Any]) -> Database:
    context = call.context
    databases = {"door": context.door_db, "mgmt": context.mgmt_db, "control": context.control}
    return databases[action.area]


def preview_database(action: ConsoleAction, call: MgmtCall[Any]) -> Database:
    """The database that a preview reads: MGMT's role may read all of the work area."""
    return call.context.control if action.area == "control" else call.context.mgmt_db


def actor(call: MgmtCall[Any]) -> str:
    """Who acts: the name of the token, or the operator of the data directory."""
    token = call.caller.token
    return f"token {token.name}" if token and not token.is_local else "the operator"


def reason_words(fields: ActionFields) -> list[str]:
    return ["--reason", fields["reason"]] if fields.get("reason") else []


def whole_number(text: str, noun: str) -> int:
    """The number of a job, task or chunk; BadInput if the text is none."""
    if not NUMBER.fullmatch(text):
        raise BadInput(f"{text[:40]!a} is not the number of a {noun}.")
    return int(text)


REASON = ActionField("reason", "Reason", required=False, help="Shown with what it affects.")
