"""Pulling chunk files: whole, again from where it broke off, or not at all and with a reason."""

import asyncio
import hashlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.index.chunk_files import noise, small_disk
from support.processes.killable import eventually
from usher.chunk_store import ChunkStore, PartialFile
from usher.errors import BadContent, BadInput, DiskUnusable, NotAllowed, NotFound, Unreachable
from usher.http.client.download import download_chunk
from usher.http.server.chunk_files import chunk_endpoints
from usher.http.server.component import serve_component
from usher.http.server.listen import read_bind

DATA = noise(7, 700_000)
SUM = hashlib.sha256(DATA).hexdigest()
ETAG = f'ETag: "{SUM}"'
Says = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


def put(shelf: ChunkStore, data: bytes = DATA, chunk: int = 7) -> None:
    draft = PartialFile(shelf.path(chunk))
    draft.write(data)
    draft.commit()


@asynccontextmanager
async def server(*turns: Says) -> AsyncIterator[tuple[str, list[str]]]:
    """A server that does something else every time, and the last thing ever after; with what it was asked."""
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(head)
        try:
            await turns[min(len(asked), len(turns)) - 1](head, writer)
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()

    running = await asyncio.start_server(serve, "127.0.0.1")
    async with running:
        host, port = running.sockets[0].getsockname()
        yield f"{host}:{port}", asked


async def said(writer: asyncio.StreamWriter, status: str, body: bytes, *lines: str) -> None:
    head = "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""])
    writer.write(head.encode() + body)
    await writer.drain()
    await asyncio.sleep(0.02)


def half(*lines: str, size: int = 300_000) -> Says:
    """The whole is promised, and only some of it sent."""

    async def says(_head: str, writer: asyncio.StreamWriter) -> None:
        await said(writer, "200 OK", DATA[:size], f"Content-Length: {len(DATA)}", *lines)

    return says


async def rest(head: str, writer: asyncio.StreamWriter) -> None:
    """What a Range asks for."""
    found = re.search(r"range: bytes=(\d+)-", head, re.IGNORECASE)
    first = int(found[1]) if found else 0
    length = f"Content-Length: {len(DATA) - first}"
    part = f"Content-Range: bytes {first}-{len(DATA) - 1}/{len(DATA)}"
    await said(writer, "206 Partial Content", DATA[first:], length, part, ETAG)


def answers(status: str, body: bytes = b"", *lines: str) -> Says:
    async def says(_head: str, writer: asyncio.StreamWriter) -> None:
        await said(writer, status, body, f"Content-Length: {len(body)}", *lines)

    return says


WHOLE = answers("200 OK", DATA, ETAG)


async def stalls(_head: str, writer: asyncio.StreamWriter) -> None:
    await said(writer, "200 OK", DATA[:10], f"Content-Length: {len(DATA)}", ETAG)
    await asyncio.sleep(20)


async def test_a_chunk_comes_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    shelf, here = ChunkStore(tmp_path / "there"), ChunkStore(tmp_path / "here")
    put(shelf)
    async with serve_component(
        chunk_endpoints(shelf, "/get_chunk"), read_bind("127.0.0.1:0")
    ) as address:
        kept = await download_chunk(address, 7, "content", here.path(7), SUM, size=len(DATA))
        assert (kept.sha256, kept.size) == (SUM, len(DATA))
        assert here.path(7).read_bytes() == DATA
        bare = address.removeprefix("http://")
        assert await download_chunk(bare, 7, "content", here.path(7)) == kept
        with pytest.raises(NotFound, match=r"content chunk 8 of .* does not exist"):
            await download_chunk(bare, 8, "content", here.path(8))
        with pytest.raises(NotFound):
            await download_chunk(bare, 7, "index", here.path(8))
    assert [one.name for one in here.path(7).parent.iterdir()] == ["000000007.warc.gz"]


async def test_it_goes_on_from_where_it_broke_off(tmp_path: Path) -> None:
    async with server(half(ETAG), rest) as (base, asked):
        kept = await download_chunk(base, 7, "content", tmp_path / "7", SUM, ticket="secret")
    assert kept.sha256 == SUM
    assert len(asked) == 2
    assert all("Authorization: Bearer secret" in head for head in asked)
    assert "Range: bytes=300000-" in asked[1]
    assert f'If-Range: "{SUM}"' in asked[1]


@pytest.mark.parametrize(
    ("turns", "requests"),
    [
        ((half(ETAG), WHOLE), 2),  # the file is another one now
        ((half(), WHOLE), 2),  # nothing says whether it is
        ((half(ETAG), answers("416 Range Not Satisfiable"), WHOLE), 3),
        (
            (half(ETAG), answers("206 Partial Content", b"x", "Content-Range: bytes 5-5/9"), WHOLE),
            3,
        ),
        ((answers("503 Service Unavailable"), answers("500 Oh"), WHOLE), 3),
        ((half(ETAG, size=0), half(ETAG, size=9), half(ETAG, size=0), rest), 4),
        ((answers("200 OK", DATA, 'ETag: W/"x"'),), 1),
    ],
)
async def test_it_begins_anew_where_it_cannot_go_on(
    tmp_path: Path, turns: tuple[Says, ...], requests: int
) -> None:
    async with server(*turns) as (base, asked):
        kept = await download_chunk(base, 7, "index", tmp_path / "7", SUM, size=len(DATA))
    assert (kept.sha256, len(asked)) == (SUM, requests)
    assert asked[0].startswith("GET /index_chunk/7 HTTP/1.1")


