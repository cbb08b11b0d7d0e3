"""Uploads of a component that must keep its file after all."""

import asyncio
import hashlib
from pathlib import Path

import pytest

from support.mgmt.mgmt_process import mgmt
from support.mgmt.plain_components import at_once, make_hosts_ready
from support.processes.crawls import EMBEDDED
from support.s3.server import OPERATOR, S3Server
from support.site.website import Response, Website
from usher.chunk_store import StoredFile
from usher.chunk_upload import ChunkUpload
from usher.errors import BadInput
from usher.http.client.mgmt_client import Client
from usher.http.client.object_transfer import upload_object
from usher.messages.crawler import LinkChunk

LINKS = [f"https://h.example/{number}" for number in range(5)]


@pytest.fixture
def file(tmp_path: Path) -> StoredFile:
    path = tmp_path / "chunk"
    path.write_bytes(b"the file of a chunk")
    return StoredFile(path, hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size)


async def claim(crawler: Client) -> LinkChunk:
    for _ in range(200):
        if chunk := await crawler.get_links():
            return chunk
        await asyncio.sleep(0.05)
    raise AssertionError("There are no links.")


async def no_report() -> None:
    """Health is not tested here."""


@EMBEDDED
async def test_a_crawler_keeps_its_file_when_mgmt_loses_its_store(
    database: str, tmp_path: Path, s3_server: S3Server, bucket: str, file: StoredFile
) -> None:
    at_once(database)
    settings = {
        "USHER_CHUNK_STORE": f"s3://{bucket}",
        "USHER_S3_ENDPOINT": s3_server.endpoint,
        "USHER_S3_ACCESS_KEY": OPERATOR.access_key,
        "USHER_S3_SECRET_KEY": OPERATOR.secret_key,
    }
    with mgmt(database, tmp_path / "log", settings=settings) as server:
        server.knock(*LINKS)
        make_hosts_ready(database)
        async with Client(server.address, host="127.0.0.1:5000") as crawler:
            await crawler.set_state("online", type="crawler")
            chunk = await claim(crawler)
    assert chunk.upload
    with mgmt(database, tmp_path / "log-2") as server:
        async with Client(server.address, host="127.0.0.1:5000") as crawler:
            uploads = ChunkUpload(crawler, "content", stop=asyncio.Event(), report=no_report)
            assert await uploads.upload(chunk.chunk_id, file) is False
            state = await crawler.crawled(chunk.chunk_id, sha256=file.sha256, size=file.size)
    assert state.state == "crawled"
    assert uploads.problem == ""


async def test_a_file_that_is_too_large_is_kept(file: StoredFile) -> None:
    """A proxy in front of the store limits bodies."""
    with Website({"/bucket/key": lambda _: Response(b"too large", 413)}) as proxy:
        url = f"{proxy.url('/bucket/key')}?signature=x"
        with pytest.raises(BadInput, match="larger than the server accepts"):
            await upload_object(url, 7, "content", file)
