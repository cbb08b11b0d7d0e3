"""A WebSub hub on loopback that verifies subscriptions and distributes, correctly or not."""

import asyncio
import hashlib
import hmac
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import parse_qs, urlencode, urlsplit

SECONDS = 30


@dataclass(frozen=True, slots=True)
class Told:
    """A response to the hub."""

    status: int
    body: bytes


@dataclass(slots=True)
class Hub:
    """A hub that listens while it is entered; `asked` has its requests, `told` the responses to its verifications."""

    status: int = 202
    verifies: bool = True
    lease: str = "864000"
    headers: str = ""
    echoes: bool = False  # it answers with what it was sent
    asked: list[dict[str, str]] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/hub"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self.settled()
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            lines = [line.partition(":") for line in head.split("\r\n")[1:] if ":" in line]
            length = next(
                int(value) for name, _, value in lines if name.lower() == "content-length"
            )
            body = (await reader.readexactly(length)).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            self.asked.append(form)
            if self.status < 300 and self.verifies:
                self._later(form)
            said = body if self.echoes else "no"
            head = f"HTTP/1.1 {self.status} So\r\n{self.headers}Content-Length: {len(said)}\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n{said}".encode())
            await writer.drain()
        writer.close()

    def _later(self, form: dict[str, str]) -> None:
        task = asyncio.create_task(self._verify(form))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settled(self) -> None:
        """Verify every request."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def _verify(self, form: dict[str, str]) -> None:
        mode, topic = form["hub.mode"], form["hub.topic"]
        said = {"hub.mode": mode, "hub.topic": topic, "hub.challenge": "echo <this> & so on"}
        said |= {"hub.lease_seconds": self.lease} if mode == "subscribe" else {}
        self.told.append(await self.call(form["hub.callback"], said))

    async def call(self, callback: str, said: dict[str, str]) -> Told:
        """Verify a request."""
        return await request("GET", f"{callback}?{urlencode(said)}")

    async def publish(
        self, body: bytes, *, method: str = "sha256", signature: str | None = None
    ) -> Told:
        """Distribute to the last subscriber, with the given signature."""
        form = [one for one in self.asked if one["hub.mode"] == "subscribe"][-1]
        made = hmac.new(form["hub.secret"].encode(), body, getattr(hashlib, method)).hexdigest()
        given = f"{method}={made}" if signature is None else signature
        headers = {"X-Hub-Signature": given} if given else {}
        return await request("POST", form["hub.callback"], body, headers)


async def request(
    method: str, url: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> Told:
    """One request on a connection of its own."""
    parts = urlsplit(url)
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        length = f"Content-Length: {len(body)}\r\n" if method == "POST" else ""
        head = f"{method} {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n{more}{length}Connection: close\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.read()
        writer.close()
    top, _, rest = answer.partition(b"\r\n\r\n")
    return Told(int(top.split(b" ")[1]), rest)
