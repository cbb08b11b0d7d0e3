"""The Tantivy engine: full disks, and directories that are damaged, in use or of another version."""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from support.index.documents import HEAP, PAGES, page
from usher.errors import Conflict, UsherError
from usher.index import fields
from usher.index.document import IndexDocument
from usher.index.tantivy_engine import TantivyEngine
from usher.query.language import parse_query

ROOT = os.geteuid() == 0


def test_only_one_process_opens_a_directory(tmp_path: Path) -> None:
    first = TantivyEngine.open(tmp_path, heap=HEAP)
    with pytest.raises(Conflict, match="in use by another process"):
        TantivyEngine.open(tmp_path, heap=HEAP)
    first.close()
    TantivyEngine.open(tmp_path, heap=HEAP).close()


def test_directories_that_are_not_an_index(tmp_path: Path) -> None:
    import tantivy

    other = tmp_path / "other"
    other.mkdir()
    tantivy.Index(tantivy.SchemaBuilder().build(), str(other))
    with pytest.raises(Conflict, match="made by another version") as caught:
        TantivyEngine.open(other)
    assert "Remove the directory" in caught.value.hint
    broken = tmp_path / "broken"
    TantivyEngine.open(broken, heap=HEAP).close()
    (broken / "meta.json").write_text("{")
    with pytest.raises(UsherError, match="cannot be used"):
        TantivyEngine.open(broken)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsherError, match="cannot be used"):
        TantivyEngine.open(tmp_path / "file")


def test_an_index_of_another_version_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version is part of the schema: the same fields may have had other words."""
    engine = TantivyEngine.open(tmp_path, heap=HEAP)
    engine.add(1, PAGES)
    engine.commit()
    engine.close()
    monkeypatch.setattr(fields, "INDEX_VERSION", fields.INDEX_VERSION + 1)
    fields.schema.cache_clear()
    try:
        with pytest.raises(Conflict, match="made by another version"):
            TantivyEngine.open(tmp_path, heap=HEAP)
    finally:
        fields.schema.cache_clear()


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

    engine = TantivyEngine.open(tmp_path / "index", heap=HEAP)
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


def _load(engine: TantivyEngine, chunk: int, documents: list[IndexDocument]) -> None:
    engine.add(chunk, documents)
    engine.commit()
