"""Presigned URLs for chunk files in the object store, so that only MGMT and the watchdog have its credentials."""

from collections.abc import Iterable
from typing import Final, Literal

from usher.errors import NotFound
from usher.messages.builder import ContentChunk, SourceChunk
from usher.messages.components import SignedUrl
from usher.messages.index_server import ServerChunk
from usher.mgmt.chunk_objects import ChunkObject
from usher.object_store.store import ObjectStore, check_chunk_store, open_store
from usher.settings import Settings
from usher.telemetry import Log

log = Log("mgmt")
UPLOAD_SECONDS: Final = 900.0  # in which an upload begins
DOWNLOAD_SECONDS: Final = (
    3_600.0  # in which a download begins; a builder that waits longer asks again
)
StoredChunk = ContentChunk | SourceChunk | ServerChunk


class ChunkUrls:
    """Signs URLs of objects; there may be no store."""

    def __init__(self, store: ObjectStore | None) -> None:
        self._store = store

    @property
    def has_store(self) -> bool:
        return self._store is not None

    async def sign(self, messages: Iterable[StoredChunk]) -> None:
        """Replace the keys in messages by URLs for a download; without a store by nothing."""
        stored = [message for message in messages if message.url]
        keys = [message.url for message in stored]
        urls = [""] * len(keys)
        if self._store is not None:
            urls = await self._store.presign("GET", keys, seconds=DOWNLOAD_SECONDS)
        for message, url in zip(stored, urls, strict=True):
            message.url = url

    async def download(self, file: ChunkObject) -> SignedUrl:
        """Return the URL for a download."""
        return await self._sign_one("GET", file, DOWNLOAD_SECONDS)

    async def upload(self, file: ChunkObject) -> SignedUrl:
        """Return the URL for an upload."""
        return await self._sign_one("PUT", file, UPLOAD_SECONDS)

    async def _sign_one(
        self, method: Literal["GET", "PUT"], file: ChunkObject, seconds: float
    ) -> SignedUrl:
        if self._store is None:
            raise NotFound("MGMT has no chunk_store.", hint="Keep the file, and serve it.")
        [url] = await self._store.presign(method, [file.key], seconds=seconds)
        return SignedUrl(url, seconds)


async def open_chunk_urls(settings: Settings) -> ChunkUrls:
    """Open the store of the settings, if there is one; StoreUnusable if MGMT may not use it."""
    if problem := await check_chunk_store(settings):
        log.warning("store_unreachable", reason=problem)
    store = open_store(settings.chunk_store, settings) if settings.chunk_store else None
    return ChunkUrls(store)
