"""URLs from files and pipes, one a line, in batches: as many as there are, in as little memory as one batch takes."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from typing import BinaryIO

from usher.urls import MAX_TEXT

BATCH_SIZE = 5_000
BLOCK_BYTES = 1 << 18
FILL_SECONDS = 0.05  # seconds that a batch from a pipe waits for more to fill it
# Bytes of a line that are kept, and characters that are shown: enough to be refused as too long.
MAX_URL_BYTES = 4 * MAX_TEXT + 1
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # what some editors put before UTF-8
OnRead = Callable[[int], None]  # told how many bytes were read


class UrlSplitter:
    """Blocks of bytes cut into URLs; blank lines and # comments fall away."""

    def __init__(self) -> None:
        self._rest = b""
        self._begun = False

    def feed(self, block: bytes) -> list[str]:
        if not self._begun:
            block, self._begun = block.removeprefix(BYTE_ORDER_MARK), True
        whole, newline, rest = (self._rest + block).rpartition(b"\n")
        self._rest = rest[:MAX_URL_BYTES]
        return parse_lines(whole) if newline else []

    def end(self) -> list[str]:
        return parse_lines(self._rest)


def parse_lines(lines: bytes) -> list[str]:
    # A byte that is no UTF-8 stays in the text as half a character, which the door refuses.
    found = map(str.strip, lines.decode("utf-8", "surrogateescape").split("\n"))
    return [text[:MAX_URL_BYTES] for text in found if text and text[0] != "#"]


def batches(urls: Iterable[str]) -> Iterator[list[str]]:
    there = iter(urls)
    while batch := list(islice(there, BATCH_SIZE)):
        yield batch


def file_batches(file: BinaryIO, watch: OnRead) -> Iterator[list[str]]:
    """The URLs of a file in batches."""
    return batches(url for block in blocks(file, watch) for url in block)


def blocks(file: BinaryIO, watch: OnRead) -> Iterator[list[str]]:
    lines = UrlSplitter()
    while block := file.read(BLOCK_BYTES):
        watch(len(block))
        yield lines.feed(block)
    yield lines.end()


async def pipe_batches(file: BinaryIO, watch: OnRead) -> AsyncIterator[list[str]]:
    """The URLs that come through a pipe or are typed, in batches that do not wait long to be full."""
    lines, batch, number = UrlSplitter(), list[str](), file.fileno()
    while True:
        if not await wait_readable(number, FILL_SECONDS if batch else None):
            yield batch
            batch = []
            continue
        if not (block := os.read(number, BLOCK_BYTES)):
            break
        watch(len(block))
        batch += lines.feed(block)
        while len(batch) >= BATCH_SIZE:
            yield batch[:BATCH_SIZE]
            batch = batch[BATCH_SIZE:]
    if batch := [*batch, *lines.end()]:
        yield batch


async def wait_readable(number: int, patience: float | None) -> bool:
    """Whether something can be read, or the end, before patience is out."""
    # asyncio's own way would make it non-blocking, and with a terminal all that is printed on it.
    loop, there = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(number, there.set)
    try:
        async with asyncio.timeout(patience):
            await there.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(number)
    return True


def is_stream(file: BinaryIO) -> bool:
    """Whether the next byte may be long in coming; no batch may then wait for it and keep its locks."""
    mode = os.fstat(file.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or file.isatty()


def file_size(file: BinaryIO) -> int | None:
    found = os.fstat(file.fileno())
    return found.st_size if stat.S_ISREG(found.st_mode) else None