@pytest.mark.parametrize(
    ("turn", "error", "words"),
    [
        (answers("401 Unauthorized"), NotAllowed, "not permitted"),
        (answers("200 OK", DATA, f'ETag: "{"0" * 64}"'), BadContent, "its checksum is 000"),
        (answers("200 OK", DATA[:-1] + b"x", ETAG), BadContent, "its checksum is"),
        (answers("200 OK", DATA[:-1], ETAG), BadContent, "699,999 bytes, not 700,000"),
        (answers("200 OK", DATA + b"x"), BadContent, "longer than 700,000 bytes"),
        (answers("503 Service Unavailable"), Unreachable, "HTTP 503"),
        (half(ETAG, size=0), Unreachable, "incomplete"),
        (stalls, Unreachable, "no answer within 0.1 seconds"),
        (answers("200 OK\r\nnonsense"), Unreachable, "cannot be reached"),
        (
            answers("200 OK", b"", *["X: y"] * 30_000),
            Unreachable,
            "head of the response is too long",
        ),
    ],
)
async def test_what_is_not_the_chunk_is_not_kept(
    tmp_path: Path, turn: Says, error: type[Exception], words: str
) -> None:
    async with server(turn) as (base, asked):
        with pytest.raises(error, match=words):
            await download_chunk(
                base, 7, "content", tmp_path / "7", SUM, size=len(DATA), timeout_seconds=0.1
            )
    assert not list(tmp_path.iterdir())
    assert len(asked) <= 6


async def test_without_a_checksum_the_sender_must_be_right_about_itself(tmp_path: Path) -> None:
    async with server(answers("200 OK", b"other", ETAG)) as (base, _):
        with pytest.raises(BadContent, match="checksum"):
            await download_chunk(base, 7, "content", tmp_path / "7")


async def test_nobody_there_and_no_address(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"content chunk 7 of 127.0.0.1:1, at 127"):
        await download_chunk("127.0.0.1:1", 7, "content", tmp_path / "7", timeout_seconds=0.1)
    for base in ("", "ftp://x", "http://x:99999", "[::1"):
        with pytest.raises(BadInput, match="not the address of a component"):
            await download_chunk(base, 7, "content", tmp_path / "7")
    assert not list(tmp_path.iterdir())


async def test_a_full_disk_is_told_and_given_back(tmp_path: Path) -> None:
    with small_disk(tmp_path, "500k"):
        async with server(WHOLE) as (base, asked):
            with pytest.raises(DiskUnusable, match="No space left"):
                await download_chunk(base, 7, "content", tmp_path / "7", SUM)
        assert len(asked) == 1
        assert not list(tmp_path.iterdir())


async def test_one_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    async with server(stalls) as (base, asked):
        task = asyncio.create_task(download_chunk(base, 7, "content", tmp_path / "7", SUM))
        await asyncio.sleep(0.2)
        assert asked
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not list(tmp_path.iterdir())


SERVES = """
import asyncio, sys
from pathlib import Path
from usher.http.server.chunk_files import chunk_endpoints
from usher.http.server.component import serve_component
from usher.http.server.listen import read_bind
from usher.chunk_store import ChunkStore
async def main():
    print("ready", flush=True)
    bind = sys.stdin.readline().strip()
    endpoints = chunk_endpoints(ChunkStore(Path(sys.argv[1])), "/get_chunk")
    async with serve_component(endpoints, read_bind(bind)) as address:
        print(address, flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


def component(shelf: ChunkStore) -> subprocess.Popen[str]:
    """A component that waits for a word before it serves."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVES, shelf.directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def serve(process: subprocess.Popen[str], bind: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{bind}\n")
    process.stdin.flush()
    return process.stdout.readline().strip().removeprefix("http://")


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=20)


def begun(folder: Path) -> bool:
    return any(one.stat().st_size > 3_000_000 for one in folder.glob("*.part"))


async def test_a_component_killed_halfway_and_back_again(tmp_path: Path) -> None:
    shelf, data = ChunkStore(tmp_path / "there"), noise(1, 60_000_000)
    put(shelf, data)
    first, second = component(shelf), component(shelf)
    try:
        address = serve(first, "127.0.0.1:0")
        task = asyncio.create_task(download_chunk(address, 7, "content", tmp_path / "here" / "7"))
        await asyncio.to_thread(eventually, lambda: begun(tmp_path / "here"))
        end(first)
        assert not task.done()
        assert serve(second, address) == address
        assert (await task).sha256 == hashlib.sha256(data).hexdigest()
    finally:
        end(first)
        end(second)
