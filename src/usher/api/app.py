"""MGMT's ASGI application: the router with MGMT's access check and the incarnation header."""

from collections.abc import Mapping, Sequence

import psycopg
from starlette.requests import Request
from starlette.types import ASGIApp

from usher.api.access import check
from usher.api.browser_sessions import redirect_to_login, session_cookie
from usher.api.callers import Caller
from usher.api.context import MgmtContext, MgmtEndpoint
from usher.http.server.endpoint import AccessRule, Router
from usher.http.server.middleware import Middleware, bearer, is_forwarded
from usher.messages.fields import INCARNATION_HEADER

HOST_HEADER = "x-usher-host"


def make_app(
    context: MgmtContext, endpoints: Sequence[MgmtEndpoint], *, any_name: bool = False
) -> ASGIApp:
    """The endpoints as an ASGI application; with `any_name` it accepts every Host header."""
    unlogged = frozenset(endpoint.path for endpoint in endpoints if endpoint.access.scope == "open")
    router = MgmtRouter(context, endpoints)
    return Middleware(router, unlogged=unlogged, any_name=any_name, server_faults=(psycopg.Error,))


class MgmtRouter(Router[MgmtContext, Caller]):
    hint = "GET /v1/openapi.json lists every endpoint."

    async def answer_headers(self, access: AccessRule) -> Mapping[str, str]:
        if access.scope == "open":
            return {}
        incarnation = await self.context.incarnation.id()
        return {INCARNATION_HEADER: incarnation} if incarnation else {}

    async def authorize(self, access: AccessRule, request: Request) -> Caller:
        """The caller, if it may call; a token that is shown must be good even where none is needed."""
        peer = request.client.host if request.client else ""
        if access.scope == "open":
            return Caller(peer)
        callers = self.context.callers
        secret, session = bearer(request.headers), ""
        token = await callers.token(secret, peer) if secret else None
        if access.session and not secret and (cookie := session_cookie(request)):
            token = await callers.session(cookie)
            session = cookie if token else ""
        is_local = self.context.is_open and not is_forwarded(request.headers)
        if token is None and access.session and not (is_local and access.local):
            redirect_to_login(request)
        check(access, token, is_local=is_local)
        return Caller(peer, request.headers.get(HOST_HEADER, ""), token, session)
