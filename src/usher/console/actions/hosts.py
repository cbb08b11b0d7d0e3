"""Actions on hosts: pause, open, block, cadence, delay, filters, stop the crawl, crawl again."""

import json
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import quote

from usher import durations
from usher.api.context import MgmtCall
from usher.console.actions.action import (
    REASON,
    ActionField,
    ActionFields,
    ActionResult,
    ConsoleAction,
    PrefilledForm,
    reason_words,
)
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.door import admin, cadence, recrawl
from usher.door.admin import FilterList, HostDetails, Policy
from usher.door.filter_list import checked_filters, parse_json
from usher.door.filter_preview import preview_filters
from usher.door.host_lookup import host_root, unknown_host
from usher.door.rules import Verdict
from usher.errors import BadInput, Conflict
from usher.wording import capped_count, counted

DEFAULT = "default"
MAX_DELAY_SECONDS = 86_400
HOST = ActionField("host", "Host")


async def require_host(conn: Connection, text: str) -> HostDetails:
    name = host_root(text).host
    host = await admin.show_host(conn, name=name)
    if host is None:
        raise await unknown_host(conn, name)
    return host


def policy_text(policy: str, reason: str) -> str:
    return f"{policy}: {reason}" if reason else policy


async def set_policy(
    conn: Connection, _call: MgmtCall[Any], fields: ActionFields, *, policy: Policy
) -> ActionResult:
    host, reason = await require_host(conn, fields["host"]), fields.get("reason", "")
    await admin.change_policy(conn, names=[host.name], policy=policy, reason=reason)
    before = policy_text(host.policy, host.policy_reason)
    return ActionResult(before, policy_text(policy, reason), f"{host.name} is now {policy}.")


async def set_cadence(conn: Connection, _call: MgmtCall[Any], fields: ActionFields) -> ActionResult:
    host, text = await require_host(conn, fields["host"]), fields["cadence"]
    value = None if text == DEFAULT else cadence.parse(text)
    await admin.change_host(conn, names=[host.name], cadence=value)
    before = cadence.show(host.cadence) if host.cadence else DEFAULT
    after = cadence.show(value) if value else DEFAULT
    return ActionResult(before, after, f"The cadence of {host.name} is now {after}.")


async def set_delay(conn: Connection, _call: MgmtCall[Any], fields: ActionFields) -> ActionResult:
    host, text = await require_host(conn, fields["host"]), fields["seconds"]
    value = None if text == DEFAULT else parse_seconds(text)
    await admin.change_host(conn, names=[host.name], crawl_delay=value)
    before = DEFAULT if host.crawl_delay is None else durations.show(host.crawl_delay)
    after = DEFAULT if value is None else durations.show(value)
    return ActionResult(before, after, f"The crawl delay of {host.name} is now {after}.")


def parse_seconds(text: str) -> timedelta:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_DELAY_SECONDS:
        raise BadInput(f"A delay is from 0 to {MAX_DELAY_SECONDS:,} seconds, or `default`.")
    return timedelta(seconds=seconds)


async def stop_crawl(conn: Connection, _call: MgmtCall[Any], fields: ActionFields) -> ActionResult:
    host = await require_host(conn, fields["host"])
    [stopped] = await admin.stop_crawls(conn, names=[host.name], now=await server_time(conn))
    before = "crawl open" if host.crawl_started else "no crawl"
    return ActionResult(before, stopped.text, f"{host.name}: {stopped.text}.")


async def preview_stop(conn: Connection, fields: ActionFields) -> list[str]:
    host = await require_host(conn, fields["host"])
    pages = await admin.count_pages(conn, number=host.domain64)
    waiting = capped_count(pages.get("pending", 0), admin.MAX_PAGES_COUNTED)
    return [f"{waiting} pages wait; {pages.get('crawling', 0):,} are being fetched."]


async def recrawl_host(conn: Connection, call: MgmtCall[Any], fields: ActionFields) -> ActionResult:
    """Knock for a whole host, on connections of the door's own."""
    host = await require_host(conn, fields["host"])
    answers, _ = await recrawl.recrawl_hosts(
        call.context.doorkeeper, [host.name], hall_pass=fields["pages"] == "all"
    )
    answer = answers.answers[0]
    if answer.verdict is Verdict.REFUSE:
        hint = f"usher hosts show {host.name}"
        raise Conflict(f"The door refuses it: {answer.reason}.", hint=hint)
    queued = counted(answers.brought, "other page")
    return ActionResult("", f"{answer.reason}, {queued} queued", f"Queued its root and {queued}.")


def parse_filters(text: str) -> FilterList:
    return checked_filters(parse_json(text, "The list of filters"))


