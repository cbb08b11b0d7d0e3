"""The broker asks another row if a server could not search all its documents, and reports what is missing."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from support.index.documents import page
from support.index.rows import Rows
from usher.index.tantivy_engine import TantivyEngine
from usher.query.language import parse_query
from usher.query.results import Hits
from usher.search.broker import Broker

CHUNKS = {chunk: [page(f"{chunk}", "velvet", chunk=chunk)] for chunk in range(1, 5)}
# The share that each of two rows cannot search, and the share that the answer lacks.
CASES: tuple[tuple[tuple[float, float], float], ...] = (
    ((0.0, 0.0), 0.0),
    ((0.25, 0.0), 0.0),  # one whole row is enough
    ((0.25, 0.5), 0.5),
    ((1.0, 1.0), 1.0),  # the shares are unknown
)


async def test_answers_without_all_documents_of_a_server_are_partial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a search cluster in which shards are down; the engines of this test answer from one directory."""
    missing: dict[int, float] = {}
    search = TantivyEngine.search

    def partial_search(engine: TantivyEngine, *words: Any, **options: Any) -> Hits:  # noqa: ANN401
        return replace(search(engine, *words, **options), missing=missing[id(engine)])

    monkeypatch.setattr(TantivyEngine, "search", partial_search)
    async with Rows(tmp_path) as rows:
        await rows.rows(2, 1, CHUNKS)
        async with rows.cluster() as cluster:
            broker = Broker(cluster, deadline=1.0)
            for shares, expected in CASES:
                engines = [id(server.engine) for server in rows.servers]
                missing.update(zip(engines, shares, strict=True))
                for _ in range(2):  # rows take turns
                    answer = await broker.search(parse_query("velvet"))
                    assert (answer.missing, answer.partial) == (expected, expected > 0), shares
                    assert len(answer.results.hits) == len(CHUNKS)
