"""Endpoints for removals: the operator removes pages and undoes it, and front-ends read which pages to hide."""

from typing import Annotated

from msgspec import Meta, Struct
from starlette.responses import Response

from usher.api.access import ADMIN, MAP_READER
from usher.api.context import MgmtCall
from usher.api.mgmt_calls import reject_unstorable
from usher.door import removals
from usher.door.removals import Removal
from usher.errors import NotFound
from usher.http.server.endpoint import EndpointList
from usher.messages.fields import ReasonText
from usher.messages.front_end import HiddenPages
from usher.removal_rules import RemovalKind, parse_target

MAX_TARGET_CHARACTERS = 8_192
TargetText = Annotated[str, Meta(min_length=1, max_length=MAX_TARGET_CHARACTERS)]
ENDPOINTS = EndpointList()


class RemovalRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """A URL, prefix, host or domain to remove, and why; a dry run only counts."""

    target: TargetText
    reason: ReasonText = ""
    dry_run: bool = False


class UndoRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    target: TargetText


class RemovalsQuery(Struct, kw_only=True):
    """Removals before this number; with `undone` also those that were undone."""

    n: Annotated[int, Meta(ge=1, le=1_000)] = 100
    before: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None
    undone: bool = False


class RemovalAnswer(Struct):
    """The canonical target, how many known pages it covers, and how many of these were searchable."""

    target: str
    kind: RemovalKind
    pages: int
    searchable: int
    removal: int | None  # None: a dry run, or it was removed already


class UndoAnswer(Struct):
    target: str
    removal: int


class RemovalListing(Struct):
    removals: list[Removal]


@ENDPOINTS.get("/v1/removals", "Removals of pages, the latest first", ADMIN)
async def list_removals(call: MgmtCall[RemovalsQuery]) -> RemovalListing:
    query = call.body
    async with call.context.door_db.connection() as conn:
        listed = await removals.list_removals(
            conn, before=query.before, undone=query.undone, n=query.n
        )
    return RemovalListing(listed)


@ENDPOINTS.post("/v1/removals", "Remove pages from the index, and refuse them at the door", ADMIN)
async def add_removal(call: MgmtCall[RemovalRequest]) -> RemovalAnswer:
    request, db = call.body, call.context.door_db
    with reject_unstorable():
        async with db.transaction() as conn:
            target = await removals.resolve(conn, parse_target(request.target))
            seen = await removals.preview(conn, target)
            number = None
            if not request.dry_run:
                number = await removals.add_removal(
                    conn, target, reason=request.reason, author=author(call), now=db.clock.now()
                )
    return RemovalAnswer(target.text, target.kind, seen.pages, seen.searchable, number)


@ENDPOINTS.post("/v1/removals/undo", "Undo a removal; its pages are crawled again", ADMIN)
async def undo_removal(call: MgmtCall[UndoRequest]) -> UndoAnswer:
    target, db = parse_target(call.body.target), call.context.door_db
    async with db.transaction() as conn:
        number = await removals.undo_removal(conn, target, author=author(call), now=db.clock.now())
    if number is None:
        raise NotFound(f"{target.text} is not removed.", hint="GET /v1/removals")
    return UndoAnswer(target.text, number)


@ENDPOINTS.get(
    "/v1/hidden", "Pages that front-ends hide, as rules", MAP_READER, response=HiddenPages
)
async def get_hidden(call: MgmtCall[None]) -> Response:
    return await call.context.server_map.hidden.response(call.headers)


def author(call: MgmtCall[RemovalRequest] | MgmtCall[UndoRequest]) -> str:
    """The name of the token."""
    token = call.caller.token
    return f"token {token.name}" if token else "the operator"
