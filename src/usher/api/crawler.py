"""Crawlers at MGMT: pages handed out in chunks, what became of them, and links they found."""

from datetime import datetime, timedelta
from typing import Final

from usher.api.access import work
from usher.api.content_chunks import outcome_of, read
from usher.api.context import UNLIMITED_WAIT, MgmtCall
from usher.api.door import host_of, link_verdicts
from usher.api.mgmt_calls import (
    caller,
    database_time,
    mgmt_connection,
    refuse_lost_lease,
    reject_unstorable,
    require_chunk,
)
from usher.db.pool import Connection
from usher.door.rules import Knock
from usher.errors import BadInput, NotFound
from usher.http.server.endpoint import Endpoint
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
from usher.mgmt import chunks
from usher.mgmt.chunks import ClaimedPage, ClaimRequest
from usher.mgmt.component_names import IDENTITY_HINT
from usher.mgmt.components import ComponentRecord

AT_ONCE: Final = timedelta(0)


async def get_links(call: MgmtCall[LinksQuery]) -> LinkChunk:
    me, asked, terms = await caller(call, "crawler"), call.body, call.context.limits
    if me.state == "paused":
        return LinkChunk()
    wait = terms.wait
    if asked.wait is not None and wait < UNLIMITED_WAIT:
        wait = min(wait, timedelta(seconds=asked.wait))
    ask = ClaimRequest(
        asked.n or terms.pages, asked.hosts, asked.each, wait, terms.lease, asked.hold
    )
    with reject_unstorable():
        pack = await call.context.claims.take(me.id, ask)
    if pack is None:
        return LinkChunk()
    links = [page.url for page in pack.pages]
    lease = terms.lease.total_seconds() if asked.pages else 0
    return LinkChunk(pack.chunk_id, links, listed(pack.pages, asked.pages), lease)


def listed(pages: list[ClaimedPage], wanted: bool) -> list[PageToFetch]:  # noqa: FBT001 - as it was asked
    if not wanted:
        return []
    return [
        PageToFetch(
            page.url,
            page.crawl_delay.total_seconds(),
            page.etag,
            page.last_modified,
            None if page.text64 is None else str(page.text64),
            page.depth,
            page.private,
        )
        for page in pages
    ]


async def get_more_links(call: MgmtCall[MoreLinksQuery]) -> MoreLinks:
    word, asked = call.path_params.get("number", "1"), call.body
    if not word.isascii() or not word.isdecimal():
        raise NotFound(f"There is nothing at /get_links/{word[:40]}.")
    if not 1 <= int(word[:10]) <= MAX_PAGES_PER_CHUNK:
        raise BadInput(f"A crawler may ask for 1 to {MAX_PAGES_PER_CHUNK} more links.")
    me, now, lease = await caller(call, "crawler"), database_time(call), call.context.limits.lease
    async with mgmt_connection(call) as conn:
        chunk = (
            chunk_number(asked.chunk_id) if asked.chunk_id else await the_open_one(conn, me, now)
        )
        if not await chunks.lock_chunk(conn, me.id, chunk, lease=lease, now=now):
            refuse_lost_lease(await require_chunk(conn, chunk), me)
        ask = ClaimRequest(int(word), wait=AT_ONCE, lease=lease, hold=asked.hold)
        pages = await chunks.more_links(conn, me.id, chunk, ask, now=now)
    return MoreLinks(chunk, [page.url for page in pages], listed(pages, asked.pages))


async def the_open_one(conn: Connection, me: ComponentRecord, now: datetime) -> int:
    """The chunk that is meant where none is named."""
    found = await chunks.open_chunks(conn, me.id, now=now)
    if len(found) == 1:
        return found[0]
    words = "holds several chunks" if found else "holds no chunk"
    hint = "Name it: ?chunk_id=" if found else f"GET /get_links gives one. {IDENTITY_HINT}"
    raise HttpError(409, "which_chunk", f"{me.host} {words}.", hint=hint)


async def set_link_state(call: MgmtCall[LinkStateRequest]) -> LinkStateAnswer:
    asked, now, lease = call.body, database_time(call), call.context.limits.lease
    url, me = read(asked.link), await caller(call, "crawler")
    async with mgmt_connection(call) as conn:
        page = await chunks.find_page(conn, url)
        if page is None:
            raise NotFound(f"{url} is no link that we know.")
        chunk = chunk_number(asked.chunk_id) if asked.chunk_id else page.chunk_id
        if chunk is None or chunk != page.chunk_id:
            raise HttpError(409, "not_yours", f"{url} is not in chunk {chunk or 'any'}.")
        if not await chunks.lock_chunk(conn, me.id, chunk, lease=lease, now=now):
            found = await require_chunk(conn, chunk)
            if found.crawler_id != me.id or page.state != asked.state:
                refuse_lost_lease(found, me)
            return LinkStateAnswer(chunk, page.state)  # said before
        outcome = outcome_of(PageReport(link="", state=asked.state, status=asked.status), page)
        settled = await chunks.report(conn, [outcome], now=now)
        more = ""
        if settled and asked.state == "error":
            ask = ClaimRequest(1, wait=AT_ONCE, lease=lease)
            more = await replaced(conn, me, chunk, ask, now)
    return LinkStateAnswer(chunk, settled[0].state if settled else page.state, more or None)


async def replaced(
    conn: Connection, me: ComponentRecord, chunk: int, ask: ClaimRequest, now: datetime
) -> str:
    """A page in place of one that failed, if there is one."""
    pages = await chunks.more_links(conn, me.id, chunk, ask, now=now)
    return pages[0].url if pages else ""


async def add_links(call: MgmtCall[AddLinksRequest]) -> LinkVerdicts:
    asked = call.body
    if len(asked.links) > MAX_URLS_PER_REQUEST:
        message = f"{len(asked.links):,} links are more than {MAX_URLS_PER_REQUEST:,}."
        raise HttpError(413, "too_large", message, hint="Add them in several requests.")
    door = call.context.doorkeeper
    found_on = host_of(asked.found_on)
    # A crawler may report its last pages before it sends the links that it found on them.
    source, grace = found_on or host_of(asked.moved_from), call.context.limits.lease
    knock = Knock(source=source, grace=grace)
    answers = await door.knock(asked.links, knock=knock, found_on=found_on, depth=asked.depth)
    return link_verdicts(answers)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/get_links",
        get_links,
        LinksQuery,
        LinkChunk,
        "A new chunk of pages to crawl; nothing while there are too few",
        access=work("crawler"),
        safe=False,
    ),
    Endpoint(
        "GET",
        "/get_links/{number}",
        get_more_links,
        MoreLinksQuery,
        MoreLinks,
        "More pages for a chunk that the crawler holds",
        access=work("crawler"),
        safe=False,
    ),
    Endpoint(
        "POST",
        "/set_link_state",
        set_link_state,
        LinkStateRequest,
        LinkStateAnswer,
        "A page was crawled, or failed: then another comes in its place",
        access=work("crawler"),
    ),
    Endpoint(
        "POST",
        "/add_links",
        add_links,
        AddLinksRequest,
        LinkVerdicts,
        f"Links that were found, up to {MAX_URLS_PER_REQUEST:,}: the door judges them",
        access=work("crawler"),
    ),
)
