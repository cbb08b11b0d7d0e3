"""Words that people are likely to ask for: those that stand in most of some documents.

Comes from a look at documents here and there in the index, however large it is; goes to front-ends, which then know
beforehand how rare these words are.
"""

from collections import Counter
from typing import Final

from usher.index import fields
from usher.index.questions import anything
from usher.index.view import View
from usher.search.words import spaced

STRETCHES, LENGTH = 10, 30  # of documents that are looked at
FURTHEST: Final = 20_000  # how deep a search may go, which is what it costs to get there
TEXT: Final = 10_000  # characters of each
LONGEST: Final = 40  # letters; whatever is longer is not asked for twice


def frequent(view: View, most: int) -> list[str]:
    """The commonest first."""
    found: Counter[str] = Counter()
    step = max(LENGTH, min(view.documents, FURTHEST) // STRETCHES)
    for stretch in range(STRETCHES):
        hits = view.searcher.search(anything(), LENGTH, offset=stretch * step, count=False).hits
        for _, where in hits:
            document = view.searcher.doc(where)
            text = f"{fields.kept(document).title} {fields.text(document)[:TEXT]}"
            found.update(set(fields.words().analyze(spaced(text))))
    return [word for word, _ in found.most_common(most) if len(word) <= LONGEST]
