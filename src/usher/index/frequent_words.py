"""The words that queries probably use: the most frequent of titles, headings and a sample of documents.

Front-ends load their statistics in advance. The body is sampled because listing all its words takes long.
"""

from collections import Counter
from itertools import chain, zip_longest
from typing import Final

from usher.index import fields
from usher.index.analyzers import word_analyzer
from usher.index.fields import FILLER_WORD, HEADINGS, TITLE
from usher.index.index_reader import IndexReader
from usher.index.tantivy_query import all_documents
from usher.query.tokens import space_words

SAMPLES, SAMPLE_DOCUMENTS = 10, 30
MAX_OFFSET: Final = 20_000  # of a sample: a search costs as much as its offset
SAMPLE_CHARACTERS: Final = 10_000  # of each document
MAX_LETTERS: Final = 40  # longer words are hardly queried twice


def frequent_words(reader: IndexReader, limit: int) -> list[str]:
    """The most frequent words first, from each list in turn: 5,000 then cover 80 % of queries instead of 65 %."""
    lists = [
        *(
            [word for word, _ in reader.searcher.terms_with_prefix(field, "", limit=limit)]
            for field in (TITLE, HEADINGS)
        ),
        sampled_words(reader, limit),
    ]
    words = dict.fromkeys(filter(None, chain.from_iterable(zip_longest(*lists))))
    return [word for word in words if len(word) <= MAX_LETTERS and word != FILLER_WORD][:limit]


def sampled_words(reader: IndexReader, limit: int) -> list[str]:
    """The words that most documents of the sample have."""
    counts: Counter[str] = Counter()
    step = max(SAMPLE_DOCUMENTS, min(reader.documents, MAX_OFFSET) // SAMPLES)
    for sample in range(SAMPLES):
        hits = reader.searcher.search(
            all_documents(), SAMPLE_DOCUMENTS, offset=sample * step, count=False
        ).hits
        for _, address in hits:
            document = reader.searcher.doc(address)
            body = fields.stored_text(document)[:SAMPLE_CHARACTERS]
            text = f"{fields.stored_fields(document).title} {body}"
            counts.update(set(word_analyzer().analyze(space_words(text))))
    return [word for word, _ in counts.most_common(limit)]
