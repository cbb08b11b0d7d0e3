"""Read URLs from files and pipes, one per line, in batches; memory holds one batch at a time."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from typing import BinaryIO

from usher.urls import MAX_TEXT

BATCH_SIZE = 5_000
BLOCK_BYTES = 1 << 18
FILL_SECONDS = 0.05  # how long a batch from a pipe waits for more URLs
MAX_URL_BYTES = 4 * MAX_TEXT + 1  # kept of a line; the door then refuses it as too long
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
OnRead = Callable[[int], None]  # called with the number of bytes read


class UrlSplitter:
    """Splits blocks of bytes into URLs; skips blank lines and # comments."""

    def __init__(self) -> None:
        self._rest = b""
        self._started = False

    def feed(self, block: bytes) -> list[str]:
        if not self._started:
            block, self._started = block.removeprefix(BYTE_ORDER_MARK), True
        lines, newline, rest = (self._rest + block).rpartition(b"\n")
        self._rest = rest[:MAX_URL_BYTES]
        return parse_lines(lines) if newline else []

    def end(self) -> list[str]:
        return parse_lines(self._rest)


def parse_lines(lines: bytes) -> list[str]:
    # A byte that is not UTF-8 becomes a surrogate, which the door refuses.
    texts = map(str.strip, lines.decode("utf-8", "surrogateescape").split("\n"))
    return [text[:MAX_URL_BYTES] for text in texts if text and text[0] != "#"]


def batches(urls: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(urls)
    while batch := list(islice(rest, BATCH_SIZE)):
        yield batch


def file_batches(file: BinaryIO, on_read: OnRead) -> Iterator[list[str]]:
    return batches(url for block in url_blocks(file, on_read) for url in block)


def url_blocks(file: BinaryIO, on_read: OnRead) -> Iterator[list[str]]:
    splitter = UrlSplitter()
    while block := file.read(BLOCK_BYTES):
        on_read(len(block))
        yield splitter.feed(block)
    yield splitter.end()


async def pipe_batches(file: BinaryIO, on_read: OnRead) -> AsyncIterator[list[str]]:
    """The URLs of a pipe or a terminal; a batch is not held back for long to fill it."""
    splitter, batch, handle = UrlSplitter(), list[str](), file.fileno()
    while True:
        if not await wait_readable(handle, FILL_SECONDS if batch else None):
            yield batch
            batch = []
            continue
        if not (block := os.read(handle, BLOCK_BYTES)):
            break
        on_read(len(block))
        batch += splitter.feed(block)
        while len(batch) >= BATCH_SIZE:
            yield batch[:BATCH_SIZE]
            batch = batch[BATCH_SIZE:]
    if batch := [*batch, *splitter.end()]:
        yield batch


async def wait_readable(handle: int, seconds: float | None) -> bool:
    """Whether data or the end of the file can be read in so many seconds."""
    # asyncio's pipe reader makes the file non-blocking, and with it all output to the same terminal.
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(handle, ready.set)
    try:
        async with asyncio.timeout(seconds):
            await ready.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(handle)
    return True


def is_stream(file: BinaryIO) -> bool:
    """Whether the next byte may take long; a batch must not hold its locks while it waits."""
    mode = os.fstat(file.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or file.isatty()


def file_size(file: BinaryIO) -> int | None:
    status = os.fstat(file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None
