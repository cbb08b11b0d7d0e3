"""Uploads in parts, verified downloads that resume, listings, deletion and presigned URLs.

Single requests are retried for as long as `patience`. Errors:

- `StoreUnusable`: the credentials are wrong or lack a permission, the bucket does not exist, or
  this machine refuses the certificate of the server
- `Unreachable`: the server does not answer, answers with errors, or its certificate has expired, for longer
  than `patience`
- `NotFound`: there is no such object
- `BadContent`: the object is not the expected file
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

from usher.chunk_store import PartialFile, StoredFile, disk_error
from usher.errors import BadContent, NotFound, Unreachable
from usher.object_store.address import StoreAccess, StoreAddress, parse_address, store_access
from usher.object_store.client import import_obstore, s3_client
from usher.object_store.error_translation import ChangedObject, ErrorTranslator
from usher.settings import Settings

PART_BYTES: Final = 1 << 23  # of multipart uploads
READ_BYTES: Final = 1 << 20
MAX_PARTS: Final = 10_000  # by S3
MAX_PARTS_AT_ONCE: Final = 4
PATIENCE_SECONDS: Final = 30.0
CHECK_PATIENCE_SECONDS: Final = 5.0
CHECK_SECONDS: Final = 15.0
MAX_FRUITLESS_ATTEMPTS: Final = 3  # of a download, in a row, without a new byte
MAX_DELETED_KEYS: Final = 1_000  # in one request
# What the requests need. Without s3:ListBucket S3 answers 403 for an object that does not exist.
READ: Final = "s3:GetObject or s3:ListBucket"
WRITE: Final = "s3:PutObject"
COPY: Final = "s3:GetObject or s3:PutObject"
LIST: Final = "s3:ListBucket"
DELETE: Final = "s3:DeleteObject"
PROBE_KEY: Final = "usher-access-check"  # which `check` writes and deletes


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object; `key` is relative to the prefix of the store."""

    key: str
    size: int
    modified_at: datetime


@dataclass(slots=True)
class ObjectVersion:
    """Which version of an object a download reads."""

    etag: str | None = None
    size: int = 0


