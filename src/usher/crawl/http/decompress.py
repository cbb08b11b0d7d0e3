"""Content codings: gzip, deflate, brotli and zstd taken off a body, never further than the limit.

Comes from `fetch` with the bytes as transferred and what the header says of them; goes to the answer's body.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from usher.crawl.http.decoders import DECODER_ERRORS, DECODERS, MULTI_MEMBER_CODINGS, Decoder
from usher.crawl.http.response import FailureKind, format_bytes

MAX_CODINGS: Final = 3
MAX_MEMBERS: Final = 1000
SLICE: Final = 1 << 12
PIECE: Final = 1 << 20
# Who unpacks to more than a hundred times its size and beyond the limit means us harm.
BOMB_RATIO: Final = 100
NOT_CODED: Final = frozenset({"", "identity", "none"})


@dataclass(frozen=True, slots=True)
class DecompressedBody:
    """A body, whole or as far as it went and why no further."""

    body: bytes
    kind: FailureKind = ""
    words: str = ""


class _Stop(Exception):
    def __init__(self, words: str, *, too_long: bool = False) -> None:
        super().__init__(words)
        self.words, self.too_long = words, too_long


def decompress(raw: bytes, coding: str, limit: int) -> DecompressedBody:
    """Undo what a Content-Encoding header lists, last first."""
    names = [name for word in coding.split(",") if (name := word.strip().lower()) not in NOT_CODED]
    if unknown := next((name for name in names if name not in DECODERS), None):
        return DecompressedBody(b"", "encoding", f"the encoding {unknown[:40]!a} is not known")
    if len(names) > MAX_CODINGS:
        return DecompressedBody(
            b"", "encoding", f"more than {MAX_CODINGS} encodings lie on each other"
        )
    if len(names) == 1 and (body := _at_once(raw, names[0], limit)) is not None:
        return DecompressedBody(body)
    source = _Source(raw)
    parts: Iterator[bytes] = source
    for name in reversed(names):
        parts = _bounded(_decoded(parts, name), limit)
    return _gathered(parts, source, names, limit)


def _at_once(raw: bytes, name: str, limit: int) -> bytes | None:
    """What nearly every page is: one file, whole and small. The long way takes ten microseconds more."""
    if not raw or len(raw) > PIECE or (decoder := DECODERS[name](raw)) is None:
        return None
    try:
        body = decoder.decompress(raw, min(limit, PIECE))
    except DECODER_ERRORS:
        return None
    return body if decoder.eof and not decoder.unused_data and len(body) <= limit else None


class _Source:
    """Bytes in slices; knows how many were taken."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self.taken = raw, 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        part = self._raw[self.taken : self.taken + SLICE]
        if not part:
            raise StopIteration
        self.taken += len(part)
        return part


def _gathered(
    parts: Iterator[bytes], source: _Source, names: list[str], limit: int
) -> DecompressedBody:
    body: list[bytes] = []
    try:
        body.extend(parts)
    except _Stop as stop:
        if not stop.too_long:
            return DecompressedBody(b"".join(body), "encoding", stop.words)
        much = f"more than {format_bytes(limit)}"
        if source.taken * BOMB_RATIO < limit:
            bomb = f"the {names[-1]} data is a bomb: {format_bytes(source.taken)} of it are {much}"
            return DecompressedBody(b"", "encoding", bomb)
        return DecompressedBody(b"".join(body), "body", f"the body unpacks to {much}")
    return DecompressedBody(b"".join(body))


def _bounded(parts: Iterator[bytes], limit: int) -> Iterator[bytes]:
    """Every coding has the limit, for the next may turn much into nothing."""
    left = limit
    for part in parts:
        yield part[:left]
        left -= len(part)
        if left < 0:
            raise _Stop("too long", too_long=True)


def _decoded(parts: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Undo one coding; what is not coded at all, whatever the header says, comes through as it is."""
    first = _start(parts)
    if not first or (decoder := DECODERS[name](first)) is None:
        yield from chain((first,), parts)
        return
    told = False
    try:
        for piece in _members(chain((first,), parts), decoder, name):
            told = told or bool(piece)
            yield piece
    except DECODER_ERRORS as error:
        if told or name in MULTI_MEMBER_CODINGS:
            raise _Stop(f"the {name} data is broken") from error
        yield from chain((first,), parts)


def _start(parts: Iterator[bytes]) -> bytes:
    """Enough to tell a coding by."""
    first = b""
    for part in parts:
        first += part
        if len(first) >= 4:  # noqa: PLR2004 - the longest mark
            break
    return first


def _members(parts: Iterator[bytes], decoder: Decoder, name: str) -> Iterator[bytes]:
    """Decode one file after the other; what follows the last and is none is left."""
    members = 1
    for part in parts:
        rest = part
        while rest:
            yield from _pieces(decoder, rest)
            if not decoder.eof:
                break
            rest = decoder.unused_data
            if len(rest) < 4:  # noqa: PLR2004 - the mark of the next may be cut in two
                rest += next(parts, b"")
            following = DECODERS[name](rest) if rest and name in MULTI_MEMBER_CODINGS else None
            if following is None:
                return
            decoder, members = following, members + 1
            if members > MAX_MEMBERS:
                raise _Stop(f"the {name} data has more than {MAX_MEMBERS} members")
    if not decoder.eof:
        raise _Stop(f"the {name} data breaks off")


def _pieces(decoder: Decoder, data: bytes) -> Iterator[bytes]:
    while True:
        piece = decoder.decompress(data, PIECE)
        yield piece
        data = decoder.unconsumed_tail
        if decoder.eof or (not data and len(piece) < PIECE):
            return
