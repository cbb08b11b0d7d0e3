"""Suggests better spellings: frequent words that are close to a word that hardly any document has."""

from functools import partial
from string import ascii_lowercase
from typing import Final

from usher.index.analyzers import stem_of
from usher.index.fields import BODY, STEMS
from usher.index.index_reader import IndexReader
from usher.query.results import Suggestion
from usher.query.tokens import UNSPACED_SCRIPTS, strip_accents

MIN_LETTERS: Final = 4  # shorter words are close to too many others
MAX_LETTERS: Final = 24
MIN_RATIO: Final = 10  # a suggestion is so many times as frequent
MAX_CANDIDATES: Final = 3_000
_PREFIX: Final = 2  # letters that a word with two mistakes has right
_TWO_MISTAKES: Final = 7  # letters from which on a word may have two mistakes


def suggest(reader: IndexReader, words: tuple[str, ...]) -> list[Suggestion]:
    """A better spelling of each word that has one."""
    suggestions = (_suggest(reader, word) for word in dict.fromkeys(map(strip_accents, words)))
    return [suggestion for suggestion in suggestions if suggestion is not None]


def _suggest(reader: IndexReader, word: str) -> Suggestion | None:
    if not is_correctable(word):
        return None
    least = least_frequency(reader.count(BODY, word), reader.documents)
    if least is None:
        return None
    count_of = partial(
        reader.searcher.doc_freq, BODY
    )  # not cached: hundreds of words are asked for once
    count, better = max((count_of(other), other) for other in _one_mistake(word))
    if count <= least:
        count, better = _two_mistakes(reader, word, least)
    if count <= least:
        return None
    return Suggestion(word, better, count, reader.count(STEMS, stem_of(word, "en")))


def is_correctable(word: str) -> bool:
    """Whether a word may be misspelt: it has enough letters, and only letters."""
    if not MIN_LETTERS <= len(word) <= MAX_LETTERS:
        return False
    return not UNSPACED_SCRIPTS.search(word) and not any(map(str.isdigit, word))


def least_frequency(count: int, documents: int) -> int | None:
    """A better spelling is in more documents than that; None if it cannot be."""
    least = max(1, count * MIN_RATIO)
    return None if least >= documents else least


def max_mistakes(word: str) -> int:
    """How many mistakes a word of this length may have."""
    return 2 if len(word) >= _TWO_MISTAKES else 1


def _one_mistake(word: str) -> set[str]:
    """All words that result from adding, dropping, changing or swapping one letter."""
    letters = ascii_lowercase if word.isascii() else "".join(sorted(set(word)))
    words: set[str] = set()
    for position in range(len(word) + 1):
        start, end = word[:position], word[position:]
        words.update(start + letter + end for letter in letters)
        if end:
            words.add(start + end[1:])
            words.update(start + letter + end[1:] for letter in letters)
        if len(end) > 1:
            words.add(start + end[1] + end[0] + end[2:])
    return words - {word}


def _two_mistakes(reader: IndexReader, word: str, least: int) -> tuple[int, str]:
    """The most frequent word that differs by as many mistakes as a word of this length may have, and its count."""
    limit = max_mistakes(word)
    letters = set(word)
    best = (least, "")
    words = reader.searcher.terms_with_prefix(BODY, word[:_PREFIX], limit=MAX_CANDIDATES)
    for other, count in words:  # the most frequent first
        if count < best[0] or count <= least:
            break
        is_near = abs(len(other) - len(word)) <= limit and len(letters ^ set(other)) <= 2 * limit
        if other != word and is_near and edit_distance(other, word, limit) <= limit:
            best = max(best, (count, other))
    return best


def edit_distance(first: str, second: str, limit: int) -> int:
    """The Damerau-Levenshtein distance; a result above `limit` may be too low."""
    before: list[int] = []
    last = list(range(len(second) + 1))
    for row, char in enumerate(first, 1):
        costs = [row]
        for column, other in enumerate(second, 1):
            cost = min(last[column] + 1, costs[-1] + 1, last[column - 1] + (char != other))
            if row > 1 and column > 1 and char == second[column - 2] and first[row - 2] == other:
                cost = min(cost, before[column - 2] + 1)
            costs.append(cost)
        if min(costs) > limit:
            return limit + 1
        before, last = last, costs
    return last[-1]
