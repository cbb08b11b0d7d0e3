"""The output of a job: bounded, and decoded to text that PostgreSQL accepts."""

from codecs import utf_8_decode

CONTINUATION_BYTES = range(0x80, 0xC0)  # of UTF-8
MAX_CHARACTER_BYTES = 4


class Output:
    """Keeps the first and the last half of `limit` bytes, and counts the rest."""

    def __init__(self, limit: int) -> None:
        self.seen = 0
        self._first = max(limit, 0) // 2
        self._last = max(limit, 0) - self._first
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, piece: bytes) -> None:
        self.seen += len(piece)
        if room := self._first - len(self._head):
            self._head += piece[:room]
            piece = piece[room:]
        self._tail += piece[max(len(piece) - self._last, 0) :]
        if len(self._tail) > 2 * self._last:
            self._trim()

    def text(self, *, whole: bool = True) -> str:
        """Return the output as text; unless it is `whole`, without an incomplete character at its end."""
        self._trim()
        if self.seen == len(self._head) + len(self._tail):
            text, _ = utf_8_decode(self._head + self._tail, "replace", whole)
            return without_nul(text)
        head, decoded = utf_8_decode(self._head, "replace", False)  # noqa: FBT003 - a C function's argument
        tail = from_boundary(self._tail)
        text, _ = utf_8_decode(tail, "replace", whole)
        left_out = self.seen - decoded - len(tail)
        return without_nul(f"{head}\n… {left_out:,} bytes left out …\n{text}")

    def _trim(self) -> None:
        del self._tail[: max(len(self._tail) - self._last, 0)]


def from_boundary(piece: bytearray) -> bytearray:
    """Return the bytes without the end of a character whose beginning is cut off."""
    start = 0
    while start < min(len(piece), MAX_CHARACTER_BYTES) and piece[start] in CONTINUATION_BYTES:
        start += 1
    # So many in a row are not UTF-8.
    return piece if start == MAX_CHARACTER_BYTES else piece[start:]


def without_nul(text: str) -> str:
    """Remove NUL, which PostgreSQL refuses in text."""
    return text.replace("\0", "")
