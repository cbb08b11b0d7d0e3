"""Messages of index builders: crawled chunks to build, and their index."""

from typing import Literal, NamedTuple

from msgspec import Struct

from usher.messages.fields import ByteCount, ChunkId, ComponentRequest, ReasonText, Sha256, UpTo1000


class BuildQuery(ComponentRequest, kw_only=True):
    """With `compact` also chunks that are merged from others."""

    n: UpTo1000 = 5
    compact: bool = False


class SourceChunk(Struct, omit_defaults=True):
    """A chunk to take documents from: the servers that have its index, and the keys (host and path) of the pages."""

    chunk_id: int
    hosts: list[str]
    keys: list[str]
    sha256: str | None = None
    bytes: int | None = None


class AnchorCount(NamedTuple):
    """A text of links to a page, and how many pages link to it with that text."""

    text: str
    pages: int


class PageLinks(Struct, omit_defaults=True):
    """What links say about a page: its distance in clicks from a seed, how many pages link to it, and their texts."""

    key: str
    depth: int = 0
    inlinks: int = 0
    anchors: list[AnchorCount] = []


class ContentChunk(Struct, omit_defaults=True):
    """A crawled chunk and the crawler that has it; or without a crawler, the chunks that it is merged from.

    `keys` are its pages: the builder drops all others, and reports those that are not in `textless_keys`. `links` says
    what links say about the pages.
    """

    chunk_id: int
    host: str
    keys: list[str]
    textless_keys: list[str] = []
    sha256: str | None = None
    bytes: int | None = None
    made_of: list[SourceChunk] | None = None
    links: list[PageLinks] = []


class IndexChunkReport(ComponentRequest, kw_only=True):
    """The state of a chunk's index. `missing` says that an error is the crawler's, which lost the content."""

    chunk_id: ChunkId
    state: Literal["building", "built", "error", "propagated"]
    sha256: Sha256 | None = None
    bytes: ByteCount | None = None
    reason: ReasonText = ""
    missing: bool = False
