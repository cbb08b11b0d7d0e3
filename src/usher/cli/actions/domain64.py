"""`usher domain64`: look up, export and import the numbers of hosts."""

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

from usher import domain64
from usher.cli.app import App, run, show_field, show_json
from usher.cli.door_access import door_transaction, open_door, parse_range
from usher.cli.output import echo
from usher.db.clock import server_time
from usher.db.pool import Connection, Database
from usher.domain64 import FIXED_TLDS, OTHER, Parts, Range
from usher.door import admin
from usher.door.domain64_files import PublishedLine, read, reversed_labels
from usher.door.domain64_import import ImportResult, import_lines
from usher.errors import BadInput
from usher.wording import json_line, printable

BATCH_SIZE = 10_000
HEX = re.compile(r"0x([0-9A-Fa-f]{1,16})|([0-9A-Fa-f]{15,16})")  # a TLD is at least 1
DECIMAL = re.compile(r"[0-9]{17,19}")
TLD_NAMES = {code: name for name, code in FIXED_TLDS.items()}


async def lookup(app: App, text: str) -> dict[str, Any]:
    """The number, names and range of a name or a number."""
    number = parse_number(text)
    async with door_transaction(app) as conn:
        if number is not None:
            return await describe(conn, number, number_range(domain64.decode(number)))
        within = await parse_range(conn, text)
        return await describe(conn, within.start, within)


def parse_number(text: str) -> int | None:
    try:
        if match := HEX.fullmatch(text):
            return domain64.from_hex(match[1] or match[2])
        if DECIMAL.fullmatch(text):
            return domain64.encode(domain64.decode(int(text)))
    except ValueError as error:
        raise BadInput(f"{error}.", hint="The lowest number is 0100000000000000 in hex.") from error
    return None


def number_range(parts: Parts) -> Range:
    """The range of a number: that of its TLD if it has no domain."""
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
    """The host of a number and the names of its parts, as far as registered hosts tell them."""
    host = in_domain = None
    if parts.domain:
        host = await first_host(conn, number_range(parts))
        in_domain = host or await first_host(conn, domain64.domain_range(parts.tld, parts.domain))
    in_tld = in_domain or await first_host(conn, domain64.tld_range(parts.tld))
    tld = domain64.split(in_tld).tld if in_tld else TLD_NAMES.get(parts.tld)
    return {
        "host": host,
        "tld": None if parts.tld == OTHER else tld,
        "domain": domain_name(in_domain, parts) if in_domain else None,
        "subdomain": domain64.split(host).subdomain if host else None,
    }


async def range_name(conn: Connection, within: Range) -> str:
    """The name of a range: `.gov`, a domain, a host, or its first and last number."""
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
    numbers = await admin.export_numbers(conn, after=within.start - 1, n=1)
    return next((name for number, name in numbers if number in within), None)


def show_number(app: App, text: str, *, as_json: bool) -> None:
    entry = run(lookup(app, text))
    if as_json:
        show_json(entry)
        return
    parts = domain64.decode(entry["domain64"])
    written = f"{parts.tld:02X}:{parts.domain:06X}:{parts.subdomain:06X}:{parts.reserved:02X}"
    show_field("host", entry["host"] or "no host has this number")
    show_field("number", str(entry["domain64"]))
    show_field("hex", f"{entry['hex']}, {written}")
    for part in ("tld", "domain", "subdomain"):
        name = entry[part]["name"]
        show_field(part, f"{entry[part]['number']}" + (f", {name}" if name else ""))
    kind = {"tld": "the TLD", "domain": "the domain", "host": "the host"}[entry["kind"]]
    start, end = entry["range"]["start"], entry["range"]["end"]
    show_field("range", f"{kind}, from {start} up to, not including, {end}")


async def print_numbers(app: App, *, as_json: bool) -> None:
    """Print every number and name, one page of the table at a time."""
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


async def import_numbers(app: App, path: Path, *, reverse: bool, dry_run: bool) -> ImportResult:
    """Import published numbers in batches; the result lists the lines that were refused."""
    total = ImportResult()
    async with open_door(app) as doorkeeper:
        for batch in batches(path, reverse=reverse):
            async with (
                doorkeeper.db.transaction() as conn,
                conn.transaction(force_rollback=dry_run),
            ):
                total += await import_lines(conn, batch, now=await server_time(conn))
    return total


def batches(path: Path, *, reverse: bool) -> Iterator[list[PublishedLine]]:
    lines = read(path)
    if reverse:
        lines = (replace(line, name=reversed_labels(line.name)) for line in lines)
    while batch := list(islice(lines, BATCH_SIZE)):
        yield batch


def show_imported(app: App, imported: ImportResult, *, dry_run: bool, as_json: bool) -> None:
    counts = {"new": imported.new, "known": imported.known, "refused": len(imported.objections)}
    if as_json:
        objections = [
            {**asdict(refused.line), "reason": refused.reason} for refused in imported.objections
        ]
        show_json({"dry_run": dry_run, **counts, "objections": objections})
        return
    for refused in imported.objections:
        line = refused.line
        echo("  ".join(map(printable, (line.place, line.number, line.name, refused.reason))))
    app.say(", ".join(f"{number:,} {label}" for label, number in counts.items()))
    if dry_run:
        app.say("Dry run: nothing was changed.")
