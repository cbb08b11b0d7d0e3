"""Downloads and uploads of chunk files in the object store, with presigned URLs from MGMT.

Errors name the server and the chunk, never the URL, which is a permission.

- `NotFound`: there is no such object
- `BadContent`: the object is not the expected file
- `BadInput`: the store takes no file of this size
- `StoreUnusable`: the store refuses the URL, its bucket does not exist, or this machine refuses its certificate
- `Unreachable`: the store does not answer, or answers with an error
"""

import asyncio
import base64
import hashlib
import re
import ssl
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httptools

from usher.certificates import (
    SYSTEM_AUTHORITIES,
    TrustedAuthorities,
    certificate_problem,
    describe_certificate_error,
)
from usher.chunk_store import PartialFile, StoredFile, disk_error
from usher.errors import (
    BadContent,
    BadInput,
    DiskUnusable,
    NotFound,
    StoreUnusable,
    Unreachable,
    UsherError,
)
from usher.http.client.download import MAX_FILE_BYTES, ChunkKind, ChunkLocation, Download
from usher.http.client.pool import DEFAULT_PORTS, HttpPool, StreamedResponse, request_bytes

BLOCK_BYTES: Final = 1 << 18
TIMEOUT_SECONDS: Final = 30.0  # for a connection, for each block, and for the answer
CONTINUE_SECONDS: Final = 2.0  # for a server that ignores Expect
MAX_UPLOAD_SECONDS: Final = (
    1_800.0  # of one attempt; the watchdog keeps the object for twice as long
)
MAX_ERROR_BYTES: Final = 10_000
CREATED: Final = (200, 201, 204)
ERROR_CODE: Final = re.compile(rb"<Code>(\w{1,80})</Code>")
MD5_ETAG: Final = re.compile(r'"?([0-9a-f]{32})"?')
CONFIGURATION_CODES: Final = frozenset(
    {"NoSuchBucket", "InvalidAccessKeyId", "SignatureDoesNotMatch"}
)
STORE_HINT: Final = (
    "Check that the S3 server runs, and that this machine reaches it under this name."
)


async def download_object(
    url: str,
    chunk: int,
    kind: ChunkKind,
    to: Path,
    sha256: str | None,
    *,
    size: int | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    authorities: TrustedAuthorities = SYSTEM_AUTHORITIES,
) -> StoredFile:
    """Download the file of a chunk from the object store; it appears when it is complete and as expected."""
    parts = urlsplit(url)
    name, limit = object_name(url, chunk, kind), MAX_FILE_BYTES[kind]
    if size is not None and size > limit:
        raise BadContent(f"{name} is too large: it has {size:,} bytes, more than {limit:,}.")
    path = f"{parts.path}?{parts.query}"
    source = ChunkLocation(name, f"{parts.scheme}://{parts.netloc}", path, sha256, size, limit)
    file = PartialFile(to)
    try:
        await ObjectDownload(source, file, timeout_seconds, authorities).run()
        return await asyncio.to_thread(file.commit)
    finally:
        file.discard()


class ObjectDownload(Download):
    """The download of one object."""

    def __init__(
        self,
        source: ChunkLocation,
        file: PartialFile,
        timeout: float,
        authorities: TrustedAuthorities,
    ) -> None:
        self._authorities = authorities
        super().__init__(source, file, "", timeout)

    def _connect(self, source: ChunkLocation, timeout: float) -> HttpPool:
        host, port, tls = server_of(source.address, self._authorities)
        return HttpPool(
            host, port, timeout=timeout, name=f"{source.name},", hint=STORE_HINT, tls=tls
        )

    async def _attempt(self) -> None:
        try:
            await super()._attempt()
        except Unreachable as error:
            if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                raise untrusted(self._source.name, error.__cause__, self._authorities) from error
            raise

    async def _refusal(self, response: StreamedResponse) -> UsherError:
        return refusal(self._source.name, response.status, await error_code(response))


async def upload_object(
    url: str,
    chunk: int,
    kind: ChunkKind,
    file: StoredFile,
    *,
    authorities: TrustedAuthorities = SYSTEM_AUTHORITIES,
) -> None:
    """Upload the file of a chunk; the server verifies its MD5. Raises unless the object is stored."""
    name = object_name(url, chunk, kind)
    try:
        async with asyncio.timeout(MAX_UPLOAD_SECONDS):
            await put_file(url, name, file, authorities)
    except TimeoutError as error:
        raise unreachable(name, f"no answer within {TIMEOUT_SECONDS:g} seconds") from error
    except ssl.SSLCertVerificationError as error:
        raise untrusted(name, error, authorities) from error
    except (OSError, httptools.HttpParserError, EOFError) as error:
        raise unreachable(name, str(error) or type(error).__name__) from error


