"""Endpoints for content chunks: crawlers report them, page by page, and keep them until every row has them."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from usher.api.access import work
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import (
    PROPAGATORS,
    calling_component,
    content_state,
    database_time,
    lease_holders,
    mgmt_connection,
    record_propagated,
    refuse_lost_lease,
    require_chunk,
)
from usher.api.uploads import record_upload
from usher.db.pool import Connection
from usher.door import guestbook
from usher.door.guestbook import FetchResult
from usher.errors import BadInput, NotFound
from usher.http.server.endpoint import EndpointList
from usher.messages.components import ChunkIdsQuery, ChunkState, UnpropagatedChunks
from usher.messages.crawler import ContentChunkReport, PageReport
from usher.messages.fields import chunk_number
from usher.mgmt import chunk_pages, chunks
from usher.mgmt.chunk_pages import PageInChunk
from usher.mgmt.chunks import Chunk, HostTrouble
from usher.mgmt.component_names import ComponentType
from usher.mgmt.components import ComponentRecord
from usher.urls import Scheme, Url, UrlRefusal, parse

NOT_MODIFIED: Final = 304
RETRY_LATER_STATUSES: Final = frozenset({429, 503})
UNCERTAIN_RESULTS: Final = frozenset({"failure", "barred"})  # the host may not have answered
UNKNOWN_TYPE: Final = 1
CRAWLER: Final[tuple[ComponentType, ...]] = ("crawler",)
ENDPOINTS = EndpointList()


@ENDPOINTS.post(
    "/set_content_chunk_metadata",
    "Report that a chunk is being crawled, was crawled, or failed",
    work("crawler", "index-builder", "index-server"),
)
async def set_content_state(call: MgmtCall[ContentChunkReport]) -> ChunkState:
    """Record a report. A crawler may repeat its report, but it cannot undo a final state."""
    report, chunk = call.body, chunk_number(call.body.chunk_id)
    roles = PROPAGATORS if report.state == "propagated" else CRAWLER
    component = await calling_component(call, *roles)
    is_single_statement = report.state == "crawled" and not report.pages and not report.stored
    async with mgmt_connection(call, alone=is_single_statement) as conn:
        if is_single_statement:
            if not await finish(call, conn, component, chunk):
                check_repeated(await require_chunk(conn, chunk), component, report)
        elif report.state == "propagated":
            await record_propagated(call, conn, component, chunk)
        else:
            await settle(call, conn, component, chunk)
        return content_state(await require_chunk(conn, chunk))


async def settle(
    call: MgmtCall[ContentChunkReport], conn: Connection, crawler: ComponentRecord, chunk: int
) -> None:
    report, now = call.body, database_time(call)
    # A chunk that ends with this report keeps no host, so there is nothing to renew.
    lease = call.context.limits.lease if report.state == "crawling" else timedelta(0)
    if not await chunks.lock_chunk(conn, crawler.id, chunk, lease=lease, now=now):
        check_repeated(await require_chunk(conn, chunk), crawler, report)
        return
    pages = await match_pages(conn, chunk, report.pages) if report.pages else []
    rows = [row for _, row in pages]
    if report.state == "crawled":
        await finish(call, conn, crawler, chunk, rows)
    elif rows:
        await chunks.report(conn, rows, now=now)
    if report.state == "error":
        reason = report.reason or "the crawler gave it up"
        await chunks.fail_crawls(conn, [chunk], why=reason, now=now)
    await update_politeness(conn, pages, now)  # last: only now is a held host free


async def finish(
    call: MgmtCall[ContentChunkReport],
    conn: Connection,
    crawler: ComponentRecord,
    chunk: int,
    rows: Sequence[guestbook.FetchReport] = (),
) -> bool:
    """Set the chunk to crawled; False if the crawler does not hold it."""
    report = call.body
    finished = await chunks.finish_crawl(
        conn,
        crawler.id,
        chunk,
        sha256=report.sha256,
        size=report.bytes,
        now=database_time(call),
        reports=rows,
        # A crawler that reports pages reports all that it fetched; the other pages become due again.
        back=None if report.pages is None else True,
    )
    if finished is not None and report.stored:
        await record_upload(conn, "content", chunk, report.sha256, database_time(call))
    return finished is not None


def check_repeated(chunk: Chunk, crawler: ComponentRecord, report: ContentChunkReport) -> None:
    """Raise 409 unless the report repeats what the crawler reported before it lost its lease."""
    is_repeated = chunk.state == report.state and report.state != "crawling"
    if chunk.crawler_id != crawler.id or not is_repeated:
        refuse_lost_lease(chunk, crawler)


async def update_politeness(
    conn: Connection, pages: Sequence[tuple[PageReport, guestbook.FetchReport]], now: datetime
) -> None:
    """Let hosts that refused or did not answer rest, for all crawlers; clear the troubles of those that answered."""
    answering = {row.domain64 for report, row in pages if report.status is not None}
    troubles = [trouble for pair in pages if (trouble := host_trouble(*pair, answering))]
    if troubles:
        await chunks.rest_hosts(conn, troubles, now=now)
    if well := [row.domain64 for _, row in pages if row.result not in UNCERTAIN_RESULTS]:
        await chunks.clear_troubles(conn, well, now=now)


def host_trouble(
    report: PageReport, row: guestbook.FetchReport, answering: set[int]
) -> HostTrouble | None:
    """The host's trouble if it asks for a later visit, or if it answered for none of its pages."""
    is_silent = report.result == "failure" and report.status is None
    if is_silent and row.domain64 in answering:
        is_silent = False
    asks_for_rest = report.status in RETRY_LATER_STATUSES or report.retry_after is not None
    if not is_silent and not asks_for_rest:
        return None
    reason = f"HTTP {report.status}" if report.status else "no answer"
    return HostTrouble(row.domain64, reason, timedelta(seconds=report.retry_after or 0))


