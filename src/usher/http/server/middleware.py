"""What every request passes: its id, checks of Host and Origin, security headers, a log line, errors as problem+json.

Tokens are verified by MGMT's `callers`, tickets by a component's `ticket_guard`.
"""

import asyncio
import ipaddress
import logging
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from usher.errors import NotAllowed, UsherError
from usher.messages.server import Problem
from usher.telemetry import Log

log = Log("web")
REQUEST_ID = re.compile(r"[\w.:+/=-]{1,128}", re.ASCII)
MAX_CACHED_NAMES = 1_000
# The rest of the path is a secret between MGMT and a hub, so the log must not show it.
SECRET_PATH = re.compile(r"(?<=/websub/).+", re.IGNORECASE | re.DOTALL)
FORWARDING_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SERVER_FAILED = 500
RETRY_SECONDS = 5
LINGER_SECONDS, LINGER_BYTES = 2, 50_000_000
# Unless the answer sets the header itself.
SECURITY_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


class HttpError(Exception):
    """An error of the HTTP request itself, such as an unreadable body or an unknown method.

    It is no UsherError, because it never reaches the command line.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        hint: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.headers = headers or {}


class UnreadBodyError(HttpError):
    """An error before the whole body arrived: the server discards the rest and closes the connection."""


class Middleware:
    """The outermost ASGI application; requests to paths in `unlogged` are not logged.

    An error that is caused by one of `server_faults` is the server's fault and not the caller's.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        unlogged: frozenset[str],
        any_name: bool,
        server_faults: tuple[type[Exception], ...] = (),
    ) -> None:
        self.app = app
        self.unlogged = unlogged
        self.any_name = any_name
        self.server_faults = server_faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send)
        try:
            host = read_host(exchange.headers, scope["http_version"])
            if not self.any_name:
                check_name(host)
            if exchange.method not in SAFE_METHODS:
                check_site(exchange.headers)
            await self.app(scope, receive, exchange.send)
        except ClientDisconnect:
            log.debug("client_gone", path=exchange.logged_path, id=exchange.id)
        except Exception as error:
            if exchange.status:
                raise  # the answer has started: the server cuts the connection and logs the error
            await exchange.fail(error, self.server_faults)
        if exchange.path not in self.unlogged:
            exchange.log()


class Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self._send = send
        self.headers = Headers(scope=scope)
        sent_id = self.headers.get("x-request-id", "")
        self.id = sent_id if REQUEST_ID.fullmatch(sent_id) else secrets.token_hex(8)
        self.started_at = time.monotonic()
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.status = 0

    @property
    def logged_path(self) -> str:
        """The path without secrets."""
        return SECRET_PATH.sub("…", self.path)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = with_security(message["headers"], self.id)
        await self._send(message)

    async def fail(self, error: Exception, server_faults: tuple[type[Exception], ...]) -> None:
        """Answer with the error; details of a bug are in the log only."""
        response = problem(error, self.id, server_faults)
        if response.status_code >= SERVER_FAILED:
            log_error(error, self.method, self.logged_path, self.id)
        if isinstance(error, UnreadBodyError):
            await self.answer_and_linger(response)
        else:
            await response(self.scope, self.receive, self.send)

    async def answer_and_linger(self, response: Response) -> None:
        """Read on for a moment before closing; otherwise a client that still sends could lose the answer to a reset."""
        start = {"type": "http.response.start", "status": response.status_code}
        await self.send({**start, "headers": response.raw_headers})
        body = {"type": "http.response.body", "body": response.body, "more_body": True}
        await self.send(body)
        remaining = LINGER_BYTES
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while remaining > 0 and (message := await self.receive()).get("more_body"):
                    remaining -= len(message["body"])
        await self.send({"type": "http.response.body"})

    def log(self) -> None:
        log.debug(
            "request",
            method=self.method,
            path=self.logged_path,
            status=self.status,
            ms=round((time.monotonic() - self.started_at) * 1000, 1),
            peer=":".join(map(str, self.scope["client"] or ())),
            id=self.id,
        )


