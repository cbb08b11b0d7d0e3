"""`usher hosts`: list, register, change, release, recrawl and group hosts."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import Any, cast

import click

from usher import domain64, durations
from usher.cli.actions.add import (
    MAX_LISTED_ANSWERS,
    AnswerCounts,
    answer_json,
    show_answers,
    show_brought,
    show_counts,
)
from usher.cli.app import App, run, show_field, show_json, show_list
from usher.cli.area_access import call_in, mgmt_transaction
from usher.cli.commands.hosts import DEFAULT
from usher.cli.door_access import door_transaction, open_door, parse_range
from usher.cli.output import display_time, echo
from usher.cli.queue_access import parse_duration
from usher.crawl import private_permission
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.door import (
    admin,
    cadence,
    filter_preview,
    filters,
    hosts,
    private_access,
    recrawl,
    removals,
)
from usher.door.batch import BatchVerdicts
from usher.door.cadence import parse as parse_cadence
from usher.door.filter_list import checked_filters, parse_json
from usher.door.filter_preview import FilterPreview
from usher.door.host_lookup import host_names, host_root, require_hosts, unknown_host
from usher.door.hosts import DoorSettings, Host
from usher.errors import BadInput
from usher.local.operator_urls import retry_failures, with_scheme
from usher.mgmt import page_versions, politeness_groups
from usher.mgmt.politeness_groups import MAX_COUNTED_HOSTS
from usher.removal_rules import parse_target
from usher.urls import Scheme
from usher.wording import capped_count, counted, duration_text, json_fields, printable, record_json


async def find_hosts(
    conn: Connection,
    /,
    *,
    due: bool,
    contains: str | None,
    under: str | None,
    cadence: str | None,
    **conditions: Any,  # noqa: ANN401 - as click read them
) -> list[admin.HostSummary]:
    return await admin.list_hosts(
        conn,
        contains=contains.lower() if contains else None,
        due_at=await server_time(conn) if due else None,
        within=await parse_range(conn, under) if under else None,
        cadence=parse_cadence(cadence) if cadence else None,
        **conditions,
    )


def listed_json(host: admin.HostSummary) -> dict[str, Any]:
    return json_fields(
        {
            "name": host.name,
            "domain64": host.domain64,
            "hex": domain64.to_hex(host.domain64),
            "scheme": Scheme(host.scheme).word,
            "next_fetch": host.next_fetch,
            "crawl_started": host.crawl_started,
            "cadence": cadence.show(host.cadence),
            "policy": host.policy,
            "policy_reason": host.policy_reason,
        }
    )


def list_hosts(app: App, *, limit: int, as_json: bool, **conditions: Any) -> None:  # noqa: ANN401
    hosts = call_in(door_transaction(app), find_hosts, n=limit, **conditions)
    now = display_time()
    rows = [
        (
            host.name,
            domain64.to_hex(host.domain64),
            clock_text(host, now),
            cadence.show(host.cadence),
            f"{host.policy} {printable(host.policy_reason)}".strip(),
        )
        for host in hosts
    ]
    headings = ("HOST", "NUMBER", "CLOCK", "CADENCE", "POLICY")
    show_list(
        app, hosts, headings, rows, as_json=as_json, to_json=listed_json, limit=limit, after="name"
    )


def clock_text(host: admin.HostSummary, now: datetime) -> str:
    if host.crawl_started:
        return "crawl open"
    return f"in {duration_text(host.next_fetch - now)}" if host.next_fetch > now else "due"


async def register_hosts(
    conn: Connection, names: Sequence[str], interval: timedelta | None
) -> list[Host]:
    registered = await hosts.register(conn, names=names, now=await server_time(conn))
    if interval:
        await admin.change_host(conn, names=names, cadence=interval)
    return [registered[name] for name in names]


def add_hosts(app: App, texts: Sequence[str], often: str | None, *, as_json: bool) -> None:
    names, interval = host_names(texts), parse_cadence(often) if often else None
    registered = call_in(door_transaction(app), register_hosts, names, interval)
    rows = [(host.name, host.domain64, domain64.to_hex(host.domain64)) for host in registered]
    headings = ("HOST", "NUMBER", "HEX")
    show_list(app, registered, headings, rows, as_json=as_json, to_json=number_json)


def number_json(host: Host) -> dict[str, Any]:
    fields = {"name": host.name, "domain64": host.domain64, "hex": domain64.to_hex(host.domain64)}
    return json_fields({**fields, "next_fetch": host.next_fetch})


async def change_hosts(
    app: App,
    texts: Sequence[str],
    *,
    reach: Sequence[str],
    file: Path | None,
    single: Sequence[str],
    no_filters: bool,
    private: bool | None = None,
    **wanted: Any,  # noqa: ANN401 - as click read them
) -> list[str]:
    names, change = host_names(texts), host_change(wanted)
    filters = filter_list(file=file, single=single, no_filters=no_filters)
    if filters is not None:
        change["filters"] = filters
    async with door_transaction(app) as conn:
        if reach:
            change["ranges"] = [await parse_range(conn, name) for name in reach]
            change["scope"] = "listed"
        if private is not None:
            await change_private(conn, texts, allow=private)
        changed = await admin.change_host(conn, names=names, **change)
        await require_hosts(conn, names, changed)
    return changed


async def change_private(conn: Connection, texts: Sequence[str], *, allow: bool) -> None:
    """Allow or forbid connections to hosts that are not public; a name without a scheme uses that of the host.

    Registers a host that it allows, and lets crawlers try again at once what failed there.
    """
    for text in texts:
        if not allow:
            await private_access.revoke(conn, host_root(text).host)
            continue
        url = host_root(await with_scheme(conn, text))
        permission = await private_permission.needed_permission(url)
        if permission is None:
            raise BadInput(
                f"{url.host} has no private address now.", hint="It needs no permission."
            )
        await private_access.grant(conn, url, permission)
        await retry_failures(conn, [url.host])


def host_change(wanted: Mapping[str, Any]) -> admin.HostChange:
    """The given options; the word `default` becomes None, which restores the default."""
    given = {name: value for name, value in wanted.items() if value is not None}
    change: dict[str, Any] = {
        name: None if value == DEFAULT else value for name, value in given.items()
    }
    if change.get("cadence"):
        change["cadence"] = parse_cadence(change["cadence"])
    if change.get("crawl_delay") is not None:
        change["crawl_delay"] = timedelta(seconds=change["crawl_delay"])
    return cast("admin.HostChange", change)


def filter_list(
    *, file: Path | None, single: Sequence[str], no_filters: bool
) -> admin.FilterList | None:
    """The given filters, checked; None if none were given."""
    if bool(file) + bool(single) + no_filters > 1:
        raise click.UsageError("Give only one of --filters, --filter and --no-filters.")
    if no_filters:
        return []
    if file:
        rules = parse_json(file.read_text("utf-8", "replace"), str(file))
        return checked_filters(rules)
    return checked_filters([parse_json(text, "--filter") for text in single]) if single else None


async def preview_filters(app: App, texts: Sequence[str], **given: Any) -> dict[str, FilterPreview]:  # noqa: ANN401
    """What the given filters would reject at each host; changes nothing."""
    rules = filter_list(**given)
    if rules is None:
        raise click.UsageError("Give filters: --filter, --filters or --no-filters.")
    previews = {}
    async with door_transaction(app) as conn:
        for name in host_names(texts):
            host = await admin.show_host(conn, name=name)
            if host is None:
                raise await unknown_host(conn, name)
            previews[name] = await filter_preview.preview_filters(conn, host, rules)
    return previews


def show_previews(app: App, previews: Mapping[str, FilterPreview], *, as_json: bool) -> None:
    if as_json:
        show_json({name: record_json(preview) for name, preview in previews.items()})
        return
    for name, preview in previews.items():
        echo(f"{name}: {preview.sentence}")
        for example in preview.examples:
            echo(f"  {printable(example)}")
    app.say("Nothing was changed.")


async def set_policy(app: App, texts: Sequence[str], policy: admin.Policy, reason: str) -> None:
    """Change the policy of hosts, and say how many pages of blocked hosts stay searchable, and how to remove them."""
    names, searchable = host_names(texts), dict[str, int]()
    async with door_transaction(app) as conn:
        changed = await admin.change_policy(conn, names=names, policy=policy, reason=reason)
        await require_hosts(conn, names, changed)
        for name in changed if policy == "blocked" else ():
            searchable[name] = (await removals.preview(conn, parse_target(name))).searchable
    app.say(f"{policy}: {', '.join(changed)}")
    for name, pages in searchable.items():
        if pages:
            app.say(f"{name}: {counted(pages, 'page')} stay searchable")
            app.say(f"  → usher remove {quote(name)} --reason TEXT")


async def release_held_pages(app: App, texts: Sequence[str]) -> bool:
    """Remove the pages that are held back; whether there are any."""
    names = host_names(texts)
    async with mgmt_transaction(app) as conn:
        registered = await hosts.find(conn, names=names)
        await require_hosts(conn, names, [host.name for host in registered])
        released = [await page_versions.release(conn, host.domain64) for host in registered]
    for host, pages in zip(registered, released, strict=True):
        removed = f"{counted(pages, 'page')} will be removed from the index"
        app.say(f"{host.name}: {removed if pages else 'no pages are held back'}")
    return any(released)


async def recrawl_hosts(app: App, texts: Sequence[str], *, hall_pass: bool) -> BatchVerdicts:
    """A full knock at the root of each host."""
    async with open_door(app) as doorkeeper:
        answers, entrances = await recrawl.recrawl_hosts(doorkeeper, texts, hall_pass=hall_pass)
    for entrance in entrances:
        if entrance.crawling:
            pages = counted(entrance.crawling, "page")
            app.say(f"{entrance.host}: {pages} in progress, not admitted again. Repeat this later.")
    return answers


async def recrawl_due(app: App) -> BatchVerdicts:
    async with open_door(app) as doorkeeper:
        total = BatchVerdicts([])
        async for batch in doorkeeper.kick_off():
            total = BatchVerdicts([*total.answers, *batch.answers], total.brought + batch.brought)
        return total


def show_recrawls(app: App, answers: BatchVerdicts, *, as_json: bool) -> bool:
    """Show the door's answers; whether it refused all hosts."""
    counts = AnswerCounts()
    counts.add(answers)
    if as_json:
        listed = [answer_json(answer) for answer in answers.answers]
        show_json({**counts.as_json(), "answers": listed})
    elif len(answers.answers) > MAX_LISTED_ANSWERS:
        show_counts(counts)
    else:
        show_answers(answers.answers)
    if not answers.answers:
        app.say("No host is due. No failed page is due.")
    show_brought(app, counts)
    return counts.all_refused


