"""The contenders of bench/relevance.py: each indexes a collection and returns ids of documents, best first."""

import json
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import tantivy

import frame
from usher.index.analyzers import word_analyzer
from usher.index.document import IndexDocument
from usher.index.tantivy_engine import TantivyEngine
from usher.query.language import parse_query
from usher.query.tokens import space_words
from usher.search.merge import merge

HEAP = 64_000_000
BM25S = ["bm25s==0.2.14", "PyStemmer==3.0.0"]
PEER_SCRIPT = Path(__file__).parent / "relevance_peers.py"


class Searcher(Protocol):
    """Finds documents for a query."""

    def search(self, text: str, limit: int) -> list[str]:
        """The ids of the best documents."""


class UsherSearcher:
    """An index server's engine and a front-end's merge, in this process."""

    def __init__(self, home: Path, documents: Sequence[IndexDocument]) -> None:
        self.engine = TantivyEngine.open(home)
        self.engine.add(1, documents)
        self.engine.commit()

    def search(self, text: str, limit: int) -> list[str]:
        hits = self.engine.search(parse_query(text), limit)
        return [merged.hit.url for merged in merge({"server": hits}, k=limit).hits]

    def first(self, text: str) -> str:
        """The first hit, with the anchor of its best section."""
        hits = self.engine.search(parse_query(text), 1, show=1)
        [hit, passage] = hits.hits[0], hits.shown[0]
        return f"{hit.url}#{passage.sections[0].anchor}" if passage.sections else hit.url


class Fts5Searcher:
    """SQLite's FTS5 with its default BM25 and any of the words."""

    def __init__(self, documents: Sequence[IndexDocument], tokenizer: str) -> None:
        self.database = sqlite3.connect(":memory:")
        columns = f"url unindexed, title, headings, body, tokenize = '{tokenizer}'"
        self.database.execute(f"create virtual table page using fts5({columns})")
        self.database.executemany(
            "insert into page values (?, ?, ?, ?)",
            [(page.url, page.title, "\n".join(page.headings), page.body) for page in documents],
        )

    def search(self, text: str, limit: int) -> list[str]:
        words = " OR ".join(f'"{word}"' for word in words_of(text))
        statement = "select url from page where page match ? order by rank limit ?"
        return [url for (url,) in self.database.execute(statement, (words, limit))]


class TantivySearcher:
    """Tantivy with one text field and any of the words."""

    def __init__(self, home: Path, documents: Sequence[IndexDocument], tokenizer: str) -> None:
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("text", tokenizer_name=tokenizer)
        builder.add_text_field("url", stored=True, tokenizer_name="raw")
        home.mkdir()
        self.index = tantivy.Index(builder.build(), str(home))
        writer = self.index.writer(HEAP, 1)
        for page in documents:
            text = "\n".join([page.title, *page.headings, page.body])
            writer.add_document(tantivy.Document(text=text, url=page.url))
        writer.commit()
        writer.wait_merging_threads()
        self.index.reload()
        self.searcher = self.index.searcher()

    def search(self, text: str, limit: int) -> list[str]:
        query = self.index.parse_query(" ".join(words_of(text)).lower(), ["text"])
        hits = self.searcher.search(query, limit, count=False).hits
        return [str(self.searcher.doc(address).get_first("url")) for _, address in hits]


class Bm25sSearcher:
    """bm25s in its own venv, with English stop words and stems; all queries of a collection at once."""

    def __init__(
        self, documents: Sequence[IndexDocument], texts: Sequence[str], limit: int
    ) -> None:
        python = frame.peer_venv("bm25s", BM25S)
        pages = [
            (page.url, "\n".join([page.title, *page.headings, page.body])) for page in documents
        ]
        request = json.dumps({"pages": pages, "queries": texts, "limit": limit})
        done = subprocess.run(
            [str(python), str(PEER_SCRIPT)],
            input=request,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise frame.PeerMissing(f"bm25s failed: {done.stderr[-500:]}")
        self.answers = dict(zip(texts, json.loads(done.stdout), strict=True))

    def search(self, text: str, limit: int) -> list[str]:
        return list(self.answers[text][:limit])


@contextmanager
def usher_searcher(home: Path, documents: Sequence[IndexDocument]) -> Iterator[UsherSearcher]:
    searcher = UsherSearcher(home, documents)
    try:
        yield searcher
    finally:
        searcher.engine.close()


def words_of(text: str) -> list[str]:
    """The words of a query without punctuation, which the peers would read as syntax."""
    return word_analyzer().analyze(space_words(text))
