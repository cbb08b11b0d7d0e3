"""Anchor texts: linking pages can be compared, and a builder cannot send more than MGMT stores."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tantivy

from support.index.documents import HEAP, page
from usher.errors import BadInput
from usher.index import chunk_file, fields
from usher.index.tantivy_engine import TantivyEngine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[TantivyEngine]:
    opened = TantivyEngine.open(tmp_path / "index", heap=HEAP)
    yield opened
    opened.close()


def test_linking_pages_and_depth_can_be_compared(engine: TantivyEngine) -> None:
    engine.add(1, [page(f"p{n}", "words", inlinks=n, depth=9 - n) for n in range(10)])
    engine.commit()

    def number(field: str, least: int) -> int:
        query = tantivy.Query.range_query(
            fields.schema(), field, tantivy.FieldType.Unsigned, least, None
        )
        return len(engine._reader.searcher.search(query, 20).hits)

    assert [number("inlinks", least) for least in (0, 1, 8)] == [10, 9, 2]
    assert number("depth", 9) == 1


@pytest.mark.parametrize(
    "facts",
    [
        {"anchors": (("text", 1),) * 21},
        {"anchors": (("x" * 101, 1),)},
        {"anchors": (("text", 0),)},
        {"anchors": (("text", 33),)},
        {"inlinks": 641},
        {"inlinks": -1},
        {"depth": 40_000},
    ],
)
def test_a_builder_cannot_exceed_the_bounds(tmp_path: Path, facts: dict[str, Any]) -> None:
    path = tmp_path / "1.idx"
    for document, is_sound in ((page("a", "words"), True), (page("a", "words", **facts), False)):
        chunk_file.write(path, 1, [document])
        _, documents = chunk_file.read(path, 1)
        if is_sound:
            assert list(documents) == [document]
        else:
            with pytest.raises(BadInput, match="is not what its header says"):
                list(documents)
    assert len(msgspec.msgpack.encode(page("a", ""))) == len(
        msgspec.msgpack.encode(page("a", "", anchors=(), inlinks=0, depth=0))
    )
