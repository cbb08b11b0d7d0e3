"""Writes the visits of a chunk to its WARC file in the chunk store."""

from typing import Final, Self

from usher.chunk_store import ChunkStore, StoredFile
from usher.crawl.http.fetch import FetchResponse
from usher.crawl.page_visit import PageVisit
from usher.crawl.warc.writer import CrawlInfo, Truncated, WarcPage, WarcWriter

TRUNCATED_BY_FAILURE: Final[dict[str, Truncated]] = {
    "body": "length",
    "timeout": "time",
    "reset": "disconnect",
}


class WarcChunkWriter:
    """The file of one chunk; a context manager that creates it, and removes it unless it was closed."""

    def __init__(self, store: ChunkStore, chunk_id: int, info: CrawlInfo) -> None:
        self._store, self._chunk_id, self._info = store, chunk_id, info

    async def __aenter__(self) -> Self:
        self._writer = WarcWriter(self._store.path(self._chunk_id), self._info)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.discard()

    async def add(self, visit: PageVisit) -> None:
        await self._writer.add(warc_page(visit))

    async def close(self) -> StoredFile:
        file = await self._writer.close()
        self._store.remember_checksum(self._chunk_id, file)
        return file


def warc_page(visit: PageVisit) -> WarcPage:
    """Return a visit as it is stored, with the crawler's decisions about the page, which the builder needs."""
    page, response = visit.outcome.page, visit.response
    meta: dict[str, object] = {"result": page.result}
    if page.reason:
        meta["reason"] = page.reason
    if page.noindex:
        meta["noindex"] = True
    if visit.parsed is not None and visit.parsed.kind:
        meta["kind"] = visit.parsed.kind
    if response is None:
        return WarcPage(url=page.link, at=visit.at, meta=meta)
    truncated = TRUNCATED_BY_FAILURE.get(response.kind, "unspecified")
    return WarcPage(
        url=str(response.url),
        at=visit.at,
        request=response.request,
        head=encode_head(response),
        body=response.raw,
        ip=response.ip,
        truncated=truncated if response.truncated else "",
        meta=meta,
    )


def encode_head(response: FetchResponse) -> bytes:
    """Return the head of a response, rebuilt from its parsed form."""
    if response.status is None:
        return b""
    lines = [f"HTTP/1.1 {response.status} {response.reason}".rstrip()]
    lines += [f"{name}: {value}" for name, value in response.headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
