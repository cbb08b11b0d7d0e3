"""Messages of all components: state, leases, tickets; and what people see of components and events."""

from datetime import datetime
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from usher.messages.fields import (
    CHUNK_LIST,
    MAX_CHUNKS_PER_REQUEST,
    AfterId,
    ByteCount,
    ChunkId,
    ChunkIds,
    ComponentRequest,
    ComponentType,
    Host,
    PositiveId,
    ReasonText,
    Sha256,
    UpTo1000,
)

MAX_HOSTS_PER_TICKET_REQUEST: Final = 1_000
ComponentState = Literal["online", "error", "waiting", "paused"]
EngineName = Literal["tantivy", "opensearch"]


class ComponentStateRequest(ComponentRequest, kw_only=True):
    state: ComponentState
    type: ComponentType | None = None
    row: UpTo1000 | None = None
    weight: UpTo1000 | None = None
    reason: ReasonText = ""
    anew: Annotated[bool, Meta(description="a crawler that lost all of its chunks")] = False
    version: Annotated[str, Meta(max_length=40, description="of Usher")] | None = None
    renews_leases: Annotated[
        bool, Meta(description="it names its chunks to POST /v1/lease; its other calls renew none")
    ] = False
    engine: Annotated[EngineName, Meta(description="of an index server")] | None = None


class ComponentStatus(Struct):
    """The caller as MGMT knows it, and the version of this MGMT."""

    host: str
    type: str | None
    state: str
    health: str
    row: int | None
    version: str = ""


class ComponentsQuery(Struct, forbid_unknown_fields=True):
    type: ComponentType | None = None


class ComponentDetails(Struct):
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
    version: str = ""
    engine: str = "tantivy"


class ComponentList(Struct):
    components: list[ComponentDetails]


class EventsQuery(Struct, forbid_unknown_fields=True):
    """The latest events of one component, or of all."""

    host: Host | None = None
    type: ComponentType | None = None
    limit: UpTo1000 = 100
    before: PositiveId | None = None


class EventView(Struct):
    id: int
    at: datetime
    host: str | None
    chunk_id: int | None
    kind: str
    before: str | None
    after: str | None
    reason: str


class EventList(Struct):
    """Events, the latest first; `before` is the query for earlier ones, null at the end."""

    events: list[EventView]
    before: int | None


class LeaseRequest(ComponentRequest, kw_only=True):
    chunks: ChunkIds


class LeaseAnswer(Struct):
    """Each chunk once: the caller still holds it, or lost it."""

    held: list[int]
    lost: list[int]


class UploadRequest(ComponentRequest, kw_only=True):
    """The file of a chunk that the caller crawls or builds."""

    chunk_id: ChunkId
    kind: Literal["content", "index"]
    sha256: Sha256
    bytes: ByteCount


class ContentUrlRequest(ComponentRequest, kw_only=True):
    """A chunk that the caller builds."""

    chunk_id: ChunkId


class SignedUrl(Struct):
    """A URL of the object store that permits one kind of request for one file, for some seconds."""

    url: str
    seconds: float


class ChunkState(Struct):
    """The present state of a chunk's content or index."""

    chunk_id: int
    state: str


class ChunkIdsQuery(ComponentRequest, kw_only=True):
    """Chunk ids above `after`."""

    after: AfterId = 0
    n: Annotated[int, Meta(ge=1, le=MAX_CHUNKS_PER_REQUEST)] = 1_000


class UnpropagatedChunks(Struct):
    """Chunk ids in order; `after` is the query for the next ones, null at the end."""

    chunks: list[int]
    after: int | None


class ChunkIdsReport(ComponentRequest, kw_only=True):
    """One chunk, or several."""

    chunk_id: ChunkId | None = None
    chunk_ids: ChunkIds = field(default_factory=list)


class AcceptedChunks(Struct):
    """The chunks of a report that MGMT accepted."""

    chunk_ids: list[int]


class ForeignPages(Struct):
    """How many pages of a chunk were dropped because they are not its own, and up to three of their URLs."""

    chunk_id: ChunkId
    count: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    examples: Annotated[list[Annotated[str, Meta(max_length=2_100)]], Meta(max_length=3)] = []


class ForeignPagesRequest(ComponentRequest, kw_only=True):
    chunks: Annotated[list[ForeignPages], CHUNK_LIST]


class TicketRequest(ComponentRequest, kw_only=True):
    """The components that the caller wants to call."""

    hosts: Annotated[list[Host], Meta(extra_json_schema={"maxItems": MAX_HOSTS_PER_TICKET_REQUEST})]


class Tickets(Struct):
    """A ticket for each host that is a component, to be sent as `Authorization: Bearer TICKET`."""

    tickets: dict[str, str]
    seconds: float  # until they expire


class GuardQuery(ComponentRequest, kw_only=True):
    """A component wants to verify tickets."""


class GuardState(Struct):
    """What a component needs to verify tickets: its name, its key, MGMT's time, and the ids of revoked tokens."""

    host: str
    key: str
    now: float
    revoked: list[int]
