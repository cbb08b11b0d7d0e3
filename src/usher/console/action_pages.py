"""The form of an action, which states its effect and its command line, and the page after it."""

from collections.abc import Sequence
from typing import Any

from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.console.actions.action import (
    ActionFields,
    ConsoleAction,
    preview_database,
    read_fields,
    run_action,
)
from usher.console.actions.registry import find_action
from usher.console.forms import query_text, read_form
from usher.console.page import ConsolePage
from usher.errors import NotFound
from usher.observe.status_report import read_transaction
from usher.telemetry import Log

log = Log("console")
PLACEHOLDERS = "…"


async def action_form(call: MgmtCall[Any]) -> ConsolePage:
    """The form of an action, filled in from the query; nothing changes."""
    action = find_action(call.path_params["action"])
    fields = {field.name: query_text(call, field.name) for field in action.fields}
    async with read_transaction(preview_database(action, call)) as conn:
        notes: Sequence[str] = ()
        if action.prefill:
            given = {name: value for name, value in fields.items() if value}
            prefilled = await action.prefill(conn, fields)
            fields, notes = {**fields, **prefilled.fields, **given}, prefilled.notes
        is_complete = all(fields[field.name] for field in action.fields if field.required)
        # A removal shows what its target covers before there is a reason.
        has_subject = bool(fields[action.fields[0].name]) and not action.prefill
        if action.preview and not notes and (is_complete or has_subject):
            notes = await action.preview(conn, fields)
    return form_page(action, fields, notes)


async def preview_form(call: MgmtCall[bytes]) -> ConsolePage:
    """The form that the operator sent, with what the action would affect; nothing changes."""
    given = read_form(call)
    action = find_action(call.path_params["action"])
    if action.preview is None:
        raise NotFound(f"{action.label} has no preview.")
    fields = read_fields(action, given)
    async with read_transaction(preview_database(action, call)) as conn:
        notes = await action.preview(conn, fields)
    return form_page(action, fields, notes)


def form_page(action: ConsoleAction, fields: ActionFields, notes: Sequence[str]) -> ConsolePage:
    given = {
        field.name: fields[field.name] or (PLACEHOLDERS if field.required else "")
        for field in action.fields
    }
    command = action.command(given)
    values = {"action": action, "fields": fields, "notes": notes}
    data = {
        "action": action.name,
        "effect": action.effect,
        "fields": [{"name": field.name, "required": field.required} for field in action.fields],
        "notes": notes,
        "command": command,
    }
    return ConsolePage("action.html", action.label, values, data, command)


async def do_action(call: MgmtCall[bytes]) -> ConsolePage:
    """Check the form, do the action, and show what changed and the command line with the same effect."""
    given = read_form(call)
    action = find_action(call.path_params["action"])
    fields = read_fields(action, given)
    result = await run_action(action, call, fields)
    log.info("action", name=action.name, subject=action.subject(fields))
    values = {"action": action, "result": result, "back": action.back(fields)}
    data = {"action": action.name, "result": result, "at": database_time(call)}
    return ConsolePage("done.html", action.label, values, data, action.command(fields))
