"""The HTTP server of a component: its own endpoints and the probes, guarded by tickets where needed.

async with serve_component(chunk_endpoints(store, "/get_chunk"), read_bind("127.0.0.1:0")) as address:
...
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.types import ASGIApp

from usher.background import background_tasks
from usher.http.server.bodies import decode_body
from usher.http.server.endpoint import AccessRule, BodyT, Call, Endpoint, Router, decoder
from usher.http.server.listen import Bind, serve_app
from usher.http.server.middleware import Middleware, bearer
from usher.http.server.probes import probe_endpoints
from usher.http.server.rpc_connections import RpcHandler, RpcServer
from usher.http.server.ticket_guard import DEFAULT_GRACE_SECONDS, Guard, guard_for
from usher.telemetry import Log

log = Log("web")
ComponentCall = Call[BodyT, None, None]
ComponentEndpoint = Endpoint[Any, Any, None, None]
QUERY: Final = AccessRule("ticket")
NO_REQUEST: Final = Request({"type": "http", "headers": [], "query_string": b"", "path_params": {}})


def healthy() -> str:
    return "healthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOptions:
    """What a component needs to verify its callers; `host` is its public address, if not where it listens."""

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
    endpoints: Sequence[ComponentEndpoint],
    bind: Bind,
    *,
    health: Callable[[], str] = healthy,
    options: GuardOptions = LOOPBACK_ONLY,
) -> AsyncIterator[str]:
    """Serve a component's endpoints; callers on other machines need a ticket."""
    guard = options.guard(bind)
    app = component_app(endpoints, health=health, guard=guard, any_name=options.insecure)
    handlers = {
        endpoint.path.encode(): rpc_handler(endpoint) for endpoint in endpoints if endpoint.rpc
    }
    any_name = options.insecure or guard is not None
    rpc = RpcServer(handlers, guard, any_name=any_name) if handlers else None
    async with (
        serve_app(app, bind, rpc.protocol if rpc else None) as address,
        background_tasks(
            log, *([guard.run(options.host or bind.public_host(address))] if guard else ())
        ),
    ):
        yield address


def component_app(
    endpoints: Sequence[ComponentEndpoint],
    *,
    health: Callable[[], str] = healthy,
    guard: Guard | None = None,
    any_name: bool = False,
) -> ASGIApp:
    """The endpoints and the probes as an ASGI application; `health` is in the watchdog's words."""
    all_endpoints = [*endpoints, *probe_endpoints(health)]
    unlogged = frozenset(
        endpoint.path for endpoint in all_endpoints if endpoint.access.scope == "open"
    )
    # A server that demands tickets gives nothing to a page that reaches it by a name of its own.
    return Middleware(
        ComponentRouter(guard, all_endpoints),
        unlogged=unlogged,
        any_name=any_name or guard is not None,
    )


class ComponentRouter(Router[None, None]):
    """Demands a ticket for each endpoint that is not open, if there is a guard."""

    def __init__(self, guard: Guard | None, endpoints: Sequence[ComponentEndpoint]) -> None:
        super().__init__(None, endpoints)
        self._guard = guard

    async def authorize(self, access: AccessRule, request: Request) -> None:
        if self._guard and access.scope != "open":
            await self._guard.check(bearer(request.headers), access.action)


def rpc_handler(endpoint: ComponentEndpoint) -> RpcHandler:
    """The endpoint's handler for RPC connections, where a request is nothing but its body."""
    decode = decoder(endpoint) if endpoint.request else None

    async def handle(body: bytes) -> object:
        request = decode_body(decode, body) if decode else None
        return await endpoint.handler(Call(NO_REQUEST, request, None, None))

    return handle
