"""Removes content codings from a body, up to a size limit."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from usher.crawl.http.decoders import DECODER_ERRORS, DECODERS, MULTI_MEMBER_CODINGS, Decoder
from usher.crawl.http.response import FailureKind, format_bytes

MAX_CODINGS: Final = 3
MAX_MEMBERS: Final = 1000
INPUT_BYTES: Final = 1 << 12  # decoded at once
OUTPUT_BYTES: Final = 1 << 20
# A body that exceeds the limit and grows to more than a hundred times its size is an attack.
BOMB_RATIO: Final = 100
IDENTITY_CODINGS: Final = frozenset({"", "identity", "none"})


@dataclass(frozen=True, slots=True)
class DecompressedBody:
    """A body; if it is incomplete, `kind` and `words` say why."""

    body: bytes
    kind: FailureKind = ""
    words: str = ""


class _Stop(Exception):
    def __init__(self, words: str, *, too_long: bool = False) -> None:
        super().__init__(words)
        self.words, self.too_long = words, too_long


def decompress(raw: bytes, coding: str, limit: int) -> DecompressedBody:
    """Undo the codings of a Content-Encoding header, the last one first."""
    codings = [word.strip().lower() for word in coding.split(",")]
    names = [name for name in codings if name not in IDENTITY_CODINGS]
    if unknown := next((name for name in names if name not in DECODERS), None):
        return DecompressedBody(b"", "encoding", f"unknown encoding {unknown[:40]!a}")
    if len(names) > MAX_CODINGS:
        return DecompressedBody(b"", "encoding", f"more than {MAX_CODINGS} nested encodings")
    if len(names) == 1 and (body := _decompress_small(raw, names[0], limit)) is not None:
        return DecompressedBody(body)
    source = _Source(raw)
    parts: Iterator[bytes] = source
    for name in reversed(names):
        parts = _bounded(_decoded(parts, name), limit)
    return _joined(parts, source, names, limit)


def _decompress_small(raw: bytes, name: str, limit: int) -> bytes | None:
    """Decompress what nearly every page is: one small complete file. This saves ten microseconds."""
    if not raw or len(raw) > OUTPUT_BYTES or (decoder := DECODERS[name](raw)) is None:
        return None
    try:
        body = decoder.decompress(raw, min(limit, OUTPUT_BYTES))
    except DECODER_ERRORS:
        return None
    return body if decoder.eof and not decoder.unused_data and len(body) <= limit else None


class _Source:
    """Bytes in slices; counts how many were taken."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self.taken = raw, 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        part = self._raw[self.taken : self.taken + INPUT_BYTES]
        if not part:
            raise StopIteration
        self.taken += len(part)
        return part


def _joined(
    parts: Iterator[bytes], source: _Source, names: list[str], limit: int
) -> DecompressedBody:
    body: list[bytes] = []
    try:
        body.extend(parts)
    except _Stop as stop:
        if not stop.too_long:
            return DecompressedBody(b"".join(body), "encoding", stop.words)
        size = f"more than {format_bytes(limit)}"
        if source.taken * BOMB_RATIO < limit:
            taken = format_bytes(source.taken)
            words = f"the {names[-1]} data is a bomb: {taken} decompress to {size}"
            return DecompressedBody(b"", "encoding", words)
        return DecompressedBody(b"".join(body), "body", f"the body decompresses to {size}")
    return DecompressedBody(b"".join(body))


def _bounded(parts: Iterator[bytes], limit: int) -> Iterator[bytes]:
    """Apply the limit to one coding, because the next one may shrink a bomb to nothing."""
    left = limit
    for part in parts:
        yield part[:left]
        left -= len(part)
        if left < 0:
            raise _Stop("too long", too_long=True)


def _decoded(parts: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Undo one coding; data without the coding passes unchanged, whatever the header says."""
    first = _start(parts)
    if not first or (decoder := DECODERS[name](first)) is None:
        yield from chain((first,), parts)
        return
    has_output = False
    try:
        for piece in _members(chain((first,), parts), decoder, name):
            has_output = has_output or bool(piece)
            yield piece
    except DECODER_ERRORS as error:
        if has_output or name in MULTI_MEMBER_CODINGS:
            raise _Stop(f"the {name} data is damaged") from error
        yield from chain((first,), parts)


def _start(parts: Iterator[bytes]) -> bytes:
    """Return enough bytes to recognize a coding."""
    first = b""
    for part in parts:
        first += part
        if len(first) >= 4:  # noqa: PLR2004 - the longest magic bytes
            break
    return first


def _members(parts: Iterator[bytes], decoder: Decoder, name: str) -> Iterator[bytes]:
    """Decode concatenated files; bytes after the last file are ignored."""
    members = 1
    for part in parts:
        rest = part
        while rest:
            yield from _pieces(decoder, rest)
            if not decoder.eof:
                break
            rest = decoder.unused_data
            if len(rest) < 4:  # noqa: PLR2004 - the next magic bytes may be cut in two
                rest += next(parts, b"")
            following = DECODERS[name](rest) if rest and name in MULTI_MEMBER_CODINGS else None
            if following is None:
                return
            decoder, members = following, members + 1
            if members > MAX_MEMBERS:
                raise _Stop(f"the {name} data has more than {MAX_MEMBERS} members")
    if not decoder.eof:
        raise _Stop(f"the {name} data is truncated")


def _pieces(decoder: Decoder, data: bytes) -> Iterator[bytes]:
    while True:
        piece = decoder.decompress(data, OUTPUT_BYTES)
        yield piece
        data = decoder.unconsumed_tail
        if decoder.eof or (not data and len(piece) < OUTPUT_BYTES):
            return
