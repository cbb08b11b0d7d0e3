"""The index chunk: one file that holds the documents of a chunk and proves that it is whole.

Comes from the builder, which writes it once; goes over HTTP to index servers, which check all of it before they use
any.

    magic 8 · version 2 · chunk 8 · documents 4      big-endian
    zstd frame of (length 4 · msgpack of a Document) for each document
    sha256 of everything before it, 32 bytes

Limits apply to the file, to each document, to the number of documents and to their total size. Writer and reader
enforce the same limits, so a small file cannot make its reader allocate gigabytes.
"""

import hashlib
import os
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import IO, Final

import msgspec
from msgspec import Struct

from usher.errors import BadInput, UnsoundChunk
from usher.http.client.download import MAX_FILE_BYTES
from usher.index.document import IndexDocument
from usher.private_files import open_file

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC: Final = b"USHERIDX"
VERSION: Final = 1
MAX_DOCUMENT_BYTES: Final = (
    8 * 2**20
)  # bytes; the longest document that `from_page` makes has 5 million
MAX_DOCUMENTS: Final = 50_000
MAX_TOTAL_BYTES: Final = 512 * 2**20  # of all documents, unpacked
LEVEL: Final = 3

_HEADER: Final = struct.Struct(">8sHQI")
_LENGTH: Final = struct.Struct(">I")
_DIGEST: Final = 32
_BLOCK: Final = 256 * 1024
_WINDOW: Final = 23  # log2 of the bytes that a file may ask its reader to buffer
_MAX_STREAM: Final = MAX_TOTAL_BYTES + MAX_DOCUMENTS * _LENGTH.size
_AGAIN: Final = (
    "Pull it again from the builder or a peer; if that does not help, build the chunk again."
)
_REBUILD: Final = "Build the chunk again, with a builder that you trust."

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(IndexDocument)
# msgspec raises RecursionError for deep nesting and UnicodeDecodeError for text that is not UTF-8.
_BROKEN: Final = (
    EOFError,
    zstd.ZstdError,
    msgspec.DecodeError,
    RecursionError,
    UnicodeDecodeError,
)


class SizeBudget:
    """Counts the documents of one chunk and their bytes."""

    def __init__(self) -> None:
        self._documents = 0
        self._bytes = 0

    def fits(self, documents: Sequence[IndexDocument]) -> bool:
        """Add these documents; False, and nothing is added, if the chunk would exceed a limit."""
        sizes = [len(_encoder.encode(document)) for document in documents]
        number, total = self._documents + len(sizes), self._bytes + sum(sizes)
        if (
            number > MAX_DOCUMENTS
            or total > MAX_TOTAL_BYTES
            or max(sizes, default=0) > MAX_DOCUMENT_BYTES
        ):
            return False
        self._documents, self._bytes = number, total
        return True


class ChunkHeader(Struct, frozen=True):
    """What a file says it is."""

    chunk: int
    documents: int
    size: int
    sha256: str


def write(path: Path, chunk: int, documents: Sequence[IndexDocument]) -> ChunkHeader:
    """Write the file whole or not at all."""
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with os.fdopen(open_file(new, os.O_WRONLY | os.O_TRUNC), "wb") as file:
            digest = _write(file, chunk, documents)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise
    _sync(path.parent)
    return ChunkHeader(chunk, len(documents), size, digest)


def check(path: Path, chunk: int | None = None) -> ChunkHeader:
    """Read the whole file once; BadInput says what is wrong with it."""
    with _opened(path) as file:
        return _check(file, path, chunk)


def count(path: Path) -> int:
    """How many documents the file says it has; only its first bytes are read."""
    with _opened(path) as file:
        start = file.read(_HEADER.size)
    if len(start) < _HEADER.size or not start.startswith(MAGIC):
        raise BadInput(f"{path.name} is no index chunk.", hint=_AGAIN)
    return int(_HEADER.unpack(start)[3])


def read(path: Path, chunk: int | None = None) -> tuple[ChunkHeader, Iterator[IndexDocument]]:
    """Check the whole file, then give its documents one by one."""
    file = _opened(path)
    try:
        header = _check(file, path, chunk)
    except BaseException:
        file.close()
        raise
    return header, _documents(file, path, header)


def _write(file: IO[bytes], chunk: int, documents: Sequence[IndexDocument]) -> str:
    digest = hashlib.sha256()

    def put(data: bytes) -> None:
        digest.update(data)
        file.write(data)

    if len(documents) > MAX_DOCUMENTS:
        raise BadInput(
            f"Chunk {chunk} has {len(documents):,} documents, more than {MAX_DOCUMENTS:,}."
        )
    put(_HEADER.pack(MAGIC, VERSION, chunk, len(documents)))
    packer, total = zstd.ZstdCompressor(level=LEVEL), 0
    for document in documents:
        data = _encoder.encode(document)
        if len(data) > MAX_DOCUMENT_BYTES:
            raise BadInput(
                f"The document of {document.url} has {len(data)} bytes, more than {MAX_DOCUMENT_BYTES}."
            )
        total += len(data)
        if total > MAX_TOTAL_BYTES:
            raise BadInput(f"The documents of chunk {chunk} exceed {MAX_TOTAL_BYTES:,} bytes.")
        put(packer.compress(_LENGTH.pack(len(data)) + data))
    put(packer.flush())
    file.write(digest.digest())
    return digest.hexdigest()


