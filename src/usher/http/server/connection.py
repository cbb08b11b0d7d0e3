"""One HTTP connection of any of our servers, with limits on size, time and number.

- A head (request line and headers) or a trailer of more than MAX_HEAD_BYTES or MAX_HEADERS is answered 431.
- A head that does not arrive within HEAD_SECONDS is answered 408. A new connection that sends nothing is closed.
- A body that no handler reads is discarded until the keep-alive timeout ends; `bodies` limits those that are read.
- A connection beyond the limits of `usher.http.server.connection_limits` is answered 503.

After such an answer the connection closes. The cost of a request is linear in its bytes.
"""

import math
import secrets
from typing import Any, Final, cast

import httptools
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from usher.http.server.connection_limits import ConnectionState, SendProgress, address_group
from usher.http.server.middleware import (
    LINGER_BYTES,
    LINGER_SECONDS,
    SERVER_FAILED,
    HttpError,
    log_error,
    problem,
    with_security,
)
from usher.http.server.single_write import SingleWriteProtocol, SingleWriteTransport
from usher.telemetry import HTTP_REFUSED, Log

log = Log("web")
MAX_HEAD_BYTES: Final = 65_536
MAX_HEADERS: Final = 100
MAX_PIPELINED_REQUESTS: Final = 100
HEAD_SECONDS: Final = 10.0
HEADER_SEPARATORS_BYTES: Final = 4  # colon, space and line end


class LimitedConnection(SingleWriteProtocol):
    """uvicorn's HTTP protocol with the limits of this module."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - uvicorn's own options
        super().__init__(**options)
        self._state = cast("ConnectionState", self.server_state)
        self.deadline = math.inf
        self._head_bytes = 0  # of a head or trailer that has not ended
        self._unparsed = bytearray()  # an unfinished header line
        self._expects_fields = True  # the parser is before or in a head, or perhaps in a trailer
        self._in_head = False
        self._is_moved = False  # a head, a chunk or a message ended in the current part
        self._error: HttpError | None = None
        self.is_over = False  # what the client sends from now on is discarded
        self._discardable_bytes = LINGER_BYTES
        self.address = ""

    # What the loop calls:

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - as in the parent
        super().connection_made(transport)
        self._progress = SendProgress(transport)
        self.deadline = self.loop.time() + HEAD_SECONDS
        self.address = address_group(self.client[0]) if self.client else ""
        if self._state.enter(self.address):
            return
        if self._state.is_flooded:
            self.is_over = True
            transport.abort()
        else:
            self.refuse(too_many_connections())

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.leave(self.address)
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        self._progress.restart()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parse at most so many bytes at a time that a head cannot exceed its limit unnoticed."""
        if not self._head_bytes and len(data) <= MAX_HEAD_BYTES and not self.is_over:
            self._parse(data)
        else:
            self._receive_in_parts(data)
        if self._in_head and self.deadline == math.inf:
            self.deadline = self.loop.time() + HEAD_SECONDS

    def _receive_in_parts(self, data: bytes) -> None:
        start = 0
        while start < len(data) and not self.is_over:
            end = start + MAX_HEAD_BYTES - self._head_bytes
            if end <= start:
                self.refuse(too_large_head())
                return
            part = data[start:end]
            if self._head_bytes and b"\n" not in part:
                self._unparsed += part  # parsed with the rest of its line: the parser copies the line for each part
                self._head_bytes += len(part)
            else:
                self._parse(part)
            start = end
        if self.is_over:
            self._discard(max(0, len(data) - start))

    def _parse(self, part: bytes) -> None:
        """Give bytes to the parser, and count them if they belong to an unfinished head or trailer.

        Where one starts in the middle of a part, the bytes of this part are not counted: at most MAX_HEAD_BYTES.
        """
        self._is_moved = False
        if self._unparsed:
            self._unparsed += part
            data, self._unparsed = bytes(self._unparsed), bytearray()
        else:
            data = part
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The client speaks another protocol from here on. It gets an HTTP answer and no more.
            self.cycle.keep_alive = False
            self.is_over = True
        except httptools.HttpParserError:
            self.refuse(self._error or malformed())
        if not self._is_moved and self._expects_fields:
            self._head_bytes += len(part)
        else:
            self._head_bytes = int(self._in_head)

    def _discard(self, count: int) -> None:
        self._discardable_bytes -= count
        if self._discardable_bytes < 0:
            self.transport.abort()

    # What the parser calls:

    def on_message_begin(self) -> None:
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self.timeout_keep_alive_task is not None:  # set by the answer before
            self._unset_keepalive_if_required()
        self.deadline = math.inf
        self._in_head = self._expects_fields = False
        self._is_moved = True
        if len(self.headers) > MAX_HEADERS or (
            self._head_bytes and head_bytes(self.url, self.headers) > MAX_HEAD_BYTES
        ):
            self._fail(too_large_head())
        if len(self.pipeline) >= MAX_PIPELINED_REQUESTS:
            self._fail(too_many_requests())
        super().on_headers_complete()
        self.headers = []  # for the trailer, which must not pass for headers of the request

    def on_chunk_header(self) -> None:
        """After the last chunk, which is empty, comes the trailer."""
        self._expects_fields = self._is_moved = True

    def on_body(self, body: bytes) -> None:
        self._expects_fields = False
        self._is_moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._expects_fields = self._is_moved = True
        if len(self.headers) > MAX_HEADERS:
            self._fail(too_large_head())
        super().on_message_complete()

    def _fail(self, error: HttpError) -> None:
        """Stop the parser; it forgets the exceptions of some of its callbacks."""
        self._error = error
        raise error

    # Ends:

    @property
    def _is_answering(self) -> bool:
        return not getattr(
            self.cycle, "response_complete", True
        )  # no cycle before the first request

    def expire(self, now: float) -> None:
        """Close the connection if its time is up; the server calls this at intervals."""
        if self._progress.is_stalled(now):
            self.transport.abort()
        elif now < self.deadline:
            return
        elif self.is_over:
            self.transport.abort()
        elif not self._in_head:
            self.transport.close()
        elif self._is_answering:  # reading may be paused until the answer is complete
            self.deadline = now + HEAD_SECONDS
        else:
            self.refuse(slow_head())

    def refuse(self, error: Exception) -> None:
        """Answer with an error instead of parsing further, and close the connection.

        Answers to earlier requests go first; then the connection just closes.
        """
        self.is_over, self.deadline = True, math.inf
        cycle = self.cycle
        if self._is_answering and cycle.more_body:
            cycle.disconnected = True  # its handler waits for a body that cannot come
            cycle.message_event.set()
            if cycle.response_started or self.pipeline:
                self.transport.close()
                return
        elif self._is_answering:
            cycle.keep_alive = False
            return
        self._answer(error)

    def _answer(self, error: Exception) -> None:
        """Send the error, then discard input for a moment: closing at once would reset the connection unread."""
        if self.transport.is_closing():
            return
        id_ = secrets.token_hex(8)
        response = problem(error, id_, ())
        if response.status_code >= SERVER_FAILED and not isinstance(error, HttpError):
            log_error(error, "GET", "", id_)
        HTTP_REFUSED.labels(str(response.status_code)).inc()
        peer = ":".join(map(str, self.client or ()))
        log.debug("refused", status=response.status_code, peer=peer, id=id_)
        self.transport.write(raw_answer(response, id_, self.server_state.default_headers))
        cast("SingleWriteTransport", self.transport).flush()
        self.transport.write_eof()
        self.deadline = self.loop.time() + LINGER_SECONDS


