"""Endpoints as data, and the router that dispatches requests to them; MGMT and the components use the same."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Final, Generic, Literal, TypedDict, TypeVar, Unpack, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.routing import Router as PathMatcher
from starlette.types import ASGIApp, Receive, Scope, Send

from usher.errors import NotFound
from usher.http.server.bodies import decode_body, decode_query, read_body, to_response
from usher.http.server.middleware import HttpError, check_site
from usher.tickets import Action

BodyT = TypeVar("BodyT")
AnswerT = TypeVar("AnswerT")
ContextT = TypeVar("ContextT")
CallerT = TypeVar("CallerT")
HandlerT = TypeVar("HandlerT", bound=Callable[[Any], Awaitable[Any]])


@dataclass(frozen=True, slots=True)
class AccessRule:
    """What a caller must show: nothing (`open`), a token for this scope or these types, or a ticket for `action`.

    `claim` endpoints check the claim in the body. `local` endpoints need no proof from callers on this machine.
    `session` endpoints accept the session of a browser instead of a token.
    """

    scope: Literal["open", "claim", "read", "work", "admin", "ticket"]
    types: frozenset[str] = frozenset()
    local: bool = False
    action: Action = "query"
    session: bool = False

    @property
    def needs_proof(self) -> bool:
        return self.scope not in ("open", "claim")


OPEN: Final = AccessRule("open")
PathTexts = tuple[str, str, AccessRule]  # path, summary, access


@dataclass(frozen=True, slots=True)
class Call(Generic[BodyT, ContextT, CallerT]):
    """One request as its handler sees it."""

    request: Request
    body: BodyT  # of a GET: its query
    context: ContextT  # of the server
    caller: CallerT  # as the router identified it

    @property
    def path_params(self) -> Mapping[str, str]:
        return self.request.path_params

    @property
    def headers(self) -> Mapping[str, str]:
        return self.request.headers


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[BodyT, AnswerT, ContextT, CallerT]):
    """One method of one path; an answer that is no Response is sent as JSON.

    The `request` of a GET is decoded from its query, of any other method from the body; `bytes` is the raw body.
    An answer without a `response` type is of the `media` type.
    `open` endpoints are probes and public pages; they are not logged.
    A GET that is not `safe` changes something: it has no HEAD, and pages of other sites may not call it.
    An `rpc` endpoint, which reads only its body, is also served over RPC connections.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    handler: Callable[[Call[BodyT, ContextT, CallerT]], Awaitable[AnswerT | Response]]
    request: type[BodyT] | None = None
    response: type[AnswerT] | None = None
    summary: str = ""
    _: KW_ONLY
    access: AccessRule
    safe: bool = True
    old: bool = False  # an alias of another endpoint
    media: str = "text/plain"
    rpc: bool = False


class EndpointOptions(TypedDict, total=False):
    """`response` is the type of the JSON that a Response holds; see Endpoint for the others."""

    response: Any
    safe: bool
    old: bool


class EndpointList(list[Endpoint[Any, Any, Any, Any]]):
    """The endpoints of a module. Each method decorates a handler, whose annotations declare request and response.

    @ENDPOINTS.get("/v1/tasks", "Tasks, by number", READ)
    async def list_tasks(call: MgmtCall[TasksQuery]) -> TaskList:
    """

    def get(
        self, *args: *PathTexts, **options: Unpack[EndpointOptions]
    ) -> Callable[[HandlerT], HandlerT]:
        return partial(self._add, "GET", *args, **options)

    def post(
        self, *args: *PathTexts, **options: Unpack[EndpointOptions]
    ) -> Callable[[HandlerT], HandlerT]:
        return partial(self._add, "POST", *args, **options)

    def put(
        self, *args: *PathTexts, **options: Unpack[EndpointOptions]
    ) -> Callable[[HandlerT], HandlerT]:
        return partial(self._add, "PUT", *args, **options)

    def delete(
        self, *args: *PathTexts, **options: Unpack[EndpointOptions]
    ) -> Callable[[HandlerT], HandlerT]:
        return partial(self._add, "DELETE", *args, **options)

    def _add(
        self,
        method: Literal["GET", "POST", "PUT", "DELETE"],
        path: str,
        summary: str,
        access: AccessRule,
        handler: HandlerT,
        *,
        response: Any = None,  # noqa: ANN401
        safe: bool = True,
        old: bool = False,
    ) -> HandlerT:
        hints = get_type_hints(handler)
        answer = hints.pop("return")
        (call,) = hints.values()
        body = call.__args__[0]
        request = None if body is type(None) else body
        answer = response if answer is Response else answer
        self.append(
            Endpoint(
                method, path, handler, request, answer, summary, access=access, safe=safe, old=old
            )
        )
        return handler


