"""An HTTP/1.1 client for Usher's own servers, with a pool of connections; it uses the parser of our server."""

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
MAX_RESPONSE_BYTES: Final = 100_000_000
MAX_HEAD_BYTES: Final = 100_000
READ_BYTES: Final = 65_536
MAX_IDLE_CONNECTIONS: Final = 16
ResponseT = TypeVar("ResponseT")


@dataclass(slots=True)
class HttpResponse:
    """A response; the parser fills it in as it arrives."""

    status: int = 0
    fields: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    is_complete: bool = False
    is_reusable: bool = True  # the connection

    @property
    def headers(self) -> dict[str, str]:
        """The headers by their names in lower case; computed on demand, because most callers need none."""
        return {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.fields
        }

    @property
    def closes_connection(self) -> bool:
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
        self.is_complete = True


class ClientConnection(asyncio.Protocol, Generic[ResponseT]):
    """One connection with one request at a time; `receive` returns the response as soon as it is complete."""

    def __init__(self) -> None:
        self.is_closed = False
        self._transport: asyncio.Transport | None = None
        self._response: asyncio.Future[ResponseT] | None = None
        self._received_bytes = 0

    def receive(self, part: bytes) -> ResponseT | None:
        raise NotImplementedError

    async def exchange(self, request: bytes, until: float = math.inf) -> ResponseT:
        """Send the request and return the response; TimeoutError after `until`, a time of the loop's clock."""
        if self._transport is None or self.is_closed:
            raise ConnectionClosed("the server closed the connection")
        loop = asyncio.get_running_loop()
        self._received_bytes = 0
        response: asyncio.Future[ResponseT] = loop.create_future()
        self._response = response
        # A timer costs a third of what `asyncio.timeout` does.
        timer = None if until == math.inf else loop.call_at(until, time_out, response)
        self._transport.write(request)
        try:
            return await response
        finally:
            self._response = None
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
        if self._response is None or self._response.done():
            self.close()  # there was no request, so this is no response
            return
        self._received_bytes += len(part)
        try:
            response = self.receive(part)
            if response is not None:
                self._response.set_result(response)
            elif self._received_bytes > MAX_RESPONSE_BYTES:
                raise BrokenResponse("the response is too long")
        except (OSError, httptools.HttpParserError) as error:
            self._response.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        if self._response is not None and not self._response.done():
            if error is None and self._received_bytes:
                error = BrokenResponse("the response is incomplete")
            self._response.set_exception(
                error or ConnectionClosed("the server closed the connection")
            )


def time_out(response: "asyncio.Future[Any]") -> None:
    if not response.done():
        response.set_exception(TimeoutError())


class PooledConnection(ClientConnection[HttpResponse]):
    """An HTTP connection."""

    async def ask(self, request: bytes) -> HttpResponse:
        self._partial = HttpResponse()
        self._parser = httptools.HttpResponseParser(self._partial)
        response = await self.exchange(request)
        response.status = self._parser.get_status_code()
        # The parser's own `should_keep_alive` is wrong after the end of the response.
        is_http11 = self._parser.get_http_version() == "1.1"
        response.is_reusable = is_http11 and not response.closes_connection
        return response

    def receive(self, part: bytes) -> HttpResponse | None:
        self._parser.feed_data(part)
        return self._partial if self._partial.is_complete else None


class StreamedResponse(HttpResponse):
    """A response whose body is read part by part, with a timeout for each part."""

    def __init__(self, reader: asyncio.StreamReader, timeout: float) -> None:
        super().__init__()
        self._has_head, self._received_bytes = False, 0
        self._reader = reader
        self._timeout = timeout
        self._parser = httptools.HttpResponseParser(self)

    def on_headers_complete(self) -> None:
        self._has_head, self.status = True, self._parser.get_status_code()

    async def read_head(self) -> None:
        while not self._has_head:
            await self._read()
            if self._received_bytes > MAX_HEAD_BYTES and not self._has_head:
                raise BrokenResponse("the head of the response is too long")

    async def _read(self) -> None:
        part = await self._reader.read(READ_BYTES)
        if not part:
            raise BrokenResponse("the response is incomplete")
        self._received_bytes += len(part)
        self._parser.feed_data(part)

    async def parts(self) -> AsyncIterator[bytes]:
        while True:
            if self.body:
                part, self.body = self.body, b""
                yield part
            elif self.is_complete:
                return
            else:
                async with asyncio.timeout(self._timeout):
                    await self._read()


