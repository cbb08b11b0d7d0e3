"""Messages between our own processes: a marshalled tuple after its length."""

from __future__ import annotations

import marshal

TYPE_CHECKING = False  # as type checkers read it; the module typing would cost every fork memory
if TYPE_CHECKING:
    from typing import Any

LENGTH_BYTES = 4


def pack_message(message: tuple[Any, ...]) -> bytes:
    packed = marshal.dumps(message)
    return len(packed).to_bytes(LENGTH_BYTES, "big") + packed


def unpack_messages(received: bytes) -> tuple[list[tuple[Any, ...]], bytes]:
    """Return the complete messages, and the beginning of the next one."""
    messages = []
    start = 0
    while (end := start + LENGTH_BYTES) <= len(received):
        end += int.from_bytes(received[start:end], "big")
        if end > len(received):
            break
        messages.append(marshal.loads(received[start + LENGTH_BYTES : end]))  # noqa: S302 - from our own processes
        start = end
    return messages, received[start:]