class ObjectStore:
    """The objects below a prefix of a bucket; keys are relative to the prefix."""

    def __init__(
        self, address: StoreAddress, access: StoreAccess, *, patience: float = PATIENCE_SECONDS
    ) -> None:
        self.address = address
        self._obstore = import_obstore()
        self._client = s3_client(address, access, patience)
        self._bucket_client = s3_client(StoreAddress(address.bucket), access, patience)
        endpoint = self._client.config.get("endpoint") or "AWS"
        self._errors = ErrorTranslator(
            address, endpoint, self._obstore.exceptions, access.authorities
        )

    async def check(self) -> None:
        """Write, read, list and delete a small object; StoreUnusable or Unreachable if one of these fails."""
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await self._check()
        except TimeoutError as error:
            raise Unreachable(
                f"{self.address} does not answer within {CHECK_SECONDS:g} seconds.",
                hint="Check that the S3 server works, and the network.",
            ) from error

    async def _check(self) -> None:
        data = b"Usher checks its access."
        await self.put_bytes(PROBE_KEY, data)
        if await self.get_bytes(PROBE_KEY) != data:
            raise BadContent(f"{self._errors.name(PROBE_KEY)} differs from what was just written.")
        await self.list_objects(limit=1)
        await self.delete([PROBE_KEY])

    # -- uploads

    async def put_bytes(self, key: str, data: bytes) -> None:
        """Store an object; the server verifies its checksum."""
        with self._errors.translate(key, WRITE):
            await self._obstore.put_async(self._client, key, data, use_multipart=False)

    async def put_file(self, key: str, path: Path, sha256: str | None = None) -> StoredFile:
        """Upload a file, a large one in parts; the server verifies the checksum of each.

        The object appears when it is complete. BadContent if the file is not the expected one.
        """
        size = file_size(path)
        part_bytes = max(PART_BYTES, -(-size // MAX_PARTS))
        reader = HashingReader(path, part_bytes)
        if size <= part_bytes:
            data = b"".join([part async for part in reader])
            check_file(str(path), reader.file(), sha256, None)
            await self.put_bytes(key, data)
            return reader.file()
        with self._errors.translate(key, WRITE):
            await self._obstore.put_async(
                *(self._client, key, reader),
                use_multipart=True,
                chunk_size=part_bytes,
                max_concurrency=MAX_PARTS_AT_ONCE,
            )
        try:
            check_file(str(path), reader.file(), sha256, None)
        except BadContent:
            await self.delete([key])
            raise
        return reader.file()

    async def copy_from(self, source: str, key: str) -> None:
        """Let the server copy an object of this bucket; `source` is its whole key, outside of the prefix."""
        target = f"{self.address.prefix}/{key}".lstrip("/")
        with self._errors.translate(key, COPY):
            await self._obstore.copy_async(self._bucket_client, source, target)

    # -- downloads

    async def get_bytes(self, key: str) -> bytes:
        """Return a small object; NotFound if there is none."""
        with self._errors.translate(key, READ):
            response = await self._obstore.get_async(self._client, key)
            return bytes(await response.bytes_async())

    async def get_file(
        self, key: str, path: Path, sha256: str | None = None, size: int | None = None
    ) -> StoredFile:
        """Download an object to a file, which appears when it is complete and as expected.

        An interrupted download continues where it stopped. BadContent if size or checksum differ.
        """
        file = PartialFile(path)
        try:
            await self._download(key, file)
            checked = StoredFile(path, file.sha256(), file.size)
            check_file(self._errors.name(key), checked, sha256, size)
            return await asyncio.to_thread(file.commit)
        finally:
            file.discard()

    async def _download(self, key: str, file: PartialFile) -> None:
        """Download until the file is complete; give up after several attempts in a row without a new byte."""
        fruitless, version = 0, ObjectVersion()
        while True:
            before = file.size
            try:
                await self._download_rest(key, file, version)
            except ChangedObject:
                file.truncate()
                fruitless += 1
            except Unreachable:
                fruitless = 0 if file.size > before else fruitless + 1
                if fruitless >= MAX_FRUITLESS_ATTEMPTS:
                    raise
            else:
                check_length(self._errors.name(key), file.size, version.size)
                return

    async def _download_rest(self, key: str, file: PartialFile, version: ObjectVersion) -> None:
        """Append the missing bytes; ChangedObject if they belong to another version than those before."""
        options: dict[str, Any] = {}
        if file.size:
            options = {"range": {"offset": file.size}, "if_match": version.etag}
        with self._errors.translate(key, READ):
            response = await self._obstore.get_async(self._client, key, options=options)
            version.etag, version.size = response.meta["e_tag"], response.meta["size"]
            async for part in response.stream(min_chunk_size=READ_BYTES):
                await asyncio.to_thread(file.write, bytes(part))

    # -- listing, deletion, presigned URLs

    async def head(self, key: str) -> ObjectInfo:
        """Return size and time of an object; NotFound if there is none."""
        with self._errors.translate(key, READ):
            meta = await self._obstore.head_async(self._client, key)
        return ObjectInfo(key, meta["size"], meta["last_modified"])

    async def list_objects(
        self, folder: str = "", *, after: str = "", limit: int = 1_000
    ) -> list[ObjectInfo]:
        """Return up to `limit` objects of a folder (`content` for `content/…`), sorted, with keys after `after`."""
        objects: list[ObjectInfo] = []
        with self._errors.translate(folder, LIST):
            stream = self._obstore.list(
                self._client, folder or None, offset=after or None, chunk_size=min(limit, 1_000)
            )
            async for part in stream:
                objects += [
                    ObjectInfo(meta["path"], meta["size"], meta["last_modified"]) for meta in part
                ]
                if len(objects) >= limit:
                    break
        return objects[:limit]

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; those that do not exist count as deleted."""
        for start in range(0, len(keys), MAX_DELETED_KEYS):
            part = list(keys[start : start + MAX_DELETED_KEYS])
            try:
                with self._errors.translate(part[0], DELETE):
                    await self._obstore.delete_async(self._client, part)
            except NotFound:
                if len(part) > 1:  # which of them is unknown
                    for key in part:
                        await self.delete([key])

    async def presign(
        self, method: Literal["GET", "PUT"], keys: Sequence[str], *, seconds: float
    ) -> list[str]:
        """Return URLs with which a client without credentials may read or write these objects for some time."""
        if not keys:
            return []
        with self._errors.translate(keys[0], COPY):
            expiry = timedelta(seconds=seconds)
            return list(await self._obstore.sign_async(self._client, method, keys, expiry))


class HashingReader:
    """Reads a file in parts, and computes its checksum."""

    def __init__(self, path: Path, part_bytes: int) -> None:
        self._path, self._part_bytes = path, part_bytes
        self._size, self._sum = 0, hashlib.sha256()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            with self._path.open("rb") as file:
                while part := await asyncio.to_thread(file.read, self._part_bytes):
                    await asyncio.to_thread(self._sum.update, part)
                    self._size += len(part)
                    yield part
        except OSError as error:
            raise disk_error(self._path, error, "read") from error

    def file(self) -> StoredFile:
        return StoredFile(self._path, self._sum.hexdigest(), self._size)


async def check_chunk_store(settings: Settings) -> str:
    """Check the store of the settings; StoreUnusable if it may not be used.

    Returns why it does not answer, which is no error: it may be back before a component needs it.
    """
    if settings.chunk_store:
        store = open_store(settings.chunk_store, settings, patience=CHECK_PATIENCE_SECONDS)
        try:
            await store.check()
        except Unreachable as error:
            return error.message
    return ""


def open_store(url: str, settings: Settings, *, patience: float = PATIENCE_SECONDS) -> ObjectStore:
    """Return the store at `s3://bucket/prefix` with the settings `s3_*`; nothing is requested yet."""
    return ObjectStore(parse_address(url), store_access(settings), patience=patience)


def file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise disk_error(path, error, "read") from error


def check_length(name: str, size: int, expected: int) -> None:
    if size != expected:
        raise BadContent(f"{name} ended after {size:,} of {expected:,} bytes.")


def check_file(name: str, file: StoredFile, sha256: str | None, size: int | None) -> None:
    """Raise BadContent unless the file has the expected checksum and size."""
    if size is not None and file.size != size:
        raise BadContent(f"{name} is damaged: it has {file.size:,} bytes, not {size:,}.")
    if sha256 is not None and file.sha256 != sha256:
        raise BadContent(f"{name} is damaged: its checksum is {file.sha256}, not {sha256}.")