class BrokenResponse(OSError):
    """A response that cannot be used."""


class ConnectionClosed(OSError):
    """The server closed the connection before it sent a response."""


class HttpPool:
    """The connections to one server; `name` and `hint` are for error messages."""

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
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], *, timed: bool = True
    ) -> HttpResponse:
        """Send one request; a new connection replaces idle ones that the server has closed.

        A caller with a timeout of its own asks without `timed`.
        """
        request = request_bytes(method, path, body, headers)
        with self._converting_errors():
            async with asyncio.timeout(self._timeout if timed else None):
                return await self._ask(request)

    @asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str]
    ) -> AsyncIterator[StreamedResponse]:
        """GET a long body on a connection of its own; the timeout is for the head and for each part."""
        request = request_bytes("GET", path, b"", headers)
        with self._converting_errors():
            async with asyncio.timeout(self._timeout):
                reader, writer = await asyncio.open_connection(
                    self._host, self._port, ssl=self._tls
                )
            try:
                writer.write(request)
                response = StreamedResponse(reader, self._timeout)
                async with asyncio.timeout(self._timeout):
                    await response.read_head()
                yield response
            finally:
                writer.close()

    async def _ask(self, request: bytes) -> HttpResponse:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_closed:
                connection.close()
                continue
            try:
                return await self._ask_on(connection, request)
            except (ConnectionClosed, ConnectionError):
                continue
        return await self._ask_on(await self._connect(), request)

    async def _connect(self) -> PooledConnection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            PooledConnection, self._host, self._port, ssl=self._tls
        )
        return connection

    async def _ask_on(self, connection: PooledConnection, request: bytes) -> HttpResponse:
        is_reusable = False
        try:
            response = await connection.ask(request)
            is_reusable = response.is_reusable and len(self._idle) < MAX_IDLE_CONNECTIONS
            return response
        finally:
            if is_reusable:
                self._idle.append(connection)
            else:
                connection.close()

    @contextmanager
    def _converting_errors(self) -> Iterator[None]:
        """Raise timeouts and network errors as Unreachable."""
        try:
            yield
        except TimeoutError as error:
            raise self._unreachable(f"no answer within {self._timeout:g} seconds") from error
        except (OSError, httptools.HttpParserError) as error:
            raise self._unreachable(str(error) or type(error).__name__) from error

    def _unreachable(self, reason: str) -> Unreachable:
        server = f"{self._name} at {self._host}:{self._port}"
        return Unreachable(f"{server} cannot be reached: {reason}.", hint=self._hint)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def mgmt_pool(url: str, *, timeout: float) -> tuple[HttpPool, str]:
    """Connections to MGMT at that URL, with TLS for https, and the value of their Host header."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise BadInput(f"{url!r} is not the address of MGMT.", hint="http://HOST:8411")
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    host = parts.netloc.rpartition("@")[2]
    return HttpPool(parts.hostname, port, timeout=timeout, tls=tls), host


def request_bytes(
    method: str, path: str, body: bytes, headers: Mapping[str, str], *, length: int | None = None
) -> bytes:
    """The request as bytes; ValueError if a line break in a header would add another header.

    `length` is the length of a body that the caller sends itself.
    """
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body or method != "GET":
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    head = "\r\n".join([*lines, "", ""])
    line_ends = len(lines) + 1
    if "\0" in head or head.count("\r") != line_ends or head.count("\n") != line_ends:
        raise ValueError("a header holds a line break")
    return head.encode("utf-8") + body
