"""Chunk files pulled from the components that have them: in parts, again from where it broke off, and checked.

Comes from a component's address and what MGMT knows of the chunk; goes to a file that is whole, or is not there.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from usher.chunk_store import PartialFile, StoredFile
from usher.errors import BadContent, BadInput, NotAllowed, NotFound, Unreachable
from usher.http.client.pool import HttpPool, StreamedResponse

Kind = Literal["content", "index"]
PATHS: Final[Mapping[Kind, str]] = {"content": "/get_chunk/", "index": "/index_chunk/"}
# A component is not trusted: larger files are refused, whatever it reported to MGMT.
MAX_FILE_BYTES: Final[Mapping[Kind, int]] = {"content": 1 << 34, "index": 1 << 30}
PATIENCE: Final = (
    30.0  # seconds for an answer to begin, between its parts, and at most until the next try
)
VAIN, TRIES = 4, 100  # tries in a row that bring nothing, and of all kinds
PAUSE: Final = 0.1
SUM: Final = re.compile(r'"([0-9a-f]{64})"')
FROM: Final = re.compile(r"bytes (\d{1,18})-")


async def download_chunk(
    base: str,
    chunk: int,
    kind: Kind,
    to: Path,
    sha256: str | None = None,
    *,
    size: int | None = None,
    ticket: str = "",
    patience: float = PATIENCE,
) -> StoredFile:
    """Get a chunk's file from the component at `base`, as in `10.0.0.7:5000`, with or without http:// before it.

    Unreachable if it cannot be had now, NotFound if it is not there, BadContent if it is not what MGMT says it is. If
    nothing is said of it, it must be what the component itself says.
    """
    address = base if "://" in base else f"http://{base}"
    what = f"The {kind} chunk {chunk} of {base}"
    limit = MAX_FILE_BYTES[kind]
    if size is not None and size > limit:
        raise BadContent(f"{what} is too large: it has {size:,} bytes, more than {limit:,}.")
    wanted = ChunkSource(what, address, f"{PATHS[kind]}{chunk}", sha256, size, limit)
    draft = PartialFile(to)
    try:
        await Download(wanted, draft, ticket, patience).run()
        return await asyncio.to_thread(draft.commit)
    finally:
        draft.discard()


@dataclass(frozen=True, slots=True)
class ChunkSource:
    """A file, where it is, and what is known of it; `what` is for people."""

    what: str
    address: str
    path: str
    sha256: str | None
    size: int | None
    limit: int  # bytes


class Download:
    """One file on its way."""

    def __init__(
        self, wanted: ChunkSource, draft: PartialFile, ticket: str, patience: float
    ) -> None:
        self._wanted, self._draft = wanted, draft
        self._lines = lines_to(wanted, patience)
        self._headers = {"Host": urlsplit(wanted.address).netloc.rpartition("@")[2]}
        if ticket:
            self._headers["Authorization"] = f"Bearer {ticket}"
        self._patience = patience
        self._etag = ""

    async def run(self) -> None:
        """All of it, however often it breaks off, as long as one of a few tries brings more of it."""
        vain = tries = 0
        while True:
            before = self._draft.size
            try:
                await self._try()
                break
            except Unreachable:
                vain, tries = 0 if self._draft.size > before else vain + 1, tries + 1
                if vain == VAIN or tries == TRIES:
                    raise
            await asyncio.sleep(min(PAUSE * 2**vain, self._patience))
        self._check()

    async def _try(self) -> None:
        """Ask for what is missing; of a file that is another one now, for all."""
        asked = dict(self._headers)
        if self._draft.size and self._etag:
            asked |= {"Range": f"bytes={self._draft.size}-", "If-Range": self._etag}
        async with self._lines.stream(self._wanted.path, asked) as answer:
            self._begin(answer)
            await self._take(answer)

    def _begin(self, answer: StreamedResponse) -> None:
        """Whether this is what was asked for."""
        match answer.status:
            case 200:
                self._draft.truncate()
                self._etag = answer.headers.get("etag", "")
                self._foresee(answer)
            case 206 if begins(answer) == self._draft.size:
                pass
            case 206 | 416:
                self._draft.truncate()
                raise Unreachable(f"{self._wanted.what} came in parts that do not fit.")
            case 401 | 403:
                hint = "Check this component's token with `usher tokens list`."
                raise NotAllowed(f"{self._wanted.what} is not for us ({answer.status}).", hint=hint)
            case 404 | 410:
                raise NotFound(f"{self._wanted.what} is not there.")
            case status:
                raise Unreachable(f"{self._wanted.what} cannot be had: HTTP {status}.")

    def _foresee(self, answer: StreamedResponse) -> None:
        """Do not even begin with a file that says it is another one."""
        said = SUM.fullmatch(self._etag)
        if said and self._wanted.sha256 and said[1] != self._wanted.sha256:
            raise self._wrong(f"its checksum is {said[1]}, not {self._wanted.sha256}")
        length = answer.headers.get("content-length", "")
        most = self._most_bytes()
        if length.isdecimal() and int(length) > most:
            raise self._wrong(f"it is longer than {most:,} bytes")

    async def _take(self, answer: StreamedResponse) -> None:
        most = self._most_bytes()
        async for part in answer.parts():
            if self._draft.size + len(part) > most:
                raise self._wrong(f"it is longer than {most:,} bytes")
            self._draft.write(part)

    def _most_bytes(self) -> int:
        return self._wanted.limit if self._wanted.size is None else self._wanted.size

    def _check(self) -> None:
        size, sum_ = self._draft.size, self._draft.sha256()
        said = SUM.fullmatch(self._etag)
        wanted = self._wanted.sha256 or (said and said[1]) or sum_
        if self._wanted.size not in (None, size):
            raise self._wrong(f"it has {size:,} bytes, not {self._wanted.size:,}")
        if sum_ != wanted:
            raise self._wrong(f"its checksum is {sum_}, not {wanted}")

    def _wrong(self, reason: str) -> BadContent:
        return BadContent(f"{self._wanted.what} is not what was promised: {reason}.")


def begins(answer: StreamedResponse) -> int:
    """Where a part of a file begins."""
    found = FROM.match(answer.headers.get("content-range", ""))
    return int(found[1]) if found else -1


def lines_to(wanted: ChunkSource, patience: float) -> HttpPool:
    try:
        parts = urlsplit(wanted.address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme != "http":
        raise BadInput(f"{wanted.address!r} is not the address of a component.", hint="HOST:PORT")
    hint = "Check that it runs there; MGMT gives the chunk to another if it does not come back."
    return HttpPool(host, port or 80, timeout=patience, name=f"{wanted.what},", hint=hint)
