"""Messages on a line between our own processes: a tuple, packed, after its length.

Comes in: plain values, or bytes in whatever pieces. Goes out: bytes, or the messages that are whole and what is left.
"""

from __future__ import annotations

import marshal

TYPE_CHECKING = False  # as type checkers know it; the module typing would weigh on every fork
if TYPE_CHECKING:
    from typing import Any

LENGTH_BYTES = 4  # bytes of a length


def pack_message(words: tuple[Any, ...]) -> bytes:
    packed = marshal.dumps(words)
    return len(packed).to_bytes(LENGTH_BYTES, "big") + packed


def unpack_messages(heard: bytes) -> tuple[list[tuple[Any, ...]], bytes]:
    """The whole messages, and the beginning of the next."""
    messages = []
    start = 0
    while (end := start + LENGTH_BYTES) <= len(heard):
        end += int.from_bytes(heard[start:end], "big")
        if end > len(heard):
            break
        messages.append(marshal.loads(heard[start + LENGTH_BYTES : end]))  # noqa: S302 - from our own processes
        start = end
    return messages, heard[start:]
