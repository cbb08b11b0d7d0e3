"""The engine: commits, crashes, full disks and damaged directories."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from support.index.documents import HEAP, PAGES, found, page
from usher.errors import BadInput, Conflict, UsherError
from usher.index import fields
from usher.index.document import IndexDocument
from usher.index.engine import Engine
from usher.query.language import parse_query

ROOT = os.geteuid() == 0


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = Engine.open(tmp_path / "index", heap=HEAP)
    yield made
    made.close()


def test_a_chunk_counts_once_it_is_committed(engine: Engine) -> None:
    assert engine.add(5, PAGES) == len(PAGES)
    assert engine.add(6, []) == 0
    assert (engine.chunks(), engine.documents) == (set(), 0)
    engine.commit()
    assert (engine.chunks(), engine.documents) == ({5, 6}, len(PAGES))
    engine.add(5, PAGES[:3])
    engine.commit()
    assert (engine.chunks(), engine.documents) == ({5, 6}, 3)
    engine.drop([5, 99])
    engine.commit()
    assert (engine.chunks(), engine.documents) == ({6}, 0)
    assert found(engine, "index") == []


def test_an_unloaded_chunk_stays_searchable_until_it_is_added_again(engine: Engine) -> None:
    engine.add(5, PAGES)
    engine.add(6, [page("x", "other text")])
    engine.commit()
    engine.retire([(PAGES[0].key, 5)])
    engine.unload([5])
    engine.commit()
    assert (engine.chunks(), engine.not_loaded()) == ({6}, {5})
    assert (engine.count(5), engine.count(6)) == (len(PAGES) - 1, 1)
    engine.add(5, PAGES)
    engine.commit()
    assert (engine.chunks(), engine.not_loaded(), engine.count(5)) == ({5, 6}, set(), len(PAGES))


def versions(engine: Engine, key: str) -> set[int]:
    """The chunks that have a searchable version of a page."""
    terms = engine._terms("copy")
    return {int(term.rpartition("\n")[2]) for term in terms if term.startswith(f"{key}\n")}


def test_the_newer_version_of_a_page_stays(engine: Engine) -> None:
    pdf = [page(f"f.pdf#page={n}", f"old page{n}", key="https://a.org/f.pdf") for n in range(3)]
    engine.add(1, [page("x", "old text"), page("y", "old too"), *pdf])
    engine.add(2, [page("x", "new text"), page("f.pdf#page=1", "new", key="https://a.org/f.pdf")])
    engine.commit()
    assert versions(engine, "https://a.org/x") == {1, 2}
    assert versions(engine, "https://a.org/") == set()
    engine.retire([("https://a.org/x", 1), ("https://a.org/f.pdf", 1), ("https://a.org/none", 1)])
    engine.commit()
    assert versions(engine, "https://a.org/x") == versions(engine, "https://a.org/f.pdf") == {2}
    assert sorted(found(engine, "new OR old")) == ["f.pdf#page=1", "x", "y"]
    assert engine.chunks() == {1, 2}


def test_a_bad_document_affects_only_its_chunk(engine: Engine) -> None:
    def documents() -> Iterator[IndexDocument]:
        yield from PAGES
        raise BadInput("damaged")

    engine.add(1, PAGES)
    with pytest.raises(BadInput, match="damaged"):
        engine.add(2, documents())
    engine.commit()
    assert (engine.chunks(), engine.documents) == ({1}, len(PAGES))


def test_committed_chunks_are_there_after_reopening(tmp_path: Path) -> None:
    first = Engine.open(tmp_path, heap=HEAP)
    first.add(1, PAGES)
    first.commit()
    first.add(2, PAGES)
    with pytest.raises(Conflict, match="in use by another process"):
        Engine.open(tmp_path, heap=HEAP)
    first.close()
    first.close()
    again = Engine.open(tmp_path, heap=HEAP)
    assert again.chunks() == {1}
    again.close()


def test_directories_that_are_not_an_index(tmp_path: Path) -> None:
    import tantivy

    other = tmp_path / "other"
    other.mkdir()
    tantivy.Index(tantivy.SchemaBuilder().build(), str(other))
    with pytest.raises(Conflict, match="made by another version") as caught:
        Engine.open(other)
    assert "Remove the directory" in caught.value.hint
    broken = tmp_path / "broken"
    Engine.open(broken, heap=HEAP).close()
    (broken / "meta.json").write_text("{")
    with pytest.raises(UsherError, match="cannot be used"):
        Engine.open(broken)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsherError, match="cannot be used"):
        Engine.open(tmp_path / "file")


def test_an_index_of_another_version_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version is part of the schema: the same fields may have had other words."""
    engine = Engine.open(tmp_path, heap=HEAP)
    engine.add(1, PAGES)
    engine.commit()
    engine.close()
    monkeypatch.setattr(fields, "INDEX_VERSION", fields.INDEX_VERSION + 1)
    fields.schema.cache_clear()
    try:
        with pytest.raises(Conflict, match="made by another version"):
            Engine.open(tmp_path, heap=HEAP)
    finally:
        fields.schema.cache_clear()


