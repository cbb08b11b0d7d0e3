"""The server's side of RPC connections: an HTTP connection becomes one if its first request asks for it.

`usher.http.rpc` describes the protocol. Front-ends call index servers over it; the handlers and the errors are those of
HTTP. A request that is not exactly an upgrade is left to HTTP.

The ticket is verified before the upgrade and again with each request. A server has at most MAX_RPC_CONNECTIONS. A
connection buffers one read (at most 256 kB) and one request. Requests of more than SMALL_REQUEST_BYTES share
MAX_REQUESTS_BYTES; one that does not fit is answered 503, and its connection is closed.
"""

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, cast

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response

from usher.errors import NotFound
from usher.http.rpc import MAX_HEAD_LINE_BYTES, PROTOCOL_NAME, UPGRADE_PATH, UPGRADE_RESPONSE
from usher.http.server.bodies import MAX_BODY_BYTES
from usher.http.server.connection import MAX_HEAD_BYTES, MAX_HEADERS, LimitedConnection
from usher.http.server.connection_limits import ConnectionState, SendProgress
from usher.http.server.middleware import (
    SERVER_FAILED,
    HttpError,
    bearer,
    check_name,
    check_site,
    log_error,
    problem,
    read_host,
)
from usher.http.server.single_write import SingleWriteTransport
from usher.http.server.ticket_guard import Guard
from usher.telemetry import Log
from usher.tickets import Ticket

log = Log("web")
UPGRADE_REQUEST_LINE: Final = f"GET {UPGRADE_PATH} HTTP/1.1\r\n".encode()
IDLE_SECONDS: Final = 60.0
MAX_RPC_CONNECTIONS: Final = 256
SMALL_REQUEST_BYTES: Final = 65_536
MAX_REQUESTS_BYTES: Final = 64_000_000


class RpcResponse(NamedTuple):
    """The parts of a Response that an RPC connection sends."""

    status_code: int
    body: bytes


class RpcRequestHead(NamedTuple):
    path: bytes
    length: int


RpcHandler = Callable[[bytes], Awaitable[object]]


class RpcServer:
    """The handlers of one server by their path, and the limits that its RPC connections share."""

    def __init__(
        self, handlers: Mapping[bytes, RpcHandler], guard: Guard | None, *, any_name: bool
    ) -> None:
        self.handlers, self.guard = handlers, guard
        self._any_name = any_name
        self._connections = 0
        self._reserved_bytes = 0

    @property
    def protocol(self) -> type[asyncio.Protocol]:
        """The factory of uvicorn's protocols."""
        return cast("type[asyncio.Protocol]", partial(UpgradableConnection, self))

    async def admit(self, headers: Headers) -> Ticket | None:
        """Count one more RPC connection and return its ticket, if it needs one; raises if it may not upgrade."""
        host = read_host(headers, "1.1")
        if not self._any_name:
            check_name(host)
        check_site(headers)
        ticket = await self.guard.check(bearer(headers), "query") if self.guard else None
        if self._connections >= MAX_RPC_CONNECTIONS:
            message = f"The server has {MAX_RPC_CONNECTIONS} upgraded connections already."
            raise HttpError(503, "too_many_connections", message, hint="Call it over HTTP.")
        self._connections += 1
        return ticket

    def leave(self) -> None:
        """Stop counting an RPC connection that has ended."""
        self._connections -= 1

    def reserve(self, request: RpcRequestHead) -> int:
        """Reserve memory for a request; returns the bytes, or raises if there is no room."""
        if request.length <= SMALL_REQUEST_BYTES:
            return 0
        if self._reserved_bytes + request.length > MAX_REQUESTS_BYTES:
            message = "The server holds too many large requests."
            raise HttpError(503, "too_many_questions", message, hint="Try again later.")
        self._reserved_bytes += request.length
        return request.length

    def release(self, count: int) -> None:
        """Give back what `reserve` returned."""
        self._reserved_bytes -= count


def read_upgrade(head: bytes) -> Headers | None:
    """The headers of a complete upgrade request; None if HTTP has to answer it."""
    if not head.startswith(UPGRADE_REQUEST_LINE) or not head.endswith(b"\r\n\r\n"):
        return None
    fields = head[len(UPGRADE_REQUEST_LINE) : -4].split(b"\r\n")
    if len(head) > MAX_HEAD_BYTES or len(fields) > MAX_HEADERS:
        return None
    pairs = (field.partition(b":") for field in fields)
    headers = Headers(raw=[(name.lower(), value.strip()) for name, _, value in pairs])
    return headers if headers.get("upgrade", "") == PROTOCOL_NAME else None


