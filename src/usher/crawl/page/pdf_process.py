"""Reads PDFs in a child process with limits, because a hostile file may crash the process that reads it.

If the child crashes, hangs or exceeds its memory, a new one replaces it.
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
from usher.crawl.page.pdf import PdfText

FILE_SECONDS: Final = 20
TIMEOUT_SECONDS: Final = FILE_SECONDS + 10.0
MAX_MEMORY_BYTES: Final = 1 << 30
LENGTH_BYTES: Final = 8  # of the number before each message
MAX_ANSWER_BYTES: Final = 16_000_000  # a compromised child must not fill our memory
EXIT_SECONDS: Final = 5.0  # for a child that closed its pipe
TOO_LARGE: Final = PdfText(
    problem=f"it could not be read: too large, it needs more than {MAX_MEMORY_BYTES >> 20} MiB of memory"
)
TOO_SLOW: Final = PdfText(
    problem=f"it could not be read: it takes longer than {FILE_SECONDS} seconds"
)
BROKEN: Final = PdfText(problem="it could not be read: the PDF reader crashed")
FAILURES: Final = (TOO_LARGE, TOO_SLOW, BROKEN)
# PDFium aborts when it gets no memory.
FAILURE_BY_EXIT_CODE: Final = {-signal.SIGABRT: TOO_LARGE, -signal.SIGALRM: TOO_SLOW}


class PdfProcess:
    """The child process, started with the first file; a context manager that ends it."""

    def __init__(self) -> None:
        self._child: Process | None = None
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def read(self, body: bytes) -> PdfText:
        """Return the text of a PDF, or one of `FAILURES`; after a failure the next file gets a new child."""
        async with self._turn:
            try:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    return await self._request(body)
            except TimeoutError:
                await self._end()
                return TOO_SLOW
            except (OSError, EOFError):
                return FAILURE_BY_EXIT_CODE.get(await self._exit_code(), BROKEN)
            except msgspec.MsgspecError:
                await self._end()
                return BROKEN
            except BaseException:
                await self._end()  # the rest of this response must not become the next one
                raise

    async def _request(self, body: bytes) -> PdfText:
        if self._child is None:
            command = (sys.executable, "-m", __name__)
            self._child = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
            )
        stdin, stdout = self._child.stdin, self._child.stdout
        if stdin is None or stdout is None:
            raise OSError
        stdin.write(len(body).to_bytes(LENGTH_BYTES, "big") + body)
        await stdin.drain()
        length = int.from_bytes(await stdout.readexactly(LENGTH_BYTES), "big")
        if length > MAX_ANSWER_BYTES:
            raise msgspec.DecodeError
        return msgspec.msgpack.decode(await stdout.readexactly(length), type=PdfText)

    async def _exit_code(self) -> int:
        """Return the exit code of a child that closed its pipe. A signal sent to it now would hide the code."""
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


def serve(stdin: BinaryIO, stdout: BinaryIO) -> None:
    """Read one file after the other, until the parent closes the pipe."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    while length := stdin.read(LENGTH_BYTES):
        body = stdin.read(int.from_bytes(length, "big"))
        signal.alarm(FILE_SECONDS)  # the default action ends the process
        text = msgspec.msgpack.encode(pdf.read_pdf(body))
        signal.alarm(0)
        stdout.write(len(text).to_bytes(LENGTH_BYTES, "big") + text)
        stdout.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
