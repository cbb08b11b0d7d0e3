"""HTTP/1.1 over connections that are kept: a request goes out, an answer comes back, and nothing more.

Comes from `client` and `pull`; goes to one server. Made of the parser that our own server uses.
"""

import asyncio
import math
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, cast
from urllib.parse import urlsplit

import httptools

from usher.errors import BadInput, Unreachable

DEFAULT_PORTS: Final = {"http": 80, "https": 443}
MOST_BYTES: Final = 100_000_000
MOST_HEAD: Final = 100_000
PART: Final = 65_536
IDLE: Final = 16  # connections kept
Told = TypeVar("Told")


@dataclass(slots=True)
class HttpResponse:
    """An answer, filled in by the parser as it comes."""

    status: int = 0
    fields: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    done: bool = False
    kept: bool = True

    @property
    def headers(self) -> dict[str, str]:
        """By their names in small letters; most who ask look at none."""
        return {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.fields
        }

    @property
    def is_last(self) -> bool:
        """Whether the server says that it hangs up."""
        return any(
            value.lower() == b"close"
            for name, value in self.fields
            if name.lower() == b"connection"
        )

    # What the parser calls:

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))

    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        self.done = True


class ClientConnection(asyncio.Protocol, Generic[Told]):
    """One connection: a question at a time; `hear` gives the answer as soon as all of it has come."""

    def __init__(self) -> None:
        self.is_closed = False
        self._transport: asyncio.Transport | None = None
        self._outcome: asyncio.Future[Told] | None = None
        self._heard = 0

    def hear(self, part: bytes) -> Told | None:
        raise NotImplementedError

    async def say(self, question: bytes, until: float = math.inf) -> Told:
        """The answer; TimeoutError if it does not come by then, a moment of the loop's clock."""
        if self._transport is None or self.is_closed:
            raise ConnectionClosed("the server hung up")
        loop = asyncio.get_running_loop()
        self._heard = 0
        outcome: asyncio.Future[Told] = loop.create_future()
        self._outcome = outcome
        # A timer costs a third of what `asyncio.timeout` does.
        timer = None if until == math.inf else loop.call_at(until, late, outcome)
        self._transport.write(question)
        try:
            return await outcome
        finally:
            self._outcome = None
            if timer:
                timer.cancel()

    def close(self) -> None:
        self.is_closed = True
        if self._transport:
            self._transport.close()

    # What the loop calls:

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, part: bytes) -> None:
        if self._outcome is None or self._outcome.done():
            self.close()  # nobody asked: whatever this is, it is no answer
            return
        self._heard += len(part)
        try:
            answer = self.hear(part)
            if answer is not None:
                self._outcome.set_result(answer)
            elif self._heard > MOST_BYTES:
                raise BrokenResponse("the answer is too long")
        except (OSError, httptools.HttpParserError) as error:
            self._outcome.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        if self._outcome is not None and not self._outcome.done():
            quiet = (
                BrokenResponse("the answer broke off")
                if self._heard
                else ConnectionClosed("the server hung up")
            )
            self._outcome.set_exception(error or quiet)


def late(outcome: "asyncio.Future[Any]") -> None:
    if not outcome.done():
        outcome.set_exception(TimeoutError())


class PooledConnection(ClientConnection[HttpResponse]):
    """A connection whose answers go to the parser as they come."""

    async def ask(self, request: bytes) -> HttpResponse:
        self._answer = HttpResponse()
        self._parser = httptools.HttpResponseParser(self._answer)
        answer = await self.say(request)
        answer.status = self._parser.get_status_code()
        # The parser itself has forgotten by now how the answer was delimited, and would say no.
        answer.kept = self._parser.get_http_version() == "1.1" and not answer.is_last
        return answer

    def hear(self, part: bytes) -> HttpResponse | None:
        self._parser.feed_data(part)
        return self._answer if self._answer.done else None


