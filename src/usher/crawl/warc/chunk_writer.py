"""The chest that a chunk's pages are packed into: visits become records of its content file.

Comes from visits; goes to the shelf, under its name only once it is whole.
"""

from types import TracebackType
from typing import Final, Self

from usher.chunk_store import ChunkStore
from usher.crawl.http.fetch import FetchResponse
from usher.crawl.page_visit import PageVisit
from usher.crawl.warc.writer import CrawlInfo, StoredWarc, Truncated, WarcPage, WarcWriter

WHY_CUT: Final[dict[str, Truncated]] = {"body": "length", "timeout": "time", "reset": "disconnect"}


class WarcChunkWriter:
    """One chunk's file in the making; left without `close`, nothing of it stays."""

    def __init__(self, shelf: ChunkStore, chunk_id: int, about: CrawlInfo) -> None:
        self._shelf, self._chunk_id = shelf, chunk_id
        self._writer = WarcWriter.begin(shelf.path(chunk_id), about)
        self._about = about

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _t: TracebackType | None,
    ) -> None:
        self._writer.abandon()

    async def add(self, seen: PageVisit) -> None:
        await self._writer.add(record_of(seen))

    async def close(self) -> StoredWarc:
        kept = await self._writer.close()
        self._shelf.remember_checksum(self._chunk_id, kept)
        return kept


def record_of(seen: PageVisit) -> WarcPage:
    """A visit as it is kept; what was decided about the page goes with it, for the builder."""
    page, answer = seen.outcome.page, seen.answer
    meta: dict[str, object] = {"result": page.result}
    if page.reason:
        meta["reason"] = page.reason
    if page.noindex:
        meta["noindex"] = True
    if seen.walk is not None and seen.walk.kind:
        meta["kind"] = seen.walk.kind
    if answer is None:
        return WarcPage(url=page.link, at=seen.at, meta=meta)
    return WarcPage(
        url=str(answer.url),
        at=seen.at,
        request=answer.request,
        head=head_of(answer),
        body=answer.raw,
        ip=answer.ip,
        truncated=WHY_CUT.get(answer.kind, "unspecified") if answer.truncated else "",
        meta=meta,
    )


def head_of(answer: FetchResponse) -> bytes:
    """The head of an answer, put together again from what the parser made of it."""
    if answer.status is None:
        return b""
    lines = [f"HTTP/1.1 {answer.status} {answer.reason}".rstrip()]
    lines += [f"{name}: {value}" for name, value in answer.headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