async def match_pages(
    conn: Connection, chunk: int, reports: Sequence[PageReport]
) -> list[tuple[PageReport, guestbook.FetchReport]]:
    """Each report with its row for the guestbook; NotFound if a page is not in the chunk."""
    pages = {(page.host, page.path): page for page in await chunk_pages.pages_of(conn, chunk)}
    has_types = any(report.content_type for report in reports)
    codes = await chunk_pages.content_types(conn) if has_types else {}
    matched: dict[tuple[str, str], tuple[PageReport, guestbook.FetchReport]] = {}
    for report in reports:
        url = parse_link(report.link)
        page = pages.get((url.host, url.path))
        if page is None:
            raise NotFound(f"{url} is not in chunk {chunk}.")
        matched[url.host, url.path] = report, guestbook_row(report, page, codes)
    return list(matched.values())


def parse_link(link: str) -> Url:
    url = parse(link)
    if isinstance(url, UrlRefusal):
        raise BadInput(f"{link[:80]!a} cannot be read as a link: {url.detail}")
    return url


def guestbook_row(
    report: PageReport, page: PageInChunk, codes: Mapping[str, int] | None = None
) -> guestbook.FetchReport:
    """The report as the guestbook stores it; `codes` are the numbers of media types."""
    return guestbook.FetchReport(
        domain64=page.domain64,
        path=page.path,
        result=page_result(report),
        chunk_id=page.chunk_id,
        status=report.status,
        content_type=type_code(report.content_type, codes or {}),
        content_length=report.content_length,
        content_sha1=report.content_sha1,
        etag=report.etag,
        last_modified=report.last_modified,
        text64=parse_text64(report.text64),
        noindex=report.noindex,
        scheme=None if report.scheme is None else Scheme[report.scheme.upper()],
        reason=report.reason,
    )


def parse_text64(text: str | None) -> int | None:
    if text is None or -(2**63) <= int(text) < 2**63:
        return None if text is None else int(text)
    raise BadInput(f"text64 cannot be {text}: it has 64 bits.")


def page_result(report: PageReport) -> FetchResult:
    """The reported result. A page with only a `state` and nothing about its content counts as unchanged."""
    if report.result is not None:
        return report.result
    if report.state is None:
        raise BadInput(f"{report.link[:80]!a} has neither a state nor a result.")
    if report.state == "error":
        return "failure"
    described = (
        report.content_sha1
        or report.etag
        or report.content_length
        or report.content_type
        or report.last_modified
    )
    return "success" if described and report.status != NOT_MODIFIED else "unchanged"


def type_code(content_type: str | None, codes: Mapping[str, int]) -> int:
    """The number of a media type without its parameters, or of its family."""
    name = (content_type or "").partition(";")[0].strip().lower()
    return codes.get(name) or codes.get(name.partition("/")[0]) or UNKNOWN_TYPE


@ENDPOINTS.get(
    "/get_chunks/unpropagated",
    "Chunks that the component must keep",
    work("crawler", "index-builder"),
)
async def get_unpropagated(call: MgmtCall[ChunkIdsQuery]) -> UnpropagatedChunks:
    holders, query, chunk_ids = await lease_holders(call), call.body, set[int]()
    async with mgmt_connection(call, alone=True) as conn:
        for holder in holders:
            chunk_ids.update(
                await chunks.unpropagated(conn, holder.id, after=query.after, n=query.n)
            )
    page = sorted(chunk_ids)[: query.n]
    return UnpropagatedChunks(page, page[-1] if len(page) == query.n else None)
