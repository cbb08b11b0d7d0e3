"""MGMT's HTTP API for programs in Python: what our own crawler, builder, server and front-end speak.

Comes from a component; goes to `usher mgmt` over connections that are kept. What MGMT declines is raised as the
error it names; where it cannot be reached, a call is tried again for as long as `patience` says.

    async with Client("http://127.0.0.1:8411", host="10.0.0.7:5000") as mgmt:
        await mgmt.set_state("online", type="crawler")
        if pack := await mgmt.get_links():
            ...
            await mgmt.crawled(pack.chunk_id, pages=[Page(link=link, result="success", status=200)])
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar
from urllib.parse import urlencode

import msgspec

from usher.errors import Unreachable, UsherError
from usher.http.client.mgmt_responses import decode_answer, to_error
from usher.http.client.pool import HttpResponse, mgmt_pool
from usher.local_secret import COMPONENT_PREFIX
from usher.messages import (
    INCARNATION_HEADER,
    ChunkIdsAnswer,
    ChunkPages,
    ChunkState,
    ComponentState,
    ComponentStatus,
    ContentChunk,
    FeedsOfferedAnswer,
    ForeignPages,
    HeldChunk,
    HoldingsComparison,
    LeaseAnswer,
    LinkChunk,
    LinkStateAnswer,
    LinkVerdicts,
    LostChunks,
    MissingChunk,
    PageKeysAnswer,
    PageReport,
    PageToFetch,
    ServerChunk,
    ServerRow,
    SitemapLink,
    StalePage,
    StalePages,
    StoredRobots,
    Tickets,
)

T = TypeVar("T")
NOT_MODIFIED, DECLINED = 304, 400
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
HEADER_BYTES = INCARNATION_HEADER.encode()


class Client:
    """One component at MGMT; `host` is where others reach it."""

    def __init__(
        self, url: str, *, host: str = "", token: str = "", timeout: float = 30, patience: float = 0
    ) -> None:
        self._lines, name = mgmt_pool(url, timeout=timeout)
        self._patience = patience
        self._headers = {"Host": name, "Content-Type": "application/json"}
        if host:
            self._headers["X-Usher-Host"] = host
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._map: tuple[str, list[ServerRow]] = ("", [])
        self.incarnation = ""  # of the database, as MGMT said it last
        self.compared_with = ""  # the incarnation that an index server compared its chunks with
        self._declared: dict[str, Any] = {}  # what this component said of itself last
        self._undeclared = False  # whether a new incarnation has yet to hear it
        self._is_declaring = False
        # Components of one machine need no tickets: only a token of one's own gets any.
        self._gets_tickets = bool(token) and not token.startswith(COMPONENT_PREFIX)
        self._tickets: dict[
            str, tuple[float, str]
        ] = {}  # by host: when to renew it, and the ticket

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._lines.close()

    # -- every component

    async def set_state(
        self,
        state: ComponentState,
        *,
        type: str | None = None,  # noqa: A002 - as MGMT calls it
        row: int | None = None,
        weight: int | None = None,
        reason: str = "",
        anew: bool = False,
    ) -> ComponentStatus:
        """Say how this component is; the first time, what it is. A crawler that begins `anew` has no chunks."""
        body = given(state=state, type=type, row=row, weight=weight, reason=reason or None)
        self._declared |= body | {"reason": reason}
        body |= {"anew": True} if anew else {}
        return await self._post("/set_component_state", body, ComponentStatus)

    async def renew(self, chunks: Iterable[int]) -> LeaseAnswer:
        """A sign of life for chunks that are crawled or built."""
        return await self._post("/v1/lease", {"chunks": list(chunks)}, LeaseAnswer)

    async def unpropagated(self, after: int = 0) -> list[int]:
        """All chunks that a crawler or builder must still keep."""
        found: list[int] = []
        more: int | None = after
        while more is not None:
            told = await self._get("/get_chunks/unpropagated", ChunkIdsAnswer, after=more)
            found += told.chunks
            more = told.after
        return found

    # -- tickets

    async def ticket(self, host: str) -> str:
        """A ticket that permits this component to ask the one at that host; empty where none is needed."""
        return (await self.tickets([host])).get(host, "")

    async def tickets(self, hosts: Iterable[str]) -> dict[str, str]:
        """Tickets by host, as far as MGMT gives any; while it cannot be reached, those it gave before."""
        wanted = list(hosts)
        now = asyncio.get_running_loop().time()
        due = [host for host in wanted if self._tickets.get(host, (0.0, ""))[0] <= now]
        if due and self._gets_tickets:
            try:
                given_ = await self._post("/v1/tickets", {"hosts": due}, Tickets)
            except Unreachable:
                if any(host not in self._tickets for host in due):
                    raise
            else:
                renew_at = now + given_.seconds / 3
                self._tickets |= {host: (renew_at, text) for host, text in given_.tickets.items()}
        return {host: self._tickets[host][1] for host in wanted if host in self._tickets}

    def forget_tickets(self, hosts: Iterable[str]) -> None:
        """Ask MGMT for new tickets for these hosts; the old ones stay in use until it answers."""
        for host in hosts:
            if host in self._tickets:
                self._tickets[host] = (0.0, self._tickets[host][1])

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
        """A new chunk, or None while there are too few pages; `each` of a host at most, of so many hosts.

        With `hold` a host that rests between two requests is ours alone until we report. `wait` is for how many seconds
        a chunk may be kept back until it is full, where that is shorter than the house's.
        """
        asked = {"n": n, "hosts": hosts, "each": each, "pages": 1, "hold": int(hold), "wait": wait}
        told = await self._get("/get_links", LinkChunk, **asked)
        return told if told.chunk_id else None

    async def more_links(self, n: int, chunk: int, *, hold: bool = False) -> list[PageToFetch]:
        """More pages for a chunk."""
        told = await self._get(
            f"/get_links/{n}", LinkChunk, chunk_id=chunk, pages=1, hold=int(hold)
        )
        return told.pages

    async def set_link_state(
        self, link: str, state: Literal["crawled", "error"], chunk: int | None = None
    ) -> LinkStateAnswer:
        """What became of one page; in place of one that failed another may come."""
        body = given(link=link, state=state, chunk_id=chunk)
        return await self._post("/set_link_state", body, LinkStateAnswer)

    async def add_links(
        self,
        links: Sequence[str],
        *,
        found_on: str | None = None,
        moved_from: str | None = None,
        depth: int = 0,
    ) -> LinkVerdicts:
        """Links that were found, up to 10,000; `moved_from` is a seed that redirects to them."""
        body = given(links=list(links), found_on=found_on, moved_from=moved_from, depth=depth)
        return await self._post("/add_links", body, LinkVerdicts)

    async def feeds_offered(self, origin: str, feeds: Sequence[str]) -> int:
        """Feeds that pages of a host offer; how many of them are new."""
        body = {"origin": origin, "feeds": list(feeds)}
        return (await self._post("/v1/feeds_offered", body, FeedsOfferedAnswer)).new

    async def robots(self, origin: str) -> StoredRobots:
        """What the host's robots.txt said to whoever asked last."""
        return await self._get("/v1/robots", StoredRobots, origin=origin)

    async def set_robots(
        self,
        origin: str,
        *,
        status: int | None,
        body: str = "",
        error: str = "",
        crawl_delay: float | None = None,
        sitemaps: Sequence[str] = (),
    ) -> StoredRobots:
        """What the host's robots.txt said to us, for every crawler."""
        body_ = given(origin=origin, status=status, body=body, error=error, crawl_delay=crawl_delay)
        return await self._post("/v1/robots", body_ | {"sitemaps": list(sitemaps)}, StoredRobots)

    async def sitemap(
        self,
        link: str,
        links: Sequence[SitemapLink],
        *,
        sitemaps: Sequence[str] = (),
        pages: int = 0,
        problem: str = "",
    ) -> LinkVerdicts:
        """What a sitemap names, up to 10,000 pages at once."""
        told = {"link": link, "links": links, "sitemaps": list(sitemaps)}
        return await self._post(
            "/v1/sitemap", told | {"pages": pages, "problem": problem}, LinkVerdicts
        )

    async def crawled(
        self,
        chunk: int,
        *,
        pages: Sequence[PageReport] | None = None,
        sha256: str | None = None,
        size: int | None = None,
    ) -> ChunkState:
        """The chunk's content is on the disk; pages that are not named were not fetched, unless none is."""
        body = given(chunk_id=chunk, state="crawled", sha256=sha256, bytes=size, pages=pages)
        return await self._post("/set_content_chunk_metadata", body, ChunkState)

    async def not_crawled(self, chunk: int, reason: str = "") -> ChunkState:
        """The chunk will not come: its pages wait again."""
        body = {"chunk_id": chunk, "state": "error", "reason": reason}
        return await self._post("/set_content_chunk_metadata", body, ChunkState)

    # -- index builders

    async def get_content_chunks(self, n: int = 5, *, compact: bool = False) -> list[ContentChunk]:
        """Crawled chunks to build, for this builder alone; with `compact` also those that are made of others."""
        asked = {"n": n, "compact": "true" if compact else None}
        return await self._get("/get_content_chunk_metadata", list[ContentChunk], **asked)

    async def built(
        self, chunk: int, *, sha256: str | None = None, size: int | None = None
    ) -> ChunkState:
        body = given(chunk_id=chunk, state="built", sha256=sha256, bytes=size)
        return await self._post("/set_index_chunk_metadata", body, ChunkState)

    async def not_built(self, chunk: int, reason: str = "", *, missing: bool = False) -> ChunkState:
        """It cannot be built: another builder may try. If its content is `missing`, it is crawled again after that."""
        body = {"chunk_id": chunk, "state": "error", "reason": reason, "missing": missing}
        return await self._post("/set_index_chunk_metadata", body, ChunkState)

    # -- index servers and front-ends

    async def get_chunks(self, n: int = 5, *, after: int = 0) -> list[ServerChunk]:
        """Chunks that this server is to load."""
        return await self._get("/get_chunks", list[ServerChunk], n=n, after=after)

    async def loaded(self, chunks: Iterable[int]) -> list[int]:
        """Chunks that this server has loaded; returns those that are wanted on it."""
        told = await self._report("/set_chunk_loaded", chunks)
        return told.chunk_ids

    async def leaving(self) -> list[int]:
        """Chunks that this server may drop now, some of them; say so afterwards."""
        return (await self._get("/get_chunks/leaving", ChunkIdsAnswer)).chunks

    async def dropped(self, chunks: Iterable[int]) -> list[int]:
        told = await self._report("/set_chunk_dropped", chunks)
        return told.chunk_ids

    async def missing(self, chunks: Sequence[MissingChunk]) -> LostChunks:
        """Chunks that this server is to load and nobody has; what becomes of those that are lost."""
        return await self._post("/v1/chunks_missing", {"chunks": chunks}, LostChunks)

    async def page_keys(self, chunks: Iterable[int]) -> list[ChunkPages]:
        """The pages that chunks may hold which this server is to load."""
        return (
            await self._post("/v1/page_keys", {"chunk_ids": list(chunks)}, PageKeysAnswer)
        ).chunks

    async def foreign_pages(self, chunks: Sequence[ForeignPages]) -> list[int]:
        """Report pages that this builder or server dropped; returns the chunks that MGMT took a report of."""
        return (await self._post("/v1/foreign_pages", {"chunks": chunks}, ChunkIdsAnswer)).chunk_ids

    async def compare(self, chunks: Sequence[HeldChunk], incarnation: str) -> HoldingsComparison:
        """Compare chunks that a server has with a database that was restored, up to 10,000 at once."""
        body = msgspec.json.encode({"chunks": chunks})
        headers = {INCARNATION_HEADER: incarnation}
        return decode_answer(
            await self._call("POST", "/v1/holdings/compare", body, headers=headers),
            HoldingsComparison,
        )

    async def holds(self, chunks: Iterable[int]) -> list[int]:
        """All chunks that a server has when it comes back; returns those it has no use for."""
        return (await self._report("/v1/holdings", chunks)).stray

    async def to_retire(self, n: int = 1000) -> list[StalePage]:
        """Pages that this server is to take out of chunks it has."""
        return (await self._get("/v1/retired", StalePages, n=n)).copies

    async def retired(self, copies: Sequence[StalePage]) -> bool:
        """Say that these were taken out; whether there are more."""
        return bool((await self._post("/v1/retired", {"copies": copies}, StalePages)).copies)

    async def servers_map(self) -> list[ServerRow]:
        """The index servers to ask, by row; cheap to ask for as long as nothing changes."""
        version, rows = self._map
        known = {"If-None-Match": version} if version else {}
        told = await self._call("GET", "/get_servers_map", headers=known)
        if told.status != NOT_MODIFIED:
            rows = decode_answer(told, list[ServerRow])
            self._map = (told.headers.get("etag", ""), rows)
        return rows

    async def send_query_stats(self, term: str, seconds: float, at: float | None = None) -> None:
        body = given(term=term, query_time=seconds, timestamp=at)
        await self._call("POST", "/send_query_stats", msgspec.json.encode(body))

    async def send_queries(self, queries: Sequence[tuple[str, float, float]]) -> None:
        """Up to 1,000 at once, each with its seconds and its moment; an older MGMT does not know this."""
        body = [
            {"term": term, "query_time": seconds, "timestamp": at} for term, seconds, at in queries
        ]
        await self._call("POST", "/v1/query_stats", msgspec.json.encode({"queries": body}))

    # -- calls

    async def _report(self, path: str, chunks: Iterable[int]) -> ChunkIdsAnswer:
        """What an index server has; MGMT declines it if the server did not compare it with this incarnation."""
        headers = {INCARNATION_HEADER: self.compared_with} if self.compared_with else {}
        body = msgspec.json.encode({"chunk_ids": list(chunks)})
        return decode_answer(await self._call("POST", path, body, headers=headers), ChunkIdsAnswer)

    async def _get(self, path: str, of: type[T], **query: object) -> T:
        asked = urlencode({name: value for name, value in query.items() if value is not None})
        told = await self._call("GET", f"{path}?{asked}" if asked else path)
        return decode_answer(told, of)

    async def _post(self, path: str, body: object, of: type[T]) -> T:
        told = await self._call("POST", path, msgspec.json.encode(body))
        return decode_answer(told, of)

    async def _call(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        """One call; as long as patience lasts, again where MGMT was not there or not ready."""
        sent = {**self._headers, **(headers or {})}
        deadline = asyncio.get_running_loop().time() + self._patience
        pause = FIRST_PAUSE
        while True:
            try:
                told = await self._lines.ask(method, path, body, sent)
                self._note_incarnation(told)
                if told.status < DECLINED:
                    break
                raise to_error(told)
            except Unreachable:
                if asyncio.get_running_loop().time() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        if self._undeclared and not self._is_declaring:
            await self._declare_again()
        return told

    def _note_incarnation(self, answer: HttpResponse) -> None:
        """Take note of the incarnation; one that is new may not know this component, or how it is."""
        seen = next((value for name, value in answer.fields if name.lower() == HEADER_BYTES), b"")
        if seen and (incarnation := seen.decode("latin-1")) != self.incarnation:
            self._undeclared = bool(self.incarnation and self._declared)
            self.incarnation = incarnation

    async def _declare_again(self) -> None:
        """Once for each answer: two MGMT processes may name different incarnations in turns after a restore."""
        self._undeclared, self._is_declaring = False, True
        try:
            await self._post("/set_component_state", self._declared, ComponentStatus)
        except UsherError:
            self._undeclared = True  # with the next answer
        finally:
            self._is_declaring = False


def given(**values: Any) -> dict[str, Any]:  # noqa: ANN401 - as the call has them
    """Only what is there."""
    return {name: value for name, value in values.items() if value is not None}