class StreamedResponse(HttpResponse):
    """An answer whose body is taken part by part; who says nothing for `patience` seconds has broken off."""

    def __init__(self, reader: asyncio.StreamReader, patience: float) -> None:
        super().__init__()
        self.headed, self.heard = False, 0
        self._reader = reader
        self._patience = patience
        self._parser = httptools.HttpResponseParser(self)

    def on_headers_complete(self) -> None:
        self.headed, self.status = True, self._parser.get_status_code()

    async def begin(self) -> None:
        """Wait for the head."""
        while not self.headed:
            await self.hear()
            if self.heard > MOST_HEAD and not self.headed:
                raise BrokenResponse("the answer has no end of its head")

    async def hear(self) -> None:
        part = await self._reader.read(PART)
        if not part:
            raise BrokenResponse("the answer broke off")
        self.heard += len(part)
        self._parser.feed_data(part)

    async def parts(self) -> AsyncIterator[bytes]:
        while True:
            if self.body:
                part, self.body = self.body, b""
                yield part
            elif self.done:
                return
            else:
                async with asyncio.timeout(self._patience):
                    await self.hear()


class BrokenResponse(OSError):
    """An answer that cannot be used."""


class ConnectionClosed(OSError):
    """The other side had hung up before it said anything."""


class HttpPool:
    """The connections to one server; `name` and `hint` are for people who read that it is away."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout: float,
        name: str = "MGMT",
        hint: str = "Check that `usher mgmt` runs there.",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._host, self._port, self._tls = host, port, tls
        self._timeout = timeout
        self._name, self._hint = name, hint
        self._idle: list[PooledConnection] = []

    async def ask(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> HttpResponse:
        """One request; a kept connection that the server has closed meanwhile is replaced by a new one."""
        request = request_bytes(method, path, body, headers)
        with self._reaching():
            async with asyncio.timeout(self._timeout):
                return await self._ask(request)

    async def ask_untimed(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> HttpResponse:
        """The same, for whoever has a timeout around it."""
        request = request_bytes(method, path, body, headers)
        with self._reaching():
            return await self._ask(request)

    @asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str]
    ) -> AsyncIterator[StreamedResponse]:
        """GET something long, on a connection of its own; the timeout is for its head and for each part."""
        request = request_bytes("GET", path, b"", headers)
        with self._reaching():
            async with asyncio.timeout(self._timeout):
                reader, writer = await asyncio.open_connection(
                    self._host, self._port, ssl=self._tls
                )
            try:
                writer.write(request)
                stream = StreamedResponse(reader, self._timeout)
                async with asyncio.timeout(self._timeout):
                    await stream.begin()
                yield stream
            finally:
                writer.close()

    async def _ask(self, request: bytes) -> HttpResponse:
        while self._idle:
            line = self._idle.pop()
            if line.is_closed:
                line.close()
                continue
            try:
                return await self._ask_on(line, request)
            except (ConnectionClosed, ConnectionError):
                continue
        return await self._ask_on(await self._dial(), request)

    async def _dial(self) -> PooledConnection:
        loop = asyncio.get_running_loop()
        _, line = await loop.create_connection(
            PooledConnection, self._host, self._port, ssl=self._tls
        )
        return line

    async def _ask_on(self, line: PooledConnection, request: bytes) -> HttpResponse:
        kept = False
        try:
            answer = await line.ask(request)
            kept = answer.kept and len(self._idle) < IDLE
            return answer
        finally:
            if kept:
                self._idle.append(line)
            else:
                line.close()

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """What goes wrong on the way there, as one error."""
        try:
            yield
        except TimeoutError as error:
            raise self._away(f"no answer within {self._timeout:g} seconds") from error
        except (OSError, httptools.HttpParserError) as error:
            raise self._away(str(error) or type(error).__name__) from error

    def _away(self, reason: str) -> Unreachable:
        where = f"{self._name} at {self._host}:{self._port}"
        return Unreachable(f"{where} cannot be reached: {reason}.", hint=self._hint)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def mgmt_pool(url: str, *, timeout: float) -> tuple[HttpPool, str]:
    """Connections to MGMT at that address, with TLS if it begins with https, and the value of their Host header."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise BadInput(f"{url!r} is not the address of MGMT.", hint="http://HOST:8411")
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    host = parts.netloc.rpartition("@")[2]
    return HttpPool(parts.hostname, port, timeout=timeout, tls=tls), host


def request_bytes(method: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """The request as it goes out; a header with a line break in it would be two."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body or method != "GET":
        lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join([*lines, "", ""])
    ends = len(lines) + 1
    if "\0" in head or head.count("\r") != ends or head.count("\n") != ends:
        raise ValueError("a header holds a line break")
    return head.encode("utf-8") + body
