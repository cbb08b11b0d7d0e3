"""The work behind `usher chunks`: chunks read, offered again, and told in lines.

Commands import this when they run, because it brings the driver along.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from usher.cli.actions.components import capped_count, mgmt_transaction
from usher.cli.app import App, show_field, show_json, show_table
from usher.cli.output import echo
from usher.cli.queue_access import relative_time
from usher.cli.wording import display_time, json_fields, printable, time_text
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.errors import BadInput
from usher.mgmt import admin, compaction, components, queries
from usher.mgmt.admin import Retried
from usher.mgmt.chunks import Chunk
from usher.mgmt.compaction import Done
from usher.mgmt.component_names import Type
from usher.mgmt.queries import MOST, Count, Shown

CHUNK_ID = re.compile(r"([1-9][0-9]{0,17})c?", re.ASCII)


def parse_chunk_id(text: str) -> int:
    """A chunk's number, also as the older documents write it: 101c."""
    if not (match := CHUNK_ID.fullmatch(text)):
        raise BadInput(
            f"{text[:40]!a} is no number of a chunk.", hint="As in usher chunks show 101"
        )
    return int(match[1])


async def find_chunks(
    app: App,
    *,
    limit: int,
    crawler: str | None,
    builder: str | None,
    **wanted: Any,  # noqa: ANN401
) -> list[Chunk]:
    async with mgmt_transaction(app) as conn:
        return await queries.list_chunks(
            conn,
            crawler=await component_id(conn, crawler, "crawler"),
            builder=await component_id(conn, builder, "index-builder"),
            n=limit,
            **wanted,
        )


async def component_id(conn: Connection, host: str | None, type_: Type) -> int | None:
    return None if host is None else (await components.show(conn, host, type_)).id


def chunk_json(chunk: Chunk) -> dict[str, Any]:
    known = asdict(chunk)
    del known["crawler_id"], known["builder_id"]
    return json_fields({"id": known.pop("id"), "stage": queries.stage(chunk), **known})


def show_chunks(app: App, found: Sequence[Chunk], *, limit: int, as_json: bool) -> None:
    if as_json:
        show_json([chunk_json(chunk) for chunk in found])
        return
    now = display_time()
    rows = [
        (
            chunk.id,
            queries.stage(chunk),
            relative_time(latest_change(chunk), now),
            relative_time(chunk.lease_until or chunk.build_lease_until, now),
            chunk.crawler or "-",
            chunk.builder or "-",
            printable(chunk.reason),
        )
        for chunk in found
    ]
    show_table(("CHUNK", "STATE", "LAST", "LEASE ENDS", "CRAWLER", "BUILDER", "REASON"), rows)
    if len(found) == limit:
        app.say(f"  → perhaps more: --after {found[-1].id}")


def latest_change(chunk: Chunk) -> datetime:
    """When it last got on."""
    return chunk.propagated_at or chunk.built_at or chunk.crawled_at or chunk.claimed_at


async def count_chunks(app: App) -> list[Count]:
    async with mgmt_transaction(app) as conn:
        return await queries.count_chunks(conn)


def show_counts(found: Sequence[Count], *, as_json: bool) -> None:
    if as_json:
        show_json([{**asdict(one), "more": one.number >= MOST} for one in found])
    else:
        show_table(("STATE", "CHUNKS"), [(one.stage, capped_count(one.number)) for one in found])


async def read_chunk(app: App, text: str) -> Shown:
    number = parse_chunk_id(text)
    async with mgmt_transaction(app) as conn:
        return await queries.show_chunk(conn, number)


def show_chunk(shown: Shown, *, as_json: bool) -> None:
    if as_json:
        lists = {
            "placements": [json_fields(asdict(one)) for one in shown.placements],
            "pages": [asdict(one) for one in shown.pages],
            "made_of": shown.made_of,
            "merged_into": shown.merged_into,
        }
        show_json({**chunk_json(shown.chunk), **lists})
        return
    chunk, now = shown.chunk, display_time()
    show_field("chunk", f"{chunk.id}, {queries.stage(chunk)}")
    if chunk.reason:
        show_field("reason", printable(chunk.reason))
    show_origin(shown, now)
    if chunk.builder:
        show_field("builder", f"{chunk.builder}, attempt {chunk.build_attempts}")
    if chunk.built_at:
        show_field(
            "built",
            time_text(chunk.built_at, now),
            *file_lines(chunk.index_bytes, chunk.index_sha256),
        )
    if lease := chunk.lease_until or chunk.build_lease_until:
        show_field("lease ends", time_text(lease, now))
    if chunk.propagated_at:
        show_field("propagated", time_text(chunk.propagated_at, now))
    if shown.merged_into:
        show_field("merged into", chunk_list(shown.merged_into))
    if shown.placements:
        show_field(
            "copies", *(f"row {one.row}: {one.host}, {one.state}" for one in shown.placements)
        )
    if shown.pages:
        show_field("pages", *(f"{one.state:<8}  {printable(one.url)}" for one in shown.pages))


def show_origin(shown: Shown, now: datetime) -> None:
    """Who crawled it, or what it is made of."""
    chunk = shown.chunk
    if chunk.crawler is None:
        show_field(
            "made of", chunk_list(shown.made_of), f"begun {time_text(chunk.claimed_at, now)}"
        )
        return
    show_field("crawler", f"{chunk.crawler}, claimed {time_text(chunk.claimed_at, now)}")
    if chunk.crawled_at:
        show_field(
            "crawled", time_text(chunk.crawled_at, now), *file_lines(chunk.bytes, chunk.sha256)
        )


def chunk_list(chunks: Sequence[int]) -> str:
    return f"chunk{'s' if len(chunks) > 1 else ''} {', '.join(map(str, chunks))}"


def file_lines(size: int | None, sha256: str | None) -> list[str]:
    words = [f"{size} bytes" if size is not None else "", f"sha256 {printable(sha256 or '')}"]
    return (
        [", ".join(word for word in words if word != "sha256 " and word)] if sha256 or size else []
    )


async def retry_chunks(app: App, texts: Sequence[str] | None) -> list[Retried]:
    ids = None if texts is None else [parse_chunk_id(text) for text in texts]
    async with mgmt_transaction(app) as conn:
        return await admin.retry(conn, ids, now=await server_time(conn))


def show_retried(app: App, done: Sequence[Retried], *, as_json: bool) -> bool:
    """Whether any was parked."""
    if as_json:
        show_json([asdict(one) for one in done])
    for one in done:
        if one.what == "waiting" and not as_json:
            echo(one.id)
        elif one.what != "waiting":
            why = "there is no such chunk" if one.what == "missing" else "it is not parked"
            app.say(f"{one.id}: {why}")
    return any(one.what == "waiting" for one in done)


async def compact_chunks(app: App, *, dry_run: bool) -> Done:
    """One round by hand; of a dry run nothing stays."""
    async with mgmt_transaction(app) as conn, conn.transaction(force_rollback=dry_run):
        now = await server_time(conn)
        return await compaction.compact(conn, now=now, n=MOST, by_hand=True)


def show_compacted(app: App, done: Done, *, as_json: bool) -> None:
    if as_json:
        show_json(asdict(done))
        return
    if done.retired:
        echo(f"retired: {chunk_list(done.retired)}")
    for one in done.begun:
        echo(f"chunk {one.chunk_id}: {compaction.words(one)}")
    if done.given_up:
        echo(f"given up: {chunk_list(done.given_up)}")
    if not (done.retired or done.begun or done.given_up):
        app.say("There is nothing to compact.")
