"""Messages of front-ends: the map of index servers, and statistics of queries."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from usher.messages.fields import ComponentRequest, Seconds
from usher.removal_rules import RemovalRule

MAX_QUERIES_PER_REQUEST: Final = 1_000


class ServerRow(Struct):
    """A row of index servers, which together hold every chunk."""

    row: int
    servers: list[str]


class MappedServer(Struct):
    """An index server and the chunks that it answers for."""

    host: str
    chunk_ids: list[int]


class ClusterMap(Struct):
    """The servers of each row with their chunks; `unrestored` are chunks that a row lacks since a restore."""

    incarnation: str = ""
    rows: list[list[MappedServer]] = []
    unrestored: list[int] = []


class HiddenPages(Struct):
    """The pages that the operator removed, as rules; front-ends show no hit that one of them covers."""

    rules: list[RemovalRule] = []


class QueryStat(ComponentRequest, kw_only=True):
    term: Annotated[str, Meta(max_length=1_000)]
    timestamp: Annotated[float, Meta(ge=0, lt=4_102_444_800)] | None = None
    query_time: str | Seconds
    results: Annotated[int, Meta(ge=0, lt=2**31)] | None = None


class QueryStats(ComponentRequest, kw_only=True):
    queries: Annotated[
        list[QueryStat], Meta(extra_json_schema={"maxItems": MAX_QUERIES_PER_REQUEST})
    ]
