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

from usher.crawl.page import pdf
from usher.crawl.page.pdf import Pdf

CPU_SECONDS: Final = 20  # for one file
TIMEOUT_SECONDS: Final = CPU_SECONDS + 10.0
MAX_MEMORY_BYTES: Final = 1 << 30
LENGTH_BYTES: Final = 8  # bytes that say how many follow
MAX_ANSWER_BYTES: Final = 16_000_000  # a reader that was taken over must not fill our memory
EXIT_SECONDS: Final = 5.0  # for a reader that closed its pipe
TOO_LARGE: Final = Pdf(
    problem=f"it could not be read: too large, it needs more than {MAX_MEMORY_BYTES >> 20} MiB of memory"
)
TOO_SLOW: Final = Pdf(problem=f"it could not be read: it takes longer than {CPU_SECONDS} seconds")
BROKEN: Final = Pdf(problem="it could not be read: it broke the reader")
FAILURES: Final = (TOO_LARGE, TOO_SLOW, BROKEN)
# PDFium aborts when it gets no memory.
FAILURE_BY_EXIT_CODE: Final = {-signal.SIGABRT: TOO_LARGE, -signal.SIGALRM: TOO_SLOW}


class PdfProcess:
    """The reader; to be entered, and left with no process behind. It starts with the first file."""

    def __init__(self) -> None:
        self._child: Process | None = None
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def read(self, body: bytes) -> Pdf:
        """The text of a PDF, or one of `FAILURES`; the next file gets a new reader after a failure."""
        async with self._turn:
            try:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    return await self._ask(body)
            except TimeoutError:
                await self._end()
                return TOO_SLOW
            except (OSError, EOFError):
                return FAILURE_BY_EXIT_CODE.get(await self._exit_code(), BROKEN)
            except msgspec.MsgspecError:
                await self._end()
                return BROKEN
            except BaseException:
                await self._end()  # what is left of this answer must not be the next
                raise

    async def _ask(self, body: bytes) -> Pdf:
        if self._child is None:
            words = (sys.executable, "-m", __name__)
            self._child = await asyncio.create_subprocess_exec(
                *words, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
            )
        ask, answer = self._child.stdin, self._child.stdout
        if ask is None or answer is None:
            raise OSError
        ask.write(len(body).to_bytes(LENGTH_BYTES, "big") + body)
        await ask.drain()
        length = int.from_bytes(await answer.readexactly(LENGTH_BYTES), "big")
        if length > MAX_ANSWER_BYTES:
            raise msgspec.DecodeError
        return msgspec.msgpack.decode(await answer.readexactly(length), type=Pdf)

    async def _exit_code(self) -> int:
        """The exit code of a reader that hung up. A signal sent to it now would hide the code."""
        child = self._child
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_SECONDS):
                if child is not None and await child.wait():
                    self._child = None
        await self._end()
        return 0 if child is None or child.returncode is None else child.returncode

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()


def serve(ask: BinaryIO, answer: BinaryIO) -> None:
    """One file after the other, until nobody is there to ask."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    while length := ask.read(LENGTH_BYTES):
        body = ask.read(int.from_bytes(length, "big"))
        signal.alarm(CPU_SECONDS)  # which ends us, whatever we are at
        found = msgspec.msgpack.encode(pdf.read_pdf(body))
        signal.alarm(0)
        answer.write(len(found).to_bytes(LENGTH_BYTES, "big") + found)
        answer.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
