"""The application as data: a table of endpoints becomes routes, each with its decoder."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NoReturn, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from usher.db import Database
from usher.door.doorkeeper import Doorkeeper
from usher.errors import BadInput, NotFound
from usher.queue.policy import Policies
from usher.web.porch import Declined, Porch, Unread

MOST_BYTES = 10_000_000
BODY_SECONDS = 60  # for a whole body; whoever is slower holds a connection for nothing
CLOSE = {"Connection": "close"}
LIST = "GET /v1/openapi.json lists every endpoint."
Asked = TypeVar("Asked")
Told = TypeVar("Told")


@dataclass(frozen=True, slots=True)
class Rooms:
    """What handlers work with, open as long as the application runs."""

    db: Database  # of the work area
    doorkeeper: Doorkeeper
    control: Database
    policies: Policies


@dataclass(frozen=True, slots=True)
class Call(Generic[Asked]):
    """One request as its handler sees it."""

    rooms: Rooms
    body: Asked  # of a GET: its query
    words: Mapping[str, str]  # of the path


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[Asked, Told]):
    """One thing that can be asked; without a response type the handler answers with a Response of its own.

    The request of a GET is read from its query, of any other method from the body.
    `scope` is what a token will have to hold; `open` ones are probes, which need none and are not logged.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    handler: Callable[[Call[Asked]], Awaitable[Told]]
    request: type[Asked] | None
    response: type[Told] | None
    summary: str
    scope: Literal["open", "read", "work", "admin"]


def make_app(
    rooms: Rooms, endpoints: Sequence[Endpoint[Any, Any]], *, any_name: bool = False
) -> Starlette:
    """The endpoints as one ASGI application; `any_name` answers to whatever name the caller calls us."""
    paths = {endpoint.path: Resource(rooms) for endpoint in endpoints}
    for endpoint in endpoints:
        paths[endpoint.path].add(endpoint)
    routes = [Route(path, resource) for path, resource in paths.items()]
    quiet = frozenset(endpoint.path for endpoint in endpoints if endpoint.scope == "open")
    return Starlette(
        routes=[*routes, Route("/{path:path}", Nowhere())],
        middleware=[Middleware(Porch, quiet=quiet, any_name=any_name)],
    )


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
        if endpoint.method == "GET":
            self.endpoints["HEAD"] = (endpoint, decode)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method not in self.endpoints:
            self.refuse(request.method)
        endpoint, decode = self.endpoints[request.method]
        if decode:
            body = decoded(decode, await read(request))
        else:
            body = queried(endpoint.request, request) if endpoint.request else None
        told = await endpoint.handler(Call(self.rooms, body, request.path_params))
        await written(told)(scope, receive, send)

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
