"""MGMT's HTTP API for programs in Python; our own crawler, builder, index server and front-end use it.

The client raises what MGMT declines as the error that MGMT names. While MGMT cannot be reached, it retries a call for
`patience` seconds.

    async with Client("http://127.0.0.1:8411", host="10.0.0.7:5000") as mgmt:
        await mgmt.set_state("online", type="crawler")
        if chunk := await mgmt.get_links():
            ...
            reports = [PageReport(link=page.link, result="success", status=200) for page in chunk.pages]
            await mgmt.crawled(chunk.chunk_id, pages=reports)
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from usher.http.client.mgmt_connection import AnswerT, MgmtConnection
from usher.http.client.mgmt_responses import decode_answer
from usher.messages.builder import BuildQuery, ContentChunk, IndexChunkReport, PageSample
from usher.messages.components import (
    AcceptedChunks,
    ChunkIdsQuery,
    ChunkIdsReport,
    ChunkState,
    ContentUrlRequest,
    ForeignPages,
    ForeignPagesRequest,
    LeaseAnswer,
    LeaseRequest,
    SignedUrl,
    UnpropagatedChunks,
    UploadRequest,
)
from usher.messages.crawler import (
    AddLinksRequest,
    ContentChunkReport,
    LinkChunk,
    LinksQuery,
    LinkState,
    LinkStateAnswer,
    LinkStateRequest,
    LinkVerdicts,
    MoreLinks,
    MoreLinksQuery,
    OfferedFeedsAnswer,
    OfferedFeedsReport,
    PageAnchors,
    PageReport,
    PageToFetch,
    RobotsAnswer,
    RobotsQuery,
    RobotsRequest,
    SitemapLink,
    SitemapReport,
)
from usher.messages.fields import INCARNATION_HEADER, ComponentRequest
from usher.messages.front_end import QueryStat, QueryStats, ServerRow
from usher.messages.index_server import (
    ChunkPages,
    ChunksQuery,
    CompareHoldingsRequest,
    HeldChunk,
    HoldingsComparison,
    HoldingsRequest,
    LeavingChunks,
    LostChunks,
    MissingChunk,
    MissingChunksRequest,
    PageKeysAnswer,
    PageKeysRequest,
    ServerChunk,
    StalePage,
    StalePages,
    StrayChunks,
)

NOT_MODIFIED: Final = 304

TimedQuery = tuple[str, float, float] | tuple[str, float, float, int]


class Client(MgmtConnection):
    """The endpoints of MGMT for one component; `host` is its public address."""

    def __init__(
        self, url: str, *, host: str = "", token: str = "", timeout: float = 30, patience: float = 0
    ) -> None:
        super().__init__(url, host=host, token=token, timeout=timeout, patience=patience)
        self._map: tuple[str, list[ServerRow]] = ("", [])
        self.last_removal = (
            0  # whose pages an index server has deleted when `to_retire` returns none
        )
        self.compared_with = ""  # the incarnation that an index server compared its chunks with

    # -- every component

    async def renew(self, chunks: Iterable[int]) -> LeaseAnswer:
        """Renew the leases of chunks that are being crawled or built."""
        return await self._post("/v1/lease", LeaseRequest(chunks=[*chunks]), LeaseAnswer)

    async def unpropagated(self, after: int = 0) -> list[int]:
        """All chunks that a crawler or builder must still keep."""
        chunks: list[int] = []
        next_id: int | None = after
        while next_id is not None:
            query = ChunkIdsQuery(after=next_id)
            answer = await self._get("/get_chunks/unpropagated", UnpropagatedChunks, query)
            chunks += answer.chunks
            next_id = answer.after
        return chunks

    async def upload_url(
        self, chunk: int, kind: Literal["content", "index"], *, sha256: str, size: int
    ) -> SignedUrl:
        """The URL to upload a file of a chunk that this component crawls or builds."""
        request = UploadRequest(chunk_id=chunk, kind=kind, sha256=sha256, bytes=size)
        return await self._post("/v1/upload_url", request, SignedUrl)

    async def content_url(self, chunk: int) -> SignedUrl:
        """A new URL to download the content of a chunk that this builder has claimed."""
        return await self._post("/v1/content_url", ContentUrlRequest(chunk_id=chunk), SignedUrl)

    async def foreign_pages(self, chunks: Sequence[ForeignPages]) -> list[int]:
        """Report pages that this builder or server dropped; returns the chunks whose reports MGMT accepted."""
        request = ForeignPagesRequest(chunks=[*chunks])
        return (await self._post("/v1/foreign_pages", request, AcceptedChunks)).chunk_ids

    # -- crawlers

    async def get_links(
        self,
        n: int | None = None,
        *,
        hosts: int | None = None,
        each: int | None = None,
        hold: bool = False,
        wait: float | None = None,
    ) -> LinkChunk | None:
        """A new chunk, or None while there are too few pages; see `LinksQuery`."""
        query = LinksQuery(n=n, hosts=hosts, each=each, wait=wait, pages=True, hold=hold)
        chunk = await self._get("/get_links", LinkChunk, query)
        return chunk if chunk.chunk_id else None

    async def more_links(self, n: int, chunk: int, *, hold: bool = False) -> list[PageToFetch]:
        """More pages for a chunk."""
        query = MoreLinksQuery(chunk_id=chunk, pages=True, hold=hold)
        return (await self._get(f"/get_links/{n}", MoreLinks, query)).pages

    async def set_link_state(
        self, link: str, state: LinkState, chunk: int | None = None
    ) -> LinkStateAnswer:
        """Report one page; MGMT may replace one that failed."""
        request = LinkStateRequest(link=link, state=state, chunk_id=chunk)
        return await self._post("/set_link_state", request, LinkStateAnswer)

    async def add_links(
        self,
        links: Sequence[str],
        *,
        found_on: str | None = None,
        moved_from: str | None = None,
        depth: int = 0,
        anchors: Sequence[PageAnchors] = (),
    ) -> LinkVerdicts:
        """Report up to 10,000 links; `moved_from` is a seed that redirects to them, `anchors` the texts of links."""
        request = AddLinksRequest([*links], found_on, moved_from, depth, [*anchors])
        return await self._post("/add_links", request, LinkVerdicts)

    async def feeds_offered(self, origin: str, feeds: Sequence[str]) -> int:
        """Report feeds that pages of a host offer; returns how many are new."""
        request = OfferedFeedsReport(origin=origin, feeds=[*feeds])
        return (await self._post("/v1/feeds_offered", request, OfferedFeedsAnswer)).new

    async def robots(self, origin: str) -> RobotsAnswer:
        """The host's robots.txt as a crawler last reported it."""
        return await self._get("/v1/robots", RobotsAnswer, RobotsQuery(origin=origin))

    async def set_robots(
        self,
        origin: str,
        *,
        status: int | None,
        body: str = "",
        error: str = "",
        crawl_delay: float | None = None,
        sitemaps: Sequence[str] = (),
    ) -> RobotsAnswer:
        """Report the host's robots.txt for all crawlers."""
        report = RobotsRequest(
            origin=origin,
            status=status,
            body=body,
            error=error,
            crawl_delay=crawl_delay,
            sitemaps=[*sitemaps],
        )
        return await self._post("/v1/robots", report, RobotsAnswer)

    async def sitemap(
        self,
        link: str,
        links: Sequence[SitemapLink],
        *,
        sitemaps: Sequence[str] = (),
        pages: int = 0,
        problem: str = "",
    ) -> LinkVerdicts:
        """Report a sitemap, at most 10,000 of its pages at once."""
        report = SitemapReport(
            link=link, links=[*links], sitemaps=[*sitemaps], pages=pages, problem=problem
        )
        return await self._post("/v1/sitemap", report, LinkVerdicts)

    async def crawled(
        self,
        chunk: int,
        *,
        pages: Sequence[PageReport] | None = None,
        sha256: str | None = None,
        size: int | None = None,
        stored: bool = False,
    ) -> ChunkState:
        """Report content on the disk or in the object store; see `ContentChunkReport` for `pages`."""
        reports = None if pages is None else [*pages]
        report = ContentChunkReport(
            chunk_id=chunk,
            state="crawled",
            sha256=sha256,
            bytes=size,
            pages=reports,
            stored=stored,
        )
        return await self._post("/set_content_chunk_metadata", report, ChunkState)

    async def not_crawled(self, chunk: int, reason: str = "") -> ChunkState:
        """Give up a chunk: its pages become due again."""
        report = ContentChunkReport(chunk_id=chunk, state="error", reason=reason)
        return await self._post("/set_content_chunk_metadata", report, ChunkState)

    # -- index builders

    async def get_content_chunks(self, n: int = 5, *, compact: bool = False) -> list[ContentChunk]:
        """Claim crawled chunks to build; with `compact` also chunks that are merged from others."""
        query = BuildQuery(n=n, compact=compact)
        return await self._get("/get_content_chunk_metadata", list[ContentChunk], query)

    async def built(
        self,
        chunk: int,
        *,
        sha256: str | None = None,
        size: int | None = None,
        samples: Sequence[PageSample] = (),
        stored: bool = False,
    ) -> ChunkState:
        """Report an index on the disk or in the object store, and the lines of its pages that MGMT asked for."""
        report = IndexChunkReport(
            chunk_id=chunk,
            state="built",
            sha256=sha256,
            bytes=size,
            samples=tuple(samples),
            stored=stored,
        )
        return await self._post("/set_index_chunk_metadata", report, ChunkState)

    async def not_built(self, chunk: int, reason: str = "", *, missing: bool = False) -> ChunkState:
        """Give up a build: another builder tries. If all find the content `missing`, MGMT has it crawled again."""
        report = IndexChunkReport(chunk_id=chunk, state="error", reason=reason, missing=missing)
        return await self._post("/set_index_chunk_metadata", report, ChunkState)

    # -- index servers and front-ends

    async def get_chunks(self, n: int = 5, *, after: int = 0) -> list[ServerChunk]:
        """Chunks that this server has to load."""
        return await self._get("/get_chunks", list[ServerChunk], ChunksQuery(n=n, after=after))

    async def loaded(self, chunks: Iterable[int]) -> list[int]:
        """Report loaded chunks; returns those that have a placement here."""
        report = ChunkIdsReport(chunk_ids=[*chunks])
        return (await self._report("/set_chunk_loaded", report, AcceptedChunks)).chunk_ids

    async def leaving(self) -> list[int]:
        """Some of the chunks that this server may drop now; report them afterwards."""
        return (await self._get("/get_chunks/leaving", LeavingChunks, ChunkIdsQuery())).chunks

    async def dropped(self, chunks: Iterable[int]) -> list[int]:
        report = ChunkIdsReport(chunk_ids=[*chunks])
        return (await self._report("/set_chunk_dropped", report, AcceptedChunks)).chunk_ids

    async def missing(self, chunks: Sequence[MissingChunk]) -> LostChunks:
        """Report chunks that this server has to load and no component has; returns what MGMT does about them."""
        request = MissingChunksRequest(chunks=[*chunks])
        return await self._post("/v1/chunks_missing", request, LostChunks)

    async def page_keys(self, chunks: Iterable[int]) -> list[ChunkPages]:
        """The pages that may be in chunks which this server has to load."""
        request = PageKeysRequest(chunk_ids=[*chunks])
        return (await self._post("/v1/page_keys", request, PageKeysAnswer)).chunks

    async def compare(self, chunks: Sequence[HeldChunk], incarnation: str) -> HoldingsComparison:
        """Compare up to 10,000 of this server's chunks with a restored database."""
        request = CompareHoldingsRequest(chunks=[*chunks])
        headers = {INCARNATION_HEADER: incarnation}
        return await self._post("/v1/holdings/compare", request, HoldingsComparison, headers)

    async def holds(self, chunks: Iterable[int]) -> list[int]:
        """Report all chunks of a server that starts; returns those that it has to drop."""
        report = HoldingsRequest(chunk_ids=[*chunks])
        return (await self._report("/v1/holdings", report, StrayChunks)).stray

    async def to_retire(self, n: int = 1000) -> list[StalePage]:
        """Pages that this server has to remove from its chunks."""
        answer = await self._get("/v1/retired", StalePages, ChunksQuery(n=n))
        self.last_removal = answer.removals
        return answer.copies

    async def retired(self, copies: Sequence[StalePage]) -> bool:
        """Report removed pages; returns whether there are more."""
        request = StalePages(copies=[*copies])
        return bool((await self._post("/v1/retired", request, StalePages)).copies)

    async def servers_map(self) -> list[ServerRow]:
        """The index servers by row; an unchanged map costs almost nothing."""
        version, rows = self._map
        headers = {"If-None-Match": version} if version else {}
        answer = await self._call("GET", "/get_servers_map", headers=headers)
        if answer.status != NOT_MODIFIED:
            rows = decode_answer(answer, list[ServerRow])
            self._map = (answer.headers.get("etag", ""), rows)
        return rows

    async def send_query_stats(
        self, term: str, seconds: float, at: float | None = None, results: int | None = None
    ) -> None:
        stat = QueryStat(term=term, query_time=seconds, timestamp=at, results=results)
        await self._call("POST", "/send_query_stats", msgspec.json.encode(stat))

    async def send_queries(self, queries: Sequence[TimedQuery]) -> None:
        """Report up to 1,000 queries: term, seconds, time, and the number of results if it is known."""
        stats = [
            QueryStat(
                term=term, query_time=seconds, timestamp=at, results=next(iter(results), None)
            )
            for term, seconds, at, *results in queries
        ]
        await self._call("POST", "/v1/query_stats", msgspec.json.encode(QueryStats(queries=stats)))

    # -- calls

    async def _report(self, path: str, report: ComponentRequest, of: type[AnswerT]) -> AnswerT:
        """Report chunks; MGMT declines it if the server did not compare them with this incarnation."""
        headers = {INCARNATION_HEADER: self.compared_with} if self.compared_with else {}
        return await self._post(path, report, of, headers)