def raw_answer(
    response: Response, request_id: str, default_headers: list[tuple[bytes, bytes]]
) -> bytes:
    """The bytes of an answer that closes the connection."""
    headers = [*default_headers, *response.raw_headers, (b"connection", b"close")]
    lines = [b"%s: %s\r\n" % header for header in with_security(headers, request_id)]
    body = bytes(response.body)
    return b"".join([STATUS_LINE[response.status_code], *lines, b"\r\n", body])


def head_bytes(url: bytes, headers: list[tuple[bytes, bytes]]) -> int:
    """The size of a head without its method, version and optional spaces."""
    return len(url) + sum(
        len(name) + len(value) + HEADER_SEPARATORS_BYTES for name, value in headers
    )


def too_large_head() -> HttpError:
    message = f"The head of a request may have {MAX_HEAD_BYTES:,} bytes and {MAX_HEADERS} headers."
    return HttpError(431, "head_too_large", message, hint="Send fewer or shorter headers.")


def slow_head() -> HttpError:
    message = f"The head of the request did not arrive within {HEAD_SECONDS:g} seconds."
    return HttpError(408, "too_slow", message, hint="Send it again.")


def malformed() -> HttpError:
    message = "This is not an HTTP/1.1 request."
    return HttpError(400, "malformed", message, hint="Check the client, or use another one.")


def too_many_connections() -> HttpError:
    message = "The server has too many connections."
    return HttpError(503, "too_many_connections", message, hint="Try again later.")


def too_many_requests() -> HttpError:
    message = f"More than {MAX_PIPELINED_REQUESTS} requests wait on this connection."
    return HttpError(503, "too_many_requests", message, hint="Wait for answers before asking more.")
