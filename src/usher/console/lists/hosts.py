"""Hosts, and one host with its pace, limits, filters, robots.txt and pages."""

import shlex
from datetime import datetime
from typing import Any, Final, get_args
from urllib.parse import quote

from usher import durations
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.console.actions.hosts import require_host
from usher.console.actions.registry import ACTIONS
from usher.console.lists.list_query import ROWS_PER_PAGE, choice, condition, next_href
from usher.console.page import (
    ActionLink,
    CellKind,
    ConsolePage,
    ConsoleTable,
    FilterField,
    TableCell,
    TableRow,
    list_page,
)
from usher.door import admin, cadence, filters, hosts
from usher.door.admin import MAX_PAGES_COUNTED, HostDetails, HostSummary, Policy
from usher.mgmt import page_history, page_versions, robots
from usher.mgmt.page_history import HostRest
from usher.mgmt.robots import RobotsRow, SitemapRow
from usher.observe.status_report import read_transaction
from usher.urls import Scheme, url_text
from usher.wording import capped_count, counted, relative_time, time_text

POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)
HOST_ACTIONS: Final = (
    "host-pause",
    "host-block",
    "host-cadence",
    "host-delay",
    "host-filters",
    "host-stop",
    "host-recrawl",
)
MAX_SITEMAPS: Final = 20


async def hosts_page(call: MgmtCall[Any]) -> ConsolePage:
    """Hosts by name."""
    now = database_time(call)
    given = {
        name: condition(call, name) for name in ("contains", "due", "cadence", "policy", "reason")
    }
    due = choice(call, "due", ("yes",))
    async with read_transaction(call.context.mgmt_db) as conn:
        listed = await admin.list_hosts(
            conn,
            after=condition(call, "after"),
            policy=choice(call, "policy", POLICIES),
            contains=given["contains"].lower() or None,
            due_at=now if due else None,
            cadence=cadence.parse(given["cadence"]) if given["cadence"] else None,
            reason=given["reason"] or None,
            n=ROWS_PER_PAGE + 1,
        )
    shown = listed[:ROWS_PER_PAGE]
    table = ConsoleTable(
        ("Host", "Clock", "Cadence", "Policy"),
        [host_row(host, now) for host in shown],
        (
            FilterField("contains", "Name contains", given["contains"]),
            FilterField("due", "Due", given["due"], ("yes",)),
            FilterField("cadence", "Cadence", given["cadence"], example="weekly"),
            FilterField("policy", "Policy", given["policy"], POLICIES),
            FilterField("reason", "Reason contains", given["reason"]),
        ),
        path="/hosts",
        next_href=next_href("/hosts", given, shown[-1].name if len(listed) > len(shown) else None),
        empty="No host matches.",
    )
    return list_page("Hosts", table, shown, list_command(given))


def list_command(given: dict[str, str]) -> str:
    words = ["usher", "hosts", "list", *(["--due"] if given["due"] else [])]
    for name in ("contains", "cadence", "policy", "reason"):
        words += [f"--{name}", given[name]] if given[name] else []
    return shlex.join(words)


def clock_text(started: datetime | None, next_fetch: datetime, now: datetime) -> str:
    if started:
        return f"crawl open since {relative_time(started, now)}"
    return f"due {relative_time(next_fetch, now)}" if next_fetch > now else "due now"


def host_row(host: HostSummary, now: datetime) -> TableRow:
    kind: CellKind = "text" if host.policy == "open" else "bad"
    cells = (
        TableCell(host.name, f"/hosts/{quote(host.name)}"),
        TableCell(clock_text(host.crawl_started, host.next_fetch, now)),
        TableCell(cadence.show(host.cadence)),
        TableCell(host.policy, kind=kind, more=host.policy_reason),
    )
    name = "host-pause" if host.policy == "open" else "host-open"
    links = (ACTIONS[name].link(host=host.name), ACTIONS["host-recrawl"].link(host=host.name))
    return TableRow(cells, links)


