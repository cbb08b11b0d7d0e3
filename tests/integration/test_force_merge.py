"""Merging the segments of an idle index changes no results, even if the server is killed meanwhile."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tantivy

from support.index.documents import HEAP, page
from support.processes.killable import eventually
from usher.chunk_store import ChunkStore
from usher.component_health import ComponentHealth
from usher.errors import Unreachable
from usher.http.client.mgmt_client import Client
from usher.index import loader as loading
from usher.index.chunk_sources import ChunkSources
from usher.index.force_merge import FILLER, MERGED_SEGMENTS, MIN_DOCUMENTS, read_segments
from usher.index.loader import Loader
from usher.index.tantivy_engine import TantivyEngine
from usher.query.language import parse_query

MANY = 5  # segments
KILLED = """
import os, signal, sys
from pathlib import Path
from usher.index import force_merge
from usher.index.tantivy_engine import TantivyEngine
make_filler = force_merge.filler_document
def dying():
    if not Path(sys.argv[2]).exists():
        Path(sys.argv[2]).touch()
        return make_filler()
    os.kill(os.getpid(), signal.SIGKILL)
force_merge.filler_document = dying
TantivyEngine.open(Path(sys.argv[1]), heap=15_000_000).force_merge()
"""


def filled(path: Path, each: int = MIN_DOCUMENTS // MANY + 1, number: int = MANY) -> TantivyEngine:
    """An index of so many segments."""
    engine = TantivyEngine.open(path, heap=HEAP)
    for chunk in range(1, number + 1):
        words = ["velvet cloth" if n % 3 else "linen" for n in range(each)]
        engine.add(chunk, [page(f"{chunk}/{n}", f"{some} {n}") for n, some in enumerate(words)])
        engine.commit()
    assert len(read_segments(path)) == number
    return engine


def one_left(path: Path) -> Callable[[], bool]:
    return lambda: len(read_segments(path)) == 1


def test_small_segments_are_merged_and_hits_stay_the_same(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    query = parse_query("velvet cloth")
    before = engine.search(query, 50, hosts=True)
    assert engine.force_merge()
    assert eventually(one_left(tmp_path), 20)
    assert engine.refresh()
    assert not engine.refresh()
    after = engine.search(query, 50, hosts=True)
    assert (after.total, after.hosts) == (before.total, before.hosts)
    assert [hit.url for hit in after.hits] == [hit.url for hit in before.hits]
    assert [hit.score for hit in after.hits] == pytest.approx(
        [hit.score for hit in before.hits], rel=0.01
    )
    assert engine.chunks() == set(range(1, MANY + 1))
    assert engine.not_loaded() == set()
    assert engine.documents == MANY * (MIN_DOCUMENTS // MANY + 1)
    assert not engine.force_merge(), "there is nothing left to do"
    engine.close()


@pytest.mark.parametrize(("each", "number"), [(10, 5), (MIN_DOCUMENTS, 1)])
def test_a_merge_that_gains_nothing_is_not_triggered(
    tmp_path: Path, each: int, number: int
) -> None:
    engine = filled(tmp_path, each, number)
    before = read_segments(tmp_path)
    assert not engine.force_merge()
    assert read_segments(tmp_path) == before
    engine.close()


def test_fillers_of_the_previous_merge_are_removed(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    for chunk in (1, 2):
        assert engine.force_merge()
        assert eventually(one_left(tmp_path), 20)
        engine.add(chunk, [page(f"new/{n}", "velvet") for n in range(MIN_DOCUMENTS)])
        engine.commit()
    found = engine._reader.searcher.terms_with_prefix("chunk", FILLER)
    assert [number for _, number in found] <= [2 * MERGED_SEGMENTS]
    every = tantivy.Query.all_query()
    alive = engine._reader.searcher.terms_with_prefix("chunk", FILLER, filter_query=every)
    assert [number for _, number in alive] <= [MERGED_SEGMENTS]
    engine.close()


def test_a_kill_during_a_merge_loses_nothing(tmp_path: Path) -> None:
    engine = filled(tmp_path / "index")
    total, documents = engine.search(parse_query("velvet")).total, engine.documents
    engine.close()
    script = [sys.executable, "-c", KILLED, str(tmp_path / "index"), str(tmp_path / "once")]
    done = subprocess.run(script, check=False, timeout=60, env=dict(os.environ))
    assert done.returncode == -signal.SIGKILL
    engine = TantivyEngine.open(tmp_path / "index", heap=HEAP)
    assert (engine.search(parse_query("velvet")).total, engine.documents) == (total, documents)
    assert engine.chunks() == set(range(1, MANY + 1))
    assert engine.not_loaded() == set()
    assert engine.force_merge()
    assert eventually(one_left(tmp_path / "index"), 20)
    engine.refresh()
    assert (engine.search(parse_query("velvet")).total, engine.documents) == (total, documents)
    engine.close()


async def test_a_server_merges_segments_when_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here because MGMT is away: whatever it has stays as it is."""
    monkeypatch.setattr(loading, "QUIET_SECONDS", 0.1)
    engine, stop = filled(tmp_path / "index"), asyncio.Event()
    async with Client("http://127.0.0.1:9", host="127.0.0.1:1", timeout=1) as mgmt:
        with pytest.raises(Unreachable):
            await mgmt.get_chunks(1)
        shelf = ChunkStore(tmp_path / "shelf", ".idx")
        loader = Loader(mgmt, engine, ChunkSources(shelf), ComponentHealth())
        running = asyncio.create_task(loader.run(stop))
        settled = await asyncio.to_thread(eventually, lambda: len(engine._reader.segments) == 1)
        stop.set()
        await running
    assert settled
    assert engine.chunks() == set(range(1, MANY + 1))
    assert engine.not_loaded() == set()
    engine.close()
