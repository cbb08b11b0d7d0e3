"""The runner's end of a socket to one of its processes, in the event loop; no call blocks."""

import socket
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from usher.queue.runners.framing import pack_message, unpack_messages

READ_BYTES: Final = 1 << 18


class Channel:
    """One socket; a message may carry another socket."""

    def __init__(
        self,
        end: socket.socket,
        *,
        on_message: Callable[[tuple[Any, ...]], None],
        on_close: Callable[[], None],
        loop: AbstractEventLoop,
    ) -> None:
        end.settimeout(0)
        self._end, self._loop = end, loop
        self._on_message, self._on_close = on_message, on_close
        self._unsent: deque[tuple[bytes, socket.socket | None]] = deque()
        self._unparsed = b""
        loop.add_reader(end.fileno(), self._readable)

    def send(self, *message: object, passed: socket.socket | None = None) -> None:
        """Send a message now, or as soon as there is room. A passed socket is closed here once it is sent."""
        self._unsent.append((pack_message(message), passed))
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
        for _, passed in self._unsent:
            if passed:
                passed.close()
        self._unsent.clear()

    def _writable(self) -> None:
        if self._write():
            self._loop.remove_writer(self._end.fileno())

    def _write(self) -> bool:
        """Write as much as possible; return False if the rest must wait for room."""
        try:
            while self._unsent:
                piece, passed = self._unsent[0]
                sent = self._send(piece, passed)
                self._unsent[0] = (piece[sent:], None)
                if sent == len(piece):
                    self._unsent.popleft()
        except BlockingIOError:
            return False
        except OSError:
            pass  # the other side has ended; the reader notices that
        return True

    def _send(self, piece: bytes, passed: socket.socket | None) -> int:
        if passed is None:
            return self._end.send(piece)
        sent = socket.send_fds(self._end, [piece], [passed.fileno()])
        passed.close()
        return sent

    def _readable(self) -> None:
        try:
            piece = self._end.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self.close()
            self._on_close()
            return
        messages, self._unparsed = unpack_messages(self._unparsed + piece)
        for message in messages:
            self._on_message(message)
