"""Endpoints for crawlers: they claim pages in chunks, report single pages, and add links."""

from datetime import datetime, timedelta
from typing import Final

from usher.api.access import CRAWLER
from usher.api.anchors import link_texts, store_anchors
from usher.api.content_chunks import guestbook_row, parse_link
from usher.api.context import UNLIMITED_WAIT, ClaimLimits, MgmtCall
from usher.api.door import link_verdicts, source_host
from usher.api.mgmt_calls import (
    calling_component,
    database_time,
    mgmt_connection,
    refuse_lost_lease,
    reject_unstorable,
    require_chunk,
)
from usher.db.pool import Connection
from usher.door.rules import Knock
from usher.errors import BadInput, NotFound
from usher.http.server.bodies import check_count
from usher.http.server.endpoint import EndpointList
from usher.http.server.middleware import HttpError
from usher.messages.crawler import (
    MAX_URLS_PER_REQUEST,
    AddLinksRequest,
    LinkChunk,
    LinksQuery,
    LinkStateAnswer,
    LinkStateRequest,
    LinkVerdicts,
    MoreLinks,
    MoreLinksQuery,
    PageReport,
    PageToFetch,
)
from usher.messages.fields import MAX_PAGES_PER_CHUNK, chunk_number
from usher.mgmt import chunk_pages, chunks
from usher.mgmt.chunks import ClaimedPage, PageClaim
from usher.mgmt.component_names import IDENTITY_HINT
from usher.mgmt.components import ComponentRecord

NO_WAIT: Final = timedelta(0)
ENDPOINTS = EndpointList()


@ENDPOINTS.get("/get_links", "Claim a chunk of pages to crawl", CRAWLER, safe=False)
async def get_links(call: MgmtCall[LinksQuery]) -> LinkChunk:
    crawler, query = await calling_component(call, "crawler"), call.body
    limits = call.context.limits
    if crawler.state == "paused":
        return LinkChunk()
    wait = limits.wait
    if query.wait is not None and wait < UNLIMITED_WAIT:
        wait = min(wait, timedelta(seconds=query.wait))
    request = PageClaim(
        query.n or limits.pages,
        query.hosts,
        query.each,
        wait,
        limits.lease,
        query.hold,
        limits.skipped_hosts,
    )
    with reject_unstorable():
        chunk = await call.context.claims.claim(crawler.id, request)
    if chunk is None:
        return LinkChunk()
    links = [page.url for page in chunk.pages]
    if not query.pages:
        return LinkChunk(chunk.chunk_id, links)
    lease = limits.lease.total_seconds()
    upload = call.context.chunk_urls.has_store
    return LinkChunk(chunk.chunk_id, links, pages_to_fetch(chunk.pages), lease, upload)


def pages_to_fetch(pages: list[ClaimedPage]) -> list[PageToFetch]:
    return [
        PageToFetch(
            page.url,
            page.crawl_delay.total_seconds(),
            page.etag,
            page.last_modified,
            None if page.text64 is None else str(page.text64),
            page.depth,
            page.private,
            page.delay_is_set,
        )
        for page in pages
    ]


@ENDPOINTS.get("/get_links/{number}", "Claim more pages for a chunk", CRAWLER, safe=False)
async def get_more_links(call: MgmtCall[MoreLinksQuery]) -> MoreLinks:
    number, query = call.path_params.get("number", "1"), call.body
    if not number.isascii() or not number.isdecimal():
        raise NotFound(f"There is nothing at /get_links/{number[:40]}.")
    if not 1 <= int(number[:10]) <= MAX_PAGES_PER_CHUNK:
        raise BadInput(f"A crawler may ask for 1 to {MAX_PAGES_PER_CHUNK} more links.")
    crawler, now = await calling_component(call, "crawler"), database_time(call)
    limits = call.context.limits
    async with mgmt_connection(call) as conn:
        if query.chunk_id:
            chunk = chunk_number(query.chunk_id)
        else:
            chunk = await only_open_chunk(conn, crawler, now)
        if not await chunks.lock_chunk(conn, crawler.id, chunk, lease=limits.lease, now=now):
            refuse_lost_lease(await require_chunk(conn, chunk), crawler)
        request = at_once(limits, int(number), hold=query.hold)
        pages = await chunks.more_links(conn, crawler.id, chunk, request, now=now)
    links = [page.url for page in pages]
    return MoreLinks(chunk, links, pages_to_fetch(pages) if query.pages else [])


