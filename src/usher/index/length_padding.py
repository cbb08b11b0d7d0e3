"""Padding that gives every chunk the same average field lengths, so that all servers compute the same scores.

BM25 compares the length of a document with the average of its index, which Tantivy does not let us set. So each chunk
gets words that no query matches, and empty documents, until its averages are `AVERAGE_LENGTHS`. Any set of chunks then
has these averages too.

A hostile chunk must not cost gigabytes of padding. The words are spread over documents of limited length, and a chunk
that would need more than `MAX_WORDS` is padded less, so its averages are only approximate.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import tantivy

from usher.index.fields import ANCHORS, BODY, HEADINGS, REST, TITLE, URL, word_analyzer

AVERAGE_LENGTHS: Final = {TITLE: 8, HEADINGS: 24, ANCHORS: 40, BODY: 800, URL: 16, REST: 100}
PADDING_WORD: Final = "X"  # queries are in lower case
MAX_WORDS: Final = 20_000_000  # of padding in one chunk
MAX_WORDS_PER_FIELD: Final = 1_000_000  # of one padding document

# All non-ASCII characters count as letters. This is wrong for about one word in fifty, on every server alike.
_ASCII: Final = 128
_LETTERS: Final = bytes(b"a "[n < _ASCII and not chr(n).isalnum()] for n in range(256))


class LengthPadding:
    """The padding of one chunk."""

    def __init__(self) -> None:
        self.documents = 0
        self.lengths: Counter[str] = Counter()

    def add(self, texts: Mapping[str, str]) -> None:
        """Count the words of a document."""
        self.documents += 1
        for name, text in texts.items():
            self.lengths[name] += (
                count_words(text) if name in {BODY, REST} else len(word_analyzer().analyze(text))
            )

    def missing(self) -> tuple[dict[str, int], int]:
        """How many padding words each field needs, and how many padding documents besides the first."""
        needed = [-(-self.lengths[name] // average) for name, average in AVERAGE_LENGTHS.items()]
        affordable = (MAX_WORDS + self.lengths[BODY]) // sum(AVERAGE_LENGTHS.values())
        documents = max(min(max(needed), affordable), self._min_documents())
        words = {
            name: max(0, average * documents - self.lengths[name])
            for name, average in AVERAGE_LENGTHS.items()
        }
        return words, documents - self.documents - 1

    def _min_documents(self) -> int:
        """The fewest documents in all for which the padding fits into documents of limited length."""
        fewest = [
            -(
                (self.lengths[name] - MAX_WORDS_PER_FIELD * self.documents)
                // (MAX_WORDS_PER_FIELD - average)
            )
            for name, average in AVERAGE_LENGTHS.items()
        ]
        return max(self.documents + 1, *fewest)

    def fill(self, first: tantivy.Document, chunk: int) -> Iterator[tantivy.Document]:
        """Yield `first` with as many words as a document may have, then padding documents with the rest."""
        words, others = self.missing()
        for number in range(others + 1):
            document = tantivy.Document() if number else first
            if number:
                document.add_text("chunk", str(chunk))
            for name in words:
                count = min(words[name], MAX_WORDS_PER_FIELD)
                if count or number == 0:
                    document.add_text(name, f"{PADDING_WORD} " * count)
                words[name] -= count
            yield document


def count_words(text: str) -> int:
    """The approximate number of words of a `space_words` text, a hundred times as fast as analyzing it."""
    return (b" " + text.encode().translate(_LETTERS)).count(b" a")
