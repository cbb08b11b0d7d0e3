"""What gives every chunk the same average lengths, so that scores mean the same on every server.

BM25 compares the length of a document with the average of its index, which Tantivy lets nobody set. So each chunk
carries words that nobody can search for, and empty documents, until its averages are those of `AVERAGE`. Then so are
those of any set of chunks, and servers agree without asking each other. Comes from the texts of a chunk; goes into the
index behind them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import tantivy

from usher.index.fields import BODY, HEADINGS, TITLE, URL, words

AVERAGE: Final = {TITLE: 8, HEADINGS: 24, BODY: 800, URL: 16}
WORD: Final = "X"  # whatever is searched for is in small letters

# Everything beyond ASCII counts as a letter, which is wrong for about one word in fifty, the same everywhere.
_ASCII: Final = 128
_LETTERS: Final = bytes(b"a "[n < _ASCII and not chr(n).isalnum()] for n in range(256))


class Ballast:
    """How much one chunk is out of balance."""

    def __init__(self) -> None:
        self.documents = 0
        self.lengths: Counter[str] = Counter()

    def weigh(self, texts: Mapping[str, str]) -> None:
        """Take note of what a document adds to each field."""
        self.documents += 1
        for name, text in texts.items():
            self.lengths[name] += count(text) if name == BODY else len(words().analyze(text))

    def balanced(self) -> tuple[dict[str, int], int]:
        """How many words each field needs, and how many documents are needed to hold nothing."""
        enough = [-(-self.lengths[name] // average) for name, average in AVERAGE.items()]
        documents = max(self.documents + 1, *enough)
        missing = {
            name: average * documents - self.lengths[name] for name, average in AVERAGE.items()
        }
        return missing, documents - self.documents - 1

    def fill(self, first: tantivy.Document, chunk: int) -> Iterator[tantivy.Document]:
        """The first document with all the words, and the empty ones."""
        missing, empty = self.balanced()
        for name, number in missing.items():
            first.add_text(name, f"{WORD} " * number)
        yield first
        for _ in range(empty):
            nothing = tantivy.Document()
            nothing.add_text("chunk", str(chunk))
            yield nothing


def count(text: str) -> int:
    """How many words a `spaced` text has, nearly, and a hundred times as fast as cutting it up."""
    return (b" " + text.encode().translate(_LETTERS)).count(b" a")
