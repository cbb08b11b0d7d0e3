"""The form of an action, which states its effect and its command line, and the page after it."""

from typing import Any

from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.console.actions.action import ConsoleAction, read_fields, run_action
from usher.console.actions.registry import find_action
from usher.console.forms import query_text, read_form
from usher.console.page import ConsolePage
from usher.door import removals
from usher.removal_rules import parse_target
from usher.telemetry import Log
from usher.wording import counted

log = Log("console")
PLACEHOLDERS = "…"


async def action_form(call: MgmtCall[Any]) -> ConsolePage:
    """The form of an action, filled in from the query; nothing changes."""
    action = find_action(call.path_params["action"])
    fields = {field.name: query_text(call, field.name) for field in action.fields}
    command = action.command({name: value or PLACEHOLDERS for name, value in fields.items()})
    notes = await form_notes(call, action, fields)
    values = {"action": action, "fields": fields, "notes": notes}
    data = {
        "action": action.name,
        "effect": action.effect,
        "fields": [{"name": field.name, "required": field.required} for field in action.fields],
        "notes": notes,
        "command": command,
    }
    return ConsolePage("action.html", action.label, values, data, command)


async def form_notes(
    call: MgmtCall[Any], action: ConsoleAction, fields: dict[str, str]
) -> list[str]:
    """What the action would affect, where that can be counted before."""
    if action.name != "page-remove" or not fields["target"]:
        return []
    async with call.context.door_db.transaction() as conn:
        target = await removals.resolve(conn, parse_target(fields["target"]))
        seen = await removals.preview(conn, target)
    covered = f"{counted(seen.pages, 'known page')}, {seen.searchable:,} of them searchable"
    return [f"{target.text} covers {covered}."]


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
