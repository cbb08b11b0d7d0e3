"""Sign in to the console with a token or with a link of `usher console`, and sign out."""

import ipaddress
from typing import Any

from starlette.responses import RedirectResponse, Response

from usher.api.browser_sessions import set_session
from usher.api.context import MgmtCall
from usher.console.forms import local_path, parse_form, query_text, read_form
from usher.console.render import ConsoleTemplates
from usher.db.pool import Connection
from usher.errors import NotAllowed
from usher.http.server.middleware import HttpError, is_forwarded
from usher.mgmt import console_sessions
from usher.mgmt.tokens import Token, local_token
from usher.telemetry import Log

log = Log("console")
LINK_HINT = "Run `usher console` again: each link works once, for 5 minutes."


def login_page(templates: ConsoleTemplates, call: MgmtCall[Any], message: str = "") -> str:
    """The form for a token, or a button for the link that the operator opened."""
    return templates.render(
        "login.html",
        key=query_text(call, "key"),
        next=local_path(query_text(call, "next") or "/"),
        message=message,
    )


async def sign_in(call: MgmtCall[bytes]) -> Response:
    """Open a session and return to the page that the browser asked for; 401 or 403 if the proof is not good."""
    fields, db = parse_form(call.body), call.context.mgmt_db
    peer = call.caller.peer
    async with db.transaction() as conn:
        if fields.get("key"):
            token = await token_of_link(conn, call, fields["key"])
        else:
            token = await console_token(call, fields.get("token", "").strip())
        secret = await console_sessions.add_session(conn, token, now=db.clock.now())
    log.info("signed_in", peer=peer, token=token.name, scope=token.scope)
    response = RedirectResponse(local_path(fields.get("next", "/")), 303)
    set_session(response, call.request, secret)
    return response


async def token_of_link(conn: Connection, call: MgmtCall[bytes], key: str) -> Token:
    """Use up a link of `usher console`, which works on the machine of MGMT only."""
    if not is_loopback(call.caller.peer) or is_forwarded(call.request.headers):
        raise NotAllowed("A link works on MGMT's machine only.", hint="Sign in with a token.")
    now = call.context.mgmt_db.clock.now()
    if not await console_sessions.use_link(conn, key, now=now):
        raise HttpError(401, "unproven", "This link was used or has expired.", hint=LINK_HINT)
    return local_token(console_sessions.OPERATOR_NAME, "admin", now)


async def console_token(call: MgmtCall[bytes], secret: str) -> Token:
    """The token with this secret, if its scope may use the console."""
    token = await call.context.callers.token(secret, call.caller.peer)
    if token.scope == "work":
        raise NotAllowed(
            "The token of a component cannot use the console.",
            hint="usher tokens add --scope read, or --scope admin",
        )
    return token


async def sign_out(call: MgmtCall[bytes]) -> Response:
    read_form(call)
    if secret := call.caller.session:
        async with call.context.mgmt_db.connection() as conn:
            await console_sessions.end_session(conn, secret)
        call.context.callers.forget_session(secret)
    response = RedirectResponse("/login", 303)
    set_session(response, call.request, "")
    return response


def is_loopback(peer: str) -> bool:
    try:
        return ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False