async def default_rules(
    app: App,
    *,
    cadence: str | None,
    max_pages: int | None,
    max_depth: int | None,
    **lists: Any,  # noqa: ANN401 - as click read them
) -> DoorSettings:
    """Change the given default rules and return all of them."""
    given: dict[str, Any] = {
        "cadence": parse_cadence(cadence) if cadence else None,
        "filters": filter_list(**lists),
        "max_pages": max_pages,
        "max_depth": max_depth,
    }
    async with door_transaction(app) as conn:
        if any(value is not None for value in given.values()):
            return await admin.change_settings(conn, **given)
        return await hosts.door_settings(conn)


def show_rules(app: App, *, as_json: bool, **changes: Any) -> None:  # noqa: ANN401
    rules = run(default_rules(app, **changes))
    if as_json:
        fields = {"cadence": cadence.show(rules.cadence), "max_pages": rules.max_pages}
        show_json({**fields, "max_depth": rules.max_depth, "filters": rules.filters})
        return
    show_field("cadence", cadence.show(rules.cadence))
    depth = f"new pages up to {rules.max_depth} clicks from the start of the crawl"
    show_field("limits", f"at most {rules.max_pages:,} pages per host, {depth}")
    show_field("filters", *([filters.describe(rule) for rule in rules.filters] or ["none"]))


