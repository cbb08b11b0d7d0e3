"""Chunks: MGMT leases pages to crawlers and crawled chunks to builders, and takes lost ones back.

Every change names the expected owner and state, so a late report changes nothing and the caller learns that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from psycopg.rows import TupleRow

from usher.db.pool import Connection
from usher.db.statements import array, columns, load_statements
from usher.door.guestbook import FetchReport, SettledPage, report_columns
from usher.messages.crawler import PrivateAccess
from usher.mgmt import compaction_merge, page_versions, placements
from usher.urls import url_text

store = load_statements(__file__)
MAX_CRAWL_ATTEMPTS: Final = 3  # of a page that is lost with its crawler each time
MAX_BUILD_ATTEMPTS: Final = 3
MAX_LEASES_BY_CALL: Final = 12  # calls that name no chunk renew its lease at most so often
ClaimRows = Sequence[TupleRow]  # of what was claimed for one crawler


class ClaimedPage(NamedTuple):
    """A page for a crawler to fetch, with the values for a conditional request."""

    id: int
    url: str
    private: PrivateAccess | None  # the operator's permission for a private host
    etag: str | None
    last_modified: datetime | None
    crawl_delay: timedelta
    text64: int | None = None  # of the text in the index
    depth: int = 0
    delay_is_set: bool = False  # by the operator, for this host


@dataclass(frozen=True, slots=True)
class ClaimedChunk:
    """A chunk and the pages that a claim put into it."""

    chunk_id: int
    pages: list[ClaimedPage]


@dataclass(frozen=True, slots=True)
class PageClaim:
    """How many pages a crawler wants: n pages of at most `width` hosts, at most `depth` of each host.

    While fewer than n pages wait, the crawler gets them only after one has waited for `wait`. With `hold`, a host
    with a crawl delay belongs to this crawler alone until it reports. It gets no pages of `skipped_hosts`.
    """

    n: int = 5
    width: int | None = None
    depth: int | None = None
    wait: timedelta = timedelta(seconds=1)
    lease: timedelta = timedelta(minutes=5)
    hold: bool = False
    skipped_hosts: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class ChunkToBuild:
    """A crawled chunk for a builder, and the crawler that has its content; None if compaction made the chunk.

    If it is stored, the content is in the object store.
    """

    chunk_id: int
    host: str | None
    sha256: str | None
    bytes: int | None
    is_stored: bool = False


class FinishedCrawl(NamedTuple):
    """How many pages the crawler reported at the end of a chunk, and how many it never reported."""

    reported: int
    unreported: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """The row of a chunk, with the hosts of its crawler and builder."""

    id: int
    state: str
    crawler: str | None  # None: compaction made it
    claimed_at: datetime
    lease_until: datetime | None
    crawled_at: datetime | None
    bytes: int | None
    sha256: str | None
    index_state: str | None
    builder: str | None
    build_lease_until: datetime | None
    build_attempts: int
    built_at: datetime | None
    index_bytes: int | None
    index_sha256: str | None
    reason: str
    propagated_at: datetime | None
    crawler_id: int | None
    builder_id: int | None
    is_content_stored: bool = False
    is_index_stored: bool = False


async def claim_links(
    conn: Connection, crawler: int, ask: PageClaim, *, now: datetime
) -> ClaimedChunk | None:
    """Create a chunk for a crawler; returns None if too few pages wait, and none of them long enough."""
    [pack] = await claim_all(conn, [(crawler, ask)], now=now)
    return pack


async def more_links(
    conn: Connection, crawler: int, chunk: int, ask: PageClaim, *, now: datetime
) -> list[ClaimedPage]:
    """Add up to n pages to a chunk that the crawler has; call `lock_chunk` first."""
    [pack] = await claim_all(conn, [(crawler, ask)], chunk=chunk, now=now)
    return pack.pages if pack else []


async def claim_all(
    conn: Connection,
    claims: Sequence[tuple[int, PageClaim]],
    *,
    now: datetime,
    chunk: int | None = None,
) -> list[ClaimedChunk | None]:
    """Create a chunk for each of these crawlers in one statement.

    They get pages of different hosts, so a later one may get None although pages wait. A host that one of them skips
    is skipped for all.
    """
    return [claimed_chunk(rows) for rows in await claim_rows(conn, claims, now=now, chunk=chunk)]


async def claim_rows(
    conn: Connection,
    claims: Sequence[tuple[int, PageClaim]],
    *,
    now: datetime,
    chunk: int | None = None,
) -> list[ClaimRows]:
    """Do the same, and return the rows of each crawler; `claimed_chunk` reads them without the connection."""
    requests = [request for _, request in claims]
    records = await store.claim_links.tuples(
        conn,
        crawlers=array(crawler for crawler, _ in claims),
        ns=array(request.n for request in requests),
        widths=array(request.width or request.n for request in requests),
        depths=array(request.depth or request.n for request in requests),
        chunk=chunk,
        waits=array(f"{request.wait.total_seconds()} s" for request in requests),
        leases=array(f"{request.lease.total_seconds()} s" for request in requests),
        holds=array(request.hold for request in requests),
        skipped=array({host for request in requests for host in request.skipped_hosts}) or "{}",
        now=now,
    )
    rows: list[ClaimRows] = [()] * len(claims)
    for turn, group in groupby(records, key=itemgetter(0)):
        rows[turn - 1] = list(group)
    return rows


def claimed_chunk(rows: ClaimRows) -> ClaimedChunk | None:
    if not rows:
        return None
    pages = [
        ClaimedPage(id_, url_text(scheme, host, path), private_access(port, addresses), *rest)
        for _, _, id_, host, scheme, path, port, addresses, *rest in rows
    ]
    return ClaimedChunk(rows[0][1], pages)


def private_access(port: int | None, addresses: Sequence[object] | None) -> PrivateAccess | None:
    if port is None or addresses is None:
        return None
    return PrivateAccess(port, tuple(map(str, addresses)))


async def open_chunks(conn: Connection, crawler: int, *, now: datetime) -> list[int]:
    """The chunks that a crawler has a lease on, two at most."""
    return await store.open_chunks.column(conn, crawler=crawler, now=now)


async def lock_chunk(
    conn: Connection, crawler: int, chunk: int, *, lease: timedelta, now: datetime
) -> bool:
    """Renew the lease of a chunk and lock it until the transaction ends; returns False if the crawler lost it."""
    return chunk in await renew(conn, crawler, [chunk], lease=lease, now=now)


async def report(
    conn: Connection, reports: Sequence[FetchReport], *, now: datetime
) -> list[SettledPage]:
    """Record the results of pages of leased chunks, with the stale copies and finished crawls that follow."""
    return await store.report.rows(conn, SettledPage, **report_columns(reports), now=now)


@dataclass(frozen=True, slots=True)
class HostTrouble:
    """A host that refused a request or did not answer, and the pause that it asks for."""

    domain64: int
    why: str
    rest: timedelta = timedelta(0)


async def rest_hosts(
    conn: Connection, troubles: Sequence[HostTrouble], *, now: datetime
) -> dict[int, datetime]:
    """Let hosts rest, for all crawlers; returns when each is ready again."""
    given = columns(troubles, "domain64", "why", "rest")
    return dict(await store.rest_hosts.tuples(conn, **given, now=now))


async def clear_troubles(conn: Connection, domain64s: Sequence[int], *, now: datetime) -> int:
    """Reset the troubles of hosts that answer again after a while."""
    return await store.clear_troubles.run(conn, domain64s=sorted(set(domain64s)), now=now)


async def finish_crawl(
    conn: Connection,
    crawler: int,
    chunk: int,
    *,
    sha256: str | None,
    size: int | None,
    now: datetime,
    reports: Sequence[FetchReport] = (),
    back: bool | None = False,
) -> FinishedCrawl | None:
    """Finish a chunk with the last reports; returns None and changes nothing if the crawler has no lease on it.

    Pages that were never reported count as fetched and unchanged. With `back` they are pending again instead; if `back`
    is None, only if the crawler reported others before.
    """
    columns = report_columns(reports)
    del columns["chunk_id"]  # the chunk that this finishes
    return await store.finish_crawl.row(
        conn,
        FinishedCrawl,
        crawler=crawler,
        chunk=chunk,
        sha256=sha256,
        bytes=size,
        back=back,
        **columns,
        now=now,
    )


async def fail_crawls(
    conn: Connection, chunks: Sequence[int], *, why: str, now: datetime, crawled: bool = False
) -> list[int]:
    """Mark chunks as lost: their pages are pending again. With `crawled` also crawled chunks without their content."""
    lost = await store.fail_crawls.column(
        conn, chunks=list(chunks), why=why, crawled=crawled, most=MAX_CRAWL_ATTEMPTS, now=now
    )
    if lost:
        await store.release_hosts.tuples(conn, chunks=lost, now=now)
        await page_versions.take_back(conn, lost, max_losses=MAX_CRAWL_ATTEMPTS, now=now)
    return lost


async def reap(conn: Connection, *, n: int, now: datetime) -> tuple[list[int], list[int]]:
    """Take back crawls and builds whose lease has ended; returns both lists of chunks."""
    late = await store.expired_crawls.column(conn, n=n, now=now)
    crawls = await fail_crawls(conn, late, why="the crawler's lease ended", now=now) if late else []
    builds = await store.expired_builds.column(conn, n=n, most=MAX_BUILD_ATTEMPTS, now=now)
    return crawls, builds


async def restart_crawler(conn: Connection, crawler: int, *, n: int, now: datetime) -> list[int]:
    """Take back the crawls of a crawler that was restarted, because it has lost them."""
    lost = await store.crawls_of.column(conn, crawler=crawler, n=n)
    why = "the crawler was restarted"
    return await fail_crawls(conn, lost, why=why, now=now) if lost else []


async def renew(
    conn: Connection, component: int, chunks: Sequence[int], *, lease: timedelta, now: datetime
) -> set[int]:
    """Renew leases; returns the chunks that the component still has."""
    return set(
        await store.renew.column(
            conn, component=component, chunks=list(chunks), lease=lease, now=now
        )
    )


async def renew_by_call(
    conn: Connection, component: int, *, lease: timedelta, now: datetime
) -> None:
    """Renew the leases of a component that are half over, because it called.

    A restarted component may have forgotten a chunk, so calls renew a lease only `MAX_LEASES_BY_CALL` times.
    """
    due = await store.leases_half_over.column(
        conn,
        component=component,
        half=now + lease / 2,
        earliest_claim=now - MAX_LEASES_BY_CALL * lease,
        now=now,
    )
    if due:
        await renew(conn, component, due, lease=lease, now=now)


async def claim_builds(
    conn: Connection,
    builder: int,
    *,
    n: int,
    lease: timedelta,
    now: datetime,
    alone: bool = False,
    compact: bool = False,
    with_store: bool = True,
) -> list[ChunkToBuild]:
    """Claim crawled chunks for a builder.

    `alone` includes chunks it failed with, `compact` those of compaction, `with_store` those in the object store.
    """
    rows = await store.claim_builds.rows(
        conn,
        ChunkToBuild,
        builder=builder,
        n=n,
        lease=lease,
        now=now,
        alone=alone,
        compact=compact,
        with_store=with_store,
    )
    return sorted(rows, key=lambda chunk: chunk.chunk_id)


async def finish_build(
    conn: Connection,
    builder: int,
    chunk: int,
    *,
    sha256: str | None,
    size: int | None,
    now: datetime,
) -> bool:
    """Record that an index is built; returns False if the builder lost the chunk. Place it in the same transaction."""
    done = await store.finish_build.column(
        conn, builder=builder, chunk=chunk, sha256=sha256, bytes=size, now=now
    )
    for is_merged in done:
        await (compaction_merge.finish_merge if is_merged else compaction_merge.note_if_sparse)(
            conn, chunk, now=now
        )
    return bool(done)


async def fail_build(conn: Connection, builder: int, chunk: int, *, why: str) -> str | None:
    """Record a failed build; returns `error` if others may try, `parked` if not, None if the builder lost the chunk."""
    states = await store.fail_build.column(
        conn, builder=builder, chunk=chunk, why=why, most=MAX_BUILD_ATTEMPTS
    )
    return states[0] if states else None


async def rebuild(conn: Connection, builder: int, *, why: str) -> list[int]:
    """Have the chunks built again whose index was lost with this builder."""
    return await store.rebuild.column(conn, builder=builder, why=why)


async def recrawl(conn: Connection, crawler: int, *, why: str, now: datetime, n: int) -> list[int]:
    """Have the pages crawled again whose content was lost with this crawler before it was built.

    A chunk whose index was built and lost too loses its placements.
    """
    await placements.plan_alone(conn)
    chunks = await store.content_of.column(conn, crawler=crawler, n=n)
    lost = await fail_crawls(conn, chunks, why=why, now=now, crawled=True) if chunks else []
    await placements.remove_placements(conn, lost, copies=True)
    return lost


async def show(conn: Connection, chunk: int) -> Chunk | None:
    return await store.show.row(conn, Chunk, chunk=chunk)


async def unpropagated(conn: Connection, component: int, *, after: int = 0, n: int) -> list[int]:
    """The chunks whose files a crawler or builder must still keep."""
    return await store.unpropagated.column(conn, component=component, after=after, n=n)
