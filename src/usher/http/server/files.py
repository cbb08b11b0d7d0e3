"""A file as an answer: streamed, resumable, and named by its checksum.

Comes from a handler that has a whole file; goes out in pieces that are read in a thread.
"""

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

PIECE: Final = 1 << 18
RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class FileResponse(Response):
    """A file with an ETag; of ranges only a single one is served, which is all that resuming needs."""

    def __init__(self, path: Path, sha256: str, media_type: str) -> None:
        super().__init__(media_type=media_type)
        self.path = path
        self.etag = f'"{sha256}"'

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = Headers(scope=scope)
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NotFound("It has just been dropped.") from None
        try:
            first, end = self._prepare(asked, os.fstat(file).st_size)
            start = {"type": "http.response.start", "status": self.status_code}
            await send({**start, "headers": self.raw_headers})
            if scope["method"] == "HEAD":
                first = end
            await send_file(file, first, end, Request(scope, receive), send)
        finally:
            os.close(file)

    def _prepare(self, asked: Headers, size: int) -> tuple[int, int]:
        """Status, headers, and which bytes to send."""
        self.headers["accept-ranges"] = "bytes"
        self.headers["etag"] = self.etag
        if self.etag in asked.get("if-none-match", ""):
            self.status_code = HTTPStatus.NOT_MODIFIED
            del self.headers["content-length"]
            return 0, 0
        wanted = (0, size)
        if asked.get("if-range", self.etag) == self.etag:
            wanted = span(asked.get("range", ""), size)
        first, end = wanted
        if wanted != (0, size):
            self.status_code = HTTPStatus.PARTIAL_CONTENT
            self.headers["content-range"] = f"bytes {first}-{end - 1}/{size}"
        self.headers["content-length"] = str(end - first)
        return wanted


def span(text: str, size: int) -> tuple[int, int]:
    """The bytes that a Range asks for; all of them if it asks for what we do not serve."""
    found = RANGE.fullmatch(text.replace(" ", ""))
    if not found or not (found[1] or found[2]):
        return 0, size
    if found[1]:
        first, end = int(found[1]), min(int(found[2]) + 1 if found[2] else size, size)
    else:
        first, end = max(size - int(found[2]), 0), size
    if found[1] and found[2] and int(found[2]) < first:
        return 0, size
    if first >= size:
        raise HttpError(
            416,
            "past_the_end",
            f"It has {size} bytes.",
            headers={"Content-Range": f"bytes */{size}"},
        )
    return first, end


async def send_file(file: int, first: int, end: int, request: Request, send: Send) -> None:
    """Send these bytes, one piece after the other, unless nobody listens any more."""
    while first < end:
        piece = await asyncio.to_thread(os.pread, file, min(PIECE, end - first), first)
        if not piece:
            raise OSError("the file has become shorter")
        first += len(piece)
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        if first < end and await request.is_disconnected():
            return
    await send({"type": "http.response.body"})