def at_once(limits: ClaimLimits, n: int, *, hold: bool = False) -> PageClaim:
    """The claim of n more pages, or of as many as there are now."""
    return PageClaim(
        n, wait=NO_WAIT, lease=limits.lease, hold=hold, skipped_hosts=limits.skipped_hosts
    )


async def only_open_chunk(conn: Connection, crawler: ComponentRecord, now: datetime) -> int:
    """The chunk that a request without a chunk id means; 409 if the crawler holds none or several."""
    open_chunks = await chunks.open_chunks(conn, crawler.id, now=now)
    if len(open_chunks) == 1:
        return open_chunks[0]
    problem = "holds several chunks" if open_chunks else "holds no chunk"
    hint = "Name it: ?chunk_id=" if open_chunks else f"GET /get_links gives one. {IDENTITY_HINT}"
    raise HttpError(409, "which_chunk", f"{crawler.host} {problem}.", hint=hint)


@ENDPOINTS.post("/set_link_state", "Report one page; the answer may name another", CRAWLER)
async def set_link_state(call: MgmtCall[LinkStateRequest]) -> LinkStateAnswer:
    request, now, limits = call.body, database_time(call), call.context.limits
    url, crawler = parse_link(request.link), await calling_component(call, "crawler")
    async with mgmt_connection(call) as conn:
        page = await chunk_pages.find_page(conn, url)
        if page is None:
            raise NotFound(f"{url} is not in the guestbook.")
        chunk = chunk_number(request.chunk_id) if request.chunk_id else page.chunk_id
        if chunk is None or chunk != page.chunk_id:
            raise HttpError(409, "not_yours", f"{url} is not in chunk {chunk or 'any'}.")
        if not await chunks.lock_chunk(conn, crawler.id, chunk, lease=limits.lease, now=now):
            record = await require_chunk(conn, chunk)
            if record.crawler_id != crawler.id or page.state != request.state:
                refuse_lost_lease(record, crawler)
            return LinkStateAnswer(chunk, page.state)  # a repeated report
        report = PageReport(link="", state=request.state, status=request.status)
        settled = await chunks.report(conn, [guestbook_row(report, page)], now=now)
        replacement: list[ClaimedPage] = []
        if settled and request.state == "error":
            one_page = at_once(limits, 1)
            replacement = await chunks.more_links(conn, crawler.id, chunk, one_page, now=now)
    state = settled[0].state if settled else page.state
    return LinkStateAnswer(chunk, state, replacement[0].url if replacement else None)


@ENDPOINTS.post("/add_links", f"Add up to {MAX_URLS_PER_REQUEST:,} links", CRAWLER)
async def add_links(call: MgmtCall[AddLinksRequest]) -> LinkVerdicts:
    request = call.body
    check_count(request.links, "links", MAX_URLS_PER_REQUEST)
    found_on = source_host(request.found_on)
    texts = link_texts(request.anchors, found_on)
    # A crawler may report its last pages before it sends their links.
    knock = Knock(
        source=found_on or source_host(request.moved_from), grace=call.context.limits.lease
    )
    verdicts = await call.context.doorkeeper.knock(
        request.links, knock=knock, found_on=found_on, depth=request.depth
    )
    if texts:
        await store_anchors(call, texts, found_on)
    return link_verdicts(verdicts)
