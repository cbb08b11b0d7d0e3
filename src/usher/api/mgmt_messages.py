"""What components say to MGMT and what it answers; the seed's names, with what is newer beside them.

A field that is not named here is left alone: components in any language may send more than we know.
"""

import re
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from usher.api.door_messages import Urls, VerdictCounts
from usher.door.guestbook import FetchResult
from usher.door.rules import Reason
from usher.messages import PrivateAccess
from usher.mgmt.health import DeclaredState

MOST_CHUNKS = 10_000
MOST_PAGES = 1_000  # of a chunk
WORD = re.compile(r"0*([1-9][0-9]{0,17})c?")

Number = Annotated[int, Meta(ge=1, le=2**63 - 1)]
# 101, "101" or "101c": three documents, three ways to write it.
ChunkId = Number | Annotated[str, Meta(pattern=f"^{WORD.pattern}$", max_length=40)]
ChunkIds = Annotated[list[ChunkId], Meta(extra_json_schema={"maxItems": MOST_CHUNKS})]
Host = Annotated[str, Meta(min_length=1, max_length=255, description="name or address, with port")]
Type = Annotated[str, Meta(max_length=40, description="crawler, index-builder, index-server, …")]
Why = Annotated[str, Meta(max_length=1_000)]
Small = Annotated[int, Meta(ge=1, le=1_000)]
Few = Annotated[int, Meta(ge=1, le=MOST_PAGES)]
Bytes = Annotated[int, Meta(ge=0, le=2**62)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Sha1 = Annotated[str, Meta(pattern="^[0-9a-f]{40}$")]
Time = Annotated[datetime, Meta(tz=True)]
# As text: a number of 64 bits is not exact in every language's JSON.
Text64 = Annotated[str, Meta(pattern="^-?[0-9]{1,19}$")]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]


def number_of(given: int | str) -> int:
    """A chunk id as the integer that it is."""
    found = WORD.fullmatch(given) if isinstance(given, str) else None
    return int(found[1]) if found else int(given)


class Told(Struct, kw_only=True):
    """What any component may say of itself: the host at which others reach it."""

    host: Host | None = None


# -- components


class ComponentState(Told, kw_only=True):
    state: DeclaredState
    type: Type | None = None
    row: Small | None = None
    weight: Small | None = None
    reason: Why = ""
    anew: Annotated[bool, Meta(description="a crawler that has nothing of what it held")] = False


class StateKept(Struct):
    """The component as MGMT knows it now."""

    host: str
    type: str | None
    state: str
    health: str
    row: int | None


class ShownComponent(Struct):
    id: int
    host: str
    type: str | None
    state: str
    state_reason: str
    health: str
    health_since: datetime
    health_reason: str
    misses: int
    seen_at: datetime | None
    registered_at: datetime
    row: int | None
    machine: str
    weight: int
    draining: bool
    called_at: datetime | None
    health_url: str | None


class ComponentsQuery(Struct, forbid_unknown_fields=True):
    type: Type | None = None


class ComponentList(Struct):
    components: list[ShownComponent]


class EventsQuery(Struct, forbid_unknown_fields=True):
    """The latest events, of one component or of all."""

    host: Host | None = None
    type: Type | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    before: Number | None = None


class ShownEvent(Struct):
    id: int
    at: datetime
    host: str | None
    chunk_id: int | None
    kind: str
    before: str | None
    after: str | None
    reason: str


class EventList(Struct):
    """The last first; `before` asks for those that came earlier, null where there are none."""

    events: list[ShownEvent]
    before: int | None


class LeaseRequest(Told, kw_only=True):
    chunks: ChunkIds


class LeaseAnswer(Struct):
    """Each chunk once: still the caller's, or not."""

    held: list[int]
    lost: list[int]


# -- crawlers


class LinksQuery(Told, kw_only=True):
    """Without anything as in the seed; `n` pages of up to `hosts` hosts, `each` of one host at most.

    With `hold` a host that rests between two requests is the caller's alone until it reports. `wait` is for how many
    seconds fewer pages may be kept back, where that is shorter than the house's.
    """

    n: Few | None = None
    hosts: Few | None = None
    each: Few | None = None
    wait: Seconds | None = None
    pages: bool = False
    hold: bool = False


class MoreQuery(Told, kw_only=True):
    chunk_id: ChunkId | None = None
    pages: bool = False
    hold: bool = False


class PageToFetch(Struct, omit_defaults=True):
    """A page with what a conditional request needs, and how long its host rests between two.

    `text64` is the number that the crawler gave to its text, `depth` its clicks from where the crawl came in. `private`
    is the operator's permission to connect to a host that is not public, at this port and these addresses.
    """

    link: str
    crawl_delay: float
    etag: str | None = None
    last_modified: datetime | None = None
    text64: str | None = None
    depth: int = 0
    private: PrivateAccess | None = None


class Links(Struct, omit_defaults=True):
    """A chunk; nothing at all while there are too few pages. With `pages` for how many seconds it is leased."""

    chunk_id: int | None = None
    links: list[str] = []
    pages: list[PageToFetch] = []
    lease: float = 0