async def host_page(call: MgmtCall[Any]) -> ConsolePage:
    """One host: its fields as texts, its pages by state, and what to do with it."""
    now = database_time(call)
    async with read_transaction(call.context.mgmt_db) as conn:
        host = await require_host(conn, call.path_params["name"])
        pages = await admin.count_pages(conn, number=host.domain64)
        settings = await hosts.door_settings(conn)
        rest = await page_history.host_rest(conn, host.domain64)
        robots_rows = await robots.robots_of(conn, host.domain64)
        sitemaps = await robots.sitemaps_of(conn, host.domain64, n=MAX_SITEMAPS + 1)
        held_back = await page_versions.held_back(conn, host.domain64)
    rules = filters.combine(settings.filters, host.filters)
    fields = [
        *clock_fields(host, now),
        *pace_fields(rest, now),
        ("Filters", [filters.describe(rule) for rule in rules] or ["none"]),
        ("robots.txt", [robots_text(row, now) for row in robots_rows] or ["not read yet"]),
        ("Sitemaps", [sitemap_text(row, host.name) for row in sitemaps[:MAX_SITEMAPS]] or ["none"]),
        ("Pages", [count_text(pages)]),
    ]
    if held_back:
        text = (
            f"{counted(held_back, 'page')} are gone and held back: usher hosts release {host.name}"
        )
        fields.append(("Held back", [text]))
    values = {"fields": fields, "actions": host_actions(host), "name": host.name, "pages": pages}
    data = {"host": host, "pages": pages, "rest": rest, "filters": rules, "robots": robots_rows}
    command = f"usher hosts show {shlex.quote(host.name)}"
    return ConsolePage("host.html", host.name, values, {**data, "sitemaps": sitemaps}, command)


def host_actions(host: HostDetails) -> list[ActionLink]:
    names = HOST_ACTIONS if host.policy == "open" else ("host-open", *HOST_ACTIONS[2:])
    links = [ACTIONS[name].link(host=host.name) for name in names]
    return [*links, ACTIONS["page-remove"].link("Remove its pages", target=host.name)]


def clock_fields(host: HostDetails, now: datetime) -> list[tuple[str, list[str]]]:
    reason = f": {host.policy_reason}" if host.policy_reason else ""
    often = cadence.show(host.cadence or host.general_cadence)
    own = "" if host.cadence else ", the default"
    adaptive = "; adapted to each page" if host.adaptive else ""
    return [
        ("Policy", [f"{host.policy}{reason}"]),
        ("Clock", [clock_text(host.crawl_started, host.next_fetch, now)]),
        ("Cadence", [f"{often}{own}{adaptive}"]),
        ("Scheme", [Scheme(host.scheme).word]),
        ("Scope", [host.scope]),
        (
            "Limits",
            [
                f"at most {host.effective_max_pages:,} pages",
                f"at most {host.effective_max_depth:,} clicks from the start",
            ],
        ),
    ]


def pace_fields(rest: HostRest, now: datetime) -> list[tuple[str, list[str]]]:
    """The delay between requests, and when the host is ready."""
    by_robots = ", by its robots.txt" if rest.by_robots else ""
    until = rest.until(now)
    ready = [f"ready {relative_time(until, now)}" if until else "ready now"]
    if rest.held_by is not None:
        ready.append(f"held by {rest.holder} with chunk {rest.held_by}")
    if rest.troubles:
        ready.append(f"failed {rest.troubles} times in a row: {rest.trouble}")
    return [("Delay", [f"{durations.show(rest.delay)}{by_robots}"]), ("Pace", ready)]


def robots_text(row: RobotsRow, now: datetime) -> str:
    status = f"HTTP {row.status}" if row.status else "no answer"
    return f"{status}, read {time_text(row.fetched_at, now)}"


def sitemap_text(row: SitemapRow, host: str) -> str:
    pages = f"{row.pages:,} pages" if row.pages is not None else "not read yet"
    return f"{url_text(row.scheme, host, row.path)}: {row.problem or pages}"


def count_text(pages: dict[str, int]) -> str:
    counts = (
        f"{capped_count(number, MAX_PAGES_COUNTED)} {state}" for state, number in pages.items()
    )
    return ", ".join(counts) or "none"
