"""A real web site on loopback, in a thread of its own.

A mapping of paths to behaviours says what it responds (`hostile.py` has ready ones); `log` and `served` record
the requests.
"""

import asyncio
import hashlib
import itertools
import mimetypes
import socket
import struct
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from email.utils import formatdate, mktime_tz, parsedate_tz
from functools import partial
from http.client import responses
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote

HTML = "text/html; charset=utf-8"
DAY = 86_400
End = Literal["keep", "close", "reset"]


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked: header names in lower case, `at` on the monotonic clock."""

    method: str
    path: str  # as sent, query included
    headers: Mapping[str, str]
    at: float
    body: bytes = b""
    version: str = "HTTP/1.1"
    connection: int = 0  # the client's port: requests that share it shared a connection

    @property
    def route(self) -> str:
        return self.path.partition("?")[0]

    @property
    def query(self) -> str:
        return self.path.partition("?")[2]

    @property
    def origin(self) -> str:
        return f"http://{self.headers.get('host', 'localhost')}"

    @property
    def port(self) -> str:
        return self.origin.rpartition(":")[2]

    @property
    def stays(self) -> bool:
        wish = self.headers.get("connection", "").lower()
        return wish == "keep-alive" or (wish != "close" and self.version == "HTTP/1.1")


@dataclass(frozen=True, slots=True)
class Response:
    """A well-formed answer; the site adds length, date and validators, `headers` win over them."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = HTML
    validators: bool = True


@dataclass(frozen=True, slots=True)
class Wire:
    """Bytes exactly as they go out, status line and all, and what becomes of the connection."""

    chunks: Callable[[], AsyncGenerator[bytes, None]]
    end: End = "close"


@dataclass(frozen=True, slots=True)
class Served:
    """What a request got: `sent` bytes in all; a Wire has no status to tell."""

    request: Request
    status: int | None
    sent: int


Answer = Response | Wire
Behaviour = Answer | Callable[[Request], Answer]


