"""Merges the hits of several servers into one ranked list without near-copies."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from usher.query.results import Hit, Hits, Suggestion, rank_key
from usher.removal_rules import RemovalIndex

MAX_SIMHASH_DISTANCE: Final = 3  # bits by which the simhashes of two near-copies may differ
MAX_HOSTS: Final = 10
MAX_SUGGESTIONS: Final = 4
NOTHING_REMOVED: Final = RemovalIndex()

# Two numbers that differ in 3 of 64 bits agree in at least one of four bands.
_BANDS: Final = MAX_SIMHASH_DISTANCE + 1
_BAND_BITS: Final = 64 // _BANDS
_BAND_MASK: Final = (1 << _BAND_BITS) - 1


class MergedHit(Struct, frozen=True, omit_defaults=True):
    """A hit to show, the server that has its text, and the number of hidden near-copies."""

    hit: Hit
    server: str
    copies: int = 0


class MergedHits(Struct, frozen=True, omit_defaults=True):
    """One page of hits; `total` counts good matches, and `more` says whether any hits follow.

    `exact` if all good matches were compared, so that `total` counts no copy.
    """

    total: int = 0
    hits: tuple[MergedHit, ...] = ()
    hidden: int = 0
    more: bool = False
    exact: bool = True
    hosts: dict[str, int] = field(default_factory=dict)


def merge(
    answers: Mapping[str, Hits], *, k: int, offset: int = 0, removed: RemovalIndex = NOTHING_REMOVED
) -> MergedHits:
    """One page of hits without `removed` pages; each server must have sent its first `offset + k` hits or more.

    A server deletes a removed page seconds later; until then the totals count those that it has not sent.
    """
    every = [(hit, server) for server, hits in answers.items() for hit in hits.hits]
    shown = [pair for pair in every if not is_removed(pair[0], removed)] if removed else every
    shown.sort(key=lambda pair: rank_key(pair[0]))
    originals, copies = _without_copies(_newest(shown))
    removed_good = sum(not hit.weak for hit, _ in every) - sum(not hit.weak for hit, _ in shown)
    matching = sum(hits.total for hits in answers.values()) - removed_good
    good = sum(hits.good for hits in answers.values()) - removed_good
    good_originals = sum(not hit.weak for hit, _ in originals)
    page = originals[offset : offset + k]
    is_cut = len(originals) > offset + k or any(map(has_more, answers.values()))
    return MergedHits(
        total=matching - (good - good_originals),
        hits=tuple(MergedHit(hit, server, copies[hit.url]) for hit, server in page),
        hidden=len(shown) - len(originals),
        more=bool(page) and is_cut,
        exact=matching == good,
        hosts=_count_hosts(answers.values(), removed),
    )


def has_more(hits: Hits) -> bool:
    """Whether a server has more hits than it sent; one of an older version says only how many match."""
    return hits.more or hits.total > len(hits.hits)


def choose_suggestions(answers: Iterable[Sequence[Suggestion]]) -> dict[str, str]:
    """For each word the better spelling that most documents of all servers have."""
    votes: dict[str, Counter[str]] = {}
    for suggestions in answers:
        for suggestion in suggestions:
            counts = votes.setdefault(suggestion.word, Counter())
            counts[suggestion.better] += suggestion.documents
    best = {
        word: min(counts, key=lambda better: (-counts[better], better))
        for word, counts in votes.items()
    }
    return dict(list(best.items())[:MAX_SUGGESTIONS])


def documents_with(words: Collection[str], answers: Iterable[Sequence[Suggestion]]) -> int:
    """The number of documents that have these words as they were typed."""
    suggestions = [suggestion for answer in answers for suggestion in answer]
    return sum(suggestion.typed for suggestion in suggestions if suggestion.word in words)


def _newest(ranked: Sequence[tuple[Hit, str]]) -> list[tuple[Hit, str]]:
    """The hits without older versions of a page, which another server may still have."""
    versions = [(hit.crawled.timestamp(), hit.chunk) for hit, _ in ranked]
    latest: dict[str, tuple[float, int]] = {}
    for (hit, _), version in zip(ranked, versions, strict=True):
        latest[hit.key] = max(version, latest.get(hit.key, version))
    newest: dict[str, tuple[Hit, str]] = {}
    for (hit, server), version in zip(ranked, versions, strict=True):
        if version == latest[hit.key]:
            newest.setdefault(hit.url, (hit, server))
    return list(newest.values())


def _without_copies(
    ranked: Iterable[tuple[Hit, str]],
) -> tuple[list[tuple[Hit, str]], Counter[str]]:
    """The best hit of each set of near-copies, and the number of its copies by URL."""
    originals: list[tuple[Hit, str]] = []
    copies: Counter[str] = Counter()
    detector = _CopyDetector()
    for hit, server in ranked:
        if original := detector.find_original(hit):
            copies[original] += 1
        else:
            originals.append((hit, server))
    return originals, copies


class _CopyDetector:
    """Finds near-copies by text, canonical URL or simhash."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self.canonical: dict[str, str] = {}
        self.bands: dict[tuple[int, int], list[tuple[int, str]]] = {}

    def find_original(self, hit: Hit) -> str:
        """The URL of the hit that this one copies; if there is none, adds it as an original."""
        if hit.text64 and (url := self.texts.get(hit.text64)):
            return url
        canonical = _canonical(hit)
        if url := self.canonical.get(canonical):
            return url
        bands = _bands(hit.simhash) if hit.simhash else ()
        for band in bands:
            for simhash, url in self.bands.get(band, ()):
                distance = ((simhash ^ hit.simhash) & (1 << 64) - 1).bit_count()
                if distance <= MAX_SIMHASH_DISTANCE:
                    return url
        self.canonical[canonical] = hit.url
        if hit.text64:
            self.texts[hit.text64] = hit.url
        for band in bands:
            self.bands.setdefault(band, []).append((hit.simhash, hit.url))
        return ""


def _canonical(hit: Hit) -> str:
    """The canonical URL of a page; each page of a PDF has its own URL, whatever its file says."""
    return hit.canonical if hit.canonical and hit.canonical != hit.key else hit.url


def _bands(simhash: int) -> list[tuple[int, int]]:
    return [(band, simhash >> band * _BAND_BITS & _BAND_MASK) for band in range(_BANDS)]


def is_removed(hit: Hit, removed: RemovalIndex) -> bool:
    """Whether the operator removed the page of a hit; its key is its host and its path."""
    return removed.covers(hit.host, hit.key[len(hit.host) :])


def _count_hosts(answers: Iterable[Hits], removed: RemovalIndex) -> dict[str, int]:
    """The hosts with most matches; each server counts its most frequent ones, so others may be too low."""
    counts: Counter[str] = Counter()
    for hits in answers:
        counts.update(hits.hosts)
    pairs = [pair for pair in counts.items() if not (removed and removed.covers(pair[0], "/"))]
    ordered = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
    return dict(ordered[:MAX_HOSTS])
