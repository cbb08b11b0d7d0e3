"""What a job said, bounded and readable.

Comes from the pipe of a job as bytes, in whatever pieces; goes to the job's row as text that PostgreSQL takes.
"""

from codecs import utf_8_decode

CONTINUATION_BYTES = range(0x80, 0xC0)  # bytes that only continue a character
MAX_CHARACTER_BYTES = 4  # bytes of a character


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
        """As text; where it is not yet whole, a character that has only begun is held back."""
        self._trim()
        if self.seen == len(self._head) + len(self._tail):
            said, _ = utf_8_decode(self._head + self._tail, "replace", whole)
            return without_nul(said)
        head, kept = utf_8_decode(self._head, "replace", False)  # noqa: FBT003 - a C function's argument
        tail = from_boundary(self._tail)
        said, _ = utf_8_decode(tail, "replace", whole)
        left_out = self.seen - kept - len(tail)
        return without_nul(f"{head}\n… {left_out:,} bytes left out …\n{said}")

    def _trim(self) -> None:
        del self._tail[: max(len(self._tail) - self._last, 0)]


def from_boundary(piece: bytearray) -> bytearray:
    """Without the end of a character whose beginning is lost."""
    start = 0
    while start < min(len(piece), MAX_CHARACTER_BYTES) and piece[start] in CONTINUATION_BYTES:
        start += 1
    return (
        piece if start == MAX_CHARACTER_BYTES else piece[start:]
    )  # so many in a row are no character


def without_nul(text: str) -> str:
    """Without NUL, which PostgreSQL refuses in text."""
    return text.replace("\0", "")