async def join_group(app: App, name: str, texts: Sequence[str], delay: str | None) -> list[str]:
    """Put all hosts into the group, or none if one is unknown."""
    names, pause = host_names(texts), None if delay is None else parse_duration(delay)
    async with mgmt_transaction(app) as conn:
        changed = await politeness_groups.group(conn, name, names, delay=pause)
        await require_hosts(conn, names, changed)
    return changed


async def leave_group(app: App, texts: Sequence[str]) -> list[str]:
    names = host_names(texts)
    async with mgmt_transaction(app) as conn:
        changed = await politeness_groups.ungroup(conn, names)
        await require_hosts(conn, names, changed)
    return changed


def list_groups(app: App, *, limit: int, after: str, as_json: bool) -> None:
    groups = call_in(mgmt_transaction(app), politeness_groups.groups, after=after, n=limit)
    now = display_time()
    rows = [
        (
            printable(group.name),
            "as its hosts" if group.crawl_delay is None else durations.show(group.crawl_delay),
            ready_text(group.ready_at, now),
            capped_count(group.hosts, MAX_COUNTED_HOSTS),
            ", ".join(group.some) + (" …" if group.hosts > len(group.some) else ""),
        )
        for group in groups
    ]
    headings = ("GROUP", "DELAY", "READY", "HOSTS", "SOME HOSTS")
    show_list(app, groups, headings, rows, as_json=as_json, limit=limit, after="name")


def ready_text(ready_at: datetime | None, now: datetime) -> str:
    return "now" if ready_at is None or ready_at <= now else f"in {duration_text(ready_at - now)}"
