"""The work behind `usher hosts`: hosts read, registered, changed and crawled anew."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import click

from usher import domain64
from usher.cli.actions.add import (
    MAX_LISTED_ANSWERS,
    AnswerCounts,
    answer_json,
    show_answers,
    show_counts,
)
from usher.cli.actions.domain64 import range_name
from usher.cli.actions.domain64_ranges import parse_range
from usher.cli.actions.explain import HostView, reach_ranges, show_filters
from usher.cli.app import App, show_field, show_json, show_table
from usher.cli.commands.hosts import DEFAULT
from usher.cli.door_access import (
    door_transaction,
    host_names,
    host_root,
    open_door,
    require_hosts,
    unknown_host,
)
from usher.cli.wording import display_time, duration_text, json_fields, printable
from usher.crawl import private_permission
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.door import admin, cadence, filters, guestbook, hosts, private_access
from usher.door.batch import Answers
from usher.door.hosts import Host, House
from usher.door.rules import Knock
from usher.errors import BadInput
from usher.urls import Scheme, Url

FILTER_EXAMPLE = """As in [{"name": "long", "rule": "length", "most": 500}]"""


async def find_hosts(
    app: App,
    *,
    policy: admin.Policy | None,
    due: bool,
    contains: str | None,
    under: str | None,
    limit: int,
    after: str,
) -> list[admin.Listed]:
    async with door_transaction(app) as conn:
        return await admin.list_hosts(
            conn,
            after=after,
            policy=policy,
            contains=contains.lower() if contains else None,
            due_at=await server_time(conn) if due else None,
            within=await parse_range(conn, under) if under else None,
            n=limit,
        )


def listed_json(host: admin.Listed) -> dict[str, Any]:
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


def show_hosts(app: App, found: list[admin.Listed], *, limit: int) -> None:
    now = display_time()
    rows = [
        (
            host.name,
            domain64.to_hex(host.domain64),
            clock_text(host, now),
            cadence.show(host.cadence),
            f"{host.policy} {printable(host.policy_reason)}".strip(),
        )
        for host in found
    ]
    show_table(("HOST", "NUMBER", "CLOCK", "CADENCE", "POLICY"), rows)
    if len(found) == limit:
        app.say(f"  → perhaps more: --after {found[-1].name}")


def clock_text(host: admin.Listed, now: datetime) -> str:
    if host.crawl_started:
        return "crawl open"
    return f"in {duration_text(host.next_fetch - now)}" if host.next_fetch > now else "due"


async def read_host(app: App, text: str) -> HostView:
    name = host_root(text).host
    async with door_transaction(app) as conn:
        found = await admin.show_host(conn, name=name)
        if found is None:
            raise await unknown_host(conn, name)
        reach = [await range_name(conn, one) for one in reach_ranges(found)]
        pages = await admin.count_pages(conn, number=found.domain64)
        known = await admin.known_pages(conn, number=found.domain64, most=found.most_pages)
        house, access = await hosts.house(conn), await private_access.of_host(conn, name)
        return HostView(found, reach, pages, known, house.filters, access)


async def add_hosts(app: App, texts: Sequence[str], often: str | None) -> list[Host]:
    names, pace = host_names(texts), cadence.parse(often) if often else None
    async with door_transaction(app) as conn:
        found = await hosts.register(conn, names=names, now=await server_time(conn))
        if pace:
            await admin.change_host(conn, names=names, cadence=pace)
    return [found[name] for name in names]


def numbers_json(found: Sequence[Host]) -> list[dict[str, Any]]:
    return [
        json_fields(
            {
                "name": host.name,
                "domain64": host.domain64,
                "hex": domain64.to_hex(host.domain64),
                "next_fetch": host.next_fetch,
            }
        )
        for host in found
    ]


def show_numbers(found: Sequence[Host]) -> None:
    rows = [(host.name, host.domain64, domain64.to_hex(host.domain64)) for host in found]
    show_table(("HOST", "NUMBER", "HEX"), rows)


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
        found = await admin.change_host(conn, names=names, **change)
        await require_hosts(conn, names, found)
        if private is not None:
            await change_private(conn, texts, allow=private)
    return found


async def change_private(conn: Connection, texts: Sequence[str], *, allow: bool) -> None:
    """Allow or forbid connections to hosts that are not public; without a scheme, as the host is visited."""
    for text in texts:
        url = host_root(text)
        if not allow:
            await private_access.revoke(conn, url.host)
            continue
        host = await admin.show_host(conn, name=url.host)
        if host is not None and "://" not in text:
            url = replace(url, scheme=Scheme(host.scheme))
        permission = await private_permission.needed(url)
        if permission is None:
            raise BadInput(
                f"{url.host} has no private address now.", hint="It needs no permission."
            )
        await private_access.grant(conn, url, permission)


def host_change(wanted: Mapping[str, Any]) -> admin.HostChange:
    """What was given, as the desk takes it: None where the house's is wanted again."""
    given = {name: value for name, value in wanted.items() if value is not None}
    change: dict[str, Any] = {
        name: None if value == DEFAULT else value for name, value in given.items()
    }
    if change.get("cadence"):
        change["cadence"] = cadence.parse(change["cadence"])
    if change.get("crawl_delay") is not None:
        change["crawl_delay"] = timedelta(seconds=change["crawl_delay"])
    return cast("admin.HostChange", change)


