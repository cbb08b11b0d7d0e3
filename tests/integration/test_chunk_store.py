"""Chunk files are complete or absent, found by their ids, and cleaned up after a crash."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from usher.chunk_store import ChunkStore, PartialFile, StoredFile
from usher.errors import DiskUnusable

ROOT = os.geteuid() == 0
CRASHES = """
import os, sys
from pathlib import Path
from usher.chunk_store import PartialFile
PartialFile(Path(sys.argv[1])).write(b"half")
os.kill(os.getpid(), 9)
"""


def put(shelf: ChunkStore, chunk: int, data: bytes = b"words") -> StoredFile:
    draft = PartialFile(shelf.path(chunk))
    draft.write(data)
    return draft.commit()


def test_files_lie_in_folders_of_a_thousand(tmp_path: Path) -> None:
    shelf = ChunkStore(tmp_path)
    assert shelf.path(123_456) == tmp_path / "000123" / "000123456.warc.gz"
    assert shelf.path(10**12).parent.name == "1000000000"
    assert ChunkStore(tmp_path, ".index").path(7).name == "000000007.index"


def test_chunks_are_listed_and_dropped(tmp_path: Path) -> None:
    shelf = ChunkStore(tmp_path / "not there yet")
    assert (shelf.chunks(), shelf.remove_leftovers()) == ([], 0)
    for chunk in (5, 10**12, 999, 1000):
        put(shelf, chunk, bytes(chunk % 900))
    (shelf.directory / "notes.txt").write_text("mine")
    shelf.path(5).with_name("000000006.index").write_text("another shelf's")
    assert shelf.chunks() == [5, 999, 1000, 10**12]
    assert shelf.drop([5, 6, 1000]) == [5, 1000]
    assert shelf.drop([5]) == []
    assert shelf.chunks() == [999, 10**12]
    shelf.remove_leftovers()
    assert sorted(one.name for one in shelf.directory.iterdir()) == [
        "000000",
        "1000000000",
        "notes.txt",
    ]


def test_a_checksum_is_computed_once_and_again_for_a_new_file(tmp_path: Path) -> None:
    shelf = ChunkStore(tmp_path)
    kept = put(shelf, 7, b"words")
    assert kept.sha256 == hashlib.sha256(b"words").hexdigest()
    assert ChunkStore(tmp_path).find(7) == kept
    shelf.remember_checksum(7, StoredFile(kept.path, "as remembered", 5))
    found = shelf.find(7)
    assert found is not None
    assert found.sha256 == "as remembered"
    again = put(shelf, 7, b"other words")
    assert shelf.find(7) == again
    shelf.drop([7])
    assert shelf.find(7) is None


def test_a_partial_file_is_not_listed_until_it_is_committed(tmp_path: Path) -> None:
    shelf = ChunkStore(tmp_path)
    draft = PartialFile(shelf.path(7))
    draft.write(b"half")
    assert (shelf.chunks(), shelf.find(7)) == ([], None)
    draft.truncate()
    draft.write(b"whole")
    assert draft.commit().size == 5
    assert shelf.path(7).read_bytes() == b"whole"
    draft.discard()
    assert shelf.chunks() == [7]
    with pytest.raises(DiskUnusable, match="was discarded"):
        draft.write(b"more")


def test_a_file_is_replaced_only_by_a_complete_one(tmp_path: Path) -> None:
    shelf = ChunkStore(tmp_path)
    put(shelf, 7, b"old")
    draft, other = PartialFile(shelf.path(7)), PartialFile(shelf.path(7))
    draft.write(b"new")
    other.write(b"newer")
    assert shelf.path(7).read_bytes() == b"old"
    draft.commit()
    other.discard()
    assert shelf.path(7).read_bytes() == b"new"


def test_cleanup_keeps_files_in_use(tmp_path: Path) -> None:
    shelf = ChunkStore(tmp_path)
    subprocess.run([sys.executable, "-c", CRASHES, shelf.path(7)], check=False)
    mine = PartialFile(shelf.path(8))
    assert len(list(tmp_path.rglob("*.part"))) == 2
    assert shelf.remove_leftovers() == 1
    mine.write(b"whole")
    assert mine.commit().path.exists()
    assert shelf.chunks() == [8]


def test_a_folder_in_the_way_is_an_error(tmp_path: Path) -> None:
    shelf = ChunkStore(tmp_path)
    shelf.path(7).mkdir(parents=True)
    draft = PartialFile(shelf.path(7))
    with pytest.raises(DiskUnusable, match="Is a directory"):
        draft.commit()
    assert not list(tmp_path.rglob("*.part"))
    (tmp_path / "000001").write_text("no folder")
    assert shelf.chunks() == [7]
    with pytest.raises(DiskUnusable):
        PartialFile(shelf.path(1000))
    with pytest.raises(DiskUnusable, match="cannot be read"):
        shelf.find(7)


@pytest.mark.skipif(ROOT, reason="root may write anywhere")
def test_a_read_only_directory(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DiskUnusable, match="Permission denied"):
        PartialFile(ChunkStore(tmp_path).path(7))
