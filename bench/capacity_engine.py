"""Queries to the engine of one index server by the number of its documents, without MGMT, HTTP and a front-end.

The documents are loaded directly, because the whole path takes an hour for a million. Their sentences are those of
real pages: half of them from one page, which is their topic, the others from any page. So no two documents are equal,
and each word is in about as large a share of them as in real pages of this length.
"""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from capacity_processes import directory_bytes
from frame import Bench, Measure
from search_contenders import CHUNK_DOCUMENTS, NOW
from usher.anchor_text import MAX_ANCHOR_CHARACTERS
from usher.index.document import MAX_SECTION_TITLE, IndexDocument, IndexSection
from usher.index.tantivy_engine import TantivyEngine
from usher.query.language import Query, parse_query

SENTENCE_CHARACTERS = range(40, 1_000)
PIECE_CHARACTERS = 140
MIN_SENTENCES = 3  # of a page that is a topic
LENGTH_MEDIAN_LOG, LENGTH_SIGMA, MAX_CHARACTERS = 7.4, 0.8, 12_000  # of log-normal lengths
TOPIC_SHARE = 0.5
SECTION_SENTENCES = 8
DOCUMENTS_PER_HOST = 1_000
COMMIT_DOCUMENTS = 32 * CHUNK_DOCUMENTS  # as the loader, 32 chunks
HITS = 10


@dataclass(frozen=True, slots=True)
class Topic:
    """What documents are mixed from: one real page."""

    title: str
    headings: Sequence[str]
    sentences: Sequence[str]


def topics(pages: Sequence[IndexDocument]) -> list[Topic]:
    """The pages with enough sentences; if no page has any, because they are generated, pieces of a fixed length."""
    lines = [
        [line for line in page.body.split("\n") if len(line) in SENTENCE_CHARACTERS]
        for page in pages
    ]
    if not any(lines):
        lines = [pieces(page.body) for page in pages]
    return [
        Topic(page.title, page.headings or (page.title,), sentences)
        for page, sentences in zip(pages, lines, strict=True)
        if len(sentences) >= MIN_SENTENCES
    ]


def pieces(text: str) -> list[str]:
    return [text[at : at + PIECE_CHARACTERS] for at in range(0, len(text), PIECE_CHARACTERS)]


def mixed_document(given: Sequence[Topic], number: int) -> IndexDocument:
    """The document with this number: each number gives another document, the same in each run."""
    chance = random.Random(number)  # noqa: S311
    topic = chance.choice(given)
    wanted = min(MAX_CHARACTERS, chance.lognormvariate(LENGTH_MEDIAN_LOG, LENGTH_SIGMA))
    sentences = [f"Page {number:x} of {len(given)} topics."]  # a word that no other document has
    size = 0
    while size < wanted:
        source = topic if chance.random() < TOPIC_SHARE else chance.choice(given)
        sentences.append(chance.choice(source.sentences))
        size += len(sentences[-1]) + 1
    body = "\n".join(sentences)
    host = f"h{number // DOCUMENTS_PER_HOST}.example"
    headings = tuple(chance.choice(topic.headings) for _ in range(3))
    return IndexDocument(
        key=f"{host}/{number}",
        url=f"http://{host}/{number}",
        host=host,
        chunk=number // CHUNK_DOCUMENTS + 1,
        crawled=NOW,
        title=f"{topic.title} {number:x}",
        headings=headings,
        body=body,
        rest=chance.choice(topic.headings),
        language="en",
        sections=tuple(sections(sentences, headings)),
        anchors=(
            (chance.choice(topic.headings)[:MAX_ANCHOR_CHARACTERS], 1),
            (topic.title[:MAX_ANCHOR_CHARACTERS], 2),
        ),
        inlinks=chance.randrange(50),
        depth=chance.randrange(1, 9),
    )


def sections(sentences: Sequence[str], headings: Sequence[str]) -> Iterator[IndexSection]:
    start = 0
    for at in range(0, len(sentences), SECTION_SENTENCES):
        some = sentences[at : at + SECTION_SENTENCES]
        end = start + sum(len(sentence) + 1 for sentence in some)
        yield IndexSection(
            f"s{at}", headings[at % len(headings)][:MAX_SECTION_TITLE], start, end - 1
        )
        start = end


@dataclass(slots=True)
class Filled:
    """An engine that grows; `loading` are the CPU seconds of `add` and `commit` and of the merges in the background."""

    directory: Path
    topics: Sequence[Topic]
    documents: int = 0
    characters: int = 0
    loading: float = 0.0

    def grow(self, number: int) -> None:
        """Load documents until there are so many, and wait until Tantivy has merged its segments."""
        engine = TantivyEngine.open(self.directory)
        try:
            for start in range(self.documents, number, COMMIT_DOCUMENTS):
                numbers = range(start, min(start + COMMIT_DOCUMENTS, number))
                documents = [mixed_document(self.topics, at) for at in numbers]
                self.characters += sum(len(document.body) for document in documents)
                begin = time.process_time()
                for at in range(0, len(documents), CHUNK_DOCUMENTS):
                    chunk = documents[at : at + CHUNK_DOCUMENTS]
                    engine.add(chunk[0].chunk, chunk)
                engine.commit()
                self.loading += time.process_time() - begin
            begin = time.process_time()
            engine.force_merge()
        finally:
            engine.close()
        self.loading += time.process_time() - begin
        self.documents = number


@dataclass(frozen=True, slots=True)
class Asked:
    """CPU and wall-clock seconds of each query, in ascending order."""

    cpu: Sequence[float]
    seconds: Sequence[float]


def ask(directory: Path, queries: Sequence[Query]) -> Asked:
    """Ask each query with ten hits and their snippets; the first half warms the caches."""
    engine = TantivyEngine.open(directory)
    try:
        half = len(queries) // 2
        for query in queries[:half]:
            engine.search(query, HITS, show=HITS)
        taken = [timed(engine, query) for query in queries[half:]]
    finally:
        engine.close()
    return Asked(sorted(cpu for cpu, _ in taken), sorted(seconds for _, seconds in taken))


def timed(engine: TantivyEngine, query: Query) -> tuple[float, float]:
    begin, cpu = time.perf_counter(), time.process_time()
    engine.search(query, HITS, show=HITS)
    return time.process_time() - cpu, time.perf_counter() - begin


def engines(
    bench: Bench,
    home: Path,
    pages: Sequence[IndexDocument],
    texts: Sequence[str],
    sizes: Sequence[int],
) -> Iterator[Measure]:
    """Measure queries while one engine grows to each of the sizes."""
    filled = Filled(home / "engine", topics(pages))
    queries = [parse_query(text) for text in texts]
    for number in sizes:
        filled.grow(number)
        bench.say(f"{number} documents in one engine")
        asked = ask(filled.directory, queries)
        of = f"engine with {number:,} documents"
        length = filled.characters / number
        bench.note(f"{of}: {len(filled.topics)} topics, {length:,.0f} characters of main text each")
        yield Measure(f"index, {of}", "bytes/document", directory_bytes(filled.directory) / number)
        yield Measure(f"loading: CPU, {of}", "ms/document", 1000 * filled.loading / number)
        yield Measure(f"query: CPU, {of}", "ms/query", 1000 * mean(asked.cpu))
        for name, values in {"CPU": asked.cpu, "time": asked.seconds}.items():
            yield Measure(f"query {name} p50, {of}", "ms", 1000 * values[len(values) // 2])
            yield Measure(f"query {name} p99, {of}", "ms", 1000 * values[len(values) * 99 // 100])
