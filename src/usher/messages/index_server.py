"""Messages of index servers: chunks to load and drop, page keys, holdings, stale pages, missing chunks."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from usher.messages.fields import (
    CHUNK_LIST,
    AfterId,
    ChunkId,
    ComponentRequest,
    Count,
    PositiveId,
    ReasonText,
    UpTo1000,
)

MAX_CHUNKS_PER_KEYS_REQUEST: Final = 1_000  # a chunk has up to 1,000 pages


class ChunksQuery(ComponentRequest, kw_only=True):
    """Without `after`, the chunks that MGMT offered least recently; with it, those with higher ids."""

    n: UpTo1000 = 5
    after: AfterId | None = None


class AllChunksQuery(ComponentRequest, kw_only=True):
    """The body of the seed's POST /get_chunks, which means all chunks."""

    n: UpTo1000 = 1_000
    after: AfterId | None = None


class ChunkServer(Struct):
    """An index server and its row."""

    row: int
    host: str


class SeedHosts(Struct):
    """The crawler and the builder as the seed's second document names them."""

    c_host: str
    ib_host: str


class ServerChunk(Struct, omit_defaults=True):
    """A chunk to load: which components have its content and its index, which servers have copies, and checksums.

    `url` is for a GET of the index if it is in the object store; then the builder may not have it.
    """

    chunk_id: int
    crawler_host: str
    index_builder_host: str
    index_server_host: list[ChunkServer]
    hosts: SeedHosts
    peers: list[str]
    sha256: str | None = None
    bytes: int | None = None
    index_sha256: str | None = None
    index_bytes: int | None = None
    url: str = ""


class LeavingChunks(Struct):
    chunks: list[int]


class StalePage(Struct):
    """An outdated page that a server removes from a chunk."""

    chunk_id: int
    page_id: int
    url: str = ""
    removed: bool = False  # by the operator: the server deletes the text from its files too


class StalePages(ComponentRequest, kw_only=True):
    """Outdated pages; `removals` is the number of the last removal by the operator that they include."""

    copies: list[StalePage]
    removals: int = 0


class PageKeysRequest(ComponentRequest, kw_only=True):
    """Chunks that the caller loads."""

    chunk_ids: Annotated[
        list[ChunkId], Meta(extra_json_schema={"maxItems": MAX_CHUNKS_PER_KEYS_REQUEST})
    ]


class ChunkPages(Struct):
    """The keys (host and path) of pages whose text is in a chunk, and of its pages without text."""

    chunk_id: int
    keys: list[str]
    textless_keys: list[str]


class PageKeysAnswer(Struct):
    """Chunks without a placement on the caller are left out."""

    chunks: list[ChunkPages]


class HeldChunk(Struct, frozen=True):
    """A chunk in a server's index: its searchable documents, those in its file, and the file's checksum."""

    chunk_id: PositiveId
    documents: Count
    file_documents: Count | None = None  # None: there is no file
    sha256: str | None = None


class HoldingsRequest(ComponentRequest, kw_only=True):
    """All sound chunks of a server that starts."""

    chunk_ids: list[ChunkId]


class StrayChunks(Struct):
    """Chunks that the server drops."""

    stray: list[int]


class CompareHoldingsRequest(ComponentRequest, kw_only=True):
    """Some of a server's chunks."""

    chunks: Annotated[list[HeldChunk], CHUNK_LIST]


class HoldingsComparison(Struct):
    """Chunks that the server drops, and chunks that it loads again from their files."""

    stray: list[int]
    reload: list[int]


class MissingChunk(Struct):
    """A chunk that no component has intact: their answers, and whether its builder did not answer at all."""

    chunk_id: ChunkId
    reason: ReasonText = ""
    builder_silent: bool = False


class MissingChunksRequest(ComponentRequest, kw_only=True):
    chunks: Annotated[list[MissingChunk], CHUNK_LIST]


class LostChunks(Struct):
    """Chunks that are built again, chunks that are crawled again, and chunks that were lost too often."""

    build: list[int]
    crawl: list[int]
    parked: list[int]
