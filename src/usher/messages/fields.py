"""The types of fields, with their bounds, and the base of requests."""

import re
from datetime import datetime
from typing import Annotated, Final

from msgspec import Meta, Struct

INCARNATION_HEADER: Final = "x-usher-incarnation"  # of answers, and of reports of index servers
MAX_CHUNKS_PER_REQUEST: Final = 10_000
MAX_PAGES_PER_CHUNK: Final = 1_000
CHUNK_ID: Final = re.compile(r"0*([1-9][0-9]{0,17})c?")

PositiveId = Annotated[int, Meta(ge=1, le=2**63 - 1)]
# The seed documents write 101, "101" and "101c".
ChunkId = PositiveId | Annotated[str, Meta(pattern=f"^{CHUNK_ID.pattern}$", max_length=40)]
# MGMT counts lists like this one itself: it answers 413 where a limit of the type would give 422.
CHUNK_LIST: Final = Meta(extra_json_schema={"maxItems": MAX_CHUNKS_PER_REQUEST})
ChunkIds = Annotated[list[ChunkId], CHUNK_LIST]
AfterId = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Host = Annotated[str, Meta(min_length=1, max_length=255, description="name or address, with port")]
ComponentType = Annotated[
    str, Meta(max_length=40, description="crawler, index-builder, index-server, …")
]
ReasonText = Annotated[str, Meta(max_length=1_000)]
UpTo1000 = Annotated[int, Meta(ge=1, le=1_000)]
PageCount = Annotated[int, Meta(ge=1, le=MAX_PAGES_PER_CHUNK)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
ByteCount = Annotated[int, Meta(ge=0, le=2**62)]
HttpStatusCode = Annotated[int, Meta(ge=100, le=999)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Sha1 = Annotated[str, Meta(pattern="^[0-9a-f]{40}$")]
Time = Annotated[datetime, Meta(tz=True)]
# A text, because JSON in some languages rounds numbers of 64 bits.
Text64 = Annotated[str, Meta(pattern="^-?[0-9]{1,19}$")]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]


def chunk_number(chunk_id: int | str) -> int:
    """A chunk id as an integer."""
    match = CHUNK_ID.fullmatch(chunk_id) if isinstance(chunk_id, str) else None
    return int(match[1]) if match else int(chunk_id)


class ComponentRequest(Struct, kw_only=True, omit_defaults=True):
    """A request of a component; `host` is its public address. Our own components send it as a header."""

    host: Host | None = None