def test_searches_do_not_wait_for_writes(engine: Engine) -> None:
    engine.add(0, PAGES)
    engine.commit()
    failed: list[BaseException] = []

    def load() -> None:
        try:
            for chunk in range(1, 30):
                engine.add(chunk, [page(f"{chunk}", "rockets " * 50)])
                engine.commit()
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    thread = Thread(target=load)
    thread.start()
    totals = [engine.search(parse_query("rockets")).total for _ in range(200)]
    thread.join(60)
    assert not failed
    assert totals == sorted(totals)
    assert engine.search(parse_query("rockets")).total == 3 + 29


KILLED = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from support.index.documents import HEAP, page
from usher.index.engine import Engine
engine = Engine.open(Path(sys.argv[1]), heap=HEAP)
for chunk in range(max(engine.chunks(), default=0) + 1, 1000000):
    engine.add(chunk, [page(f"{chunk}-{n}", f"word{n} chunk{chunk} " * 50, chunk=chunk) for n in range(7)])
    if chunk % 3 == 0:
        engine.drop([chunk - 2])
        engine.commit()
        print(chunk, flush=True)
"""


def test_after_a_kill_documents_and_loaded_chunks_are_consistent(tmp_path: Path) -> None:
    chance = random.Random(7)  # noqa: S311 - moments to kill at
    here = str(Path(__file__).parents[1])
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path), here], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            told = [int(process.stdout.readline()) for _ in range(chance.randint(1, 6))]
        finally:
            process.kill()
            left, _ = process.communicate(timeout=30)
        last = max([*told, *map(int, left.split())])
        engine = Engine.open(tmp_path, heap=HEAP)
        chunks = engine.chunks()
        assert {last, last - 1} <= chunks
        assert not chunks & set(range(1, last, 3))
        assert engine.documents == 7 * len(chunks)
        for chunk in range(max(1, last - 5), last + 6):
            assert engine.search(parse_query(f"chunk{chunk}")).total == (
                7 if chunk in chunks else 0
            )
        engine.close()


@pytest.mark.skipif(not ROOT, reason="needs root to make a small file system")
def test_a_full_disk(tmp_path: Path) -> None:
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "usher", tmp_path], check=False
    ).returncode:
        pytest.skip("this machine does not allow mounts")
    chance = random.Random(3)  # noqa: S311

    def pages(number: int) -> list[IndexDocument]:
        words = (f"{chance.getrandbits(40):x}" for _ in range(2000))
        return [page(f"{n}", "needle " + " ".join(words)) for n in range(number)]

    engine = Engine.open(tmp_path / "index", heap=HEAP)
    try:
        engine.add(1, pages(9))
        engine.commit()
        filler = tmp_path / "filler"
        filler.write_bytes(bytes(shutil.disk_usage(tmp_path).free - 4096))
        for chunk in (2, 3):
            with pytest.raises(UsherError, match="the disk is full") as caught:
                _load(engine, chunk, pages(40))
            assert "Free some space" in caught.value.hint
            assert engine.chunks() == {1}
            assert engine.search(parse_query("needle")).total == 9
        filler.unlink()
        _load(engine, 4, pages(5))
        assert engine.chunks() == {1, 4}
        assert engine.search(parse_query("needle")).total == 14
    finally:
        engine.close()
        del engine
        subprocess.run(["umount", "-l", tmp_path], check=True)


def _load(engine: Engine, chunk: int, documents: list[IndexDocument]) -> None:
    engine.add(chunk, documents)
    engine.commit()
