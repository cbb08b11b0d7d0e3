"""One connection to a host: sends a request, fills in its response, and enforces the time limits."""

import asyncio
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from usher.crawl.http.response import FailureKind, FetchFailure, FetchResponse
from usher.crawl.http.response_parser import ResponseParser

# What the kernel does with an undelivered request when the socket is closed: discard it and reset the connection, or
# deliver it for minutes. Fields of struct linger: on or off, seconds.
DISCARD_UNSENT: Final = struct.pack("ii", 1, 0)
DELIVER_UNSENT: Final = struct.pack("ii", 0, 0)
USER_TIMEOUT_OPTION: Final = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux only


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How long (in seconds) and how large (in bytes) a response may be."""

    lookup: float = 10.0  # of the name
    connect: float = 10.0  # all addresses of the name together, TLS included
    idle: float = 15.0  # between two bytes
    total: float = 60.0
    keep: float = 15.0  # of an idle connection
    head: int = 65_536
    body: int = 10_000_000  # as transferred, and again when decompressed


class FetchConnection(asyncio.Protocol):
    """One connection; calls `on_close` when either side has closed it."""

    def __init__(
        self, ip: str, limits: FetchLimits, on_close: "Callable[[FetchConnection], None]"
    ) -> None:
        self.ip = ip
        self.reusable = False
        self._limits, self._on_close = limits, on_close
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._parser = ResponseParser(limits.head, limits.body)
        self._requests = 0
        self._response: FetchResponse | None = None  # to the request in flight
        self._done: asyncio.Future[tuple[FailureKind, str]] | None = None
        self._received_at = self._until = self._loop.time()

    async def send(self, response: FetchResponse, until: float) -> bool:
        """Send the request of a response and fill the response in.

        False if the host had closed a kept connection before it received the request.
        """
        if self._transport is None or self._transport.is_closing():
            return False
        self._requests += 1
        self.reusable = False
        self._response, self._done = response, self._loop.create_future()
        self._parser.begin(response)
        self._until, response.ip = until, self.ip
        self._received_at = response.sent_at = self._loop.time()
        self._set_linger(DISCARD_UNSENT)
        self._transport.write(response.request)
        if self._requests == 1:  # connecting may have used most of the time
            self._check_time()
        try:
            kind, words = await self._done
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._response = self._done = None
            self._parser.finish()
        if kind == "reset" and self._requests > 1 and not self._parser.received:
            return False
        if kind:
            response.fail(kind, words)
        return True

    def close(self) -> None:
        """Close at once: a regular TLS shutdown would have to be awaited."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def _set_linger(self, linger: bytes) -> None:
        """Tell the kernel what to do with the request if the socket is closed, also by `kill -9` of this process.

        A cancelled request must not reach the host later: the host's crawl delay counts from the time it was sent,
        and another crawler may have the host by then.
        """
        if self._socket is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    # Called by the event loop:

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._socket = transport.get_extra_info("socket")
        if self._socket is not None and USER_TIMEOUT_OPTION is not None:
            milliseconds = max(1, int(self._limits.idle * 1000))
            self._socket.setsockopt(socket.IPPROTO_TCP, USER_TIMEOUT_OPTION, milliseconds)
        self._check_time()

    def data_received(self, data: bytes) -> None:
        response, parser = self._response, self._parser
        if response is None:  # no request is in flight, so this must not become the next response
            self.close()
            return
        self._received_at = self._loop.time()
        try:
            parser.feed(data)
        except FetchFailure as failure:
            self._end(failure.kind, failure.words)
        if response.status is not None and not response.head_at:
            response.head_at = self._received_at
        if parser.done:
            self.reusable = parser.reusable
            self._set_linger(DELIVER_UNSENT)
            self._end()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport, self._socket, self.reusable = None, None, False
        if self._timer is not None:
            self._timer.cancel()
        if self._response is not None:
            if error is None and self._parser.ends_at_close:
                self._end()
            else:
                self._end("reset", self._parser.describe_reset())
        self._on_close(self)

    def _end(self, kind: FailureKind = "", words: str = "") -> None:
        """Wake `send`, once; close a connection that cannot be used again."""
        if self._done is None or self._done.done():
            return
        self._done.set_result((kind, words))
        if not self.reusable:
            self.close()

    def _check_time(self) -> None:
        """Enforce the time limits, with one timer per connection, because a timer per request costs more."""
        if self._timer is not None:
            self._timer.cancel()
        now, limits = self._loop.time(), self._limits
        busy = self._response is not None
        due = self._received_at + (limits.idle if busy else limits.keep)
        if busy:
            due = min(due, self._until)
        if now < due:
            check_at = now + min(limits.idle, limits.total, limits.keep)
            self._timer = self._loop.call_at(min(due, check_at), self._check_time)
        elif not busy:
            self.close()
        elif now < self._until:
            self._end("timeout", f"no data for {limits.idle:g} s")
        else:
            self._end("timeout", f"the response was incomplete after {limits.total:g} s")
