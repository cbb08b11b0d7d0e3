"""Every engine: chunks, versions of pages, state, commits and kills."""

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from support.index.documents import PAGES, found, page
from support.index.engines import EngineFactory
from support.processes.killable import eventually
from usher.errors import BadInput
from usher.index.document import IndexDocument
from usher.index.engine import COMPARED_WITH, PURGED_REMOVAL, Engine
from usher.query.language import parse_query


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


def versions(engine: Engine, text: str) -> set[tuple[str, int]]:
    """The page and the chunk of each hit."""
    return {(hit.key, hit.chunk) for hit in engine.search(parse_query(text), 100).hits}


def test_the_newer_version_of_a_page_stays(engine: Engine) -> None:
    pdf = [page(f"f.pdf#page={n}", f"old page{n}", key="https://a.org/f.pdf") for n in range(3)]
    engine.add(1, [page("x", "old text"), page("y", "old too"), *pdf])
    engine.add(2, [page("x", "new text"), page("f.pdf#page=1", "new", key="https://a.org/f.pdf")])
    engine.commit()
    x, pdf_key = "https://a.org/x", "https://a.org/f.pdf"
    both = {(x, 1), (x, 2), ("https://a.org/y", 1), (pdf_key, 1), (pdf_key, 2)}
    assert versions(engine, "new OR old") == both
    engine.retire([(x, 1), (pdf_key, 1), ("https://a.org/none", 1)])
    engine.commit()
    assert versions(engine, "new OR old") == {(x, 2), (pdf_key, 2), ("https://a.org/y", 1)}
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
sys.path.insert(0, sys.argv[1])
from support.index.documents import page
from support.index.engines import open_engine
engine = open_engine(sys.argv[2:])
for chunk in range(max(engine.chunks(), default=0) + 1, 1000000):
    engine.add(chunk, [page(f"{chunk}-{n}", f"word{n} chunk{chunk} " * 50, chunk=chunk) for n in range(7)])
    if chunk % 3 == 0:
        engine.drop([chunk - 2])
        engine.commit()
        print(chunk, flush=True)
"""


def test_after_a_kill_documents_and_loaded_chunks_are_consistent(engines: EngineFactory) -> None:
    chance = random.Random(7)  # noqa: S311 - moments to kill at
    here, words = str(Path(__file__).parents[1]), engines.words("killed")
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, here, *words], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            told = [int(process.stdout.readline()) for _ in range(chance.randint(1, 6))]
        finally:
            process.kill()
            left, _ = process.communicate(timeout=30)
        last = max([*told, *map(int, left.split())])
        # The cluster may still execute a request of the dead process.
        assert eventually(lambda: not engines.is_writing("killed"), 60)
        engine = engines.open("killed")
        unfinished = engine.not_loaded()
        assert unfinished <= {
            last + 1,
            last + 2,
            last + 3,
        }  # by the commit that the kill interrupted
        engine.drop(unfinished)  # as the loader does when it starts
        engine.commit()
        chunks = engine.chunks()
        assert {last, last - 1} <= chunks
        assert not chunks & set(range(1, last, 3))
        assert engine.documents == 7 * len(chunks)
        for chunk in range(max(1, last - 5), last + 6):
            assert engine.search(parse_query(f"chunk{chunk}")).total == (
                7 if chunk in chunks else 0
            )
        engine.close()


def test_what_is_not_committed_is_loaded_again_after_reopening(engines: EngineFactory) -> None:
    first = engines.open("reopened")
    first.add(1, PAGES)
    first.commit()
    first.add(2, PAGES)
    first.close()
    first.close()
    again = engines.open("reopened")
    assert again.chunks() == {1}
    again.add(2, PAGES[:2])
    again.commit()
    assert (again.chunks(), again.documents) == ({1, 2}, len(PAGES) + 2)
    again.close()


def test_state_is_stored_beside_the_chunks(engines: EngineFactory) -> None:
    engine = engines.open("state")
    assert engine.read_state(COMPARED_WITH) == ""
    engine.write_state(COMPARED_WITH, "incarnation-7")
    engine.write_state(PURGED_REMOVAL, "12")
    engine.add(1, PAGES)
    engine.close()
    engine = engines.open("state")
    assert engine.read_state(COMPARED_WITH) == "incarnation-7"
    assert engine.read_state(PURGED_REMOVAL) == "12"
    engine.write_state(COMPARED_WITH, "")
    engine.close()
    engine = engines.open("state")
    assert engine.read_state(COMPARED_WITH) == ""
    assert (engine.chunks(), engine.documents) == (set(), 0)
    engine.close()


def test_an_engine_that_can_be_written_has_no_problem(engine: Engine) -> None:
    assert engine.problem() == ""


def test_maintenance_changes_no_results(engine: Engine) -> None:
    for chunk in range(4):
        engine.add(chunk, [page(f"{chunk}-{n}", f"velvet {n}", chunk=chunk) for n in range(30)])
        engine.commit()
    engine.retire([("https://a.org/0-1", 0)])
    engine.drop([3])
    engine.commit()
    before = engine.search(parse_query("velvet"), 200)
    for _ in range(3):
        engine.force_merge()
        engine.merge_deleted()
        engine.refresh()
    assert engine.deleted_documents() >= 0
    after = engine.search(parse_query("velvet"), 200)
    assert {hit.url for hit in after.hits} == {hit.url for hit in before.hits}
    assert (after.total, engine.documents, engine.chunks()) == (89, 89, {0, 1, 2})
