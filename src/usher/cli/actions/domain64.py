"""The work behind `usher domain64`: numbers looked up, printed and imported."""

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

from usher import domain64
from usher.cli.actions.domain64_ranges import parse_range
from usher.cli.app import App, show_json
from usher.cli.door_access import door_transaction, open_door
from usher.cli.output import echo
from usher.cli.wording import json_line, printable
from usher.db.clock import server_time
from usher.db.pool import Connection, Database
from usher.domain64 import FIXED_TLDS, OTHER, Parts, Range
from usher.door import admin
from usher.door.domain64_files import Line, read, reversed_labels
from usher.door.domain64_import import Taken, take
from usher.errors import BadInput

BATCH_SIZE = 10_000
HEX = re.compile(r"0x([0-9A-Fa-f]{1,16})|([0-9A-Fa-f]{15,16})")  # a TLD from 1 on makes it so long
DECIMAL = re.compile(r"[0-9]{17,19}")
TLD_NAMES = {code: name for name, code in FIXED_TLDS.items()}


async def lookup(app: App, text: str) -> dict[str, Any]:
    """What a name or a number stands for."""
    number = parse_number(text)
    async with door_transaction(app) as conn:
        if number is not None:
            return await describe(conn, number, number_range(domain64.decode(number)))
        within = await parse_range(conn, text)
        return await describe(conn, within.start, within)


def parse_number(text: str) -> int | None:
    try:
        if found := HEX.fullmatch(text):
            return domain64.from_hex(found[1] or found[2])
        if DECIMAL.fullmatch(text):
            return domain64.encode(domain64.decode(int(text)))
    except ValueError as error:
        raise BadInput(f"{error}.", hint="The first is 0100000000000000 in hex.") from error
    return None


def number_range(parts: Parts) -> Range:
    """Where a number stands; without a domain it is a TLD's."""
    if not parts.domain:
        return domain64.tld_range(parts.tld)
    return domain64.host_range(parts.tld, parts.domain, parts.subdomain)


def range_kind(within: Range, parts: Parts) -> str:
    if not parts.domain:
        return "tld"
    return "domain" if within == domain64.domain_range(parts.tld, parts.domain) else "host"


async def describe(conn: Connection, number: int, within: Range) -> dict[str, Any]:
    parts = domain64.decode(number)
    names = await part_names(conn, parts)
    return {
        "kind": range_kind(within, parts),
        "domain64": number,
        "hex": domain64.to_hex(number),
        "host": names.pop("host"),
        **{part: {"number": getattr(parts, part), "name": name} for part, name in names.items()},
        "range": {"start": str(within.start), "end": str(within.end)},
    }


async def part_names(conn: Connection, parts: Parts) -> dict[str, str | None]:
    """The host of a number and the names of its parts, as far as hosts around it tell them."""
    host = sibling = None
    if parts.domain:
        host = await first_host(conn, number_range(parts))
        sibling = host or await first_host(conn, domain64.domain_range(parts.tld, parts.domain))
    cousin = sibling or await first_host(conn, domain64.tld_range(parts.tld))
    tld = domain64.split(cousin).tld if cousin else TLD_NAMES.get(parts.tld)
    return {
        "host": host,
        "tld": None if parts.tld == OTHER else tld,
        "domain": domain_name(sibling, parts) if sibling else None,
        "subdomain": domain64.split(host).subdomain if host else None,
    }


async def range_name(conn: Connection, within: Range) -> str:
    """What a range stands for: `.gov`, a domain, a host, or where it begins and ends."""
    parts = domain64.decode(within.start)
    names = await part_names(conn, parts)
    if within == domain64.tld_range(parts.tld) and names["tld"]:
        return f".{names['tld']}"
    if within == domain64.domain_range(parts.tld, parts.domain) and names["domain"]:
        return ".".join(filter(None, (names["domain"], names["tld"])))
    if within == number_range(parts) and names["host"]:
        return names["host"]
    return f"{within.start:016X} up to {within.end:016X}"


def domain_name(host: str, parts: Parts) -> str:
    name = domain64.split(host)
    return name.under_other().domain if parts.tld == OTHER else name.domain


async def first_host(conn: Connection, within: Range) -> str | None:
    found = await admin.export_numbers(conn, after=within.start - 1, n=1)
    return next((name for number, name in found if number in within), None)


def show_number(found: dict[str, Any]) -> None:
    parts = domain64.decode(found["domain64"])
    written = f"{parts.tld:02X}:{parts.domain:06X}:{parts.subdomain:06X}:{parts.reserved:02X}"
    rows = [("host", found["host"] or "none has this number")]
    rows += [("number", str(found["domain64"])), ("hex", f"{found['hex']}, {written}")]
    for part in ("tld", "domain", "subdomain"):
        name = found[part]["name"]
        rows.append((part, f"{found[part]['number']}" + (f", {name}" if name else "")))
    whole = {"tld": "the TLD", "domain": "the domain", "host": "the host"}[found["kind"]]
    start, end = found["range"]["start"], found["range"]["end"]
    rows.append(("range", f"{whole}, from {start} up to, not including, {end}"))
    for name, words in rows:
        echo(f"{name:<11}{words}")


async def print_numbers(app: App, *, as_json: bool) -> None:
    """Every number and name, a page at a time: memory stays flat."""
    async with open_door(app) as doorkeeper:
        if as_json:
            await print_json(doorkeeper.db)
            return
        async for page in pages(doorkeeper.db):
            echo("\n".join(f"{domain64.to_hex(number)}\t{name}" for number, name in page))


async def print_json(db: Database) -> None:
    before = "[\n"
    async for page in pages(db):
        items = (
            {"domain64": number, "hex": domain64.to_hex(number), "name": name}
            for number, name in page
        )
        echo(before + ",\n".join(map(json_line, items)), nl=False)
        before = ",\n"
    echo("\n]" if before == ",\n" else "[]")


async def pages(db: Database) -> AsyncIterator[list[tuple[int, str]]]:
    after = 0
    while True:
        async with db.transaction() as conn:
            page = await admin.export_numbers(conn, after=after, n=BATCH_SIZE)
        if not page:
            return
        yield page
        after = page[-1][0]


async def import_numbers(app: App, path: Path, *, reverse: bool, dry_run: bool) -> Taken:
    """Take published numbers over, batch after batch; what is objected to is shown as it comes."""
    total = Taken()
    async with open_door(app) as doorkeeper:
        for batch in batches(path, reverse=reverse):
            async with (
                doorkeeper.db.transaction() as conn,
                conn.transaction(force_rollback=dry_run),
            ):
                total += await take(conn, batch, now=await server_time(conn))
    return total


def batches(path: Path, *, reverse: bool) -> Iterator[list[Line]]:
    found = read(path)
    while batch := list(islice(found, BATCH_SIZE)):
        yield [replace(one, name=reversed_labels(one.name)) for one in batch] if reverse else batch


def show_imported(app: App, taken: Taken, *, dry_run: bool, as_json: bool) -> None:
    counts = {"new": taken.new, "known": taken.known, "refused": len(taken.objections)}
    if as_json:
        objections = [{**asdict(one.line), "reason": one.reason} for one in taken.objections]
        show_json({"dry_run": dry_run, **counts, "objections": objections})
        return
    for one in taken.objections:
        words = (one.line.place, one.line.number, one.line.name, one.reason)
        echo("  ".join(map(printable, words)))
    app.say(", ".join(f"{number:,} {word}" for word, number in counts.items()))
    if dry_run:
        app.say("this was a dry run: nothing has changed")
