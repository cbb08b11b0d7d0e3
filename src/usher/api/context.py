"""What the handlers of MGMT work with: databases, caches and settings, open while MGMT serves."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from usher.api.callers import Caller, Callers
from usher.api.chunk_urls import ChunkUrls
from usher.api.claim_batcher import ClaimBatcher
from usher.api.incarnation_cache import IncarnationCache
from usher.api.server_map import ServerMap
from usher.api.ticket_issuer import TicketIssuer
from usher.db.pool import Database
from usher.door.doorkeeper import Doorkeeper
from usher.door.refused_urls import RefusedSample
from usher.http.server.endpoint import BodyT, Call, Endpoint
from usher.queue.policy import Policies

UNLIMITED_WAIT: Final = timedelta(days=10_000)


@dataclass(frozen=True, slots=True)
class ClaimLimits:
    """Pages per chunk, how long a page waits for a full chunk, the lease of a chunk, and hosts that no crawler gets."""

    pages: int
    wait: timedelta
    lease: timedelta
    skipped_hosts: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class MgmtContext:
    door_db: Database  # the work area under the door's role
    doorkeeper: Doorkeeper
    refused: RefusedSample  # of the doorkeeper
    control: Database
    policies: Policies
    mgmt_db: Database  # the work area under MGMT's role
    limits: ClaimLimits
    callers: Callers
    server_map: ServerMap
    claims: ClaimBatcher
    tickets: TicketIssuer
    incarnation: IncarnationCache
    chunk_urls: ChunkUrls
    is_open: bool = False  # callers on this machine need no proof for `local` endpoints


MgmtCall = Call[BodyT, MgmtContext, Caller]
MgmtEndpoint = Endpoint[Any, Any, MgmtContext, Caller]