class UpgradableConnection(LimitedConnection):
    """HTTP, unless the first request is an upgrade."""

    def __init__(self, server: RpcServer, **options: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(**options)
        self._rpc_server, self._is_new = server, True

    def data_received(self, data: bytes) -> None:
        if self._is_new and not self.is_over:
            self._is_new = False
            if (headers := read_upgrade(data)) is not None:
                self._upgrade(headers)
                return
        super().data_received(data)

    def _upgrade(self, headers: Headers) -> None:
        self.deadline = math.inf  # the guard has a timeout of its own
        self.transport.pause_reading()
        task = self.loop.create_task(self._check_and_upgrade(headers))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _check_and_upgrade(self, headers: Headers) -> None:
        """Answer 101 if the ticket is valid and the limit permits it, otherwise with an HTTP error."""
        inner = cast("SingleWriteTransport", self.transport).inner
        try:
            ticket = await self._rpc_server.admit(headers)
        except Exception as error:  # noqa: BLE001 - the caller gets the reason
            if not inner.is_closing():
                inner.resume_reading()
                self.refuse(error)
            return
        if inner.is_closing():
            self._rpc_server.leave()
            return
        self.connections.discard(self)
        RpcServerConnection(self._rpc_server, ticket, inner, self)
        inner.resume_reading()


class RpcServerConnection(asyncio.Protocol):
    """One RPC connection; it handles one request at a time."""

    def __init__(
        self,
        server: RpcServer,
        ticket: Ticket | None,
        transport: asyncio.Transport,
        http: UpgradableConnection,
    ) -> None:
        self._server, self._ticket, self._transport = server, ticket, transport
        self._state = cast("ConnectionState", http.server_state)
        self._address = http.address
        self._received = bytearray()
        self._request: RpcRequestHead | None = None  # whose body has not fully arrived
        self._reserved_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._is_ending = self._is_reading_paused = self._is_writing_paused = False
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._progress = SendProgress(transport)
        transport.set_protocol(self)
        transport.write(UPGRADE_RESPONSE)
        self._state.connections.add(self)  # type: ignore[arg-type] # uvicorn shuts it down like its own

    def shutdown(self) -> None:
        """Finish the present request and close."""
        self._is_ending = True
        if self._task is None:
            self._transport.close()

    def expire(self, now: float) -> None:
        """Close the connection if it is idle for too long, or if the client does not read responses."""
        if self._progress.is_stalled(now):
            self._transport.abort()
        elif self._task is None and now - self._since >= IDLE_SECONDS:
            self._transport.close()

    # What the loop calls:

    def data_received(self, part: bytes) -> None:
        self._received += part
        self._advance()

    def connection_lost(self, _error: Exception | None) -> None:
        self._state.connections.discard(self)
        self._state.leave(self._address)
        self._server.leave()
        self._received.clear()
        if self._task is None:
            self._release()

    def pause_writing(self) -> None:
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._progress.restart()
        self._advance()

    def _advance(self) -> None:
        """Start the next request if possible; read on only while it is incomplete or nothing waits."""
        if self._transport.is_closing():
            return
        if self._is_free:
            self._start_next()
        is_paused = bool(self._received) and not self._is_free
        if is_paused != self._is_reading_paused and not self._transport.is_closing():
            self._is_reading_paused = is_paused
            if is_paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    @property
    def _is_free(self) -> bool:
        return self._task is None and not self._is_writing_paused

    def _start_next(self) -> None:
        """Handle the next request if it is complete."""
        if self._request is None and self._received:
            self._request = self._read_head()
        if self._request and len(self._received) >= self._request.length:
            path, length = self._request
            body = bytes(self._received[:length])
            del self._received[:length]
            self._request = None
            self._task = self._loop.create_task(self._handle(path, body))
            self._state.tasks.add(self._task)
            self._task.add_done_callback(self._finish)

    def _read_head(self) -> RpcRequestHead | None:
        """The head of the next request, if it has arrived and there is room for its body."""
        end = self._received.find(b"\n", 0, MAX_HEAD_LINE_BYTES)
        if end < 0 and len(self._received) < MAX_HEAD_LINE_BYTES:
            return None
        path, _, length = bytes(self._received[: max(end, 0)]).partition(b" ")
        if not length.isdigit() or int(length) > MAX_BODY_BYTES:
            self._transport.close()  # this is not our protocol
            return None
        del self._received[: end + 1]
        request = RpcRequestHead(path, int(length))
        self._since = self._loop.time()
        try:
            self._reserved_bytes = self._server.reserve(request)
        except HttpError as error:
            self._write(error_response(error, path))
            self._transport.close()
            return None
        return request

    def _release(self) -> None:
        self._server.release(self._reserved_bytes)
        self._reserved_bytes = 0

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._release()
        self._state.tasks.discard(task)
        self._task, self._since = None, self._loop.time()
        if self._is_ending or task.cancelled():
            self._transport.close()
        else:
            self._advance()

    async def _handle(self, path: bytes, body: bytes) -> None:
        started_at = time.monotonic()
        try:
            if self._server.guard and self._ticket:
                self._server.guard.check_again(self._ticket)
            response = rpc_response(await self._handler(path)(body))
        except Exception as error:  # noqa: BLE001 - the caller gets the reason
            response = error_response(error, path)
        self._write(response)
        log.debug(
            "asked",
            path=path.decode("latin-1"),
            status=response.status_code,
            ms=round((time.monotonic() - started_at) * 1000, 1),
        )

    def _write(self, response: Response | RpcResponse) -> None:
        if self._transport.is_closing():  # uvloop raises an error then
            return
        body = response.body
        self._transport.write(b"%d %d\n%s" % (response.status_code, len(body), body))

    def _handler(self, path: bytes) -> RpcHandler:
        if (handler := self._server.handlers.get(path)) is None:
            raise NotFound(f"There is no RPC endpoint {path[:100]!r}.")
        return handler


def rpc_response(answer: object) -> Response | RpcResponse:
    if isinstance(answer, Response):
        return answer
    return RpcResponse(200, msgspec.json.encode(answer))


def error_response(error: Exception, path: bytes) -> Response:
    id_ = secrets.token_hex(8)
    response = problem(error, id_, ())
    if response.status_code >= SERVER_FAILED and not isinstance(error, HttpError):
        log_error(error, "POST", path.decode("latin-1"), id_)
    return response
