"""WARC records as they lie in a file: one gzip member after the other, unpacked in pieces.

Comes from an open file, whole or not; goes to `reading`, which knows what records mean.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

PIECE: Final = 1 << 16
MOST_HEAD: Final = 1 << 16
MAX_RECORD_BYTES: Final = (
    1 << 30
)  # unpacked; ten times the longest page that a crawler may be set to fetch
MAX_RECORDS: Final = 100_000  # a crawler writes three for each of at most 1,000 pages
MAX_TOTAL_BYTES: Final = 1 << 34  # unpacked, of one file
MOST_DIGITS: Final = 10  # of a length
END: Final = b"\r\n\r\n"
Fields = dict[str, str]


class Damaged(ValueError):
    """What is there is no record."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A record; `cut` if its block is longer than what was wanted of it."""

    fields: Fields
    block: bytes
    cut: bool


def records(file: BinaryIO, most: int) -> Iterator[Raw]:
    """Every record; at most so many bytes of each block are kept, and the rest only passed over.

    Damaged, if a record, the number of records or their total size exceeds its limit: a small file may be a bomb.
    """
    packed = file.read(PIECE)
    if not packed:
        raise Damaged("it is empty")
    number = total = 0
    while packed:
        member = Member(file, packed)
        yield member.record(most)
        number, total = number + 1, total + member.size
        if number > MAX_RECORDS:
            raise Damaged(f"it has more than {MAX_RECORDS:,} records")
        if total > MAX_TOTAL_BYTES:
            raise Damaged(f"its records have more than {MAX_TOTAL_BYTES:,} bytes")
        packed = member.rest() or file.read(PIECE)


class Member:
    """One gzip member; at its end its checksum was right."""

    def __init__(self, file: BinaryIO, packed: bytes) -> None:
        self._file = file
        self._packed = packed
        self._inflate = zlib.decompressobj(31)
        self.size = 0  # bytes unpacked so far

    def record(self, most: int) -> Raw:
        head, _, rest = self._head().partition(END)
        fields = warc_fields(head)
        length = int(fields["content-length"])
        if length > MAX_RECORD_BYTES:
            raise Damaged(f"a record has {length:,} bytes, more than {MAX_RECORD_BYTES:,}")
        block, size = bytearray(rest), len(rest)
        while size <= length + len(END) and (piece := self._piece()):
            size += len(piece)
            if len(block) < most:
                block += piece
        if size != length + len(END):
            raise Damaged(f"a record of {length} bytes does not end where it should")
        return Raw(fields, bytes(block[: min(length, most)]), cut=length > most)

    def rest(self) -> bytes:
        """What comes after it."""
        return self._inflate.unused_data

    def _head(self) -> bytes:
        """The head, and whatever came with it."""
        found = b""
        while END not in found:
            piece = self._piece()
            found += piece
            if not piece or len(found) > MOST_HEAD + PIECE:
                raise Damaged("there is something that is no record")
        return found

    def _piece(self) -> bytes:
        """A little more, or nothing at the end."""
        while not self._inflate.eof:
            # Also with nothing to give it: zlib may still hold some of what it was given.
            out = self._inflate.decompress(self._packed, PIECE)
            self._packed = self._inflate.unconsumed_tail
            if out:
                self.size += len(out)
                return out
            if not self._packed and not self._inflate.eof:
                self._packed = self._file.read(PIECE)
                if not self._packed:
                    raise EOFError("it ends in the middle of a record")
        return b""


def warc_fields(head: bytes) -> Fields:
    first, *lines = head.decode("utf-8", "replace").split("\r\n")
    if not first.startswith("WARC/"):
        raise Damaged("there is something that is no record")
    fields = dict(named(lines))
    length = fields.get("content-length", "")
    if not (length.isascii() and length.isdecimal() and len(length) <= MOST_DIGITS):
        raise Damaged("a record does not say how long it is")
    return fields


def named(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
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
