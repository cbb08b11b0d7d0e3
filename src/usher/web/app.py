"""The application as data: a table of endpoints becomes routes, each with its decoder."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, NoReturn, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from usher.db import Database
from usher.door.doorkeeper import Doorkeeper
from usher.errors import BadInput, NotFound
from usher.queue.policy import Policies
from usher.web.callers import Asker, Callers
from usher.web.porch import Declined, Porch, Unread, bearer, check_scope, check_site, unproven
from usher.web.server_map import ServerMap

MOST_BYTES = 10_000_000
BODY_SECONDS = 60  # for a whole body; whoever is slower holds a connection for nothing
CLOSE = {"Connection": "close"}
HOST_HEADER = "x-usher-host"
LIST = "GET /v1/openapi.json lists every endpoint."
Asked = TypeVar("Asked")
Told = TypeVar("Told")


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms chunks are given: how many pages, how long the first waits for the last, for how long."""

    pages: int
    wait: timedelta
    lease: timedelta


@dataclass(frozen=True, slots=True)
class Rooms:
    """What handlers work with, open as long as the application runs."""

    db: Database  # of the work area, as the door
    doorkeeper: Doorkeeper
    control: Database
    policies: Policies
    mgmt: Database  # of the work area, as MGMT
    terms: Terms
    callers: Callers
    server_map: ServerMap
    tokens_needed: bool = False


@dataclass(frozen=True, slots=True)
class Call(Generic[Asked]):
    """One request as its handler sees it."""

    rooms: Rooms
    body: Asked  # of a GET: its query
    words: Mapping[str, str]  # of the path
    headers: Mapping[str, str]
    asker: Asker


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[Asked, Told]):
    """One thing that can be asked; the handler may answer with a Response of its own.

    The request of a GET is read from its query, of any other method from the body.
    `scope` is what a token has to hold; `open` ones are probes, which need none and are not logged.
    A GET that is not `safe` changes something: no HEAD, and no page of another site may ask it.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    handler: Callable[[Call[Asked]], Awaitable[Told | Response]]
    request: type[Asked] | None
    response: type[Told] | None
    summary: str
    scope: Literal["open", "read", "work", "admin"]
    safe: bool = True
    old: bool = False  # a name that another one replaces


def make_app(
    rooms: Rooms, endpoints: Sequence[Endpoint[Any, Any]], *, any_name: bool = False
) -> ASGIApp:
    """The endpoints as one ASGI application; `any_name` answers to whatever name the caller calls us."""
    paths = {endpoint.path: Resource(rooms) for endpoint in endpoints}
    for endpoint in endpoints:
        paths[endpoint.path].add(endpoint)
    routes = [Route(path, resource) for path, resource in paths.items() if "{" in path]
    plain = {path: resource for path, resource in paths.items() if "{" not in path}
    quiet = frozenset(endpoint.path for endpoint in endpoints if endpoint.scope == "open")
    return Porch(Paths(plain, routes), quiet=quiet, any_name=any_name)


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

    def __init__(self, rooms: Rooms) -> None:
        self.rooms = rooms
        self.endpoints: dict[str, tuple[Endpoint[Any, Any], Callable[[bytes], Any] | None]] = {}

    def add(self, endpoint: Endpoint[Any, Any]) -> None:
        decode = None
        if endpoint.request and endpoint.method != "GET":
            decode = msgspec.json.Decoder(endpoint.request).decode
        self.endpoints[endpoint.method] = (endpoint, decode)
        if endpoint.method == "GET" and endpoint.safe:
            self.endpoints["HEAD"] = (endpoint, decode)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method not in self.endpoints:
            self.refuse(request.method)
        endpoint, decode = self.endpoints[request.method]
        asker = await self.admit(endpoint, request)
        if decode:
            body = decoded(decode, await read(request))
        else:
            body = queried(endpoint.request, request) if endpoint.request else None
        call = Call(self.rooms, body, request.path_params, request.headers, asker)
        told = await endpoint.handler(call)
        await written(told)(scope, receive, send)

    async def admit(self, endpoint: Endpoint[Any, Any], request: Request) -> Asker:
        """Who asks, if they may: a token that is there must be good, even where none is needed."""
        peer = request.client.host if request.client else ""
        if endpoint.scope == "open":
            return Asker(peer)
        if not endpoint.safe:
            check_site(request.headers)
        token = None
        if secret := bearer(request.headers):
            token = await self.rooms.callers.token(secret)
            if token is None:
                raise unproven("This token is not known, or was revoked.")
        check_scope(token, endpoint.scope, needed=self.rooms.tokens_needed)
        return Asker(peer, request.headers.get(HOST_HEADER, ""), token)

    def refuse(self, method: str) -> NoReturn:
        allowed = ", ".join(sorted(self.endpoints))
        raise Declined(
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


def written(told: object) -> Response:
    if isinstance(told, Response):
        return told
    return Response(msgspec.json.encode(told), media_type="application/json")


async def read(request: Request) -> bytes:
    """The body, as far as we take one; one that says it is too long is not read at all."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        message = f"The body is encoded with {encoding!r}; send it as it is."
        raise Declined(
            415, "unsupported_encoding", message, headers={"Accept-Encoding": "identity"}
        )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MOST_BYTES:
        raise too_large()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await collect(request)
    except TimeoutError:
        message = f"The body did not arrive within {BODY_SECONDS} seconds."
        raise Unread(408, "too_slow", message, headers=CLOSE) from None


async def collect(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise too_large()
    return bytes(body)


def too_large() -> Unread:
    message = f"The body is larger than {MOST_BYTES:,} bytes."
    return Unread(413, "too_large", message, hint="Ask in several requests.", headers=CLOSE)


def decoded(decode: Callable[[bytes], Any], body: bytes) -> Any:  # noqa: ANN401 - as the endpoint declares
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        raise BadInput(f"{error}.", hint=LIST) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = (
            f"The body is not JSON: {error}." if body else "The body is empty; JSON is wanted."
        )
        raise Declined(400, "malformed", message) from error


def queried(shape: type[Asked], request: Request) -> Asked:
    """The query as the endpoint declares it; a name that is there twice is an error, lest one of them be ignored."""
    given = request.query_params.multi_items()
    if len(given) > len(dict(given)):
        raise BadInput("A name is in the query twice.", hint=LIST)
    try:
        return msgspec.convert(dict(given), shape, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(f"{error}.", hint=LIST) from error
