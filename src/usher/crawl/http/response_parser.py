"""Parses bytes of HTTP/1.1 into a response, up to the limits.

Bytes that are not HTTP, too many or mostly framing raise FetchFailure; the response keeps what came before.
"""

from typing import Final

import httptools

from usher.crawl.http.response import FailureKind, FetchFailure, FetchResponse, format_bytes

MAX_HEADERS: Final = 500
_FIRST_STATUS: Final = 100
_FIRST_FINAL: Final = 200


class _StopParser(Exception):
    """Stops httptools."""


class ResponseParser:
    """Parses one response after the other; `reusable` says whether the connection may serve another request."""

    def __init__(self, head: int, body: int) -> None:
        self._max_head, self._max_body = head, body
        self._parser = httptools.HttpResponseParser(self)
        # What every browser accepts: lines that end without CR, folded headers.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )
        self._failure: tuple[FailureKind, str] | None = None
        self.received = 0  # bytes, with framing
        self.done = self.reusable = False
        self._has_head = False
        self._body: bytes | bytearray = b""

    def begin(self, response: FetchResponse) -> None:
        self._response = response
        self.received, self._body = 0, b""
        self.done = self.reusable = self._has_head = False

    def feed(self, data: bytes) -> None:
        self.received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.reusable = False
            if not self.done:  # else the response is complete, and the rest is garbage
                raise self._failure_of(error) from None
        if self.received > self._max_head and not self.done:
            self._check_size()

    def finish(self) -> None:
        """Move the received body into the response."""
        response = self._response
        response.raw = bytes(self._body)
        if response.status is None:
            response.headers.clear()
            response.reason = ""
        self._body = b""
        del self._response

    @property
    def ends_at_close(self) -> bool:
        """Whether this response is complete when the host closes the connection."""
        if not self._has_head or self._response.headers_of("content-length"):
            return False
        codings = self._response.header("transfer-encoding").lower()
        return codings.split(",")[-1].strip() != "chunked"

    def describe_reset(self) -> str:
        if not self.received:
            return "the host closed the connection without a response"
        return f"the connection was lost in the {'body' if self._has_head else 'head'}"

    # Called by httptools:

    def on_message_begin(self) -> None:
        if self.done:
            raise _StopParser

    def on_status(self, reason: bytes) -> None:
        self._response.reason += reason.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._has_head:  # trailers after the last chunk are ignored
            return
        headers = self._response.headers
        headers.append((name.decode("latin-1"), value.decode("latin-1")))
        if len(headers) > MAX_HEADERS:
            self._stop("head", f"the head has more than {MAX_HEADERS} lines")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < _FIRST_FINAL:
            if status < _FIRST_STATUS:
                self._stop("protocol", f"invalid status {status:03}")
            return
        if self.received > self._max_head and self._head_size() > self._max_head:
            self._stop(*self._long_head())
        self._response.status, self._has_head = status, True

    def on_body(self, part: bytes) -> None:
        room = self._max_body - len(self._body)
        if not self._body:
            self._body = part[:room]
        else:
            if not isinstance(self._body, bytearray):
                self._body = bytearray(self._body)
            self._body += part[:room]
        if len(part) > room:
            self._stop("body", f"the body is longer than {format_bytes(self._max_body)}")

    def on_message_complete(self) -> None:
        if self._has_head:
            # httptools forgets this after the callback.
            self.done, self.reusable = True, self._parser.should_keep_alive()
        else:  # 100 to 199: the response follows
            self._response.headers.clear()
            self._response.reason = ""

    # Limits:

    def _stop(self, kind: FailureKind, words: str) -> None:
        self._failure = kind, words
        raise _StopParser

    def _failure_of(self, error: Exception) -> FetchFailure:
        if self._failure is not None:
            return FetchFailure(*self._failure)
        if isinstance(error, httptools.HttpParserUpgrade):
            return FetchFailure("protocol", "the response switches to another protocol")
        return FetchFailure("protocol", f"the response is not HTTP: {str(error)[:80]}")

    def _check_size(self) -> None:
        """Fail for a head without an end, and for chunks with more framing than content."""
        if not self._has_head:
            raise FetchFailure(*self._long_head())
        if self.received > 2 * (self._max_head + len(self._body)):
            raise FetchFailure("protocol", "the response has more framing than content")

    def _head_size(self) -> int:
        return sum(len(name) + len(value) + 4 for name, value in self._response.headers)

    def _long_head(self) -> tuple[FailureKind, str]:
        return "head", f"the head is longer than {format_bytes(self._max_head)}"
