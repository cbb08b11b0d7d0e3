"""A line: one connection to a host, on which one request after the other goes out and its answer is heard.

Comes from `dial`; goes to the host. Whatever the other side says or leaves unsaid ends in an answer, in time, and with
the reason where it is not whole.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from usher.crawl.http.response import FailureKind, FetchFailure, FetchResponse
from usher.crawl.http.response_parser import ResponseParser

# What closing a socket does to a request that the kernel has not delivered: discard it and reset the connection, or
# go on delivering it for minutes. Fields of struct linger: on or off, seconds.
DISCARD_UNSENT: Final = struct.pack("ii", 1, 0)
DELIVER_UNSENT: Final = struct.pack("ii", 0, 0)
USER_TIMEOUT_OPTION: Final = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux has it


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How long (in seconds) and how large (in bytes) an answer may be."""

    lookup: float = 10.0  # of the name
    connect: float = 10.0  # all addresses of the name together, TLS included
    idle: float = 15.0  # between two bytes
    total: float = 60.0
    keep: float = 15.0  # a line that nobody uses
    head: int = 65_536
    body: int = 10_000_000  # as transferred, and again when unpacked


class HttpConnection(asyncio.Protocol):
    """One connection; `gone` hears when it is closed, by whomever."""

    def __init__(
        self, ip: str, limits: FetchLimits, gone: "Callable[[HttpConnection], None]"
    ) -> None:
        self.ip = ip
        self.reusable = False
        self._limits, self._gone = limits, gone
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._hearing = ResponseParser(limits.head, limits.body)
        self._asked = 0
        self._answer: FetchResponse | None = None  # the one that is awaited
        self._waiter: asyncio.Future[tuple[FailureKind, str]] | None = None
        self._heard_at = self._until = self._loop.time()

    async def ask(self, answer: FetchResponse, until: float) -> bool:
        """Send the answer's request and fill it in; false if a line used before had died meanwhile, unheard."""
        if self._transport is None or self._transport.is_closing():
            return False
        self._asked += 1
        self.reusable = False
        self._answer, self._waiter = answer, self._loop.create_future()
        self._hearing.begin(answer)
        self._until, answer.ip = until, self.ip
        self._heard_at = answer.sent_at = self._loop.time()
        self._on_close(DISCARD_UNSENT)
        self._transport.write(answer.request)
        if self._asked == 1:  # the dialling may have left less time than a new line thinks
            self._look()
        try:
            kind, words = await self._waiter
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._answer = self._waiter = None
            self._hearing.hand_over()
        if kind == "reset" and self._asked > 1 and not self._hearing.heard:
            return False
        if kind:
            answer.fail(kind, words)
        return True

    def close(self) -> None:
        """Hang up at once: a farewell would have to be awaited, and TLS has a long one."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def _on_close(self, linger: bytes) -> None:
        """Tell the kernel what to do with the request if the socket is closed, also by `kill -9` of this process.

        A request that was given up must not reach the host later: the host's crawl delay counts from the time it was
        sent, and another crawler may have the host by then.
        """
        if self._socket is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    # What the loop calls:

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._socket = transport.get_extra_info("socket")
        if self._socket is not None and USER_TIMEOUT_OPTION is not None:
            milliseconds = max(1, int(self._limits.idle * 1000))
            self._socket.setsockopt(socket.IPPROTO_TCP, USER_TIMEOUT_OPTION, milliseconds)
        self._look()

    def data_received(self, data: bytes) -> None:
        answer, hearing = self._answer, self._hearing
        if answer is None:  # nobody asked: whatever this is, it must not become the next answer
            self.close()
            return
        self._heard_at = self._loop.time()
        try:
            hearing.feed(data)
        except FetchFailure as trouble:
            self._end(trouble.kind, trouble.words)
        if answer.status is not None and not answer.head_at:
            answer.head_at = self._heard_at
        if hearing.done:
            self.reusable = hearing.reusable
            self._on_close(DELIVER_UNSENT)
            self._end()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport, self._socket, self.reusable = None, None, False
        if self._watch is not None:
            self._watch.cancel()
        if self._answer is not None:
            whole = error is None and self._hearing.ends_with_the_line
            self._end() if whole else self._end("reset", self._hearing.broke_off)
        self._gone(self)

    def _end(self, kind: FailureKind = "", words: str = "") -> None:
        """Wake who waits, once; a line that cannot be used again is not listened to any longer."""
        if self._waiter is None or self._waiter.done():
            return
        self._waiter.set_result((kind, words))
        if not self.reusable:
            self.close()

    def _look(self) -> None:
        """Mind the time: with one timer for each line and not for each answer, which comes early and looks again."""
        if self._watch is not None:
            self._watch.cancel()
        now, limits = self._loop.time(), self._limits
        busy = self._answer is not None
        due = self._heard_at + (limits.idle if busy else limits.keep)
        if busy:
            due = min(due, self._until)
        if now < due:
            soon = now + min(limits.idle, limits.total, limits.keep)
            self._watch = self._loop.call_at(min(due, soon), self._look)
        elif not busy:
            self.close()
        elif now < self._until:
            self._end("timeout", f"nothing came for {limits.idle:g} s")
        else:
            self._end("timeout", f"the answer was not whole within {limits.total:g} s")
