"""Searches in the demo site."""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from support.index.documents import HEAP, NOW, found
from usher.crawl.page.parse import extract_documents
from usher.index.document import IndexDocument, from_page
from usher.index.tantivy_engine import TantivyEngine
from usher.urls import Url, parse


def documents() -> Iterator[IndexDocument]:
    for file in (files("usher.local") / "site").iterdir():
        url = parse(f"http://demo.example/{file.name}")
        assert isinstance(url, Url)
        if file.name.endswith(".html"):
            [page] = extract_documents(file.read_bytes(), url, media_type="text/html")
            document = from_page(page, key=str(url), host=url.host, chunk=1, crawled=NOW)
            assert isinstance(document, IndexDocument)
            yield document


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TantivyEngine]:
    path: Path = tmp_path_factory.mktemp("demo")
    engine = TantivyEngine.open(path, heap=HEAP)
    engine.add(1, documents())
    engine.commit()
    yield engine
    engine.close()


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("keeper's lamp", "keepers.html"),
        ("the keeper's cat", "cat.html"),
        ("fog signals", "fog.html"),
        ("Fresnel", "fresnel.html"),
        ("a storm of 1893", "storms.html"),
        ("how does a lens work", "lenses.html"),
    ],
)
def test_a_question_finds_its_page_first(engine: TantivyEngine, text: str, page: str) -> None:
    assert found(engine, text)[0] == page
