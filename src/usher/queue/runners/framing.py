"""Messages on a line between our own processes: a tuple, packed, after its length.

Comes in: plain values, or bytes in whatever pieces. Goes out: bytes, or the messages that are whole and what is left.
"""

from __future__ import annotations

import marshal

TYPE_CHECKING = False  # as type checkers know it; the module typing would weigh on every fork
if TYPE_CHECKING:
    from typing import Any

SIZE = 4  # bytes of a length


def frame(words: tuple[Any, ...]) -> bytes:
    packed = marshal.dumps(words)
    return len(packed).to_bytes(SIZE, "big") + packed


def cut(heard: bytes) -> tuple[list[tuple[Any, ...]], bytes]:
    """The whole messages, and the beginning of the next."""
    messages = []
    start = 0
    while (end := start + SIZE) <= len(heard):
        end += int.from_bytes(heard[start:end], "big")
        if end > len(heard):
            break
        messages.append(marshal.loads(heard[start + SIZE : end]))  # noqa: S302 - from our own processes
        start = end
    return messages, heard[start:]