class MoreLinks(Struct, omit_defaults=True):
    chunk_id: int
    links: list[str]
    pages: list[PageToFetch] = []


class LinkState(Told, kw_only=True):
    link: str
    state: Literal["crawled", "error"]
    chunk_id: ChunkId | None = None
    status: Annotated[int, Meta(ge=100, le=999)] | None = None


class LinkKept(Struct, omit_defaults=True):
    """`link` is the page to fetch in place of one that failed, if there is one."""

    chunk_id: int
    state: str
    link: str | None = None


class AddLinks(Struct):
    """Links, the page or host they were found on, and how many clicks they are from where the crawl came in.

    `moved_from` in place of `found_on` is a seed that redirects to them: then no scope limits them.
    """

    links: Urls
    found_on: str | None = None
    moved_from: str | None = None
    depth: Annotated[int, Meta(ge=0, le=30_000)] = 0


class AddedLinks(Struct):
    counts: VerdictCounts
    reasons: dict[Reason, int]


class PageResult(Struct, kw_only=True):
    """What became of one page: by its `state`, or more exactly by its `result`."""

    link: str
    state: Literal["crawled", "error"] | None = None
    result: FetchResult | None = None
    status: Annotated[int, Meta(ge=100, le=999)] | None = None
    content_type: Annotated[str, Meta(max_length=200)] | None = None
    length: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    sha1: Sha1 | None = None
    etag: Annotated[str, Meta(max_length=1_000)] | None = None
    last_modified: Time | None = None
    retry_after: Seconds | None = None
    text64: Text64 | None = None
    noindex: bool = False
    scheme: Literal["https", "http"] | None = None
    reason: Why | None = None


class ContentState(Told, kw_only=True):
    chunk_id: ChunkId
    state: Literal["crawling", "crawled", "error", "propagated"]
    sha256: Sha256 | None = None
    bytes: Bytes | None = None
    reason: Why = ""
    pages: Annotated[list[PageResult], Meta(max_length=MOST_PAGES)] | None = None


class ChunkKept(Struct):
    """The chunk's state as it is now, whatever was said."""

    chunk_id: int
    state: str


class KeepQuery(Told, kw_only=True):
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    n: Annotated[int, Meta(ge=1, le=MOST_CHUNKS)] = 1_000


class Keep(Struct):
    """Chunks in order; `after` asks for those that follow, null where there are none."""

    chunks: list[int]
    after: int | None


# -- index builders


class BuildsQuery(Told, kw_only=True):
    """With `compact` also chunks that are to be made of others, for builders that know how."""

    n: Small = 5
    compact: bool = False


class SourceChunk(Struct, omit_defaults=True):
    """A chunk to take documents from: the servers that have its index chunk, and the pages, each by host and path."""

    chunk_id: int
    hosts: list[str]
    keys: list[str]
    sha256: str | None = None
    bytes: int | None = None


class ContentChunk(Struct, omit_defaults=True):
    """A crawled chunk, and the crawler that has it; or without one, the chunks that it is to be made of.

    `keys` are its pages, by host and path: the builder drops all others, and reports those not in `textless_keys`.
    """

    chunk_id: int
    host: str
    keys: list[str]
    textless_keys: list[str] = []
    sha256: str | None = None
    bytes: int | None = None
    made_of: list[SourceChunk] | None = None


class IndexState(Told, kw_only=True):
    """With an error, `missing` says that it is because the crawler has lost the content."""

    chunk_id: ChunkId
    state: Literal["building", "built", "error", "propagated"]
    sha256: Sha256 | None = None
    bytes: Bytes | None = None
    reason: Why = ""
    missing: bool = False


# -- index servers and front-ends


class ChunksQuery(Told, kw_only=True):
    """Without `after`, the chunks that were offered least recently; with it, those that follow by id."""

    n: Small = 5
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None


class AllChunksQuery(Told, kw_only=True):
    """As a body, once, and then all chunks were meant."""

    n: Small = 1_000
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None


class RowHost(Struct):
    row: int
    host: str


class OldHosts(Struct):
    """The two sources as the second document names them."""

    c_host: str
    ib_host: str


class ServerChunk(Struct, omit_defaults=True):
    """A chunk that a server is to load: who has its content and its index, and which servers hold copies."""

    chunk_id: int
    crawler_host: str
    index_builder_host: str
    index_server_host: list[RowHost]
    hosts: OldHosts
    peers: list[str]
    sha256: str | None = None
    bytes: int | None = None
    index_sha256: str | None = None
    index_bytes: int | None = None


class LoadedRequest(Told, kw_only=True):
    """One chunk, or several."""

    chunk_id: ChunkId | None = None
    chunk_ids: ChunkIds = []


class LoadedAnswer(Struct):
    chunk_ids: list[int]


class LeavingChunks(Struct):
    chunks: list[int]


class RetiredCopy(Struct):
    """A page that a server is to take out of a chunk."""

    chunk_id: int
    page_id: int
    url: str = ""


class RetiredCopies(Told, kw_only=True, omit_defaults=True):
    copies: list[RetiredCopy]
