"""Hearing an answer: bytes of HTTP/1.1 as they come, up to the limits, into an answer.

Comes from a line; goes to the answer it is told to fill in. What is not HTTP, too long or all wrapping raises Trouble,
and what was heard until then stays in the answer.
"""

from typing import Final

import httptools

from usher.crawl.http.response import FailureKind, FetchFailure, FetchResponse, format_bytes

MAX_HEADERS: Final = 500
_FIRST_STATUS: Final = 100
_FIRST_FINAL: Final = 200


class _Enough(Exception):
    """Stops the parser."""


class ResponseParser:
    """Hears one answer after the other; `reusable` tells whether there may be a next one."""

    def __init__(self, head: int, body: int) -> None:
        self._most_head, self._most_body = head, body
        self._parser = httptools.HttpResponseParser(self)
        # What every browser takes: lines that end without CR, headers that are folded.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )
        self._why: tuple[FailureKind, str] | None = None
        self.heard = 0  # bytes, framing and all
        self.done = self.reusable = False
        self._headed = False
        self._body: bytes | bytearray = b""

    def begin(self, answer: FetchResponse) -> None:
        self._answer = answer
        self.heard, self._body = 0, b""
        self.done = self.reusable = self._headed = False

    def feed(self, data: bytes) -> None:
        self.heard += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.reusable = False
            if not self.done:  # else the answer is whole, and what follows it is not ours
                raise self._trouble(error) from None
        if self.heard > self._most_head and not self.done:
            self._weigh()

    def hand_over(self) -> None:
        """Put what was heard of the body into the answer, and keep nothing of it."""
        answer = self._answer
        answer.raw = bytes(self._body)
        if answer.status is None:
            answer.headers.clear()
            answer.reason = ""
        self._body = b""
        del self._answer

    @property
    def ends_with_the_line(self) -> bool:
        """Whether hanging up is how this answer says that it is whole."""
        if not self._headed or self._answer.headers_of("content-length"):
            return False
        codings = self._answer.header("transfer-encoding").lower()
        return codings.split(",")[-1].strip() != "chunked"

    @property
    def broke_off(self) -> str:
        if not self.heard:
            return "the connection was closed without an answer"
        return f"the connection broke off in the {'body' if self._headed else 'head'}"

    # What the parser calls:

    def on_message_begin(self) -> None:
        if self.done:
            raise _Enough

    def on_status(self, reason: bytes) -> None:
        self._answer.reason += reason.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._headed:  # what follows the last chunk is not wanted
            return
        headers = self._answer.headers
        headers.append((name.decode("latin-1"), value.decode("latin-1")))
        if len(headers) > MAX_HEADERS:
            self._stop("head", f"the head has more than {MAX_HEADERS} lines")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < _FIRST_FINAL:
            if status < _FIRST_STATUS:
                self._stop("protocol", f"there is no status {status:03}")
            return
        if self.heard > self._most_head and self._head_size() > self._most_head:
            self._stop(*self._long_head())
        self._answer.status, self._headed = status, True

    def on_body(self, part: bytes) -> None:
        room = self._most_body - len(self._body)
        if not self._body:
            self._body = part[:room]
        else:
            if not isinstance(self._body, bytearray):
                self._body = bytearray(self._body)
            self._body += part[:room]
        if len(part) > room:
            self._stop("body", f"the body is longer than {format_bytes(self._most_body)}")

    def on_message_complete(self) -> None:
        if self._headed:
            # Asked later, the parser has forgotten.
            self.done, self.reusable = True, self._parser.should_keep_alive()
        else:  # 100 to 199: the answer is still to come
            self._answer.headers.clear()
            self._answer.reason = ""

    # Enough is enough:

    def _stop(self, kind: FailureKind, words: str) -> None:
        self._why = kind, words
        raise _Enough

    def _trouble(self, error: Exception) -> FetchFailure:
        if self._why is not None:
            return FetchFailure(*self._why)
        if isinstance(error, httptools.HttpParserUpgrade):
            return FetchFailure("protocol", "the answer changes to another protocol")
        return FetchFailure("protocol", f"the answer is not HTTP: {str(error)[:80]}")

    def _weigh(self) -> None:
        """Give up on a head that does not end, and on chunks that hold less than their framing."""
        if not self._headed:
            raise FetchFailure(*self._long_head())
        if self.heard > 2 * (self._most_head + len(self._body)):
            raise FetchFailure("protocol", "the answer has more framing than content")

    def _head_size(self) -> int:
        return sum(len(name) + len(value) + 4 for name, value in self._answer.headers)

    def _long_head(self) -> tuple[FailureKind, str]:
        return "head", f"the head is longer than {format_bytes(self._most_head)}"
