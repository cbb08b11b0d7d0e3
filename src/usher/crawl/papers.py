"""PDFs, read in a process of its own: a file made to break the reader may end the process it is read in.

Comes from whoever has the bytes of a PDF; goes to a child that lives as long as we do and is given one file after the
other. Where it falls, hangs or wants too much memory, another takes its place.
"""

import asyncio
import resource
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from typing import BinaryIO, Final, Self

import msgspec

from usher.crawl import pdf
from usher.crawl.pdf import Pdf

SECONDS: Final = 20  # for one file
PATIENCE: Final = SECONDS + 10.0
MOST_MEMORY: Final = 1 << 30
LENGTH: Final = 8  # bytes that say how many follow
BROKEN: Final = Pdf(problem="it broke the reader, or took it too long")


class Papers:
    """The reader; to be entered, and left with no process behind. It starts with the first file."""

    def __init__(self) -> None:
        self._child: Process | None = None
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def read(self, body: bytes) -> Pdf:
        async with self._turn:
            whole = False
            try:
                async with asyncio.timeout(PATIENCE):
                    found = await self._ask(body)
                whole = True
            except (OSError, EOFError, msgspec.MsgspecError):  # a timeout is an OSError too
                return BROKEN
            finally:
                if not whole:  # what is left of this answer must not be the next
                    await self._end()
            return found

    async def _ask(self, body: bytes) -> Pdf:
        if self._child is None:
            words = (sys.executable, "-m", __name__)
            self._child = await asyncio.create_subprocess_exec(
                *words, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
            )
        ask, answer = self._child.stdin, self._child.stdout
        if ask is None or answer is None:
            raise OSError
        ask.write(len(body).to_bytes(LENGTH, "big") + body)
        await ask.drain()
        length = int.from_bytes(await answer.readexactly(LENGTH), "big")
        return msgspec.msgpack.decode(await answer.readexactly(length), type=Pdf)

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()


def serve(ask: BinaryIO, answer: BinaryIO) -> None:
    """One file after the other, until nobody is there to ask."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    while length := ask.read(LENGTH):
        body = ask.read(int.from_bytes(length, "big"))
        signal.alarm(SECONDS)  # which ends us, whatever we are at
        found = msgspec.msgpack.encode(pdf.read(body))
        signal.alarm(0)
        answer.write(len(found).to_bytes(LENGTH, "big") + found)
        answer.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