def filter_words(text: str) -> list[str]:
    """The options of `usher hosts set`; a text that is no list yet stays as it is."""
    try:
        rules = parse_filters(text)
    except BadInput:
        return ["--filter", text]
    words = [word for rule in rules for word in ("--filter", json.dumps(rule, ensure_ascii=False))]
    return words or ["--no-filters"]


async def set_filters(conn: Connection, _call: MgmtCall[Any], fields: ActionFields) -> ActionResult:
    host, rules = await require_host(conn, fields["host"]), parse_filters(fields["filters"])
    await admin.change_host(conn, names=[host.name], filters=rules)
    before, after = (json.dumps(each, ensure_ascii=False) for each in (host.filters, rules))
    message = f"{host.name} has {counted(len(rules), 'filter')} of its own."
    return ActionResult(before, after, message)


async def preview_host_filters(conn: Connection, fields: ActionFields) -> list[str]:
    """What the filters would reject, with examples."""
    host = await require_host(conn, fields["host"])
    preview = await preview_filters(conn, host, parse_filters(fields["filters"]))
    return [preview.sentence, *preview.examples]


async def present_filters(conn: Connection, fields: ActionFields) -> PrefilledForm:
    """The present filters of the host, for the form."""
    if not fields["host"]:
        return PrefilledForm({"filters": "[]"})
    host = await require_host(conn, fields["host"])
    rules = ",\n ".join(json.dumps(rule, ensure_ascii=False) for rule in host.filters)
    return PrefilledForm({"filters": f"[{rules}]"})


def host_path(fields: ActionFields) -> str:
    return f"/hosts/{quote(fields['host'])}"


def policy_action(
    policy: Policy, verb: str, label: str, effect: str, *, fields: Sequence[ActionField]
) -> ConsoleAction:
    return ConsoleAction(
        f"host-{verb}",
        label,
        effect,
        fields,
        lambda given: ["hosts", verb, given["host"], *reason_words(given)],
        "door",
        partial(set_policy, policy=policy),
        host_path,
    )


ACTIONS = (
    policy_action(
        "paused",
        "pause",
        "Pause",
        "The door refuses every URL of the host, and crawlers stop, until you open it.",
        fields=(HOST, REASON),
    ),
    policy_action("open", "open", "Open", "The host is crawled again.", fields=(HOST,)),
    policy_action(
        "blocked",
        "block",
        "Block",
        "The door refuses every URL of the host. Pages in the index stay searchable until you remove them.",
        fields=(HOST, REASON),
    ),
    ConsoleAction(
        "host-cadence",
        "Set the cadence",
        "How often its pages are visited. `default` restores the general cadence.",
        (HOST, ActionField("cadence", "Cadence", help="weekly, monthly, 36h, 10d or default")),
        lambda fields: ["hosts", "set", fields["host"], "--cadence", fields["cadence"]],
        "door",
        set_cadence,
        host_path,
    ),
    ConsoleAction(
        "host-delay",
        "Set the delay",
        "The wait between two requests to the host. `default` restores the general delay.",
        (HOST, ActionField("seconds", "Seconds", help="Such as 2.5, or default")),
        lambda fields: ["hosts", "set", fields["host"], "--crawl-delay", fields["seconds"]],
        "door",
        set_delay,
        host_path,
    ),
    ConsoleAction(
        "host-filters",
        "Set the filters",
        "The door refuses new URLs that a filter rejects. The list replaces the filters of the host and adds to the "
        "default filters. Preview it first: the preview judges the known pages and changes nothing.",
        (
            HOST,
            ActionField(
                "filters",
                "Filters, as a JSON list",
                help='Such as [{"name": "calendar", "rule": "path", "matches": "^/cal/"}]',
                is_long=True,
            ),
        ),
        lambda fields: ["hosts", "set", fields["host"], *filter_words(fields["filters"])],
        "door",
        set_filters,
        host_path,
        preview_host_filters,
        present_filters,
    ),
    ConsoleAction(
        "host-stop",
        "Stop the crawl",
        "The waiting pages of the host leave the queue, and its crawl ends as soon as no page is being fetched. "
        "The next crawl comes by its cadence.",
        (HOST,),
        lambda fields: ["hosts", "stop", fields["host"]],
        "door",
        stop_crawl,
        host_path,
        preview_stop,
    ),
    ConsoleAction(
        "host-recrawl",
        "Crawl again",
        "The door admits the root of the host and every page that is due, or all known pages.",
        (HOST, ActionField("pages", "Pages", options=("due", "all"))),
        lambda fields: [
            "hosts",
            "recrawl",
            fields["host"],
            *(["--pass"] if fields.get("pages") == "all" else []),
        ],
        "mgmt",
        recrawl_host,
        host_path,
    ),
)