def log_error(error: Exception, method: str, path: str, request_id: str) -> None:
    if isinstance(error, UsherError):
        log.warning("request_failed", path=path, id=request_id, reason=error.message)
        return
    fields = {"method": method, "path": path, "id": request_id}
    logging.getLogger("usher.api").error("bug", exc_info=error, extra={"fields": fields})


def problem(
    error: Exception, request_id: str, server_faults: tuple[type[Exception], ...]
) -> Response:
    """An error as problem+json."""
    match error:
        case UsherError():
            status, headers = status_of(error, server_faults), dict[str, str]()
            code, message, hint = error.code, error.message, error.hint
        case HttpError():
            status, headers = error.status, dict(error.headers)
            code, message, hint = error.code, error.message, error.hint
        case _:
            status, headers = SERVER_FAILED, {}
            code, message = "failed", "The server failed."
            hint = f"The server's log has the details under id {request_id}."
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_SECONDS)
    content = Problem(HTTPStatus(status).phrase, status, code, message, request_id, hint)
    body = msgspec.json.encode(content)
    return Response(body, status, headers, media_type="application/problem+json")


def status_of(error: UsherError, server_faults: tuple[type[Exception], ...]) -> int:
    """The error's own status, or 500 if its cause is the server's fault, such as missing privileges in the database."""
    is_fault = isinstance(error.__cause__, server_faults) and error.status < SERVER_FAILED
    return SERVER_FAILED if is_fault else error.status


def with_security(
    headers: Sequence[tuple[bytes, bytes]], request_id: str
) -> list[tuple[bytes, bytes]]:
    """The headers of an answer, with its request id and the security headers it does not set itself."""
    names = {name for name, _ in headers}
    added = [header for header in SECURITY_HEADERS if header[0] not in names]
    return [*headers, *added, (b"x-request-id", request_id.encode())]


def read_host(headers: Headers, http_version: str) -> str:
    """The Host header. Empty only in HTTP/1.0 (a load balancer's probe); otherwise exactly one is required."""
    hosts = [value for name, value in headers.raw if name == b"host"]
    if len(hosts) == 1 and hosts[0] and not hosts[0].startswith(b":"):
        return hosts[0].decode("latin-1")
    if not hosts and http_version == "1.0":
        return ""
    raise HttpError(
        400,
        "bad_host",
        f"The request has {len(hosts)} Host headers." if len(hosts) != 1 else "Host is empty.",
        hint="Send exactly one Host header, with the name or address of this server.",
    )


def check_name(host: str) -> None:
    """Raise for a foreign name: a loopback server trusts all callers, and DNS can point any name at it."""
    if host and not is_own_name(host):
        raise NotAllowed(
            f"This server does not answer to the name {host!r}.",
            hint="Use localhost or an address in numbers, or start it with --insecure.",
        )


def check_site(headers: Headers) -> None:
    """Raise for a request that a page of another site sent; needed for everything that changes something."""
    host = headers.get("host", "")
    site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "")
    origin_host = urlsplit(origin).netloc or origin
    same = site in {"same-origin", "none"} or (not site and origin_host in {"", host})
    if not same:
        raise NotAllowed("Pages of other sites may not call this.", hint="Call it from a program.")


def is_forwarded(headers: Headers) -> bool:
    """Whether a proxy forwarded the request: then its sender may be on any machine."""
    return any(name in headers for name in FORWARDING_HEADERS)


def bearer(headers: Headers) -> str:
    """The token or ticket of the request; empty if it has none."""
    kind, _, secret = headers.get("authorization", "").strip().partition(" ")
    if kind and (kind.lower() != "bearer" or not secret.strip()):
        raise unauthorized("Authorization must be `Bearer` and a token.")
    return secret.strip()


PROOF_HINT = "Make a token with `usher tokens add` and send it as Authorization: Bearer TOKEN."


def unauthorized(message: str, *, hint: str = PROOF_HINT) -> HttpError:
    return HttpError(401, "unproven", message, hint=hint, headers={"WWW-Authenticate": "Bearer"})


@lru_cache(MAX_CACHED_NAMES)
def is_own_name(host: str) -> bool:
    """Whether it is localhost or an address; DNS lets other names point to any server."""
    name = re.sub(r":\d*$", "", host.lower())
    if name == "localhost":
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
