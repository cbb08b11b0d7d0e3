"""Chunks: pages handed to a crawler under a lease, crawled, built; and what becomes of those that are lost.

Comes from components that ask and report; goes to the guestbook and to work.chunk. Every change names the owner and the
state it expects, so that a report that comes too late changes nothing and says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from psycopg.rows import TupleRow

from usher.db.pool import Connection
from usher.db.statements import array, load_statements
from usher.door.guestbook import PageReport, SettledPage, report_columns
from usher.messages.crawler import PrivateAccess
from usher.mgmt import compaction_merge, page_versions, placements
from usher.urls import Url, url_text

store = load_statements(__file__)
MAX_CRAWL_ATTEMPTS: Final = 3  # of a page whose crawlers die, before it is an error
MAX_BUILD_ATTEMPTS: Final = 3
MAX_LEASES_BY_CALL: Final = (
    12  # that calls which do not name a chunk renew its lease, counted from its claim
)
ClaimRows = Sequence[TupleRow]  # of what was claimed for one crawler


class ClaimedPage(NamedTuple):
    """A page that a crawler is to fetch, with what it needs for a conditional request."""

    id: int
    url: str
    private: PrivateAccess | None  # the operator's permission, where its host is not public
    etag: str | None
    last_modified: datetime | None
    crawl_delay: timedelta
    text64: int | None = None  # of what can be found of it
    depth: int = 0


@dataclass(frozen=True, slots=True)
class ClaimedChunk:
    """A chunk and the pages that were put into it."""

    chunk_id: int
    pages: list[ClaimedPage]


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """How many pages are wanted: of how many hosts, how many of each, and how long the first may wait for the last.

    With `hold` a host that rests between requests is the crawler's alone until it reports.
    """

    n: int = 5
    width: int | None = None
    depth: int | None = None
    wait: timedelta = timedelta(seconds=1)
    lease: timedelta = timedelta(minutes=5)
    hold: bool = False


@dataclass(frozen=True, slots=True)
class ChunkToBuild:
    """A crawled chunk for a builder, and who has its content; nobody if it is made of others."""

    chunk_id: int
    host: str | None
    sha256: str | None
    bytes: int | None


class FinishedCrawl(NamedTuple):
    """How many pages a crawler told of at the end of a chunk, and of how many it never said a word."""

    told: int
    rest: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """All that is known of a chunk."""

    id: int
    state: str
    crawler: str | None  # None: it is made of others
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


@dataclass(frozen=True, slots=True)
class PageLocation:
    """Where a page is."""

    domain64: int
    path: str
    chunk_id: int | None
    state: str


async def claim_links(
    conn: Connection, crawler: int, ask: ClaimRequest, *, now: datetime
) -> ClaimedChunk | None:
    """A new chunk for a crawler; None while too few pages wait and none for too long."""
    [pack] = await claim_all(conn, [(crawler, ask)], now=now)
    return pack


async def more_links(
    conn: Connection, crawler: int, chunk: int, ask: ClaimRequest, *, now: datetime
) -> list[ClaimedPage]:
    """More pages for a chunk that the crawler holds (`hold` it first): as many as there are, up to n."""
    [pack] = await claim_all(conn, [(crawler, ask)], chunk=chunk, now=now)
    return pack.pages if pack else []


async def claim_all(
    conn: Connection,
    asked: Sequence[tuple[int, ClaimRequest]],
    *,
    now: datetime,
    chunk: int | None = None,
) -> list[ClaimedChunk | None]:
    """A new chunk for each of these crawlers, in one statement.

    They get pages of different hosts: who comes after one that was served may get nothing although there is something.
    """
    return [claimed_chunk(rows) for rows in await claim_rows(conn, asked, now=now, chunk=chunk)]


async def claim_rows(
    conn: Connection,
    asked: Sequence[tuple[int, ClaimRequest]],
    *,
    now: datetime,
    chunk: int | None = None,
) -> list[ClaimRows]:
    """The same, as rows that whoever asked has `packed`: the connection is free for others meanwhile."""
    asks = [ask for _, ask in asked]
    found = await store.claim_links.tuples(
        conn,
        crawlers=array(crawler for crawler, _ in asked),
        ns=array(ask.n for ask in asks),
        widths=array(ask.width or ask.n for ask in asks),
        depths=array(ask.depth or ask.n for ask in asks),
        chunk=chunk,
        waits=array(f"{ask.wait.total_seconds()} s" for ask in asks),
        leases=array(f"{ask.lease.total_seconds()} s" for ask in asks),
        holds=array(ask.hold for ask in asks),
        now=now,
    )
    rows: list[ClaimRows] = [()] * len(asked)
    for turn, some in groupby(found, key=itemgetter(0)):
        rows[turn - 1] = list(some)
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
    """The chunks a crawler holds, two at most."""
    return [id_ for (id_,) in await store.open_chunks.tuples(conn, crawler=crawler, now=now)]


async def lock_chunk(
    conn: Connection, crawler: int, chunk: int, *, lease: timedelta, now: datetime
) -> bool:
    """Whether the crawler still has this chunk; renews it with its hosts, and locks it until the transaction ends."""
    return chunk in await renew(conn, crawler, [chunk], lease=lease, now=now)


async def find_page(conn: Connection, url: Url) -> PageLocation | None:
    """The page of that address, in whatever state."""
    return await store.find_page.row(conn, PageLocation, host=url.host, path=url.path)


async def report(
    conn: Connection, outcomes: Sequence[PageReport], *, now: datetime
) -> list[SettledPage]:
    """What became of pages of held chunks; copies outdated by it are noted, crawls that are over by it are closed."""
    return await store.report.rows(conn, SettledPage, **report_columns(outcomes), now=now)


@dataclass(frozen=True, slots=True)
class HostTrouble:
    """A host that refused a request or did not answer, and how long it asks us to stay away."""

    domain64: int
    why: str
    rest: timedelta = timedelta(0)


async def rest_hosts(
    conn: Connection, troubles: Sequence[HostTrouble], *, now: datetime
) -> dict[int, datetime]:
    """Let hosts rest, for every crawler; when each is ready again."""
    found = await store.rest_hosts.tuples(
        conn,
        domain64s=[one.domain64 for one in troubles],
        whys=[one.why for one in troubles],
        rests=[one.rest for one in troubles],
        now=now,
    )
    return dict(found)


async def clear_troubles(conn: Connection, domain64s: Sequence[int], *, now: datetime) -> int:
    """Hosts that answer, after a quiet while, are trusted again."""
    return await store.clear_troubles.run(conn, domain64s=sorted(set(domain64s)), now=now)


async def finish_crawl(
    conn: Connection,
    crawler: int,
    chunk: int,
    *,
    sha256: str | None,
    size: int | None,
    now: datetime,
    outcomes: Sequence[PageReport] = (),
    back: bool | None = False,
) -> FinishedCrawl | None:
    """The chunk is crawled, and this became of its pages; None, and nothing changes, if the crawler has no lease on it.

    Pages without a report, now or before, were fetched and nothing more is known of them; or they go `back`, if
    that is None only if others were reported before.
    """
    given = report_columns(outcomes)
    del given["chunks"]
    return await store.finish_crawl.row(
        conn,
        FinishedCrawl,
        crawler=crawler,
        chunk=chunk,
        sha256=sha256,
        bytes=size,
        back=back,
        **given,
        now=now,
    )


async def fail_crawls(
    conn: Connection, chunks: Sequence[int], *, why: str, now: datetime, crawled: bool = False
) -> list[int]:
    """Chunks that will not come: their pages wait again. `crawled` ones too, if their content is lost."""
    found = await store.fail_crawls.tuples(
        conn, chunks=list(chunks), why=why, crawled=crawled, most=MAX_CRAWL_ATTEMPTS, now=now
    )
    lost = [id_ for (id_,) in found]
    if lost:
        await store.release_hosts.tuples(conn, chunks=lost, now=now)
        await page_versions.take_back(conn, lost, max_losses=MAX_CRAWL_ATTEMPTS, now=now)
    return lost


async def reap(conn: Connection, *, n: int, now: datetime) -> tuple[list[int], list[int]]:
    """Crawls and builds whose lease has ended, made free for others."""
    late = [id_ for (id_,) in await store.expired_crawls.tuples(conn, n=n, now=now)]
    crawls = await fail_crawls(conn, late, why="the crawler's lease ended", now=now) if late else []
    builds = await store.expired_builds.tuples(conn, n=n, most=MAX_BUILD_ATTEMPTS, now=now)
    return crawls, [id_ for (id_,) in builds]


async def restart_crawler(conn: Connection, crawler: int, *, n: int, now: datetime) -> list[int]:
    """A crawler that was started again has nothing of what it was crawling: all of it waits again."""
    lost = [id_ for (id_,) in await store.crawls_of.tuples(conn, crawler=crawler, n=n)]
    why = "the crawler began anew"
    return await fail_crawls(conn, lost, why=why, now=now) if lost else []


async def renew(
    conn: Connection, component: int, chunks: Sequence[int], *, lease: timedelta, now: datetime
) -> set[int]:
    """Signs of life; returns the chunks that are still the component's own."""
    found = await store.renew.tuples(
        conn, component=component, chunks=list(chunks), lease=lease, now=now
    )
    return {id_ for (id_,) in found}


