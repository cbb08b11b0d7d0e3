"""The runner's end of a line to one of its processes, in the event loop and without waiting.

Comes in: words to send, and what the other side says. Goes out: the other side's words to one callback, its end to
another.
"""

import socket
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from usher.queue.runners.framing import pack_message, unpack_messages

READ_BYTES: Final = 1 << 18


class Channel:
    """One socket; a message may take another socket along."""

    def __init__(
        self,
        end: socket.socket,
        *,
        heard: Callable[[tuple[Any, ...]], None],
        lost: Callable[[], None],
        loop: AbstractEventLoop,
    ) -> None:
        end.settimeout(0)
        self._end, self._heard, self._lost, self._loop = end, heard, lost, loop
        self._unsent: deque[tuple[bytes, socket.socket | None]] = deque()
        self._read = b""
        loop.add_reader(end.fileno(), self._readable)

    def send(self, *words: object, gift: socket.socket | None = None) -> None:
        """Now if there is room, else as soon as there is; the gift is closed here once it has gone."""
        self._unsent.append((pack_message(words), gift))
        if len(self._unsent) == 1 and not self._write():
            self._loop.add_writer(self._end.fileno(), self._writable)

    @property
    def closed(self) -> bool:
        return self._end.fileno() < 0

    def close(self) -> None:
        if not self.closed:
            self._loop.remove_reader(self._end.fileno())
            self._loop.remove_writer(self._end.fileno())
            self._end.close()
        for _, gift in self._unsent:
            if gift:
                gift.close()
        self._unsent.clear()

    def _writable(self) -> None:
        if self._write():
            self._loop.remove_writer(self._end.fileno())

    def _write(self) -> bool:
        """Whether everything has gone, or never will."""
        try:
            while self._unsent:
                piece, gift = self._unsent[0]
                sent = self._send(piece, gift)
                self._unsent[0] = (piece[sent:], None)
                if sent == len(piece):
                    self._unsent.popleft()
        except BlockingIOError:
            return False
        except OSError:
            pass  # the other side is gone; the reading side hears of it
        return True

    def _send(self, piece: bytes, gift: socket.socket | None) -> int:
        if gift is None:
            return self._end.send(piece)
        with_gift = socket.send_fds(self._end, [piece], [gift.fileno()])
        gift.close()
        return with_gift

    def _readable(self) -> None:
        try:
            piece = self._end.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self.close()
            self._lost()
            return
        messages, self._read = unpack_messages(self._read + piece)
        for words in messages:
            self._heard(words)