async def put_file(url: str, name: str, file: StoredFile, authorities: TrustedAuthorities) -> None:
    md5 = await asyncio.to_thread(md5_of, file.path)
    host, port, tls = server_of(url, authorities)
    parts = urlsplit(url)
    headers = {
        "Host": parts.netloc,
        "Content-MD5": base64.b64encode(md5).decode("ascii"),
        "Expect": "100-continue",
        "Connection": "close",
    }
    head = request_bytes("PUT", f"{parts.path}?{parts.query}", b"", headers, length=file.size)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        writer.write(head)
        response = await early_response(reader)
        if response is None:
            await send_file(writer, file)
            response = await final_response(reader)
        if response.status not in CREATED:
            raise refusal(name, response.status, await error_code(response))
        check_etag(name, response, md5)
    finally:
        writer.close()


async def early_response(reader: asyncio.StreamReader) -> StreamedResponse | None:
    """Wait until the server wants the body; return its answer if it refuses the upload before.

    A server that refuses while the body arrives may reset the connection, and then its answer is lost.
    """
    response = StreamedResponse(reader, TIMEOUT_SECONDS)
    try:
        async with asyncio.timeout(CONTINUE_SECONDS):
            await response.read_head()
    except TimeoutError:  # it does not know Expect
        return None
    return None if response.status == HTTPStatus.CONTINUE else response


async def final_response(reader: asyncio.StreamReader) -> StreamedResponse:
    """Return the head of the answer after the body."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            response = StreamedResponse(reader, TIMEOUT_SECONDS)
            await response.read_head()
            if response.status != HTTPStatus.CONTINUE:
                return response


def check_etag(name: str, response: StreamedResponse, md5: bytes) -> None:
    """Raise BadContent if the ETag is the MD5 of another body: some servers ignore Content-MD5."""
    headers = response.headers
    match = MD5_ETAG.fullmatch(headers.get("etag", ""))
    # With a key of KMS or of the client, the ETag is no MD5.
    is_md5 = match and headers.get("x-amz-server-side-encryption", "AES256") == "AES256"
    if match and is_md5 and match[1] != md5.hex():
        raise BadContent(f"{name} arrived damaged.")


async def send_file(writer: asyncio.StreamWriter, file: StoredFile) -> None:
    """Send the file; stop when the server closes the connection, because its answer says why."""
    sent = 0
    try:
        opened = file.path.open("rb")
    except OSError as error:
        raise disk_error(file.path, error, "read") from error
    with opened:
        while block := await asyncio.to_thread(opened.read, BLOCK_BYTES):
            sent += len(block)
            try:
                writer.write(block)
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    await writer.drain()
            except ConnectionError:
                return
    if sent != file.size:
        raise DiskUnusable(f"{file.path} has {sent:,} bytes, not the {file.size:,} written to it.")


def md5_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).digest()
    except OSError as error:
        raise disk_error(path, error, "read") from error


def server_of(url: str, authorities: TrustedAuthorities) -> tuple[str, int, ssl.SSLContext | None]:
    """Return host, port and TLS of a URL that MGMT signed."""
    parts = urlsplit(url)
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise BadInput("MGMT named an object store whose URL is neither http nor https.")
    tls = authorities.context if parts.scheme == "https" else None
    return parts.hostname, parts.port or DEFAULT_PORTS[parts.scheme], tls


def object_name(url: str, chunk: int, kind: ChunkKind) -> str:
    return f"The {kind} of chunk {chunk} in the object store at {urlsplit(url).netloc}"


async def error_code(response: StreamedResponse) -> str:
    """Return the code in the answer of the store, such as `NoSuchKey`; empty if there is none."""
    body = b""
    async for part in response.parts():
        body += part
        if len(body) > MAX_ERROR_BYTES:
            break
    match = ERROR_CODE.search(body)
    return match[1].decode("ascii") if match else ""


def refusal(name: str, status: int, code: str) -> UsherError:
    """The error that a status of the store means."""
    reason = f"{status} {code}".strip()
    if code in CONFIGURATION_CODES or status in (401, 403):
        return StoreUnusable(
            f"{name} is refused ({reason}).",
            hint="Check s3_access_key, s3_secret_key and the bucket of MGMT with `usher doctor`.",
        )
    if code == "EntityTooLarge" or status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return BadInput(f"{name} is larger than the server accepts ({reason}).")
    if code == "NoSuchKey":  # a 404 without it may come from another server
        return NotFound(f"{name} does not exist.")
    if code == "BadDigest":
        return BadContent(f"{name} arrived damaged.")
    return Unreachable(f"{name} cannot be transferred now: HTTP {reason}.", hint=STORE_HINT)


def unreachable(name: str, reason: str) -> Unreachable:
    return Unreachable(f"{name} cannot be reached: {reason}.", hint=STORE_HINT)


def untrusted(
    name: str, error: ssl.SSLCertVerificationError, authorities: TrustedAuthorities
) -> StoreUnusable:
    """The error for a refused certificate. The message has the hint too: health shows messages only."""
    words, hint = describe_certificate_error(error), authorities.hint(certificate_problem(error))
    return StoreUnusable(f"{name} cannot be used: the certificate {words}. {hint}")
