"""The HTTP face of a component: its own endpoints, and those that every component has.

Comes from crawlers, builders, index servers and front-ends; goes to the watchdog, to each other, and to whoever asks.

    async with face(chunk_endpoints(shelf, "/get_chunk"), read_bind("127.0.0.1:0")) as address:
        ...
"""

import asyncio
import platform
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, Literal, TypeVar, cast

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from usher import __version__
from usher.errors import NotFound
from usher.http.server.bodies import decode_body, decode_query, read_body, to_response
from usher.http.server.listen import Bind, serve_app
from usher.http.server.messages import Status, Version
from usher.http.server.middleware import HttpError, Middleware, bearer
from usher.http.server.rpc_connections import RpcResponse, RpcServer
from usher.http.server.ticket_guard import DEFAULT_GRACE_SECONDS, Guard, guard_for
from usher.telemetry import Log, exposition, observed
from usher.tickets import Action

log = Log("web")
Shape = TypeVar("Shape")
NO_REQUEST: Final = Request({"type": "http", "headers": [], "query_string": b"", "path_params": {}})
HEALTH: Final = ("/get_health_status", "/get_health", "/health_status")  # the seed's names for it


@dataclass(frozen=True, slots=True)
class Call:
    """One request as its handler sees it."""

    request: Request

    @property
    def words(self) -> Mapping[str, str]:
        """Of the path."""
        return self.request.path_params

    @property
    def headers(self) -> Mapping[str, str]:
        return self.request.headers

    def query(self, shape: type[Shape]) -> Shape:
        return decode_query(shape, self.request)

    async def body(self, shape: type[Shape]) -> Shape:
        return as_told(shape, await read_body(self.request))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One thing that can be asked; what is no Response is answered as JSON.

    `action` is what a ticket must permit. Probes and public pages are `open`: no ticket, no log. Those that look at
    nothing but the body can be asked over `quick` lines too.
    """

    method: Literal["GET", "POST"]
    path: str
    handler: Callable[[Call], Awaitable[object]]
    action: Action = "query"
    open: bool = False
    quick: bool = False


def as_told(shape: type[Shape], body: bytes) -> Shape:
    told: Shape = decode_body(decoder(cast("Hashable", shape)), body)
    return told


@cache
def decoder(shape: Hashable) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(shape).decode


def healthy() -> str:
    return "healthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOptions:
    """What a component needs to tell who may ask it; `host` is where others reach it, if not where it listens."""

    mgmt: str = ""
    token: str = ""
    host: str = ""
    insecure: bool = False
    grace_seconds: float = DEFAULT_GRACE_SECONDS

    def guard(self, bind: Bind) -> Guard | None:
        return guard_for(
            bind,
            mgmt=self.mgmt,
            token=self.token,
            insecure=self.insecure,
            grace_seconds=self.grace_seconds,
        )


LOOPBACK_ONLY: Final = GuardOptions()


@asynccontextmanager
async def serve_component(
    endpoints: Sequence[Endpoint],
    bind: Bind,
    *,
    health: Callable[[], str] = healthy,
    options: GuardOptions = LOOPBACK_ONLY,
) -> AsyncIterator[str]:
    """Serve a component's endpoints; where other machines can reach it, only to bearers of a ticket."""
    guard = options.guard(bind)
    app = component_app(endpoints, health=health, guard=guard, any_name=options.insecure)
    asked = {one.path.encode(): partial(briefly, one.handler) for one in endpoints if one.quick}
    lines = (
        RpcServer(asked, guard, any_name=options.insecure or guard is not None) if asked else None
    )
    async with (
        serve_app(app, bind, lines.protocol if lines else None) as address,
        refreshed(guard, options.host or bind.reached(address)),
    ):
        yield address


@asynccontextmanager
async def refreshed(guard: Guard | None, host: str) -> AsyncIterator[None]:
    """Keep a guard up to date meanwhile."""
    task = observed(asyncio.create_task(guard.run(host)), log) if guard else None
    try:
        yield
    finally:
        if task:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def component_app(
    endpoints: Sequence[Endpoint],
    *,
    health: Callable[[], str] = healthy,
    guard: Guard | None = None,
    any_name: bool = False,
) -> ASGIApp:
    """The endpoints as one ASGI application; `health` says how the component is, in the watchdog's words."""
    every = [*endpoints, *probes(health)]
    paths: dict[str, Resource] = {}
    for endpoint in every:
        paths.setdefault(endpoint.path, Resource(guard)).add(endpoint)
    plain = {path: resource for path, resource in paths.items() if "{" not in path}
    routes = [Route(path, resource) for path, resource in paths.items() if path not in plain]
    quiet = frozenset(endpoint.path for endpoint in every if endpoint.open)
    others = Router([*routes, Route("/{path:path}", Nowhere())], redirect_slashes=False)
    app = Paths(plain, others)
    # Where a token is needed, a name that others gave us leads nobody's browser anywhere.
    return Middleware(app, quiet=quiet, any_name=any_name or guard is not None)


def probes(health: Callable[[], str]) -> list[Endpoint]:
    async def get_health_status(_call: Call) -> Status:
        return Status(health())

    return [
        Endpoint("GET", "/healthz", healthz, open=True),
        Endpoint("GET", "/metrics", metrics, open=True),
        Endpoint("GET", "/version", version, open=True),
        *(Endpoint("GET", path, get_health_status, open=True) for path in HEALTH),
    ]


async def healthz(_call: Call) -> Status:
    return Status("ok")


async def metrics(_call: Call) -> Response:
    return Response(exposition(), media_type=CONTENT_TYPE_LATEST)


async def version(_call: Call) -> Version:
    return Version(__version__, platform.python_version())


@dataclass(frozen=True, slots=True)
class Brief(Call):
    """A question over a quick line, which is nothing but its body."""

    given: bytes

    async def body(self, shape: type[Shape]) -> Shape:
        return as_told(shape, self.given)


async def briefly(
    handler: Callable[[Call], Awaitable[object]], given: bytes
) -> Response | RpcResponse:
    told = await handler(Brief(NO_REQUEST, given))
    return told if isinstance(told, Response) else RpcResponse(200, msgspec.json.encode(told))


class Resource:
    """One path: finds the endpoint for the method, sees who asks, calls the handler, writes the answer."""

    def __init__(self, guard: Guard | None) -> None:
        self._guard = guard
        self._endpoints: dict[str, Endpoint] = {}

    def add(self, endpoint: Endpoint) -> None:
        self._endpoints[endpoint.method] = endpoint
        if endpoint.method == "GET":
            self._endpoints["HEAD"] = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get(scope["method"])
        if endpoint is None:
            allowed = ", ".join(sorted(self._endpoints))
            message = f"{scope['method']} is not possible here, only {allowed}."
            raise HttpError(405, "method_not_allowed", message, headers={"Allow": allowed})
        request = Request(scope, receive)
        if self._guard and not endpoint.open:
            await self._guard.check(bearer(request.headers), endpoint.action)
        told = await endpoint.handler(Call(request))
        await to_response(told)(scope, receive, send)


class Paths:
    """The resource of a path that has no words in it, found without a look at all the others."""

    def __init__(self, plain: Mapping[str, Resource], others: ASGIApp) -> None:
        self._plain, self._others = plain, others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._plain.get(scope.get("path", ""), self._others)(scope, receive, send)


class Nowhere:
    """Every other path, by any method."""

    async def __call__(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        raise NotFound(f"There is nothing at {scope['path'][:200]}.")
