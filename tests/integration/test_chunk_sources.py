"""When a chunk counts as lost; a silent host may still have it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.mgmt.chunk_trade import ANY
from support.processes.free_port import free_port
from usher.chunk_store import INDEX_SUFFIX, ChunkStore
from usher.errors import Unreachable
from usher.http.server.chunk_files import chunk_endpoints
from usher.http.server.component import serve_component
from usher.index.chunk_sources import ChunkSources
from usher.messages.index_server import ChunkServer, MissingChunk, SeedHosts, ServerChunk

OTHER = "ab" * 32


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[str]:
    """A component that answers, and has no chunk but 7, which is another than it should be."""
    shelf = ChunkStore(tmp_path / "there", INDEX_SUFFIX)
    shelf.path(7).parent.mkdir(parents=True)
    shelf.path(7).write_bytes(b"half of it")
    async with serve_component(chunk_endpoints(shelf, "/index_chunk"), ANY) as address:
        yield address.removeprefix("http://")


@pytest.fixture
def silent() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def sources(tmp_path: Path) -> ChunkSources:
    made = ChunkSources(ChunkStore(tmp_path / "here", INDEX_SUFFIX))
    made.lost_seconds = 0.0
    return made


def wanted(builder: str, *peers: str, chunk: int = 5) -> ServerChunk:
    return ServerChunk(
        chunk,
        "crawler:1",
        builder,
        [ChunkServer(1, "here:1")],
        SeedHosts("crawler:1", builder),
        list(peers),
        index_sha256=OTHER,
    )


async def asked(sources: ChunkSources, one: ServerChunk, times: int) -> list[MissingChunk]:
    """What is lost after so many tries."""
    for _ in range(times):
        with pytest.raises(Unreachable):
            await sources.fetch(one)
    return sources.pop_lost()


async def test_a_chunk_that_no_host_has_is_lost_after_some_tries(
    sources: ChunkSources, empty: str
) -> None:
    for chunk, words in ((5, "does not exist"), (7, "is not the expected file")):
        assert await asked(sources, wanted(empty, empty, chunk=chunk), 2) == []
        [lost] = await asked(sources, wanted(empty, chunk=chunk), 1)
        assert (lost.chunk_id, lost.builder_silent, words in lost.reason) == (chunk, False, True)
        assert sources.pop_lost() == [], "that was said"


async def test_a_chunk_is_not_lost_before_some_time_has_passed(
    sources: ChunkSources, empty: str
) -> None:
    sources.lost_seconds = 3_600.0
    assert await asked(sources, wanted(empty), 5) == []
    sources.forget_failures(5)
    sources.lost_seconds = 0.0
    assert await asked(sources, wanted(empty), 2) == []


async def test_a_silent_peer_may_have_the_chunk(
    sources: ChunkSources, empty: str, silent: str
) -> None:
    assert await asked(sources, wanted(empty), 2) == []
    assert await asked(sources, wanted(empty, silent), 1) == []
    assert await asked(sources, wanted(empty), 2) == [], "from the beginning"
    assert len(await asked(sources, wanted(empty), 1)) == 1


async def test_a_silent_builder_is_reported(sources: ChunkSources, empty: str, silent: str) -> None:
    [lost] = await asked(sources, wanted(silent, empty), 3)
    assert lost.builder_silent
    assert await asked(sources, wanted(silent, empty), 2) == []
    assert await asked(sources, wanted(empty), 2) == [], "it began to deny it only then"
    [lost] = await asked(sources, wanted(empty), 1)
    assert not lost.builder_silent
    assert await asked(sources, wanted("", chunk=6), 3) == [], "no host was asked"