async def renew_by_call(
    conn: Connection, component: int, *, lease: timedelta, now: datetime
) -> None:
    """Renew leases that are half over, because their component has called.

    A component that was restarted may have forgotten a chunk, so that is done for `MAX_LEASES_BY_CALL` leases only.
    """
    due = await store.leases_half_over.tuples(
        conn,
        component=component,
        half=now + lease / 2,
        earliest_claim=now - MAX_LEASES_BY_CALL * lease,
        now=now,
    )
    if due:
        await renew(conn, component, [id_ for (id_,) in due], lease=lease, now=now)


async def claim_builds(
    conn: Connection,
    builder: int,
    *,
    n: int,
    lease: timedelta,
    now: datetime,
    alone: bool = False,
    compact: bool = False,
) -> list[ChunkToBuild]:
    """Crawled chunks for one builder; `alone` also those it failed with before, `compact` those made of others."""
    found = await store.claim_builds.rows(
        conn, ChunkToBuild, builder=builder, n=n, lease=lease, now=now, alone=alone, compact=compact
    )
    return sorted(found, key=lambda one: one.chunk_id)


async def finish_build(
    conn: Connection,
    builder: int,
    chunk: int,
    *,
    sha256: str | None,
    size: int | None,
    now: datetime,
) -> bool:
    """The index is built; of one made of others the pages move. Seat it in the same transaction."""
    done = await store.finish_build.tuples(
        conn, builder=builder, chunk=chunk, sha256=sha256, bytes=size, now=now
    )
    if done:
        [(is_merged,)] = done
        await (compaction_merge.finish_merge if is_merged else compaction_merge.note_if_sparse)(
            conn, chunk, now=now
        )
    return bool(done)


