"""The application as data: a table of endpoints becomes routes, each with its decoder."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, NoReturn, TypeVar

import msgspec
import psycopg
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from usher.api.access import AccessRule, check
from usher.api.callers import Caller, Callers
from usher.api.claim_batcher import ClaimBatcher
from usher.api.incarnation_cache import IncarnationCache
from usher.api.server_map import ServerMap
from usher.api.ticket_issuer import TicketIssuer
from usher.db.pool import Database
from usher.door.doorkeeper import Doorkeeper
from usher.errors import NotFound
from usher.http.server.bodies import decode_body, decode_query, read_body, to_response
from usher.http.server.middleware import HttpError, Middleware, bearer, check_site, is_forwarded
from usher.messages import INCARNATION_HEADER
from usher.queue.policy import Policies

HOST_HEADER = "x-usher-host"
UNLIMITED_WAIT = timedelta(days=10_000)  # as good as for ever, and no trouble to calculate with
LIST = "GET /v1/openapi.json lists every endpoint."
Asked = TypeVar("Asked")
Told = TypeVar("Told")


@dataclass(frozen=True, slots=True)
class ClaimLimits:
    """On which terms chunks are given: how many pages, how long the first waits for the last, for how long."""

    pages: int
    wait: timedelta
    lease: timedelta


@dataclass(frozen=True, slots=True)
class MgmtContext:
    """What handlers work with, open as long as the application runs."""

    db: Database  # of the work area, as the door
    doorkeeper: Doorkeeper
    control: Database
    policies: Policies
    mgmt: Database  # of the work area, as MGMT
    terms: ClaimLimits
    callers: Callers
    server_map: ServerMap
    claims: ClaimBatcher
    tickets: TicketIssuer
    incarnation: IncarnationCache
    is_open: bool = False  # to callers of this machine, as far as an endpoint allows it


@dataclass(frozen=True, slots=True)
class Call(Generic[Asked]):
    """One request as its handler sees it."""

    rooms: MgmtContext
    body: Asked  # of a GET: its query
    words: Mapping[str, str]  # of the path
    headers: Mapping[str, str]
    asker: Caller


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[Asked, Told]):
    """One thing that can be asked; the handler may answer with a Response of its own.

    The request of a GET is read from its query, of any other method from the body; `bytes` is the body as it came.
    What is not answered as JSON is of the `media` type.
    `access` says what a caller must show; `open` ones are probes, which need nothing and are not logged.
    A GET that is not `safe` changes something: no HEAD, and no page of another site may ask it.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    handler: Callable[[Call[Asked]], Awaitable[Told | Response]]
    request: type[Asked] | None
    response: type[Told] | None
    summary: str
    access: AccessRule
    safe: bool = True
    old: bool = False  # a name that another one replaces
    media: str = "text/plain"


def make_app(
    rooms: MgmtContext, endpoints: Sequence[Endpoint[Any, Any]], *, any_name: bool = False
) -> ASGIApp:
    """The endpoints as one ASGI application; `any_name` answers to whatever name the caller calls us."""
    paths = {endpoint.path: Resource(rooms) for endpoint in endpoints}
    for endpoint in endpoints:
        paths[endpoint.path].add(endpoint)
    routes = [Route(path, resource) for path, resource in paths.items() if "{" in path]
    plain = {path: resource for path, resource in paths.items() if "{" not in path}
    quiet = frozenset(endpoint.path for endpoint in endpoints if endpoint.access.scope == "open")
    return Middleware(Paths(plain, routes), quiet=quiet, any_name=any_name, ours=(psycopg.Error,))


class Paths:
    """Finds a path's endpoints: at once if no word of it varies, else in the order of the table."""

    def __init__(self, plain: Mapping[str, "Resource"], routes: Sequence[Route]) -> None:
        self.plain = plain
        self.others = Router([*routes, Route("/{path:path}", Nowhere())], redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self.plain.get(scope["path"], self.others)
        await found(scope, receive, send)


class Resource:
    """One path: finds the endpoint for the method, reads the body, calls the handler, writes the answer."""

    def __init__(self, rooms: MgmtContext) -> None:
        self.rooms = rooms
        self.endpoints: dict[str, tuple[Endpoint[Any, Any], Callable[[bytes], Any] | None]] = {}

    def add(self, endpoint: Endpoint[Any, Any]) -> None:
        decode = None
        if endpoint.request and endpoint.method != "GET":
            decode = (
                bytes
                if endpoint.request is bytes
                else msgspec.json.Decoder(endpoint.request).decode
            )
        self.endpoints[endpoint.method] = (endpoint, decode)
        if endpoint.method == "GET" and endpoint.safe:
            self.endpoints["HEAD"] = (endpoint, decode)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method not in self.endpoints:
            self.refuse(request.method)
        endpoint, decode = self.endpoints[request.method]
        incarnation = "" if endpoint.access.scope == "open" else await self.rooms.incarnation.id()
        asker = await self.admit(endpoint, request)
        if decode:
            body = decode_body(decode, await read_body(request), LIST)
        else:
            body = decode_query(endpoint.request, request, LIST) if endpoint.request else None
        call = Call(self.rooms, body, request.path_params, request.headers, asker)
        told = await endpoint.handler(call)
        response = to_response(told)
        if incarnation:
            response.headers[INCARNATION_HEADER] = incarnation
        await response(scope, receive, send)

    async def admit(self, endpoint: Endpoint[Any, Any], request: Request) -> Caller:
        """The caller, if it may call; a token that is shown must be good, even where none is needed."""
        peer = request.client.host if request.client else ""
        if endpoint.access.scope == "open":
            return Caller(peer)
        if not endpoint.safe:
            check_site(request.headers)
        secret = bearer(request.headers)
        token = await self.rooms.callers.token(secret, peer) if secret else None
        is_local = self.rooms.is_open and not is_forwarded(request.headers)
        check(endpoint.access, token, is_local=is_local)
        return Caller(peer, request.headers.get(HOST_HEADER, ""), token)

    def refuse(self, method: str) -> NoReturn:
        allowed = ", ".join(sorted(self.endpoints))
        raise HttpError(
            405,
            "method_not_allowed",
            f"{method} is not possible here, only {allowed}.",
            hint=LIST,
            headers={"Allow": allowed},
        )


class Nowhere:
    """Every path that is no endpoint's."""

    async def __call__(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        raise NotFound(f"There is nothing at {scope['path']}.", hint=LIST)