class Website:
    """Serves `pages` while entered; what would be endless stops at `max_bytes` or `max_seconds`."""

    def __init__(
        self,
        pages: Mapping[str, Behaviour] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        max_bytes: int = 64 << 20,
        max_seconds: float = 30.0,
        max_requests: int = 200_000,
    ) -> None:
        self.host, self.port = host, port
        self.max_bytes, self.max_seconds, self.max_requests = max_bytes, max_seconds, max_requests
        self.log: list[Request] = []
        self.served: list[Served] = []
        self.errors: list[Exception] = []
        self._pages: dict[str, Behaviour] = {}
        self._changed_at: dict[str, float] = {}
        # A change is one second later than the one before, so Last-Modified always tells them apart
        # and still lies in the past.
        self._ticks = itertools.count(int(time.time()) - DAY)
        self._guests: dict[asyncio.Task[None], socket.socket] = {}
        self._thread: threading.Thread | None = None
        self._stop: Future[None] = Future()
        self._serves = threading.Event()
        self.add_all(pages or {})

    def add(self, path: str, answer: Behaviour) -> str:
        """Let a path answer so from now on; `/x/*` is all below `/x/`; gives back its URL."""
        if self._pages.get(path) != answer:
            self._changed_at[path] = next(self._ticks)
        self._pages[path] = answer
        return self.url(path)

    def add_all(self, pages: Mapping[str, Behaviour]) -> None:
        for path, answer in pages.items():
            self.add(path, answer)

    def add_tree(self, directory: Path, under: str = "/") -> list[str]:
        """Serve the files that are there now, each read anew when asked; gives back their paths."""
        paths = []
        for file in sorted(file for file in directory.rglob("*") if file.is_file()):
            path = under + quote(file.relative_to(directory).as_posix())
            self.add(path, partial(_read, file))
            paths.append(path)
            if file.name == "index.html":
                self.add(path.removesuffix(file.name), partial(_read, file))
        return paths

    def url(self, path: str = "/", *, host: str | None = None) -> str:
        return f"http://{host or self.host}:{self.port}{path}"

    def asked(self, path: str) -> list[Request]:
        """Every request for a path: as sent, without its query, or all below `/x/*`."""
        if path.endswith("*"):
            return [seen for seen in self.log if seen.path.startswith(path[:-1])]
        return [seen for seen in self.log if path in (seen.path, seen.route)]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.stop()
        if self.errors and error is None:
            raise ExceptionGroup("the site itself failed", self.errors)

    def start(self) -> None:
        """Listen; once stopped, a site starts again on the port it had."""
        listener = socket.create_server((self.host, self.port), backlog=1024)
        listener.settimeout(0)
        self.port = listener.getsockname()[1]
        self._stop = Future()
        self._serves.clear()
        name, serve = f"website-{self.port}", lambda: asyncio.run(self._serve(listener))
        self._thread = threading.Thread(target=serve, name=name, daemon=True)
        self._thread.start()
        self._serves.wait()  # a test may count open files now

    def stop(self) -> None:
        """Close all connections, threads and sockets; a second call does nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stop.set_result(None)
        thread.join(10)
        if thread.is_alive():
            raise RuntimeError(f"{thread.name} does not stop: one of its pages blocks the loop")

    async def _serve(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(listener, self._meet, listener)
        self._serves.set()
        await asyncio.wrap_future(self._stop)
        loop.remove_reader(listener)
        listener.close()
        guests = list(self._guests)
        for task in guests:
            task.cancel()
        await asyncio.gather(*guests, return_exceptions=True)

    def _meet(self, listener: socket.socket) -> None:
        # By hand, for asyncio's own server loses sockets it has accepted but not yet handed over
        # when it is stopped just then.
        with suppress(OSError):
            link, (_, port) = listener.accept()
            task = asyncio.get_running_loop().create_task(self._converse(link, port))
            self._guests[task] = link
            task.add_done_callback(self._part)

    def _part(self, task: asyncio.Task[None]) -> None:
        self._guests.pop(task).close()
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.errors.append(error)

    async def _converse(self, link: socket.socket, port: int) -> None:
        with suppress(OSError, EOFError):  # the client left, or was silent for too long
            reader, writer = await asyncio.open_connection(sock=link)
            writer.transport.set_write_buffer_limits(0)  # drained means gone, down to the last byte
            try:
                while (end := await self._turn(reader, writer, port)) == "keep":
                    pass
                if end == "close":
                    async with asyncio.timeout(self.max_seconds):
                        await writer.drain()
                        writer.close()
                        await writer.wait_closed()
            finally:
                writer.transport.abort()

    async def _turn(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
    ) -> End:
        try:
            async with asyncio.timeout(self.max_seconds):
                request = await _hear(reader, port)
        except (ValueError, asyncio.LimitOverrunError):
            writer.write(render(BAD_REQUEST))
            return "close"
        if self._is_worn_out():
            return "close"
        self.log.append(request)
        answer = self._answer(request)
        if isinstance(answer, Response):
            end = await self._send(writer, request, answer)
        else:
            end = await self._pour(writer, request, answer)
        if end == "reset":  # to linger for no time is to close with RST, not FIN
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        return end

    def _is_worn_out(self) -> bool:
        """Tell whether a client has been led on for too long, and see that the test hears of it."""
        worn_out = len(self.log) >= self.max_requests
        if worn_out and not self.errors:
            self.errors.append(RuntimeError(f"more than {self.max_requests} requests"))
        return worn_out

    def _answer(self, request: Request) -> Answer:
        path = next(filter(self._pages.__contains__, _places(request)), None)
        if path is None:
            return NOT_FOUND
        found = self._pages[path]
        if isinstance(found, Response):
            readable = request.method in ("GET", "HEAD")
            return _dated(found, self._changed_at[path]) if readable else NOT_ALLOWED
        return found if isinstance(found, Wire) else self._call(found, request)

    def _call(self, page: Callable[[Request], Answer], request: Request) -> Answer:
        try:
            return page(request)
        except Exception as error:  # noqa: BLE001 - a test's page may fail in any way; __exit__ says so
            self.errors.append(error)
            return Response(repr(error).encode(), 500)

    async def _send(self, writer: asyncio.StreamWriter, request: Request, full: Response) -> End:
        response = _conditional(request, full)
        data = render(response, request)
        self.served.append(Served(request, response.status, len(data)))
        writer.write(data)
        async with asyncio.timeout(self.max_seconds):
            await writer.drain()
        return "keep" if request.stays else "close"

    async def _pour(self, writer: asyncio.StreamWriter, request: Request, wire: Wire) -> End:
        sent = 0
        chunks = _only_head(wire) if request.method == "HEAD" else wire.chunks()
        try:
            async with asyncio.timeout(self.max_seconds), aclosing(chunks):
                async for chunk in chunks:
                    part = chunk[: self.max_bytes - sent]
                    sent += len(part)
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)  # drain alone may never let the others in
                    if sent >= self.max_bytes:
                        return "close"
        except TimeoutError:
            return "close"
        finally:
            self.served.append(Served(request, None, sent))
        return wire.end


def head(status: int, headers: Mapping[str, str]) -> bytes:
    """Write a status line and headers, up to the empty line."""
    first = f"HTTP/1.1 {status} {responses.get(status, '')}"
    lines = [first, *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def render(response: Response, request: Request | None = None) -> bytes:
    """Write a whole answer as it goes out, for that request if there is one."""
    headers = {"Date": formatdate(usegmt=True)}
    if response.status not in (204, 304):
        headers["Content-Length"] = str(len(response.body))
        if response.content_type is not None:
            headers["Content-Type"] = response.content_type
    if request is not None and not request.stays:
        headers["Connection"] = "close"
    bodiless = response.status in (204, 304) or (request is not None and request.method == "HEAD")
    lines = head(response.status, {**headers, **response.headers})
    return lines if bodiless else lines + response.body


def _conditional(request: Request, response: Response) -> Response:
    if response.status != 200 or not response.validators:
        return response
    tag = f'"{hashlib.blake2b(response.body, digest_size=8).hexdigest()}"'
    headers = {"ETag": tag, **response.headers}
    if not _is_known(request, headers):
        return replace(response, headers=headers)
    return replace(response, status=304, headers=headers, body=b"")


def _is_known(request: Request, headers: Mapping[str, str]) -> bool:
    tags = request.headers.get("if-none-match")
    if tags is not None:  # RFC 9110 13.2.2: the date counts only where no tag is given
        known = [tag.strip().removeprefix("W/") for tag in tags.split(",")]
        return "*" in known or headers["ETag"].removeprefix("W/") in known
    since = _seconds(request.headers.get("if-modified-since"))
    modified = _seconds(headers.get("Last-Modified"))
    return since is not None and modified is not None and modified <= since


def _seconds(date: str | None) -> int | None:
    parsed = parsedate_tz(date) if date else None
    return mktime_tz(parsed) if parsed else None


def _dated(response: Response, at: float) -> Response:
    if response.status != 200 or not response.validators:
        return response
    modified = formatdate(at, usegmt=True)
    return replace(response, headers={"Last-Modified": modified, **response.headers})


def _read(file: Path, _request: Request) -> Response:
    if not file.is_file():
        return NOT_FOUND
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return _dated(Response(file.read_bytes(), content_type=kind), file.stat().st_mtime)


def _places(request: Request) -> Iterator[str]:
    """Where an answer may be, nearest first: as sent, without query, the folders above."""
    yield request.path
    yield request.route
    folder = request.route
    while folder:
        folder = folder.rpartition("/")[0]
        yield f"{folder}/*"


async def _hear(reader: asyncio.StreamReader, connection: int) -> Request:
    text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    at = time.monotonic()
    first, *lines = text.rstrip("\r\n").split("\r\n")
    method, path, version = first.split(" ")
    fields = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in fields}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, at, body, version, connection)


async def _only_head(wire: Wire) -> AsyncGenerator[bytes, None]:
    tail = b""
    async with aclosing(wire.chunks()) as chunks:
        async for chunk in chunks:
            seen = tail + chunk
            before, mark, _ = seen.partition(b"\r\n\r\n")
            yield (before + mark)[len(tail) :]
            if mark:
                return
            tail = seen[-3:]


BAD_REQUEST = Response(b"not understood\n", 400, {"Connection": "close"}, "text/plain")
NOT_FOUND = Response(b"<title>Not found</title>", 404)
NOT_ALLOWED = Response(b"", 405, {"Allow": "GET, HEAD"}, None)
