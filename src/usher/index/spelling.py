"""Words that were perhaps meant: close to one that hardly any document has, and common.

Comes from a query that found little, and the words of the index; goes to "did you mean".
"""

from collections.abc import Iterator
from string import ascii_lowercase
from typing import Final

from usher.index.fields import BODY
from usher.index.index_reader import IndexReader
from usher.query.results import Suggestion
from usher.query.tokens import UNSPACED_SCRIPTS, strip_accents

LEAST: Final = 4  # letters; shorter words are close to too many others
MOST: Final = 24
TIMES: Final = 10  # how many times commoner a better word is
MAX_LOOKED_AT: Final = 3_000
_START: Final = 2  # letters that a word with two mistakes has right
_TWO_MISTAKES: Final = 7  # letters from which on a word may have two


def suggest(view: IndexReader, words: tuple[str, ...]) -> list[Suggestion]:
    """For each of the words a better one, if there is one."""
    found = (_better(view, word) for word in dict.fromkeys(map(strip_accents, words)))
    return [one for one in found if one is not None]


def _better(view: IndexReader, word: str) -> Suggestion | None:
    if (
        not LEAST <= len(word) <= MOST
        or UNSPACED_SCRIPTS.search(word)
        or any(map(str.isdigit, word))
    ):
        return None
    here = view.count(BODY, word)
    found = [(view.count(BODY, one), one) for one in _one_mistake(word)]
    best = max(found, default=(0, ""))
    if best[0] <= here * TIMES or best[0] < 2:  # noqa: PLR2004
        best = max(_two_mistakes(view, word), default=(0, ""))
    count, better = best
    return Suggestion(word, better, count) if count > max(1, here * TIMES) else None


def _one_mistake(word: str) -> set[str]:
    """All words that one letter more, less, other or swapped makes of this one."""
    letters = ascii_lowercase if word.isascii() else "".join(sorted(set(word)))
    made: set[str] = set()
    for place in range(len(word) + 1):
        start, end = word[:place], word[place:]
        made.update(start + letter + end for letter in letters)
        if end:
            made.add(start + end[1:])
            made.update(start + letter + end[1:] for letter in letters)
        if len(end) > 1:
            made.add(start + end[1] + end[0] + end[2:])
    return made - {word}


def _two_mistakes(view: IndexReader, word: str) -> Iterator[tuple[int, str]]:
    most = 2 if len(word) >= _TWO_MISTAKES else 1
    near = view.searcher.terms_with_prefix(BODY, word[:_START], limit=MAX_LOOKED_AT)
    for one, count in near:
        if one != word and abs(len(one) - len(word)) <= most and _distance(one, word, most) <= most:
            yield count, one


def _distance(one: str, two: str, most: int) -> int:
    """How many letters to add, drop, change or swap; anything above `most` may be too low."""
    before: list[int] = []
    last = list(range(len(two) + 1))
    for row, char in enumerate(one, 1):
        now = [row]
        for column, other in enumerate(two, 1):
            cost = min(last[column] + 1, now[column - 1] + 1, last[column - 1] + (char != other))
            if row > 1 and column > 1 and char == two[column - 2] and one[row - 2] == other:
                cost = min(cost, before[column - 2] + 1)
            now.append(cost)
        if min(now) > most:
            return most + 1
        before, last = last, now
    return last[-1]
