"""Snippets: the passage of a text that best matches a query, in segments that are highlighted or not.

Segments are plain text. The caller escapes them.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter
from typing import Final, NamedTuple

from usher.query.tokens import UNSPACED_SCRIPTS, strip_accents

Segment = tuple[str, bool]  # text, and whether it is highlighted
Stem = Callable[[str], str]
Match = tuple[int, int, int]  # start, end, and the number of the word

SNIPPET_CHARACTERS: Final = 240
MAX_TEXT_CHARACTERS: Final = 100_000  # scanning more would take longer than the search
MAX_MATCHES_PER_WORD: Final = 200
MAX_WORDS: Final = 32
MAX_LINES: Final = 4  # of a snippet; if its matches are farther apart, it has no line breaks
_LEAD_CHARACTERS: Final = 60  # how far before the first match a sentence may begin
_MAX_COUNTED: Final = 4  # matches, or words in a row, beyond which a passage is not better
_MIN_PREFIX: Final = 3  # letters that all forms of a word share

_WORD: Final = re.compile(r"[^\W_]+")
_SENTENCE_END: Final = re.compile(r"[.!?\u2026]\s+|[\u3002\uff01\uff1f\n]\s*")
# Includes the characters that change the direction of text: a snippet must not rearrange the page.
_INVISIBLE: Final = re.compile(
    r"[\s\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff\ud800-\udfff]+"
)
_LINE_END: Final = re.compile(r"\n\s*")
_ACCENTED: Final = ("\u00c0", "\u024f")
_ASCII: Final = bytes(range(128))
# UTF-8 bytes of ASCII, of continuations, and lead bytes of characters without case. (Fullwidth, circled and
# Glagolitic letters, and signs such as that for ohm, stay as they are if nothing else changes.)
_CASELESS_BYTES: Final = bytes([*range(0xC0), 0xC2, *range(0xE2, 0xEA), *range(0xEB, 0xF0)])
_LETTER_CACHE_SIZE: Final = 20_000
_PATTERN_CACHE_SIZE: Final = 100


class _Pattern(NamedTuple):
    """The words to search for, their stems, and the prefixes that all their forms have."""

    words: dict[str, int]
    stems: dict[str, int]
    prefixes: tuple[tuple[str, bool], ...]  # and whether the prefix is of an unspaced script


class Excerpt(NamedTuple):
    """A passage in segments, the place of its first match, and how many of the words it has."""

    segments: list[Segment]
    start: int
    words: int


def make_snippet(
    text: str, words: Sequence[str], *, size: int = SNIPPET_CHARACTERS, stem: Stem = strip_accents
) -> list[Segment]:
    """The passage with most of the words, or the beginning; words with the same `stem` are forms of one word."""
    return make_excerpt(text, words, size=size, stem=stem).segments


def make_excerpt(
    text: str,
    words: Sequence[str],
    *,
    size: int = SNIPPET_CHARACTERS,
    stem: Stem = strip_accents,
    is_beginning: bool = False,
) -> Excerpt:
    """The passage of `make_snippet`, or always the beginning, and where it is."""
    text = text[:MAX_TEXT_CHARACTERS]
    if is_beginning:
        start, end = _fit(text, 0, size)
        matches = _find_matches(text[:end], words, stem)
    else:
        matches = _find_matches(text, words, stem, size)
        best = _best_range(matches, size) if matches else (0, 0)
        start, end = _extend(text, best, size)
    end = start + len(text[start:end].rstrip())
    inside = [match for match in matches if match[0] >= start and match[1] <= end]
    is_tall = len(_LINE_END.findall(text, start, end)) >= MAX_LINES
    segments = _split(text.replace("\n", " ") if is_tall else text, start, end, inside)
    if start > 0:
        segments = [("\u2026 ", False), *segments]
    if end < len(text.rstrip()):
        segments.append((" \u2026", False))
    first = inside[0][0] if inside else start
    return Excerpt(_join(segments), first, len({word for _, _, word in inside}))


def find_words(text: str, words: Sequence[str], stem: Stem) -> list[Match]:
    """All places of the words in a text."""
    return _find_matches(text[:MAX_TEXT_CHARACTERS], words, stem)


def highlight(text: str, words: Sequence[str], *, stem: Stem = strip_accents) -> list[Segment]:
    """The whole of a short text, such as a title, with the words highlighted."""
    text = text[:MAX_TEXT_CHARACTERS]
    return _join(_split(text, 0, len(text), _find_matches(text, words, stem)))


def _find_matches(text: str, words: Sequence[str], stem: Stem, size: int = 0) -> list[Match]:
    """All matches in order; for a passage of `size` and a single word, only as many as the passage needs."""
    pattern = _compile(tuple(words[:MAX_WORDS]), stem)
    flat = _flatten(text)
    word_numbers: dict[str, int | None] = {}
    matches: list[Match] = []
    find, word_at = flat.find, _WORD.match  # `str.find` is ten times as fast as any regex
    range_start, range_end = _phrase_range(flat, pattern, size) if size else (0, len(text))
    for prefix, is_unspaced in pattern.prefixes:
        last = range_end
        can_stop_early = size and len(pattern.words) == 1 and not is_unspaced
        start = range_start - 1
        for _ in range(MAX_MATCHES_PER_WORD):
            if (start := find(prefix, start + 1)) < 0 or start > last:
                break
            if is_unspaced:
                end = start + len(prefix)
            elif start and flat[start - 1].isalnum():
                continue  # in the middle of another word
            else:
                end = match.end() if (match := word_at(text, start)) else start + 1
            form = text[start:end]
            if form not in word_numbers:
                word = strip_accents(form)
                word_numbers[form] = pattern.words.get(word, pattern.stems.get(stem(word)))
            if (number := word_numbers[form]) is not None:
                matches.append((start, end, number))
                # No other passage can have more matches than this one, so later ones are not needed.
                if can_stop_early and len(matches) > _MAX_COUNTED:
                    first = matches[-_MAX_COUNTED - 1][0]
                    if end - first <= size:
                        last = min(last, first + size)
    return _without_overlaps(matches)


def _phrase_range(flat: str, pattern: _Pattern, size: int) -> tuple[int, int]:
    """The part of the text to search: around the words as a phrase if they occur so, else all of it."""
    if len(pattern.words) > 1:
        phrase, start = " ".join(pattern.words), -1
        for _ in range(MAX_MATCHES_PER_WORD):
            if (start := flat.find(phrase, start + 1)) < 0:
                break
            end = start + len(phrase)
            if not (start and flat[start - 1].isalnum()) and not flat[end : end + 1].isalnum():
                return max(0, start - size), end + size
    return 0, len(flat)


@lru_cache(_PATTERN_CACHE_SIZE)
def _compile(words: Sequence[str], stem: Stem) -> _Pattern:
    numbers: dict[str, int] = {}
    for number, word in enumerate(words):
        numbers.setdefault(strip_accents(word), number)
    stems = {stem(word): number for word, number in numbers.items() if len(word) > _MIN_PREFIX}
    prefixes = dict.fromkeys(filter(None, (_prefix(word, stem) for word in numbers)))
    unspaced = ((prefix, bool(UNSPACED_SCRIPTS.search(prefix))) for prefix in prefixes)
    return _Pattern(numbers, stems, tuple(unspaced))


def _without_overlaps(matches: Iterable[Match]) -> list[Match]:
    """The matches in order, without those that begin inside the previous one."""
    separate: list[Match] = []
    last_end = 0
    for match in sorted(matches, key=itemgetter(0)):
        if match[0] >= last_end:
            separate.append(match)
            last_end = match[1]
    return separate


def _prefix(word: str, stem: Stem) -> str:
    """The prefix of all forms of a word; the last letter of a stem may not be in the word (happi, happy)."""
    if UNSPACED_SCRIPTS.search(word):
        return word
    start = word[: max(_MIN_PREFIX, len(stem(word)) - 1)]
    double_s = start.find("ss", _MIN_PREFIX - 1)  # the text may write it as one letter
    return start if double_s < 0 else start[:double_s]


def _flatten(text: str) -> str:
    """The text in lower case without accents; every character keeps its position."""
    if text.isascii():
        return text.lower()
    # Lowering bytes is ten times as fast, and few letters of a text are not ASCII.
    data = text.encode("utf-8", "surrogatepass")
    flat = data.lower().decode("utf-8", "surrogatepass")
    if not data.translate(None, _CASELESS_BYTES):
        return flat  # quotes, dashes, Chinese
    for letter in set(data.translate(None, _ASCII).decode("utf-8", "surrogatepass")):
        if (plain := _flatten_letter(letter)) != letter:
            flat = flat.replace(letter, plain)
    return flat


@lru_cache(_LETTER_CACHE_SIZE)
def _flatten_letter(letter: str) -> str:
    """The letter in lower case, without its accent if that leaves an ASCII letter."""
    lower = letter.lower() if len(letter.lower()) == 1 else letter
    plain = unicodedata.normalize("NFKD", lower)[0].lower()
    return plain if _ACCENTED[0] <= lower <= _ACCENTED[1] and plain.isascii() else lower


def _best_range(matches: Sequence[Match], size: int) -> tuple[int, int]:
    """Start and end of the matches within `size` characters with most different words, then most in a row."""
    counts = [0] * MAX_WORDS
    rows = [0, *accumulate(map(_are_in_a_row, matches, matches[1:]))]
    best_rank, best, first, different = -1.0, (0, 0), 0, 0
    for last, (_, end, word) in enumerate(matches):
        different += not counts[word]
        counts[word] += 1
        while end - matches[first][0] > size and first < last:
            counts[matches[first][2]] -= 1
            different -= not counts[matches[first][2]]
            first += 1
        in_a_row, more = rows[last] - rows[first], last - first
        rank = 4.0 * different + min(in_a_row, _MAX_COUNTED) + 0.25 * min(more, _MAX_COUNTED)
        if rank > best_rank:
            best_rank, best = rank, (matches[first][0], end)
    return best


def _are_in_a_row(first: Match, second: Match) -> bool:
    return second[2] == first[2] + 1 and second[0] - first[1] <= _MIN_PREFIX


def _extend(text: str, matched: tuple[int, int], size: int) -> tuple[int, int]:
    """Extend the range of the matches to a passage that begins with a sentence, or at least with a word."""
    first, last = matched
    room = max(0, min(_LEAD_CHARACTERS, size - (last - first)))
    earliest = max(0, first - room)
    sentences = [match.end() for match in _SENTENCE_END.finditer(text, earliest, first)]
    if earliest == 0:
        start = 0
    elif sentences:
        start = sentences[0]
    else:
        start = first if (space := text.find(" ", earliest, first)) < 0 else space + 1
    return _fit(text, start, max(size, last - start), last)


def _fit(text: str, start: int, size: int, earliest_end: int = 0) -> tuple[int, int]:
    """As many lines and sentences from `start` as fit, else as many words, unless a word is very long."""
    end = start + size
    breaks = [match.start() for match in _LINE_END.finditer(text, start, end)]
    if len(breaks) >= MAX_LINES and (
        late := [at for at in breaks[MAX_LINES - 1 :] if at >= earliest_end]
    ):
        return start, late[0]
    if end >= len(text):
        return start, len(text)
    if sentences := [m.end() for m in _SENTENCE_END.finditer(text, start + size * 3 // 4, end)]:
        return start, sentences[-1]
    space = text.rfind(" ", start + size * 3 // 4, end + 1)
    return start, space if space > 0 else end


def _split(text: str, start: int, end: int, matches: Iterable[Match]) -> list[Segment]:
    """The text from start to end in segments, with a space in place of invisible characters."""
    segments: list[Segment] = []
    for first, last, _ in matches:
        if first >= start:
            segments += [(text[start:first], False), (text[first:last], True)]
            start = last
    segments.append((text[start:end], False))
    return [(_visible(piece), marked) for piece, marked in segments]


def _visible(text: str) -> str:
    """The text with a line break or a space in place of invisible characters."""
    # Most texts need no change, and checking is faster than replacing.
    is_clean = text.isprintable() and "  " not in text
    return text if is_clean else _INVISIBLE.sub(_blank, text)


def _blank(match: re.Match[str]) -> str:
    return "\n" if "\n" in match[0] else " "


def _join(segments: Iterable[Segment]) -> list[Segment]:
    """Merge neighbours of the same kind; remove empty segments, double spaces and spaces at both ends."""
    joined: list[Segment] = []
    for piece, marked in segments:
        text = piece.lstrip() if not joined or joined[-1][0][-1].isspace() else piece
        if not text:
            continue
        if joined and joined[-1][1] == marked:
            joined[-1] = (joined[-1][0] + text, marked)
        else:
            joined.append((text, marked))
    if joined:
        joined[-1] = (joined[-1][0].rstrip(), joined[-1][1])
    return joined