def parse_cadence(often: str | None) -> timedelta | None:
    return cadence.parse(often) if often else None


def filter_list(
    *, file: Path | None, single: Sequence[str], no_filters: bool
) -> admin.Filters | None:
    """The filters given, which must be good ones; None if none were given."""
    if bool(file) + bool(single) + no_filters > 1:
        raise click.UsageError("Give --filters, --filter or --no-filters, not two of them.")
    if no_filters:
        return []
    if file:
        return checked_filters(parse_json(file.read_text("utf-8", "replace"), str(file)))
    return checked_filters([parse_json(text, "--filter") for text in single]) if single else None


def parse_json(text: str, where: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where} is not JSON: {error}.", hint=FILTER_EXAMPLE) from error


def checked_filters(found: object) -> admin.Filters:
    if not isinstance(found, list):
        raise BadInput("Filters are a list.", hint=FILTER_EXAMPLE)
    filters.compile(found)
    return found


async def set_policy(
    app: App, texts: Sequence[str], policy: admin.Policy, reason: str
) -> list[str]:
    names = host_names(texts)
    async with door_transaction(app) as conn:
        found = await admin.change_policy(conn, names=names, policy=policy, reason=reason)
        await require_hosts(conn, names, found)
    return found


async def recrawl_hosts(app: App, texts: Sequence[str], *, hall_pass: bool) -> Answers:
    """A full knock at the root of each host."""
    roots = {(root := host_root(text)).host: str(root) for text in texts}
    async with open_door(app) as doorkeeper:
        async with doorkeeper.db.transaction() as conn:
            there = await hosts.find(conn, names=list(roots))
            await require_hosts(conn, list(roots), [host.name for host in there])
            numbers = [host.domain64 for host in there] if hall_pass else []
            entrances = await guestbook.recrawl_entrances(conn, hosts=numbers)
        for entrance in entrances:
            if entrance.scheme is not None and entrance.path is not None:
                url = Url(Scheme(entrance.scheme), entrance.host, entrance.path)
                roots[entrance.host] = str(url)
        knock = Knock("full", hall_pass)
        answers = await doorkeeper.knock(list(roots.values()), knock=knock, register=False)
    for entrance in entrances:
        if entrance.crawling:
            pages = f"{entrance.crawling:,} page{'s' if entrance.crawling > 1 else ''}"
            app.say(
                f"{entrance.host}: {pages} in progress: not admitted again. Repeat this when they are done."
            )
    return answers


async def recrawl_due(app: App) -> Answers:
    async with open_door(app) as doorkeeper:
        total = Answers([])
        async for came in doorkeeper.kick_off():
            total = Answers([*total.answers, *came.answers], total.brought + came.brought)
        return total


def show_recrawls(app: App, answers: Answers, *, as_json: bool) -> bool:
    """Show what the door said; true if it refused all."""
    tally = AnswerCounts()
    tally.add(answers)
    if as_json:
        show_json({**tally.as_json(), "answers": [answer_json(one) for one in answers.answers]})
    elif len(answers.answers) > MAX_LISTED_ANSWERS:
        show_counts(tally)
    else:
        show_answers(answers.answers)
    if not answers.answers:
        app.say("no host is due")
    if tally.brought:
        app.say(f"with them {tally.brought:,} other pages of their hosts")
    return tally.all_refused


async def default_rules(
    app: App,
    *,
    cadence: str | None,
    max_pages: int | None,
    max_depth: int | None,
    **lists: Any,  # noqa: ANN401 - as click read them
) -> House:
    """What holds for every host, after any change asked for."""
    given: dict[str, Any] = {
        "cadence": parse_cadence(cadence),
        "filters": filter_list(**lists),
        "max_pages": max_pages,
        "max_depth": max_depth,
    }
    async with door_transaction(app) as conn:
        if any(value is not None for value in given.values()):
            return await admin.change_house(conn, **given)
        return await hosts.house(conn)


def rules_json(house: House) -> dict[str, Any]:
    return {
        "cadence": cadence.show(house.cadence),
        "max_pages": house.max_pages,
        "max_depth": house.max_depth,
        "filters": house.filters,
    }


def show_rules(house: House) -> None:
    show_field("cadence", cadence.show(house.cadence))
    show_field(
        "limits",
        f"{house.max_pages:,} pages of a host, new ones up to {house.max_depth} clicks away",
    )
    show_filters(house.filters)