async def fail_build(conn: Connection, builder: int, chunk: int, *, why: str) -> str | None:
    """`error` if others may try, `parked` if enough have; None if it was not this builder's."""
    found = await store.fail_build.tuples(
        conn, builder=builder, chunk=chunk, why=why, most=MAX_BUILD_ATTEMPTS
    )
    return str(found[0][0]) if found else None


async def rebuild(conn: Connection, builder: int, *, why: str) -> list[int]:
    """Chunks whose index went with its builder, to be built again."""
    return [id_ for (id_,) in await store.rebuild.tuples(conn, builder=builder, why=why)]


async def recrawl(conn: Connection, crawler: int, *, why: str, now: datetime, n: int) -> list[int]:
    """Chunks whose content went with its crawler before it was built: their pages wait again.

    One that was built before, and whose index is lost too, gives up its places.
    """
    await placements.plan_alone(conn)
    found = [id_ for (id_,) in await store.content_of.tuples(conn, crawler=crawler, n=n)]
    lost = await fail_crawls(conn, found, why=why, now=now, crawled=True) if found else []
    await placements.remove_placements(conn, lost, copies=True)
    return lost


async def show(conn: Connection, chunk: int) -> Chunk | None:
    return await store.show.row(conn, Chunk, chunk=chunk)


async def unpropagated(conn: Connection, component: int, *, after: int = 0, n: int) -> list[int]:
    """What a crawler or builder must still keep."""
    found = await store.unpropagated.tuples(conn, component=component, after=after, n=n)
    return [id_ for (id_,) in found]
