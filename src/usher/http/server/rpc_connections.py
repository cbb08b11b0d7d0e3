"""Quick lines at our end: connections that leave HTTP behind when their first request asks for it (`usher.http.rpc`).

Comes from front-ends that ask index servers; goes to the same handlers as over HTTP, with the same errors. Whatever is
not quite a wish for a quick line is left to HTTP to answer.

The token is checked before the connection is upgraded and again with each question. A server has at most MAX_LINES
upgraded connections. A connection buffers one read (256 kB at most) and one question. Questions of more than
SMALL_QUESTION_BYTES share MAX_QUESTIONS_BYTES; one that does not fit is answered 503, and the connection closed.
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
from usher.http.rpc import LONGEST_HEAD, NAME, PATH, SWITCHED
from usher.http.server.bodies import MAX_BODY_BYTES
from usher.http.server.connection import MAX_HEAD_BYTES, MAX_HEADERS, LimitedConnection
from usher.http.server.connection_limits import ConnectionState, SendProgress
from usher.http.server.middleware import (
    SERVER_FAILED,
    HttpError,
    bearer,
    check_name,
    check_site,
    note_failure,
    problem,
    read_host,
)
from usher.http.server.single_write import SingleWriteTransport
from usher.http.server.ticket_guard import Guard
from usher.telemetry import Log
from usher.tickets import Ticket

log = Log("web")
WISH: Final = f"GET {PATH} HTTP/1.1\r\n".encode()
IDLE_SECONDS: Final = 60.0
MAX_LINES: Final = 256
SMALL_QUESTION_BYTES: Final = 65_536
MAX_QUESTIONS_BYTES: Final = 64_000_000


class RpcResponse(NamedTuple):
    """As much of an answer as a quick line needs."""

    status_code: int
    body: bytes


class RpcRequestHead(NamedTuple):
    """The head of a question."""

    path: bytes
    length: int


RpcHandler = Callable[[bytes], Awaitable[object]]


class RpcServer:
    """What can be asked over quick lines, by its path, and by whom; `protocol` is what uvicorn is to speak."""

    def __init__(
        self, asked: Mapping[bytes, RpcHandler], guard: Guard | None, *, any_name: bool
    ) -> None:
        self.asked, self.guard = asked, guard
        self._any_name = any_name
        self._lines = 0
        self._reserved_bytes = 0

    @property
    def protocol(self) -> type[asyncio.Protocol]:
        """What makes uvicorn's protocols for it."""
        return cast("type[asyncio.Protocol]", partial(UpgradableConnection, self))

    async def admit(self, headers: Headers) -> Ticket | None:
        """Count one more upgraded connection and return its ticket, if it needs one; raises if it may not upgrade."""
        host = read_host(headers, "1.1")
        if not self._any_name:
            check_name(host)
        check_site(headers)
        ticket = await self.guard.check(bearer(headers), "query") if self.guard else None
        if self._lines >= MAX_LINES:
            message = f"The server has {MAX_LINES} upgraded connections already."
            raise HttpError(503, "too_many_connections", message, hint="Ask over HTTP.")
        self._lines += 1
        return ticket

    def leave(self) -> None:
        """Stop counting an upgraded connection that has ended."""
        self._lines -= 1

    def reserve(self, question: RpcRequestHead) -> int:
        """How many bytes were reserved for a question; raises if there is no room for it."""
        if question.length <= SMALL_QUESTION_BYTES:
            return 0
        if self._reserved_bytes + question.length > MAX_QUESTIONS_BYTES:
            message = "The server holds too many large questions."
            raise HttpError(503, "too_many_questions", message, hint="Try again later.")
        self._reserved_bytes += question.length
        return question.length

    def release(self, count: int) -> None:
        """Give back what `reserve` returned."""
        self._reserved_bytes -= count


def read_upgrade(head: bytes) -> Headers | None:
    """The headers of a complete request for an upgrade; None if HTTP has to answer it."""
    if not head.startswith(WISH) or not head.endswith(b"\r\n\r\n"):
        return None
    fields = head[len(WISH) : -4].split(b"\r\n")
    if len(head) > MAX_HEAD_BYTES or len(fields) > MAX_HEADERS:
        return None
    pairs = (field.partition(b":") for field in fields)
    headers = Headers(raw=[(name.lower(), value.strip()) for name, _, value in pairs])
    return headers if headers.get("upgrade", "") == NAME else None


