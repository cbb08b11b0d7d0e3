"""What gives every chunk the same average lengths, so that scores mean the same on every server.

BM25 compares the length of a document with the average of its index, which Tantivy lets nobody set. So each chunk
carries words that nobody can search for, and empty documents, until its averages are those of `AVERAGE`. Then so are
those of any set of chunks, and servers agree without asking each other. Comes from the texts of a chunk; goes into the
index behind them.

A hostile chunk must not cost gigabytes of padding. The words are spread over documents of limited length, and a chunk
that needs more than `MAX_WORDS` is padded less, so its averages are only near.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import tantivy

from usher.index.fields import BODY, HEADINGS, TITLE, URL, word_analyzer

AVERAGE_LENGTHS: Final = {TITLE: 8, HEADINGS: 24, BODY: 800, URL: 16}
PADDING_WORD: Final = "X"  # whatever is searched for is in small letters
MAX_WORDS: Final = 20_000_000  # of padding in one chunk
MAX_WORDS_PER_FIELD: Final = 1_000_000  # of one padding document

# Everything beyond ASCII counts as a letter, which is wrong for about one word in fifty, the same everywhere.
_ASCII: Final = 128
_LETTERS: Final = bytes(b"a "[n < _ASCII and not chr(n).isalnum()] for n in range(256))


class LengthPadding:
    """How much one chunk is out of balance."""

    def __init__(self) -> None:
        self.documents = 0
        self.lengths: Counter[str] = Counter()

    def weigh(self, texts: Mapping[str, str]) -> None:
        """Take note of what a document adds to each field."""
        self.documents += 1
        for name, text in texts.items():
            self.lengths[name] += (
                count(text) if name == BODY else len(word_analyzer().analyze(text))
            )

    def balanced(self) -> tuple[dict[str, int], int]:
        """How many words each field needs, and how many documents are needed to hold nothing."""
        enough = [-(-self.lengths[name] // average) for name, average in AVERAGE_LENGTHS.items()]
        affordable = (MAX_WORDS + self.lengths[BODY]) // sum(AVERAGE_LENGTHS.values())
        documents = max(min(max(enough), affordable), self._spread())
        missing = {
            name: max(0, average * documents - self.lengths[name])
            for name, average in AVERAGE_LENGTHS.items()
        }
        return missing, documents - self.documents - 1

    def _spread(self) -> int:
        """The fewest documents whose padding fits into documents of limited length."""
        fewest = [
            -(
                (self.lengths[name] - MAX_WORDS_PER_FIELD * self.documents)
                // (MAX_WORDS_PER_FIELD - average)
            )
            for name, average in AVERAGE_LENGTHS.items()
        ]
        return max(self.documents + 1, *fewest)

    def fill(self, first: tantivy.Document, chunk: int) -> Iterator[tantivy.Document]:
        """The first document with as many words as it may have, the others with the rest or empty."""
        missing, empty = self.balanced()
        for number in range(empty + 1):
            padding = tantivy.Document() if number else first
            if number:
                padding.add_text("chunk", str(chunk))
            for name in missing:
                words_here = min(missing[name], MAX_WORDS_PER_FIELD)
                if words_here or number == 0:
                    padding.add_text(name, f"{PADDING_WORD} " * words_here)
                missing[name] -= words_here
            yield padding


def count(text: str) -> int:
    """How many words a `spaced` text has, nearly, and a hundred times as fast as cutting it up."""
    return (b" " + text.encode().translate(_LETTERS)).count(b" a")
