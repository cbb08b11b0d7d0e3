"""HTTP/1.1 over connections that are kept: a request goes out, an answer comes back, and nothing more.

Comes from `client`; goes to one server. Made of asyncio's streams and the parser that our own server uses.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import httptools

from usher.errors import Unreachable

MOST_BYTES: Final = 100_000_000
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
        answer.status, answer.kept = parser.get_status_code(), parser.should_keep_alive()
        return answer

    def close(self) -> None:
        self._writer.close()


class Broken(OSError):
    """An answer that cannot be used."""


class Closed(OSError):
    """The other side had hung up before it said anything."""


class Lines:
    """The connections to one server."""

    def __init__(self, host: str, port: int, *, timeout: float) -> None:
        self._host, self._port = host, port
        self._timeout = timeout
        self._idle: list[Line] = []

    async def ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """One request; a kept connection that the server has closed meanwhile is replaced by a new one."""
        request = written(method, path, body, headers)
        try:
            async with asyncio.timeout(self._timeout):
                while self._idle:
                    try:
                        return await self._ask_on(self._idle.pop(), request)
                    except (Closed, ConnectionError):
                        continue
                return await self._ask_on(await self._dial(), request)
        except TimeoutError as error:
            raise self._away(f"no answer within {self._timeout:g} seconds") from error
        except (OSError, httptools.HttpParserError) as error:
            raise self._away(str(error) or type(error).__name__) from error

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

    def _away(self, reason: str) -> Unreachable:
        return Unreachable(
            f"MGMT at {self._host}:{self._port} cannot be reached: {reason}.",
            hint="Check that `usher mgmt` runs there.",
        )

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