class UpgradableConnection(LimitedConnection):
    """HTTP, until the first that is said is the wish for a quick line."""

    def __init__(self, board: RpcServer, **given: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(**given)
        self._board, self._is_new = board, True

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
        """Answer 101 if the token is good and a line is free, otherwise as HTTP does."""
        inner = cast("SingleWriteTransport", self.transport).inner
        try:
            ticket = await self._board.admit(headers)
        except Exception as error:  # noqa: BLE001 - the caller gets the reason
            if not inner.is_closing():
                inner.resume_reading()
                self.refuse(error)
            return
        if inner.is_closing():
            self._board.leave()
            return
        self.connections.discard(self)
        RpcServerConnection(self._board, ticket, inner, self)
        inner.resume_reading()


class RpcServerConnection(asyncio.Protocol):
    """One quick line: a question at a time, those that come early wait."""

    def __init__(
        self,
        board: RpcServer,
        ticket: Ticket | None,
        transport: asyncio.Transport,
        http: UpgradableConnection,
    ) -> None:
        self._board, self._ticket, self._transport = board, ticket, transport
        self._state = cast("ConnectionState", http.server_state)
        self._address = http.address
        self._heard = bytearray()
        self._question: RpcRequestHead | None = None  # whose body has not all arrived
        self._reserved_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._is_ending = self._is_reading_paused = self._is_writing_paused = False
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._progress = SendProgress(transport)
        transport.set_protocol(self)
        transport.write(SWITCHED)
        self._state.connections.add(self)  # type: ignore[arg-type] # it is shut down as uvicorn's own

    def shutdown(self) -> None:
        """The answer under way is given, and no other."""
        self._is_ending = True
        if self._task is None:
            self._transport.close()

    def expire(self, now: float) -> None:
        """Close the connection if no question was completed for a while, or answers are not read."""
        if self._progress.is_stalled(now):
            self._transport.abort()
        elif self._task is None and now - self._since >= IDLE_SECONDS:
            self._transport.close()

    # What the loop calls:

    def data_received(self, part: bytes) -> None:
        self._heard += part
        self._advance()

    def connection_lost(self, _error: Exception | None) -> None:
        self._state.connections.discard(self)
        self._state.leave(self._address)
        self._board.leave()
        self._heard.clear()
        if self._task is None:
            self._release()

    def pause_writing(self) -> None:
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._progress.restart()
        self._advance()

    def _advance(self) -> None:
        """Start the next question if possible; read on only while it is incomplete or nothing waits."""
        if self._transport.is_closing():
            return
        is_free = self._task is None and not self._is_writing_paused
        if is_free:
            self._next()
            is_free = self._task is None and not self._is_writing_paused
        is_paused = bool(self._heard) and not is_free
        if is_paused != self._is_reading_paused and not self._transport.is_closing():
            self._is_reading_paused = is_paused
            if is_paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _next(self) -> None:
        """Begin with the next question, if it is all there."""
        if self._question is None and self._heard:
            self._question = self._read_head()
        if self._question and len(self._heard) >= self._question.length:
            path, length = self._question
            body = bytes(self._heard[:length])
            del self._heard[:length]
            self._question = None
            self._task = self._loop.create_task(self._answer(path, body))
            self._state.tasks.add(self._task)
            self._task.add_done_callback(self._answered)

    def _read_head(self) -> RpcRequestHead | None:
        """The head of the next question, if it has arrived and there is room for its body."""
        end = self._heard.find(b"\n", 0, LONGEST_HEAD)
        if end < 0 and len(self._heard) < LONGEST_HEAD:
            return None
        path, _, length = bytes(self._heard[: max(end, 0)]).partition(b" ")
        if not length.isdigit() or int(length) > MAX_BODY_BYTES:
            self._transport.close()  # not one of ours
            return None
        del self._heard[: end + 1]
        question = RpcRequestHead(path, int(length))
        self._since = self._loop.time()
        try:
            self._reserved_bytes = self._board.reserve(question)
        except HttpError as error:
            self._write(refusal(error, path))
            self._transport.close()
            return None
        return question

    def _release(self) -> None:
        self._board.release(self._reserved_bytes)
        self._reserved_bytes = 0

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._release()
        self._state.tasks.discard(task)
        self._task, self._since = None, self._loop.time()
        if self._is_ending or task.cancelled():
            self._transport.close()
        else:
            self._advance()

    async def _answer(self, path: bytes, body: bytes) -> None:
        began = time.monotonic()
        try:
            if self._board.guard and self._ticket:
                self._board.guard.check_again(self._ticket)
            response = rpc_response(await self._handler(path)(body))
        except Exception as error:  # noqa: BLE001 - the caller gets the reason
            response = refusal(error, path)
        self._write(response)
        log.debug(
            "asked",
            path=path.decode("latin-1"),
            status=response.status_code,
            ms=round((time.monotonic() - began) * 1000, 1),
        )

    def _write(self, response: Response | RpcResponse) -> None:
        if self._transport.is_closing():  # uvloop raises an error then
            return
        self._transport.write(
            b"%d %d\n%s" % (response.status_code, len(response.body), response.body)
        )

    def _handler(self, path: bytes) -> RpcHandler:
        if (found := self._board.asked.get(path)) is None:
            raise NotFound(f"Nothing is asked at {path[:100]!r} over a quick line.")
        return found


def rpc_response(answer: object) -> Response | RpcResponse:
    if isinstance(answer, Response):
        return answer
    return RpcResponse(200, msgspec.json.encode(answer))


def refusal(error: Exception, path: bytes) -> Response:
    id_ = secrets.token_hex(8)
    told = problem(error, id_, ())
    if told.status_code >= SERVER_FAILED and not isinstance(error, HttpError):
        note_failure(error, "POST", path.decode("latin-1"), id_)
    return told
