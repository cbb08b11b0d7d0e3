"""The hits of many servers as one list: best first, near-copies folded into the best of them.

Comes from every index server of one row, or from those that answered; goes to the search page and the API.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from usher.query.results import Hit, Hits, Suggestion, rank_key

MAX_SIMHASH_DISTANCE: Final = 3  # bits by which the simhashes of two near-copies may differ
MAX_HOSTS: Final = 10
MAX_SUGGESTED: Final = 4

_BANDS: Final = (
    MAX_SIMHASH_DISTANCE + 1
)  # two numbers that differ in 3 bits agree in one quarter at least
_BAND_BITS: Final = 64 // _BANDS
_BAND: Final = (1 << _BAND_BITS) - 1


class MergedHit(Struct, frozen=True, omit_defaults=True):
    """A hit to show, the server that has its text, and how many copies of it are not shown."""

    hit: Hit
    server: str
    copies: int = 0


class MergedHits(Struct, frozen=True, omit_defaults=True):
    """One page of results; `exact` when every hit was looked at, so that no copy is counted."""

    total: int = 0
    found: tuple[MergedHit, ...] = ()
    hidden: int = 0
    more: bool = False
    exact: bool = True
    hosts: dict[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def partial(self) -> bool:
        """Whether a server did not answer, so that there may be more and better hits."""
        return bool(self.missing)


def merge(answers: Mapping[str, Hits | None], *, k: int, offset: int = 0) -> MergedHits:
    """One page of results from the first `offset + k` hits and some more of each server; None did not answer."""
    heard = {server: hits for server, hits in answers.items() if hits is not None}
    every = [(hit, server) for server, hits in heard.items() for hit in hits.hits]
    every.sort(key=lambda pair: rank_key(pair[0]))
    kept, copies = _fold(_newest(every))
    matching = sum(hits.total for hits in heard.values())
    hidden = len(every) - len(kept)
    shown = kept[offset : offset + k]
    return MergedHits(
        total=matching - hidden,
        found=tuple(MergedHit(hit, server, copies[hit.url]) for hit, server in shown),
        hidden=hidden,
        more=matching - hidden > offset + len(shown) if shown else False,
        exact=matching == len(every),
        hosts=_hosts(heard.values()),
        missing=tuple(sorted(set(answers) - set(heard))),
    )


def suggest(answers: Iterable[Sequence[Suggestion]]) -> dict[str, str]:
    """For each word the better one that stands in most documents of all servers together."""
    votes: dict[str, Counter[str]] = {}
    for suggestions in answers:
        for one in suggestions:
            votes.setdefault(one.word, Counter())[one.better] += one.documents
    best = {
        word: min(found.items(), key=lambda pair: (-pair[1], pair[0]))[0]
        for word, found in votes.items()
    }
    return dict(list(best.items())[:MAX_SUGGESTED])


def _newest(ranked: Sequence[tuple[Hit, str]]) -> list[tuple[Hit, str]]:
    """Without older versions of a page: two servers may have both until the older one is retired."""
    newest: dict[str, Hit] = {}
    for hit, _ in ranked:
        known = newest.setdefault(hit.key, hit)
        if known is not hit and _version(hit) > _version(known):
            newest[hit.key] = hit
    seen: set[str] = set()
    kept = []
    for hit, server in ranked:
        latest = newest[hit.key]
        if hit.url not in seen and (hit is latest or _version(hit) == _version(latest)):
            seen.add(hit.url)
            kept.append((hit, server))
    return kept


def _version(hit: Hit) -> tuple[float, int]:
    return hit.crawled.timestamp(), hit.chunk


def _fold(ranked: Iterable[tuple[Hit, str]]) -> tuple[list[tuple[Hit, str]], Counter[str]]:
    """The first of each set of copies, and by its URL how many more there are."""
    kept: list[tuple[Hit, str]] = []
    copies: Counter[str] = Counter()
    seen = _Seen()
    for hit, server in ranked:
        if original := seen.original(hit):
            copies[original] += 1
        else:
            kept.append((hit, server))
    return kept, copies


class _Seen:
    """The hits that are shown, found again by whatever makes another one a copy."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self.canonical: dict[str, str] = {}
        self.bands: dict[tuple[int, int], list[tuple[int, str]]] = {}

    def original(self, hit: Hit) -> str:
        """The URL of the hit that this one copies; or nothing, and it is remembered as the first of its kind."""
        if hit.text64 and (url := self.texts.get(hit.text64)):
            return url
        canonical = _canonical(hit)
        if url := self.canonical.get(canonical):
            return url
        bands = _bands(hit.simhash) if hit.simhash else ()
        for band in bands:
            for simhash, url in self.bands.get(band, ()):
                if ((simhash ^ hit.simhash) & (1 << 64) - 1).bit_count() <= MAX_SIMHASH_DISTANCE:
                    return url
        self.canonical[canonical] = hit.url
        if hit.text64:
            self.texts[hit.text64] = hit.url
        for band in bands:
            self.bands.setdefault(band, []).append((hit.simhash, hit.url))
        return ""


def _canonical(hit: Hit) -> str:
    """Where the page says that it lives; each page of a PDF lives at a URL of its own, whatever its file says."""
    return hit.canonical if hit.canonical and hit.canonical != hit.key else hit.url


def _bands(simhash: int) -> list[tuple[int, int]]:
    return [(band, simhash >> band * _BAND_BITS & _BAND) for band in range(_BANDS)]


def _hosts(answers: Iterable[Hits]) -> dict[str, int]:
    """The hosts with most matches; counted by each server for its commonest, so rare ones may lack some."""
    counts: Counter[str] = Counter()
    for hits in answers:
        counts.update(hits.hosts)
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return dict(ordered[:MAX_HOSTS])