def _opened(path: Path) -> BufferedReader:
    try:
        return path.open("rb")
    except OSError as error:
        raise BadInput(f"{path.name} cannot be read: {error.strerror}.", hint=_AGAIN) from error


def _check(file: BufferedReader, path: Path, chunk: int | None) -> ChunkHeader:
    size = os.fstat(file.fileno()).st_size
    start = file.read(_HEADER.size)
    if not start.startswith(MAGIC[: len(start)]) or not start:
        raise BadInput(f"{path.name} is no index chunk.", hint=_AGAIN)
    if size > MAX_FILE_BYTES["index"]:
        raise BadInput(f"{path.name} is too large: it has {size:,} bytes.", hint=_REBUILD)
    if size < _HEADER.size + _DIGEST:
        raise BadInput(f"{path.name} is cut short: it has only {size} bytes.", hint=_AGAIN)
    _, version, found, documents = _HEADER.unpack(start)
    if version != VERSION:
        hint = "Upgrade this server." if version > VERSION else "Build the chunk again."
        raise BadInput(
            f"{path.name} has version {version}; this program reads version {VERSION}.", hint=hint
        )
    digest = _digest(file, start, size)
    if file.read(_DIGEST) != digest:
        raise BadInput(f"{path.name} is damaged or cut short: its checksum is wrong.", hint=_AGAIN)
    if chunk is not None and chunk != found:
        raise BadInput(f"{path.name} holds chunk {found}, not {chunk}.", hint=_AGAIN)
    if documents > MAX_DOCUMENTS:
        words = f"{path.name} holds {documents:,} documents, more than {MAX_DOCUMENTS:,}."
        raise UnsoundChunk(words, hint=_REBUILD)
    return ChunkHeader(found, documents, size, digest.hex())


def _digest(file: BufferedReader, start: bytes, size: int) -> bytes:
    digest = hashlib.sha256(start)
    left = size - len(start) - _DIGEST
    while left > 0 and (block := file.read(min(left, _BLOCK))):
        digest.update(block)
        left -= len(block)
    return digest.digest()


def _documents(file: BufferedReader, path: Path, header: ChunkHeader) -> Iterator[IndexDocument]:
    """The checksum was right, so whatever fails now was written so by somebody."""
    with file:
        file.seek(_HEADER.size)
        stream = _Unpacked(file, header.size - _HEADER.size - _DIGEST)
        try:
            for _ in range(header.documents):
                (length,) = _LENGTH.unpack(stream.take(_LENGTH.size))
                yield _decoder.decode(stream.take(length))
            stream.end()
        except _BROKEN as error:
            raise UnsoundChunk(
                f"{path.name} is not what its header says: {error}.", hint=_REBUILD
            ) from error


class _Unpacked:
    """The unpacked bytes of a file, never more of them in memory than one document and one block."""

    def __init__(self, file: BufferedReader, packed: int) -> None:
        self.file = file
        self.left = packed
        self.unpacker = zstd.ZstdDecompressor(
            options={zstd.DecompressionParameter.window_log_max: _WINDOW}
        )
        self.ready = bytearray()
        self.total = 0

    def take(self, number: int) -> bytes:
        if number > MAX_DOCUMENT_BYTES:
            raise EOFError(f"a document has {number:,} bytes, more than {MAX_DOCUMENT_BYTES:,}")
        self.total += number
        if self.total > _MAX_STREAM:
            raise EOFError(f"its documents exceed {MAX_TOTAL_BYTES:,} bytes")
        while len(self.ready) < number:
            if not self.more():
                raise EOFError("it ends too early")
        taken = bytes(self.ready[:number])
        del self.ready[:number]
        return taken

    def more(self) -> bool:
        """Unpack up to a block more; whether there was any."""
        before = len(self.ready)
        while len(self.ready) == before and not self.unpacker.eof:
            packed = b""
            if self.unpacker.needs_input:
                packed = self.file.read(min(self.left, _BLOCK))
                self.left -= len(packed)
                if not packed:
                    break
            self.ready += self.unpacker.decompress(packed, max_length=_BLOCK)
        return len(self.ready) > before

    def end(self) -> None:
        """Make sure that every byte was taken, and that the last one was meant to be the last."""
        if (
            self.ready
            or self.more()
            or self.left
            or self.unpacker.unused_data
            or not self.unpacker.eof
        ):
            raise EOFError("it does not end with its last document")


def _sync(directory: Path) -> None:
    """Make the new name as durable as what it names."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
