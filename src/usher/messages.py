"""What MGMT says to its components and hears from them, as values.

Comes from and goes to `client`, which is how our own components speak.
"""

from datetime import datetime
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

INCARNATION_HEADER: Final = "x-usher-incarnation"  # of answers, and of reports of index servers
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
ComponentState = Literal["online", "error", "waiting", "paused"]
PageResult = Literal["success", "unchanged", "failure", "gone", "moved", "barred"]


class PrivateAccess(Struct, frozen=True):
    """The operator's permission to request a private host: the port, and the only addresses to connect to."""

    port: int
    addresses: tuple[str, ...]


class PageToFetch(Struct):
    """A page to fetch, with what a conditional request needs, and how long its host rests between two."""

    link: str
    crawl_delay: float = 0
    etag: str | None = None
    last_modified: datetime | None = None
    text64: str | None = None
    depth: int = 0
    private: PrivateAccess | None = None


class LinkChunk(Struct):
    """A chunk of pages, and for how many seconds it is ours without a sign of life."""

    chunk_id: int = 0
    pages: list[PageToFetch] = []
    lease: float = 0


class PageReport(Struct, kw_only=True, omit_defaults=True):
    """What became of a page."""

    link: str
    result: PageResult
    status: int | None = None
    content_type: str | None = None
    length: int = 0
    sha1: str | None = None
    etag: str | None = None
    last_modified: datetime | None = None
    retry_after: float | None = None
    text64: str | None = None
    noindex: bool = False
    scheme: Literal["https", "http"] | None = None
    reason: str | None = None


class StoredRobots(Struct):
    """A robots.txt as some crawler read it; all of it empty if none has."""

    status: int | None = None
    body: str = ""
    fetched_at: datetime | None = None
    expires_at: datetime | None = None
    failures: int = 0
    error: str = ""


class SitemapLink(Struct):
    """A page of a sitemap."""

    link: str
    changed: datetime | None = None


class LinkStateAnswer(Struct):
    chunk_id: int
    state: str
    link: str | None = None


class VerdictCounts(Struct):
    admit: int
    wait: int
    refuse: int


class LinkVerdicts(Struct):
    """What the door said to links."""

    counts: VerdictCounts
    reasons: dict[str, int]


class ChunkState(Struct):
    chunk_id: int
    state: str


class SourceChunk(Struct):
    """A chunk to take documents from: the servers that have its index chunk, and the pages, each by host and path."""

    chunk_id: int
    hosts: list[str]
    keys: list[str]
    sha256: str | None = None
    bytes: int | None = None


class ContentChunk(Struct):
    """A crawled chunk to build, its pages, and the crawler that has it; or the chunks that it is to be made of."""

    chunk_id: int
    host: str
    keys: list[str]
    textless_keys: list[str] = []
    sha256: str | None = None
    bytes: int | None = None
    made_of: list[SourceChunk] | None = None


class RowServer(Struct):
    row: int
    host: str


class ServerChunk(Struct):
    """A chunk to load: who has its content and its index, which servers hold copies, and how to check them."""

    chunk_id: int
    crawler_host: str
    index_builder_host: str
    index_server_host: list[RowServer]
    peers: list[str] = []
    sha256: str | None = None
    bytes: int | None = None
    index_sha256: str | None = None
    index_bytes: int | None = None


class ChunkPages(Struct):
    """The keys of pages whose text is in a chunk, and of those that it was given and has no text of."""

    chunk_id: int
    keys: list[str]
    textless_keys: list[str] = []


class PageKeysAnswer(Struct):
    chunks: list[ChunkPages] = []


class ForeignPages(Struct):
    """How many pages were dropped because they are not in the chunk, and a few of their URLs."""

    chunk_id: int
    count: int
    examples: list[str] = []


class MissingChunk(Struct):
    """A chunk that nobody has whole: what those said who were asked, and whether its builder said nothing at all."""

    chunk_id: int
    reason: str = ""
    builder_silent: bool = False


class LostChunks(Struct):
    """Chunks that will be built again or crawled again, and those that were lost too often."""

    build: list[int] = []
    crawl: list[int] = []
    parked: list[int] = []


class StalePage(Struct):
    """A page that is to be taken out of a chunk."""

    chunk_id: int
    page_id: int
    url: str = ""


class StalePages(Struct):
    copies: list[StalePage] = []


class ServerRow(Struct):
    """A row of the map: servers that hold every chunk together."""

    row: int
    servers: list[str]


class MappedServer(Struct):
    """A server of the map, with the chunks that it answers for."""

    host: str
    chunk_ids: list[int]


class ClusterMap(Struct):
    """The servers of each row with their chunks; `unrestored` are chunks that some row lacks since a restore."""

    incarnation: str = ""
    rows: list[list[MappedServer]] = []
    unrestored: list[int] = []


class HeldChunk(Struct, frozen=True):
    """A chunk in a server's index: its searchable documents, those in its file, and the file's checksum."""

    chunk_id: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    documents: Count
    file_documents: Count | None = None  # None: the file is not there
    sha256: str | None = None


class HoldingsComparison(Struct):
    """Chunks that a server has to drop, and those that it has to load again from their files."""

    stray: list[int] = []
    reload: list[int] = []


class FeedsOfferedAnswer(Struct):
    new: int


class LeaseAnswer(Struct):
    held: list[int]
    lost: list[int]


class ComponentStatus(Struct):
    """The caller as MGMT knows it."""

    host: str
    type: str | None
    state: str
    health: str
    row: int | None


class ChunkIdsAnswer(Struct):
    """Chunks, by whichever name the answer has them."""

    chunks: list[int] = []
    chunk_ids: list[int] = []
    stray: list[int] = []
    after: int | None = None


class Problem(Struct):
    detail: str = ""
    code: str = ""
    hint: str = ""


class Tickets(Struct):
    """A ticket for each host that is a component, to be sent as `Authorization: Bearer TICKET`."""

    tickets: dict[str, str]
    seconds: float  # until they expire


class GuardState(Struct):
    """What a component needs to verify tickets: its name, its key, MGMT's time, and tokens whose tickets it refuses."""

    host: str
    key: str
    now: float
    revoked: list[int]
