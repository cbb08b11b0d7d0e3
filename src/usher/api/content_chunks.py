"""Content chunks at MGMT: crawled or lost, page by page where the crawler says so, kept until every row has them."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

from usher.api.access import work
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import (
    PROPAGATORS,
    caller,
    database_time,
    lease_holders,
    mgmt_connection,
    record_propagated,
    refuse_lost_lease,
    require_chunk,
    state_of,
)
from usher.db.pool import Connection
from usher.door.guestbook import FetchResult, PageReport
from usher.errors import BadInput, NotFound
from usher.http.server.endpoint import Endpoint
from usher.messages.components import ChunkIdsQuery, ChunkState, UnpropagatedChunks
from usher.messages.crawler import ContentChunkReport, PageReport
from usher.messages.fields import chunk_number
from usher.mgmt import chunks, unreported_pages
from usher.mgmt.chunks import Chunk, HostTrouble
from usher.mgmt.component_names import ComponentType
from usher.mgmt.components import ComponentRecord
from usher.urls import Scheme, Url, UrlRefusal, parse

NOT_MODIFIED: Final = 304
LATER: Final = frozenset({429, 503})  # answers that ask us to come another time
UNSURE: Final = frozenset({"failure", "barred"})  # results that do not say that the host answers
UNKNOWN_TYPE: Final = 1
CRAWLER: Final[tuple[ComponentType, ...]] = ("crawler",)


class Numbered(Protocol):
    """A page by its place in the guestbook."""

    @property
    def domain64(self) -> int: ...
    @property
    def path(self) -> str: ...
    @property
    def chunk_id(self) -> int | None: ...


async def set_content_state(call: MgmtCall[ContentChunkReport]) -> ChunkState:
    """Any state may be said again; what is over cannot be undone."""
    asked, chunk = call.body, chunk_number(call.body.chunk_id)
    me = await caller(call, *(PROPAGATORS if asked.state == "propagated" else CRAWLER))
    done = asked.state == "crawled" and not asked.pages
    async with mgmt_connection(call, alone=done) as conn:
        if done and not await finish(call, conn, me, chunk):
            said_before(await require_chunk(conn, chunk), me, asked)
        elif asked.state == "propagated":
            await record_propagated(call, conn, me, chunk)
        elif not done:
            await settle(call, conn, me, chunk)
        return state_of(await require_chunk(conn, chunk))


async def settle(
    call: MgmtCall[ContentChunkReport], conn: Connection, me: ComponentRecord, chunk: int
) -> None:
    asked, now = call.body, database_time(call)
    # A chunk that ends with this report keeps no host, so there is nothing to renew.
    lease = call.context.limits.lease if asked.state == "crawling" else timedelta(0)
    if not await chunks.lock_chunk(conn, me.id, chunk, lease=lease, now=now):
        said_before(await require_chunk(conn, chunk), me, asked)
        return
    results = await outcomes(conn, chunk, asked.pages) if asked.pages else []
    told = [outcome for _, outcome in results]
    if asked.state == "crawled":
        await finish(call, conn, me, chunk, told)
    elif told:
        await chunks.report(conn, told, now=now)
    if asked.state == "error":
        await chunks.fail_crawls(
            conn, [chunk], why=asked.reason or "the crawler gave it up", now=now
        )
    await pace(conn, results, now)  # last: a host that the chunk held is free only now


async def finish(
    call: MgmtCall[ContentChunkReport],
    conn: Connection,
    me: ComponentRecord,
    chunk: int,
    told: Sequence[PageReport] = (),
) -> bool:
    """Whether the chunk was the crawler's, and is crawled now."""
    asked = call.body
    done = await chunks.finish_crawl(
        conn,
        me.id,
        chunk,
        sha256=asked.sha256,
        size=asked.bytes,
        now=database_time(call),
        outcomes=told,
        # Whoever reports pages reports all it fetched: the others it never had, or dropped.
        back=None if asked.pages is None else True,
    )
    return done is not None


def said_before(found: Chunk, me: ComponentRecord, asked: ContentChunkReport) -> None:
    """Whoever has no lease may only say again what is so."""
    if found.crawler_id != me.id or found.state != asked.state or asked.state == "crawling":
        refuse_lost_lease(found, me)


