"""Messages of index builders: crawled chunks to build, and their index."""

from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Meta, Struct

from usher.messages.fields import (
    ByteCount,
    ChunkId,
    ComponentRequest,
    PositiveId,
    ReasonText,
    Sha256,
    UpTo1000,
)

MAX_LINES_PER_SAMPLE: Final = 256

Hash32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


class BuildQuery(ComponentRequest, kw_only=True):
    """With `compact` also chunks that are merged from others."""

    n: UpTo1000 = 5
    compact: bool = False


class SourceChunk(Struct, omit_defaults=True):
    """A chunk to take documents from: the servers that have its index, and the keys (host and path) of the pages.

    `url` is for a GET of the index if it is in the object store.
    """

    chunk_id: int
    hosts: list[str]
    keys: list[str]
    sha256: str | None = None
    bytes: int | None = None
    url: str = ""


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


class SiteTemplate(Struct):
    """The hashes of lines that many pages of a host have."""

    host: str
    lines: list[int]


class PageSample(Struct):
    """The hashes of the lines of a page, and of its whole main text."""

    page_id: PositiveId
    body: Hash32
    lines: Annotated[list[Hash32], Meta(max_length=MAX_LINES_PER_SAMPLE)]


class ContentChunk(Struct, omit_defaults=True):
    """A crawled chunk and the crawler that has it; or without a crawler, the chunks that it is merged from.

    `keys` are its pages: the builder drops all others, and reports those that are not in `textless_keys`. `links` says
    what links say about the pages. The builder moves the lines of `templates` out of the main text, and reports the
    lines of the pages in `samples`, which has the number of each by its key.

    `url` is for a GET of the content if it is in the object store; then the crawler may not have it. With `upload`, the
    builder uploads the index to the URL of POST /v1/upload_url.
    """

    chunk_id: int
    host: str
    keys: list[str]
    textless_keys: list[str] = []
    sha256: str | None = None
    bytes: int | None = None
    made_of: list[SourceChunk] | None = None
    links: list[PageLinks] = []
    templates: list[SiteTemplate] = []
    samples: dict[str, int] = {}
    url: str = ""
    upload: bool = False


class IndexChunkReport(ComponentRequest, kw_only=True):
    """The state of a chunk's index. `missing` says that an error is the crawler's, which lost the content.

    `samples` are the lines of the pages for which the builder was asked. `stored` says that the index is in the object
    store.
    """

    chunk_id: ChunkId
    state: Literal["building", "built", "error", "propagated"]
    sha256: Sha256 | None = None
    bytes: ByteCount | None = None
    reason: ReasonText = ""
    missing: bool = False
    samples: tuple[PageSample, ...] = ()
    stored: bool = False
