"""A file as a response: streamed in blocks, resumable, with its checksum as ETag."""

import asyncio
import os
import re
from http import HTTPStatus
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from usher.errors import NotFound
from usher.http.server.middleware import HttpError

BLOCK_BYTES: Final = 1 << 18
RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class FileResponse(Response):
    """A file with an ETag; it serves single ranges, which is what resuming needs."""

    def __init__(self, path: Path, sha256: str, media_type: str) -> None:
        super().__init__(media_type=media_type)
        self.path = path
        self.etag = f'"{sha256}"'

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NotFound("The file was just deleted.") from None
        try:
            first, end = self._prepare(headers, os.fstat(file).st_size)
            start = {"type": "http.response.start", "status": self.status_code}
            await send({**start, "headers": self.raw_headers})
            if scope["method"] == "HEAD":
                first = end
            await send_file(file, first, end, Request(scope, receive), send)
        finally:
            os.close(file)

    def _prepare(self, request_headers: Headers, size: int) -> tuple[int, int]:
        """Set status and headers; returns the first byte to send and the end."""
        self.headers["accept-ranges"] = "bytes"
        self.headers["etag"] = self.etag
        if self.etag in request_headers.get("if-none-match", ""):
            self.status_code = HTTPStatus.NOT_MODIFIED
            del self.headers["content-length"]
            return 0, 0
        selected = (0, size)
        if request_headers.get("if-range", self.etag) == self.etag:
            selected = byte_range(request_headers.get("range", ""), size)
        first, end = selected
        if selected != (0, size):
            self.status_code = HTTPStatus.PARTIAL_CONTENT
            self.headers["content-range"] = f"bytes {first}-{end - 1}/{size}"
        self.headers["content-length"] = str(end - first)
        return selected


def byte_range(text: str, size: int) -> tuple[int, int]:
    """The first byte of a Range and its end; all bytes if it has a form that is not supported."""
    match = RANGE.fullmatch(text.replace(" ", ""))
    if not match or not (match[1] or match[2]):
        return 0, size
    if match[1]:
        first, end = int(match[1]), min(int(match[2]) + 1 if match[2] else size, size)
    else:
        first, end = max(size - int(match[2]), 0), size
    if match[1] and match[2] and int(match[2]) < first:
        return 0, size
    if first >= size:
        raise HttpError(
            416,
            "past_the_end",
            f"The file has {size} bytes.",
            headers={"Content-Range": f"bytes */{size}"},
        )
    return first, end


async def send_file(file: int, first: int, end: int, request: Request, send: Send) -> None:
    """Send these bytes block by block; stop when the client disconnects."""
    while first < end:
        block = await asyncio.to_thread(os.pread, file, min(BLOCK_BYTES, end - first), first)
        if not block:
            raise OSError("the file became shorter")
        first += len(block)
        await send({"type": "http.response.body", "body": block, "more_body": True})
        if first < end and await request.is_disconnected():
            return
    await send({"type": "http.response.body"})