async def pace(
    conn: Connection, found: Sequence[tuple[PageReport, PageReport]], now: datetime
) -> None:
    """Hosts that refused us or did not answer rest, for every crawler; those that answer are forgiven in time."""
    answering = {outcome.domain64 for one, outcome in found if one.status is not None}
    if troubles := [trouble for pair in found if (trouble := trouble_of(*pair, answering))]:
        await chunks.rest_hosts(conn, troubles, now=now)
    if well := [outcome.domain64 for _, outcome in found if outcome.result not in UNSURE]:
        await chunks.clear_troubles(conn, well, now=now)


def trouble_of(one: PageReport, outcome: PageReport, answering: set[int]) -> HostTrouble | None:
    """An answer that asks us to come later is its host's trouble; so is none at all, if no page of it has one."""
    silent = one.result == "failure" and one.status is None and outcome.domain64 not in answering
    if not silent and one.status not in LATER and one.retry_after is None:
        return None
    why = f"HTTP {one.status}" if one.status else "no answer"
    return HostTrouble(outcome.domain64, why, timedelta(seconds=one.retry_after or 0))


async def outcomes(
    conn: Connection, chunk: int, pages: Sequence[PageReport]
) -> list[tuple[PageReport, PageReport]]:
    """What became of the pages of a chunk; one that is not in it makes the whole report wrong."""
    inside = {(page.host, page.path): page for page in await unreported_pages.pages_of(conn, chunk)}
    codes = (
        await unreported_pages.content_types(conn) if any(one.content_type for one in pages) else {}
    )
    found: dict[tuple[str, str], tuple[PageReport, PageReport]] = {}
    for one in pages:
        url = read(one.link)
        page = inside.get((url.host, url.path))
        if page is None:
            raise NotFound(f"{url} is not in chunk {chunk}.")
        found[url.host, url.path] = one, outcome_of(one, page, codes)
    return list(found.values())


def read(link: str) -> Url:
    url = parse(link)
    if isinstance(url, UrlRefusal):
        raise BadInput(f"{link[:80]!a} cannot be read as a link: {url.detail}")
    return url


def outcome_of(
    one: PageReport, page: Numbered, codes: Mapping[str, int] | None = None
) -> PageReport:
    return PageReport(
        domain64=page.domain64,
        path=page.path,
        result=result_of(one),
        chunk_id=page.chunk_id,
        status=one.status,
        content_type=code_of(one.content_type, codes or {}),
        content_length=one.content_length,
        content_sha1=one.content_sha1,
        etag=one.etag,
        last_modified=one.last_modified,
        text64=number64(one.text64),
        noindex=one.noindex,
        scheme=None if one.scheme is None else Scheme[one.scheme.upper()],
        reason=one.reason,
    )


def number64(text: str | None) -> int | None:
    if text is None or -(2**63) <= int(text) < 2**63:
        return None if text is None else int(text)
    raise BadInput(f"text64 cannot be {text}: it has 64 bits.")


def result_of(one: PageReport) -> FetchResult:
    """What is said least exactly says least: a page without anything about its content keeps what is known of it."""
    if one.result is not None:
        return one.result
    if one.state is None:
        raise BadInput(f"{one.link[:80]!a} has neither a state nor a result.")
    if one.state == "error":
        return "failure"
    described = (
        one.content_sha1 or one.etag or one.content_length or one.content_type or one.last_modified
    )
    return "success" if described and one.status != NOT_MODIFIED else "unchanged"


def code_of(content_type: str | None, codes: Mapping[str, int]) -> int:
    """The number of a media type, or of its family; parameters do not matter."""
    name = (content_type or "").partition(";")[0].strip().lower()
    return codes.get(name) or codes.get(name.partition("/")[0]) or UNKNOWN_TYPE


async def get_unpropagated(call: MgmtCall[ChunkIdsQuery]) -> UnpropagatedChunks:
    holders, asked, kept = await lease_holders(call), call.body, set[int]()
    async with mgmt_connection(call, alone=True) as conn:
        for me in holders:
            kept.update(await chunks.unpropagated(conn, me.id, after=asked.after, n=asked.n))
    found = sorted(kept)[: asked.n]
    return UnpropagatedChunks(found, found[-1] if len(found) == asked.n else None)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/set_content_chunk_metadata",
        set_content_state,
        ContentChunkReport,
        ChunkState,
        "A chunk is being crawled, was crawled, or will not come",
        access=work("crawler", "index-builder", "index-server"),
    ),
    Endpoint(
        "GET",
        "/get_chunks/unpropagated",
        get_unpropagated,
        ChunkIdsQuery,
        UnpropagatedChunks,
        "What a crawler or builder must still keep",
        access=work("crawler", "index-builder"),
    ),
)
