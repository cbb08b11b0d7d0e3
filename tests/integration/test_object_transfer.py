"""Transfers of chunk files with presigned URLs, through a proxy that injects faults, with a real S3 server."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from support.s3.fault_proxy import FaultProxy, Faults
from support.s3.server import OPERATOR, S3Server
from usher.chunk_store import StoredFile
from usher.errors import BadContent, DiskUnusable, NotFound, StoreUnusable, Unreachable
from usher.http.client import object_transfer
from usher.http.client.object_transfer import download_object, upload_object
from usher.object_store.address import StoreAccess, StoreAddress
from usher.object_store.store import ObjectStore

pytestmark = pytest.mark.soak

BODY = bytes(range(256)) * 20_000
KEY = "index/000000/000000007.idx"
Sign = Callable[[Literal["GET", "PUT"]], Awaitable[str]]


@pytest.fixture
def file(tmp_path: Path) -> StoredFile:
    path = tmp_path / "chunk"
    path.write_bytes(BODY)
    return StoredFile(path, hashlib.sha256(BODY).hexdigest(), len(BODY))


@pytest.fixture
def sign(s3_proxy: FaultProxy, bucket: str) -> Sign:
    """URLs that lead through the proxy."""
    access = StoreAccess(s3_proxy.endpoint, "", OPERATOR.access_key, OPERATOR.secret_key)
    store = ObjectStore(StoreAddress(bucket), access)

    async def presign(method: Literal["GET", "PUT"]) -> str:
        [url] = await store.presign(method, [KEY], seconds=60)
        return url

    return presign


async def download(url: str, file: StoredFile, to: Path) -> StoredFile:
    return await download_object(
        url, 7, "index", to, file.sha256, size=file.size, timeout_seconds=5
    )


async def test_what_is_uploaded_can_be_downloaded(
    sign: Sign, file: StoredFile, s3_server: S3Server, bucket: str, tmp_path: Path
) -> None:
    await upload_object(await sign("PUT"), 7, "index", file)
    assert s3_server.requests.get(bucket, KEY) == BODY
    copy = await download(await sign("GET"), file, tmp_path / "copy")
    assert (copy.path.read_bytes(), copy.sha256) == (BODY, file.sha256)


async def test_a_damaged_upload_is_refused(
    sign: Sign, file: StoredFile, s3_proxy: FaultProxy
) -> None:
    s3_proxy.faults = Faults(path=KEY, damage_upload=True)
    with pytest.raises(BadContent, match="arrived damaged"):
        await upload_object(await sign("PUT"), 7, "index", file)


async def test_a_cut_upload_stores_nothing(
    sign: Sign, file: StoredFile, s3_proxy: FaultProxy, s3_server: S3Server, bucket: str
) -> None:
    s3_proxy.faults = Faults(path=KEY, cut_upload_after=100_000)
    with pytest.raises(Unreachable, match="chunk 7"):
        await upload_object(await sign("PUT"), 7, "index", file)
    assert s3_server.requests.keys(bucket) == []


async def test_a_file_that_became_shorter_is_not_stored(
    sign: Sign, file: StoredFile, s3_server: S3Server, bucket: str
) -> None:
    with pytest.raises(DiskUnusable, match="5,120,000 bytes, not the 5,120,001"):
        await upload_object(await sign("PUT"), 7, "index", replace(file, size=file.size + 1))
    assert s3_server.requests.keys(bucket) == []


async def test_a_damaged_object_is_bad_content(
    sign: Sign, file: StoredFile, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    await upload_object(await sign("PUT"), 7, "index", file)
    s3_proxy.faults = Faults(path=KEY, damage_download=True)
    with pytest.raises(BadContent, match="its checksum is"):
        await download(await sign("GET"), file, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


async def test_an_interrupted_download_resumes(
    sign: Sign, file: StoredFile, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    await upload_object(await sign("PUT"), 7, "index", file)
    s3_proxy.faults = Faults(path=KEY, cut_download_after=2_000_000)
    copy = await download(await sign("GET"), file, tmp_path / "copy")
    assert copy.path.read_bytes() == BODY
    assert len([line for line in s3_proxy.requests if line.startswith("GET")]) == 3


async def test_a_silent_server_is_unreachable(
    sign: Sign,
    file: StoredFile,
    s3_proxy: FaultProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(object_transfer, "TIMEOUT_SECONDS", 0.5)
    put, get = await sign("PUT"), await sign("GET")
    s3_proxy.faults = Faults(hang=True)
    with pytest.raises(Unreachable, match="no answer"):
        await upload_object(put, 7, "index", file)
    with pytest.raises(Unreachable, match="no answer"):
        await download_object(get, 7, "index", tmp_path / "copy", file.sha256, timeout_seconds=0.2)


async def test_errors_say_why_and_do_not_contain_the_url(
    sign: Sign, file: StoredFile, s3_server: S3Server, bucket: str, tmp_path: Path
) -> None:
    get = await sign("GET")
    with pytest.raises(NotFound) as missing:
        await download(get, file, tmp_path / "copy")
    with pytest.raises(StoreUnusable, match="403") as refused:
        await download(get.replace("Signature=", "Signature=0"), file, tmp_path / "copy")
    with pytest.raises(StoreUnusable, match="403"):
        await upload_object(get, 7, "index", file)  # a URL to read permits no upload
    access = StoreAccess(s3_server.endpoint, "", OPERATOR.access_key, OPERATOR.secret_key)
    [nowhere] = await ObjectStore(StoreAddress("no-bucket"), access).presign(
        "GET", [KEY], seconds=60
    )
    with pytest.raises(StoreUnusable, match="NoSuchBucket"):
        await download(nowhere, file, tmp_path / "copy")
    for error in (missing, refused):
        assert "X-Amz" not in error.value.message + error.value.hint
    assert s3_server.requests.keys(bucket) == []


async def test_a_url_expires(s3_server: S3Server, bucket: str, file: StoredFile) -> None:
    access = StoreAccess(s3_server.endpoint, "", OPERATOR.access_key, OPERATOR.secret_key)
    [url] = await ObjectStore(StoreAddress(bucket), access).presign("PUT", [KEY], seconds=1)
    await asyncio.sleep(2.5)
    with pytest.raises(StoreUnusable, match="403"):
        await upload_object(url, 7, "index", file)
