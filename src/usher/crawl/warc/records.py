"""WARC records of a file, unpacked in pieces: uncompressed, or gzip members with one record or several each.

`reading` knows what the records mean.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

PIECE: Final = 1 << 16
MAX_HEAD_BYTES: Final = 1 << 17  # of a record
MAX_RECORD_BYTES: Final = (
    1 << 30
)  # unpacked; ten times the longest page that a crawler may be set to fetch
MAX_RECORDS: Final = 100_000  # a crawler writes three for each of at most 1,000 pages
MAX_TOTAL_BYTES: Final = 1 << 34  # unpacked, of one file
MAX_LENGTH_DIGITS: Final = 10  # of a length
END: Final = b"\r\n\r\n"
WARC: Final = b"WARC/"
GZIP: Final = b"\x1f\x8b"
Fields = dict[str, str]


class DamagedWarc(ValueError):
    """What is there is no record."""


class NotWarc(ValueError):
    """The file is neither WARC nor gzip."""


@dataclass(frozen=True, slots=True)
class WarcRecord:
    """A record; `cut` if its block is longer than what was wanted of it."""

    fields: Fields
    block: bytes
    cut: bool


def read_records(file: BinaryIO, most: int) -> Iterator[WarcRecord]:
    """Every record; at most so many bytes of each block are kept, and the rest only passed over.

    Damaged, if a record, the number of records or their total size exceeds its limit: a small file may be a bomb.
    """
    stream = UnpackedBytes(unpacked(file))
    number = 0
    while stream.is_open():
        yield record(stream, most)
        number += 1
        if number > MAX_RECORDS:
            raise DamagedWarc(f"it has more than {MAX_RECORDS:,} records")


def unpacked(file: BinaryIO) -> Iterator[bytes]:
    """The bytes of a WARC file in pieces, with an empty piece at the end of each gzip member.

    NotWarc if it begins neither like a record nor like a gzip file.
    """
    data = file.read(PIECE)
    if not data:
        raise DamagedWarc("it is empty")
    if data.startswith(WARC):
        while data:
            yield data
            data = file.read(PIECE)
        return
    if not data.startswith(GZIP):
        raise NotWarc
    while data:
        member = zlib.decompressobj(31)
        yield from inflated(member, data, file)
        yield b""
        data = member.unused_data or file.read(PIECE)


def inflated(member: "zlib._Decompress", data: bytes, file: BinaryIO) -> Iterator[bytes]:
    """The bytes of one gzip member in pieces; at its end its checksum was right."""
    while not member.eof:
        # Also with no input: zlib may still hold some of what it was given.
        piece = member.decompress(data, PIECE)
        data = member.unconsumed_tail
        if piece:
            yield piece
        elif not data and not member.eof:
            data = file.read(PIECE)
            if not data:
                raise EOFError("it ends in the middle of a record")


class UnpackedBytes:
    """Pieces of a file as one sequence of bytes that is read from its start to its end."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""
        self._total = 0

    def is_open(self) -> bool:
        """Return whether there are more bytes."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return False
            self._add(piece)
        return True

    def until(self, end: bytes, most: int) -> bytes | None:
        """Read up to this mark and past it; None if it is not within so many bytes."""
        while (position := self._rest.find(end)) < 0 or position > most:
            if len(self._rest) > most or (piece := next(self._pieces, None)) is None:
                return None
            self._add(piece)
        data, self._rest = self._rest[:position], self._rest[position + len(end) :]
        return data

    def parts(self, length: int) -> Iterator[bytes]:
        """Read so many bytes in pieces; fewer at the end of the file."""
        while length > 0 and self.is_open():
            part, self._rest = self._rest[:length], self._rest[length:]
            length -= len(part)
            yield part

    def check(self) -> None:
        """At the end of a gzip member, read its checksum, but nothing of the next member."""
        if not self._rest:
            self._add(next(self._pieces, b""))

    def _add(self, piece: bytes) -> None:
        self._rest += piece
        self._total += len(piece)
        if self._total > MAX_TOTAL_BYTES:
            raise DamagedWarc(f"its records have more than {MAX_TOTAL_BYTES:,} bytes")


def record(stream: UnpackedBytes, most: int) -> WarcRecord:
    head = stream.until(END, MAX_HEAD_BYTES)
    if head is None:
        raise DamagedWarc("there is something that is no record")
    fields = warc_fields(head)
    length = int(fields["content-length"])
    if length > MAX_RECORD_BYTES:
        raise DamagedWarc(f"a record has {length:,} bytes, more than {MAX_RECORD_BYTES:,}")
    block = bytearray()
    for part in stream.parts(length):
        block += part[: max(0, most - len(block))]
    if b"".join(stream.parts(len(END))) != END:
        raise DamagedWarc(f"a record of {length} bytes does not end where it should")
    stream.check()
    return WarcRecord(fields, bytes(block), cut=length > most)


def warc_fields(head: bytes) -> Fields:
    first, *lines = head.decode("utf-8", "replace").split("\r\n")
    if not first.startswith(WARC.decode()):
        raise DamagedWarc("there is something that is no record")
    fields = dict(parse_fields(lines))
    length = fields.get("content-length", "")
    if not (length.isascii() and length.isdecimal() and len(length) <= MAX_LENGTH_DIGITS):
        raise DamagedWarc("a record does not say how long it is")
    return fields


def parse_fields(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Names in lower case, and values; a line that begins with a space goes on with the one before it."""
    whole: list[str] = []
    for line in lines:
        if whole and line.startswith((" ", "\t")):
            whole[-1] += f" {line.strip()}"
        else:
            whole.append(line)
    for line in whole:
        name, colon, value = line.partition(":")
        if colon:
            yield name.strip().lower(), value.strip()
