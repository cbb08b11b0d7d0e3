"""Downloads chunk files from components: in parts, resumed after an interruption, and verified."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from usher.chunk_store import PartialFile, StoredFile
from usher.errors import BadContent, BadInput, NotAllowed, NotFound, Unreachable, UsherError
from usher.http.client.pool import HttpPool, StreamedResponse

ChunkKind = Literal["content", "index"]
PATHS: Final[Mapping[ChunkKind, str]] = {"content": "/get_chunk/", "index": "/index_chunk/"}
# A component is not trusted: larger files are refused, also if it reported them to MGMT.
MAX_FILE_BYTES: Final[Mapping[ChunkKind, int]] = {"content": 1 << 34, "index": 1 << 30}
TIMEOUT_SECONDS: Final = 30.0  # for the head, for each part, and the longest pause between attempts
MAX_FRUITLESS_ATTEMPTS: Final = 4  # in a row, without a new byte
MAX_ATTEMPTS: Final = 100
FIRST_PAUSE_SECONDS: Final = 0.1
SHA256_ETAG: Final = re.compile(r'"([0-9a-f]{64})"')
RANGE_START: Final = re.compile(r"bytes (\d{1,18})-")


async def download_chunk(
    base: str,
    chunk: int,
    kind: ChunkKind,
    to: Path,
    sha256: str | None = None,
    *,
    size: int | None = None,
    ticket: str = "",
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> StoredFile:
    """Download a chunk's file from the component at `base`, such as `10.0.0.7:5000` or `http://10.0.0.7:5000`.

    Raises Unreachable if that fails now, NotFound if the component has no such file, BadContent if the file differs
    from MGMT's size or checksum. Without those, the file must match the component's own checksum.
    """
    address = base if "://" in base else f"http://{base}"
    name = f"The {kind} chunk {chunk} of {base}"
    limit = MAX_FILE_BYTES[kind]
    if size is not None and size > limit:
        raise BadContent(f"{name} is too large: it has {size:,} bytes, more than {limit:,}.")
    source = ChunkLocation(name, address, f"{PATHS[kind]}{chunk}", sha256, size, limit)
    file = PartialFile(to)
    try:
        await Download(source, file, ticket, timeout_seconds).run()
        return await asyncio.to_thread(file.commit)
    finally:
        file.discard()


@dataclass(frozen=True, slots=True)
class ChunkLocation:
    """A file at a component, and its expected size and checksum; `name` is for error messages."""

    name: str
    address: str
    path: str
    sha256: str | None
    size: int | None
    limit: int  # bytes

    @property
    def max_bytes(self) -> int:
        return self.limit if self.size is None else self.size


class Download:
    """The download of one file."""

    def __init__(
        self, source: ChunkLocation, file: PartialFile, ticket: str, timeout: float
    ) -> None:
        self._source, self._file = source, file
        self._pool = self._connect(source, timeout)
        self._headers = {"Host": urlsplit(source.address).netloc.rpartition("@")[2]}
        if ticket:
            self._headers["Authorization"] = f"Bearer {ticket}"
        self._timeout = timeout
        self._etag = ""

    def _connect(self, source: ChunkLocation, timeout: float) -> HttpPool:
        return component_pool(source, timeout)

    async def run(self) -> None:
        """Download the whole file; give up after several attempts in a row without a new byte."""
        fruitless = attempts = 0
        while True:
            before = self._file.size
            try:
                await self._attempt()
                break
            except Unreachable:
                fruitless = 0 if self._file.size > before else fruitless + 1
                attempts += 1
                if fruitless == MAX_FRUITLESS_ATTEMPTS or attempts == MAX_ATTEMPTS:
                    raise
            await asyncio.sleep(min(FIRST_PAUSE_SECONDS * 2**fruitless, self._timeout))
        self._verify()

    async def _attempt(self) -> None:
        """Request the missing bytes; a file that has changed is sent from its start."""
        headers = dict(self._headers)
        if self._file.size and self._etag:
            headers |= {"Range": f"bytes={self._file.size}-", "If-Range": self._etag}
        async with self._pool.stream(self._source.path, headers) as response:
            await self._check_head(response)
            async for part in response.parts():
                if self._file.size + len(part) > self._source.max_bytes:
                    raise self._too_long()
                self._file.write(part)

    async def _check_head(self, response: StreamedResponse) -> None:
        """Raise unless the response has the requested bytes."""
        match response.status:
            case 200:
                self._file.truncate()
                self._etag = response.headers.get("etag", "")
                self._check_announced(response)
            case 206 if range_start(response) == self._file.size:
                pass
            case 206 | 416:
                self._file.truncate()
                raise Unreachable(f"{self._source.name} arrived in parts that do not match.")
            case _:
                raise await self._refusal(response)

    async def _refusal(self, response: StreamedResponse) -> UsherError:
        """The error that a status other than success means."""
        match response.status:
            case 401 | 403:
                return NotAllowed(
                    f"{self._source.name} is not permitted ({response.status}).",
                    hint="Check this component's token with `usher tokens list`.",
                )
            case 404 | 410:
                return NotFound(f"{self._source.name} does not exist.")
            case status:
                return Unreachable(f"Could not download {self._source.name}: HTTP {status}.")

    def _check_announced(self, response: StreamedResponse) -> None:
        """Raise at once if the component announces another checksum, or too many bytes."""
        announced = SHA256_ETAG.fullmatch(self._etag)
        if announced and self._source.sha256 and announced[1] != self._source.sha256:
            raise self._mismatch(f"its checksum is {announced[1]}, not {self._source.sha256}")
        length = response.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._source.max_bytes:
            raise self._too_long()

    def _verify(self) -> None:
        size, checksum = self._file.size, self._file.sha256()
        announced = SHA256_ETAG.fullmatch(self._etag)
        expected = self._source.sha256 or (announced and announced[1]) or checksum
        if self._source.size not in (None, size):
            raise self._mismatch(f"it has {size:,} bytes, not {self._source.size:,}")
        if checksum != expected:
            raise self._mismatch(f"its checksum is {checksum}, not {expected}")

    def _too_long(self) -> BadContent:
        return self._mismatch(f"it is longer than {self._source.max_bytes:,} bytes")

    def _mismatch(self, reason: str) -> BadContent:
        return BadContent(f"{self._source.name} is not the expected file: {reason}.")


def range_start(response: StreamedResponse) -> int:
    """The first byte of a partial response; -1 if it does not say."""
    match = RANGE_START.match(response.headers.get("content-range", ""))
    return int(match[1]) if match else -1


def component_pool(source: ChunkLocation, timeout: float) -> HttpPool:
    try:
        parts = urlsplit(source.address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme != "http":
        raise BadInput(f"{source.address!r} is not the address of a component.", hint="HOST:PORT")
    hint = "Check that it runs there; MGMT reassigns the chunk if it does not come back."
    return HttpPool(host, port or 80, timeout=timeout, name=f"{source.name},", hint=hint)
