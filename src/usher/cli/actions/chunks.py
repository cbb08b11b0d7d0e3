"""`usher chunks`: list, count, show, retry and compact chunks."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from usher.cli.app import App, show_field, show_json, show_list
from usher.cli.area_access import call_in, call_now, mgmt_transaction
from usher.cli.output import display_time, echo
from usher.db.pool import Connection
from usher.errors import BadInput
from usher.mgmt import admin, compaction, components, queries, reindexing
from usher.mgmt.chunks import Chunk
from usher.mgmt.compaction import CompactionResult
from usher.mgmt.component_names import ComponentType
from usher.mgmt.queries import MAX_COUNTED, ChunkCount, ChunkDetails
from usher.wording import (
    capped_count,
    json_fields,
    printable,
    records_json,
    relative_time,
    time_text,
)

CHUNK_ID = re.compile(r"([1-9][0-9]{0,17})c?", re.ASCII)


def parse_chunk_id(text: str) -> int:
    """A chunk's number; the seed documents write it as 101c."""
    if not (match := CHUNK_ID.fullmatch(text)):
        raise BadInput(f"{text[:40]!a} is not a chunk number.", hint="usher chunks list")
    return int(match[1])


async def find_chunks(
    conn: Connection,
    /,
    *,
    crawler: str | None,
    builder: str | None,
    **conditions: Any,  # noqa: ANN401 - as click read them
) -> list[Chunk]:
    crawler_id = await component_id(conn, crawler, "crawler")
    builder_id = await component_id(conn, builder, "index-builder")
    return await queries.list_chunks(conn, crawler=crawler_id, builder=builder_id, **conditions)


async def component_id(conn: Connection, host: str | None, type_: ComponentType) -> int | None:
    return None if host is None else (await components.show(conn, host, type_)).id


def chunk_json(chunk: Chunk) -> dict[str, Any]:
    fields = asdict(chunk)
    del fields["crawler_id"], fields["builder_id"]
    return json_fields({"id": fields.pop("id"), "stage": queries.stage(chunk), **fields})


def list_chunks(app: App, *, limit: int, as_json: bool, **conditions: Any) -> None:  # noqa: ANN401
    chunks = call_in(mgmt_transaction(app), find_chunks, n=limit, **conditions)
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
        for chunk in chunks
    ]
    headings = ("CHUNK", "STATE", "LAST", "LEASE ENDS", "CRAWLER", "BUILDER", "REASON")
    show_list(
        app, chunks, headings, rows, as_json=as_json, to_json=chunk_json, limit=limit, after="id"
    )


def latest_change(chunk: Chunk) -> datetime:
    return chunk.propagated_at or chunk.built_at or chunk.crawled_at or chunk.claimed_at


def show_counts(app: App, *, as_json: bool) -> None:
    counts = call_in(mgmt_transaction(app), queries.count_chunks)
    rows = [(count.stage, capped_count(count.number, MAX_COUNTED)) for count in counts]
    show_list(app, counts, ("STATE", "CHUNKS"), rows, as_json=as_json, to_json=count_json)


def count_json(count: ChunkCount) -> dict[str, Any]:
    return {**asdict(count), "more": count.number >= MAX_COUNTED}


def show_chunk(app: App, text: str, *, as_json: bool) -> None:
    details = call_in(mgmt_transaction(app), queries.show_chunk, parse_chunk_id(text))
    chunk, now = details.chunk, display_time()
    if as_json:
        lists = {
            "placements": records_json(details.placements),
            "pages": records_json(details.pages),
            "made_of": details.made_of,
            "merged_into": details.merged_into,
        }
        show_json({**chunk_json(chunk), **lists})
        return
    show_field("chunk", f"{chunk.id}, {queries.stage(chunk)}")
    if chunk.reason:
        show_field("reason", printable(chunk.reason))
    show_origin(details, now)
    if chunk.builder:
        show_field("builder", f"{chunk.builder}, attempt {chunk.build_attempts}")
    if chunk.built_at:
        file = file_lines(chunk.index_bytes, chunk.index_sha256, is_stored=chunk.is_index_stored)
        show_field("built", time_text(chunk.built_at, now), *file)
    if lease := chunk.lease_until or chunk.build_lease_until:
        show_field("lease ends", time_text(lease, now))
    if chunk.propagated_at:
        show_field("propagated", time_text(chunk.propagated_at, now))
    if details.merged_into:
        show_field("merged into", chunk_list(details.merged_into))
    if details.placements:
        copies = (f"row {copy.row}: {copy.host}, {copy.state}" for copy in details.placements)
        show_field("copies", *copies)
    if details.pages:
        show_field("pages", *(f"{page.state:<8}  {printable(page.url)}" for page in details.pages))


def show_origin(details: ChunkDetails, now: datetime) -> None:
    """Show the crawler of a chunk, or the chunks that it was merged from."""
    chunk = details.chunk
    claimed = time_text(chunk.claimed_at, now)
    if chunk.crawler is None:
        show_field("merged from", chunk_list(details.made_of), f"started {claimed}")
        return
    show_field("crawler", f"{chunk.crawler}, claimed {claimed}")
    if chunk.crawled_at:
        file = file_lines(chunk.bytes, chunk.sha256, is_stored=chunk.is_content_stored)
        show_field("crawled", time_text(chunk.crawled_at, now), *file)


def chunk_list(chunks: Sequence[int]) -> str:
    return f"chunk{'s' if len(chunks) > 1 else ''} {', '.join(map(str, chunks))}"


def file_lines(size: int | None, sha256: str | None, *, is_stored: bool) -> list[str]:
    parts = [f"{size} bytes"] if size is not None else []
    parts += [f"sha256 {printable(sha256)}"] if sha256 else []
    parts += ["in the object store"] if is_stored else []
    return [", ".join(parts)] if parts else []


def retry_chunks(app: App, texts: Sequence[str] | None, *, as_json: bool) -> bool:
    """Retry these chunks, or all that are parked if None; whether any chunk was parked."""
    ids = None if texts is None else [parse_chunk_id(text) for text in texts]
    results = call_now(mgmt_transaction(app), admin.retry, ids)
    if as_json:
        show_json([asdict(result) for result in results])
    for result in results:
        if result.what == "waiting" and not as_json:
            echo(result.id)
        elif result.what != "waiting":
            missing = result.what == "missing"
            app.say(f"{result.id}: {'no such chunk' if missing else 'not parked'}")
    return any(result.what == "waiting" for result in results)


async def compact_once(conn: Connection, *, dry_run: bool, now: datetime) -> CompactionResult:
    """Run one round of compaction, and index pages with new anchors again; a dry run rolls it back."""
    async with conn.transaction(force_rollback=dry_run):
        done = await compaction.compact(conn, now=now, n=MAX_COUNTED, by_hand=True)
        if merge := await reindexing.reindex(conn, now=now, by_hand=True):
            done.begun.append(merge)
        return done


def compact_chunks(app: App, *, dry_run: bool, as_json: bool) -> None:
    done = call_now(mgmt_transaction(app), compact_once, dry_run=dry_run)
    if as_json:
        show_json(asdict(done))
        return
    if done.retired:
        echo(f"retired: {chunk_list(done.retired)}")
    for merge in done.begun:
        echo(f"chunk {merge.chunk_id}: {compaction.describe(merge)}")
    if done.given_up:
        echo(f"given up: {chunk_list(done.given_up)}")
    if not (done.retired or done.begun or done.given_up):
        app.say("Nothing to compact.")
