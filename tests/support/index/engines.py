"""Each kind of engine for the conformance suite: in a directory, or in the cluster of OpenSearch that tests share."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from support.index.documents import HEAP
from support.opensearch.cluster import OpenSearchCluster
from usher.index.engine import Engine
from usher.index.opensearch.opensearch_engine import OpenSearchEngine
from usher.index.opensearch.options import OpenSearchOptions
from usher.index.tantivy_engine import TantivyEngine
from usher.private_files import make_directory


@dataclass
class EngineFactory:
    """Opens engines of one kind; `words` of an index name are what `open_engine` in another process needs."""

    kind: str
    words: Callable[[str], list[str]]
    is_writing: Callable[[str], bool] = lambda _: (
        False
    )  # for a killed process, by name of the index
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _open: list[Engine] = field(default_factory=list)

    def open(self, name: str = "") -> Engine:
        """Open the index of this name, by default a new one; `close` closes it."""
        engine = open_engine(self.words(name or f"index-{next(self._numbers)}"))
        self._open.append(engine)
        return engine

    def close(self) -> None:
        while self._open:
            self._open.pop().close()


def open_engine(words: Sequence[str]) -> Engine:
    """Open an engine by its kind and the place of its index, also in another process."""
    kind, directory, *rest = words
    if kind == "tantivy":
        return TantivyEngine.open(Path(directory), heap=HEAP)
    url, index = rest
    make_directory(Path(directory))
    options = OpenSearchOptions(url=url, index=index)
    return OpenSearchEngine.open(options, directory=Path(directory), host="127.0.0.1:1")


@pytest.fixture(
    scope="module", params=["tantivy", pytest.param("opensearch", marks=pytest.mark.soak)]
)
def engines(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineFactory]:
    """A factory for each kind of engine."""
    directory = tmp_path_factory.mktemp("engines")
    if request.param == "tantivy":
        factory = EngineFactory("tantivy", lambda name: ["tantivy", str(directory / name)])
        yield factory
        factory.close()
        return
    cluster: OpenSearchCluster = request.getfixturevalue("opensearch")
    module = request.node.path.stem.replace("_", "-")
    prefix = f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}-{module}"
    url = ",".join(cluster.urls)
    factory = EngineFactory(
        "opensearch",
        lambda name: ["opensearch", str(directory / name), url, f"{prefix}-{name}"],
        lambda name: cluster.writes_to(f"{prefix}-{name}"),
    )
    yield factory
    factory.close()
    cluster.ask(f"/{prefix}-*", method="DELETE")


@pytest.fixture
def engine(engines: EngineFactory) -> Iterator[Engine]:
    """An empty index."""
    opened = engines.open()
    yield opened
    opened.close()
