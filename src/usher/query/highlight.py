"""The part of a text that shows why it was found, cut into marked and unmarked pieces.

Comes from the stored text of a hit and the words of a query; goes to a page or a terminal, which escapes the pieces.
Nothing here is ever HTML.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter
from typing import Final, NamedTuple

from usher.query.tokens import UNSPACED_SCRIPTS, strip_accents

Segment = tuple[str, bool]
Stem = Callable[[str], str]

SNIPPET_CHARACTERS: Final = 240
MAX_TEXT_CHARACTERS: Final = 100_000  # looking further would take longer than searching
MAX_MARKS: Final = 200  # of one word
MAX_WORDS: Final = 32
_BEFORE: Final = 60  # how far before the first marked word a sentence may begin
_CROWD: Final = 4  # words beside a word, or in a row: more are no better
_BEGINS: Final = 3  # letters that other forms of a word have in common with it

_WORD: Final = re.compile(r"[^\W_]+")
_SENTENCE: Final = re.compile(r"[.!?\u2026]\s+|[\u3002\uff01\uff1f\n]\s*")
# Also the marks that turn the direction of what follows them: a snippet must not rearrange the page.
_UNSEEN: Final = re.compile(
    r"[\s\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff\ud800-\udfff]+"
)
_ACCENTED: Final = ("\u00c0", "\u024f")
_ASCII: Final = bytes(range(128))
# Of UTF-8: ASCII, what continues a letter, and what begins signs and letters that are neither small nor large. (Wide,
# circled and Glagolitic ones, and signs like that for ohm, are left as they are where nothing else is changed.)
_WITHOUT_CASE: Final = bytes([*range(0xC0), 0xC2, *range(0xE2, 0xEA), *range(0xEB, 0xF0)])
_MOST_KEPT: Final = 20_000
_MOST_SOUGHT: Final = 100


Mark = tuple[int, int, int]  # where it starts and ends, and which of the words it is


class _Sought(NamedTuple):
    """What to look for in any text: words as the index has them, their stems, and how all their forms begin."""

    words: dict[str, int]
    stems: dict[str, int]
    begins: tuple[tuple[str, bool], ...]  # and whether it is a word wherever it stands


def make_snippet(
    text: str, words: Sequence[str], *, size: int = SNIPPET_CHARACTERS, stem: Stem = strip_accents
) -> list[Segment]:
    """The passage with most of the words, or the beginning; `stem` tells which words are forms of one."""
    text = text[:MAX_TEXT_CHARACTERS]
    marks = _marks(text, words, stem, size)
    start, end = _around(text, _best(marks, size), size) if marks else _fit(text, 0, size)
    inside = [match for match in marks if match[0] >= start and match[1] <= end]
    segments = _cut(text, start, end, inside)
    if start > 0:
        segments = [("\u2026 ", False), *segments]
    if end < len(text.rstrip()):
        segments.append((" \u2026", False))
    return _joined(segments)


def highlight(text: str, words: Sequence[str], *, stem: Stem = strip_accents) -> list[Segment]:
    """A whole short text, a title for instance, with the words marked."""
    text = text[:MAX_TEXT_CHARACTERS]
    return _joined(_cut(text, 0, len(text), _marks(text, words, stem)))


def _marks(text: str, words: Sequence[str], stem: Stem, size: int = 0) -> list[Mark]:
    """Where the words and their other forms are, in order; of a single word, as far as a passage needs them."""
    sought = _sought(tuple(words[:MAX_WORDS]), stem)
    plain = _flat(text)
    known: dict[str, int | None] = {}
    marks: list[Mark] = []
    find, word_at = plain.find, _WORD.match  # `str.find` is ten times as fast as any pattern
    first, end_at = _around_phrase(plain, sought, size) if size else (0, len(text))
    for begin, alone in sought.begins:
        last, single = end_at, size and len(sought.words) == 1 and not alone
        start = first - 1
        for _ in range(MAX_MARKS):
            if (start := find(begin, start + 1)) < 0 or start > last:
                break
            if alone:
                end = start + len(begin)
            elif start and plain[start - 1].isalnum():
                continue  # in the middle of another word
            else:
                end = match.end() if (match := word_at(text, start)) else start + 1
            found = text[start:end]
            if found not in known:
                word = strip_accents(found)
                known[found] = sought.words.get(word, sought.stems.get(stem(word)))
            if (which := known[found]) is not None:
                marks.append((start, end, which))
                # No other passage can have more of it: what follows this one is not looked for.
                if single and len(marks) > _CROWD and end - marks[-_CROWD - 1][0] <= size:
                    last = min(last, marks[-_CROWD - 1][0] + size)
    return _apart(marks)


def _around_phrase(plain: str, sought: _Sought, size: int) -> tuple[int, int]:
    """Where to look for a passage: around the words as they were typed, if they stand so, for none is better."""
    if len(sought.words) > 1:
        phrase, at = " ".join(sought.words), -1
        for _ in range(MAX_MARKS):
            if (at := plain.find(phrase, at + 1)) < 0:
                break
            end = at + len(phrase)
            if not (at and plain[at - 1].isalnum()) and not plain[end : end + 1].isalnum():
                return max(0, at - size), end + size
    return 0, len(plain)


@lru_cache(_MOST_SOUGHT)
def _sought(words: Sequence[str], stem: Stem) -> _Sought:
    wanted: dict[str, int] = {}
    for number, word in enumerate(words):
        wanted.setdefault(strip_accents(word), number)
    stems = {stem(word): number for word, number in wanted.items() if len(word) > _BEGINS}
    begins = dict.fromkeys(filter(None, (_beginning(word, stem) for word in wanted)))
    return _Sought(
        wanted, stems, tuple((one, bool(UNSPACED_SCRIPTS.search(one))) for one in begins)
    )


def _apart(marks: Iterable[Mark]) -> list[Mark]:
    """In order, without those that begin inside the one before."""
    apart: list[Mark] = []
    last = 0
    for one in sorted(marks, key=itemgetter(0)):
        if one[0] >= last:
            apart.append(one)
            last = one[1]
    return apart


def _beginning(word: str, stem: Stem) -> str:
    """What all forms of a word begin with; the last letter of a stem may be its own (happi of happy)."""
    if UNSPACED_SCRIPTS.search(word):
        return word
    start = word[: max(_BEGINS, len(stem(word)) - 1)]
    sharp = start.find("ss", _BEGINS - 1)  # which the text may write as one letter
    return start if sharp < 0 else start[:sharp]


def _flat(text: str) -> str:
    """In small letters without accents, each at the place of what it was."""
    if text.isascii():
        return text.lower()
    # Bytes are made small ten times as fast, and of other letters a text has few.
    data = text.encode("utf-8", "surrogatepass")
    flat = data.lower().decode("utf-8", "surrogatepass")
    if not data.translate(None, _WITHOUT_CASE):
        return flat  # quotes, dashes, Chinese: nothing that is written in two ways
    for letter in set(data.translate(None, _ASCII).decode("utf-8", "surrogatepass")):
        if (plain := _plain(letter)) != letter:
            flat = flat.replace(letter, plain)
    return flat


@lru_cache(_MOST_KEPT)
def _plain(letter: str) -> str:
    """The small letter without what is on top or below of it, if that leaves one that everybody can type."""
    small = letter.lower() if len(letter.lower()) == 1 else letter
    plain = unicodedata.normalize("NFKD", small)[0].lower()
    return plain if _ACCENTED[0] <= small <= _ACCENTED[1] and plain.isascii() else small


def _best(marks: Sequence[Mark], size: int) -> tuple[int, int]:
    """The stretch of marks within `size` characters that has most different words, then most in a row."""
    inside = [0] * MAX_WORDS
    rows = [0, *accumulate(map(_follows, marks, marks[1:]))]
    best, where, first, different = -1.0, (0, 0), 0, 0
    for last, (_, end, word) in enumerate(marks):
        different += not inside[word]
        inside[word] += 1
        while end - marks[first][0] > size and first < last:
            inside[marks[first][2]] -= 1
            different -= not inside[marks[first][2]]
            first += 1
        in_a_row, more = rows[last] - rows[first], last - first
        rank = 4.0 * different + min(in_a_row, _CROWD) + 0.25 * min(more, _CROWD)
        if rank > best:
            best, where = rank, (marks[first][0], end)
    return where


def _follows(one: Mark, two: Mark) -> bool:
    return two[2] == one[2] + 1 and two[0] - one[1] <= _BEGINS


def _around(text: str, where: tuple[int, int], size: int) -> tuple[int, int]:
    """A passage around these places that begins with a sentence or at least a word."""
    first, last = where
    room = max(0, min(_BEFORE, size - (last - first)))
    earliest = max(0, first - room)
    begins = [match.end() for match in _SENTENCE.finditer(text, earliest, first)]
    if earliest == 0:
        start = 0
    elif begins:
        start = begins[0]
    else:
        start = first if (space := text.find(" ", earliest, first)) < 0 else space + 1
    return _fit(text, start, max(size, last - start))


def _fit(text: str, start: int, size: int) -> tuple[int, int]:
    """From here on as much as fits without cutting a word, unless it is endless."""
    end = start + size
    if end >= len(text):
        return start, len(text)
    space = text.rfind(" ", start + size * 3 // 4, end + 1)
    return start, space if space > 0 else end


def _cut(text: str, start: int, end: int, marks: Iterable[Mark]) -> list[Segment]:
    """The text from start to end in pieces, with a blank for whatever cannot be seen."""
    segments: list[Segment] = []
    for first, last, _ in marks:
        if first >= start:
            segments += [(text[start:first], False), (text[first:last], True)]
            start = last
    segments.append((text[start:end], False))
    return [(_seen(piece), marked) for piece, marked in segments]


def _seen(text: str) -> str:
    """Most texts need no change, which is found out sooner than made."""
    plain = text.isprintable() and "  " not in text
    return text if plain else _UNSEEN.sub(" ", text)


def _joined(segments: Iterable[Segment]) -> list[Segment]:
    """The same without empty pieces, neighbours of one kind as one, no blank twice, none at the ends."""
    joined: list[Segment] = []
    for piece, marked in segments:
        text = piece.lstrip() if not joined or joined[-1][0].endswith(" ") else piece
        if not text:
            continue
        if joined and joined[-1][1] == marked:
            joined[-1] = (joined[-1][0] + text, marked)
        else:
            joined.append((text, marked))
    if joined:
        joined[-1] = (joined[-1][0].rstrip(), joined[-1][1])
    return joined
