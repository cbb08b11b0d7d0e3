"""HTTP/1.1 over connections that are kept: a request goes out, an answer comes back, and nothing more.

Comes from `client` and `pull`; goes to one server. Made of asyncio's streams and the parser that our own server uses.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Final

import httptools

from usher.errors import Unreachable

MOST_BYTES: Final = 100_000_000
MOST_HEAD: Final = 100_000
PART: Final = 65_536
IDLE: Final = 16  # connections kept


@dataclass(slots=True)
class Answer:
    """An answer, filled in by the parser as it comes."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    done: bool = False
    kept: bool = True

    # What the parser calls:

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        self.done = True


class Line:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, request: bytes) -> Answer:
        self._writer.write(request)
        await self._writer.drain()
        answer, heard = Answer(), 0
        parser = httptools.HttpResponseParser(answer)
        while not answer.done:
            part = await self._reader.read(PART)
            if not part:
                raise Broken("the answer broke off") if heard else Closed("the server hung up")
            heard += len(part)
            if heard > MOST_BYTES:
                raise Broken("the answer is too long")
            parser.feed_data(part)
        answer.status = parser.get_status_code()
        # The parser itself has forgotten by now how the answer was delimited, and would say no.
        last = answer.headers.get("connection", "").lower() == "close"
        answer.kept = parser.get_http_version() == "1.1" and not last
        return answer

    @property
    def is_closed(self) -> bool:
        return self._reader.at_eof()

    async def begin(self, request: bytes, patience: float) -> "Stream":
        """Ask for something long: its head now, and its body as it comes."""
        self._writer.write(request)
        await self._writer.drain()
        stream = Stream(self._reader, patience)
        while not stream.headed:
            await stream.hear()
            if stream.heard > MOST_HEAD and not stream.headed:
                raise Broken("the answer has no end of its head")
        return stream

    def close(self) -> None:
        self._writer.close()


class Stream(Answer):
    """An answer whose body is taken part by part; who says nothing for `patience` seconds has broken off."""

    def __init__(self, reader: asyncio.StreamReader, patience: float) -> None:
        super().__init__()
        self.headed, self.heard = False, 0
        self._reader = reader
        self._patience = patience
        self._parser = httptools.HttpResponseParser(self)

    def on_headers_complete(self) -> None:
        self.headed, self.status = True, self._parser.get_status_code()

    async def hear(self) -> None:
        part = await self._reader.read(PART)
        if not part:
            raise Broken("the answer broke off")
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


class Broken(OSError):
    """An answer that cannot be used."""


class Closed(OSError):
    """The other side had hung up before it said anything."""


class Lines:
    """The connections to one server; `name` and `hint` are for people who read that it is away."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout: float,
        name: str = "MGMT",
        hint: str = "Check that `usher mgmt` runs there.",
    ) -> None:
        self._host, self._port = host, port
        self._timeout = timeout
        self._name, self._hint = name, hint
        self._idle: list[Line] = []

    async def ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """One request; a kept connection that the server has closed meanwhile is replaced by a new one."""
        request = written(method, path, body, headers)
        with self._reaching():
            async with asyncio.timeout(self._timeout):
                while self._idle:
                    line = self._idle.pop()
                    if line.is_closed:
                        line.close()
                        continue
                    try:
                        return await self._ask_on(line, request)
                    except (Closed, ConnectionError):
                        continue
                return await self._ask_on(await self._dial(), request)

    @asynccontextmanager
    async def stream(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[Stream]:
        """GET something long, on a connection of its own; the timeout is for its head and for each part."""
        request = written("GET", path, b"", headers)
        with self._reaching():
            async with asyncio.timeout(self._timeout):
                line = await self._dial()
            try:
                async with asyncio.timeout(self._timeout):
                    stream = await line.begin(request, self._timeout)
                yield stream
            finally:
                line.close()

    async def _dial(self) -> Line:
        return Line(*await asyncio.open_connection(self._host, self._port))

    async def _ask_on(self, line: Line, request: bytes) -> Answer:
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


def written(method: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """The request as it goes out; a header with a line break in it would be two."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body or method != "GET":
        lines.append(f"Content-Length: {len(body)}")
    if any(mark in line for line in lines for mark in "\r\n\0"):
        raise ValueError("a header holds a line break")
    return "\r\n".join([*lines, "", ""]).encode("utf-8") + body