class Router(Generic[ContextT, CallerT]):
    """An ASGI application that dispatches requests to endpoints. A subclass decides who may call."""

    hint = ""  # of errors in the path, the method or the body

    def __init__(
        self, context: ContextT, endpoints: Sequence[Endpoint[Any, Any, ContextT, CallerT]]
    ) -> None:
        self.context = context
        paths: dict[str, PathEndpoints[ContextT, CallerT]] = {}
        for endpoint in endpoints:
            paths.setdefault(endpoint.path, PathEndpoints(self)).add(endpoint)
        self._fixed: dict[str, ASGIApp] = {
            path: methods for path, methods in paths.items() if "{" not in path
        }
        patterns = [Route(path, methods) for path, methods in paths.items() if "{" in path]
        self._patterns = PathMatcher(patterns, redirect_slashes=False, default=self._not_found)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._fixed.get(scope["path"], self._patterns)(scope, receive, send)

    async def authorize(self, access: AccessRule, request: Request) -> CallerT:
        """Return the caller, or raise if it may not call."""
        raise NotImplementedError

    async def answer_headers(self, _access: AccessRule) -> Mapping[str, str]:
        """The headers that every successful answer gets; called before the handler."""
        return {}

    async def _not_found(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        raise NotFound(f"There is nothing at {scope['path'][:200]}.", hint=self.hint)


class PathEndpoints(Generic[ContextT, CallerT]):
    """The endpoints of one path, by method."""

    def __init__(self, router: Router[ContextT, CallerT]) -> None:
        self._router = router
        self._endpoints: dict[
            str, tuple[Endpoint[Any, Any, ContextT, CallerT], Callable[[bytes], Any] | None]
        ] = {}

    def add(self, endpoint: Endpoint[Any, Any, ContextT, CallerT]) -> None:
        decode = decoder(endpoint) if endpoint.request and endpoint.method != "GET" else None
        self._endpoints[endpoint.method] = (endpoint, decode)
        if endpoint.method == "GET" and endpoint.safe:
            self._endpoints["HEAD"] = (endpoint, decode)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in self._endpoints:
            raise self._method_not_allowed(scope["method"])
        endpoint, decode = self._endpoints[scope["method"]]
        request, router = Request(scope, receive), self._router
        if not endpoint.safe and endpoint.access.scope != "open":
            check_site(request.headers)
        headers = await router.answer_headers(endpoint.access)
        caller = await router.authorize(endpoint.access, request)
        body = None
        if decode:
            body = decode_body(decode, await read_body(request), router.hint)
        elif endpoint.request:
            body = decode_query(endpoint.request, request, router.hint)
        answer = await endpoint.handler(Call(request, body, router.context, caller))
        response = to_response(answer)
        response.headers.update(headers)
        await response(scope, receive, send)

    def _method_not_allowed(self, method: str) -> HttpError:
        allowed = ", ".join(sorted(self._endpoints))
        return HttpError(
            405,
            "method_not_allowed",
            f"{method} is not possible here, only {allowed}.",
            hint=self._router.hint,
            headers={"Allow": allowed},
        )


def decoder(endpoint: Endpoint[Any, Any, Any, Any]) -> Callable[[bytes], Any]:
    """What decodes the bodies of an endpoint."""
    if endpoint.request is bytes:
        return bytes
    return msgspec.json.Decoder(endpoint.request).decode
