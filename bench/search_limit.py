"""The limit of the search benchmark: Tantivy in the process of the benchmark, without Usher."""

import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import tantivy

from usher.index import fields
from usher.index.analyzers import english_stem_analyzer, word_analyzer
from usher.index.document import IndexDocument

COMMIT_DOCUMENTS = 1_600  # 32 chunks, as an index server does
HEAP = 64_000_000
SAME_DOCUMENTS = 3_000  # whose prepared texts need 120 MB


def timed_fill(index: tantivy.Index, found: Iterable[tantivy.Document]) -> float:
    """Add documents with one writer thread; return the documents a second."""
    writer = index.writer(HEAP, 1)
    began, number = time.perf_counter(), 0
    for number, document in enumerate(found, 1):
        writer.add_document(document)
        if number % COMMIT_DOCUMENTS == 0:
            writer.commit()
    writer.commit()
    rate = number / (time.perf_counter() - began)
    writer.wait_merging_threads()
    return rate


class TantivyDirect:
    """Tantivy used directly, in the usual way: four fields, three of them stored, one writer thread."""

    def __init__(self, home: Path) -> None:
        self.home = home
        builder = tantivy.SchemaBuilder()
        for name in ("title", "body", "url"):
            builder.add_text_field(name, stored=True)
        builder.add_text_field("headings")
        self.schema = builder.build()
        self.index: tantivy.Index | None = None

    def fill(self, found: Sequence[IndexDocument]) -> float:
        """Return the documents a second."""
        self.index = self._new_index(self.schema)
        rate = timed_fill(
            self.index,
            (
                tantivy.Document(
                    title=one.title, body=one.body, url=one.url, headings="\n".join(one.headings)
                )
                for one in found
            ),
        )
        self.index.reload()
        return rate

    def fill_same(self, found: Sequence[IndexDocument]) -> float:
        """Return the documents a second with all fields of an index server, whose texts are prepared before."""
        index = self._new_index(fields.schema())
        index.register_tokenizer("words", word_analyzer())
        index.register_tokenizer("stems", english_stem_analyzer())
        some = found[:SAME_DOCUMENTS]
        return timed_fill(
            index, [fields.to_tantivy(one, 1, fields.searchable_texts(one), 1) for one in some]
        )

    def _new_index(self, schema: tantivy.Schema) -> tantivy.Index:
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir()
        return tantivy.Index(schema, str(self.home))

    def ask(self, text: str) -> int:
        """Return the ten best hits for any of the words with title, URL and snippet, and the total."""
        assert self.index is not None  # noqa: S101
        searcher = self.index.searcher()
        query = self.index.parse_query(text, ["title", "headings", "body", "url"])
        found = searcher.search(query, 10)
        passages = tantivy.SnippetGenerator.create(searcher, query, self.schema, "body")
        for _, where in found.hits:
            one = searcher.doc(where)
            str(one.get_first("title")), str(one.get_first("url"))
            passages.snippet_from_doc(one).to_html()
        return len(found.hits)

    def one_by_one(self, texts: Sequence[str]) -> list[float]:
        """Return the seconds of each query."""
        taken = []
        for text in texts:
            began = time.perf_counter()
            self.ask(text)
            taken.append(time.perf_counter() - began)
        return taken
