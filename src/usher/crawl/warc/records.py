"""Reads the WARC records of a file, uncompressed or in gzip members with one or several records each."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

READ_BYTES: Final = 1 << 16
MAX_HEAD_BYTES: Final = 1 << 17  # of a record
MAX_RECORD_BYTES: Final = 1 << 30  # decompressed; ten times the largest fetch_bytes
MAX_RECORDS: Final = 100_000  # a crawler writes three for each of at most 1,000 pages
MAX_TOTAL_BYTES: Final = 1 << 34  # decompressed, of one file
MAX_LENGTH_DIGITS: Final = 10
END: Final = b"\r\n\r\n"
WARC: Final = b"WARC/"
GZIP: Final = b"\x1f\x8b"
Fields = dict[str, str]


class DamagedWarc(ValueError):
    """The file has invalid records."""


class NotWarc(ValueError):
    """The file is neither WARC nor gzip."""


@dataclass(frozen=True, slots=True)
class WarcRecord:
    """A record; `cut` if its block is longer than the maximum."""

    fields: Fields
    block: bytes
    cut: bool


def read_records(file: BinaryIO, max_block: int) -> Iterator[WarcRecord]:
    """Yield every record with at most `max_block` bytes of its block.

    Raise DamagedWarc if a record, the number of records or their total size exceeds its limit, because a small file
    may be a bomb.
    """
    stream = DecompressedStream(decompressed(file))
    count = 0
    while stream.is_open():
        yield read_record(stream, max_block)
        count += 1
        if count > MAX_RECORDS:
            raise DamagedWarc(f"it has more than {MAX_RECORDS:,} records")


def decompressed(file: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of a WARC file in pieces, with an empty piece at the end of each gzip member.

    Raise NotWarc if it starts neither like a record nor like a gzip file.
    """
    data = file.read(READ_BYTES)
    if not data:
        raise DamagedWarc("it is empty")
    if data.startswith(WARC):
        while data:
            yield data
            data = file.read(READ_BYTES)
        return
    if not data.startswith(GZIP):
        raise NotWarc
    while data:
        member = zlib.decompressobj(31)
        yield from inflate(member, data, file)
        yield b""
        data = member.unused_data or file.read(READ_BYTES)


def inflate(member: "zlib._Decompress", data: bytes, file: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of one gzip member in pieces; zlib verifies its checksum at the end."""
    while not member.eof:
        # Also without input, because zlib may still hold output.
        piece = member.decompress(data, READ_BYTES)
        data = member.unconsumed_tail
        if piece:
            yield piece
        elif not data and not member.eof:
            data = file.read(READ_BYTES)
            if not data:
                raise EOFError("it ends in the middle of a record")


class DecompressedStream:
    """Reads the pieces of a file as one stream."""

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

    def until(self, end: bytes, max_bytes: int) -> bytes | None:
        """Read up to the end mark and past it; None if it is not within so many bytes."""
        while (position := self._rest.find(end)) < 0 or position > max_bytes:
            if len(self._rest) > max_bytes or (piece := next(self._pieces, None)) is None:
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


def read_record(stream: DecompressedStream, max_block: int) -> WarcRecord:
    head = stream.until(END, MAX_HEAD_BYTES)
    if head is None:
        raise DamagedWarc("it contains data that is not a record")
    fields = record_fields(head)
    length = int(fields["content-length"])
    if length > MAX_RECORD_BYTES:
        raise DamagedWarc(f"a record has {length:,} bytes, more than {MAX_RECORD_BYTES:,}")
    block = bytearray()
    for part in stream.parts(length):
        block += part[: max(0, max_block - len(block))]
    if b"".join(stream.parts(len(END))) != END:
        raise DamagedWarc(f"a record of {length} bytes has the wrong length")
    stream.check()
    return WarcRecord(fields, bytes(block), cut=length > max_block)


def record_fields(head: bytes) -> Fields:
    first, *lines = head.decode("utf-8", "replace").split("\r\n")
    if not first.startswith(WARC.decode()):
        raise DamagedWarc("it contains data that is not a record")
    fields = dict(parse_fields(lines))
    length = fields.get("content-length", "")
    if not (length.isascii() and length.isdecimal() and len(length) <= MAX_LENGTH_DIGITS):
        raise DamagedWarc("a record has no valid length")
    return fields


def parse_fields(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield names in lower case, and values; a line that begins with a space continues the one before it."""
    unfolded: list[str] = []
    for line in lines:
        if unfolded and line.startswith((" ", "\t")):
            unfolded[-1] += f" {line.strip()}"
        else:
            unfolded.append(line)
    for line in unfolded:
        name, colon, value = line.partition(":")
        if colon:
            yield name.strip().lower(), value.strip()
