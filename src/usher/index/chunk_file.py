"""The file format of an index chunk: the documents of a chunk and a checksum over the whole file.

    magic 8 · version 2 · chunk 8 · documents 4      big-endian
    zstd frame of (length 4 · msgpack of an IndexDocument) for each document
    sha256 of everything before it, 32 bytes

Builders of other versions write the same format: a document may lack fields, which have defaults, and may have fields
that the reader does not know. VERSION changes only if no reader of the old version could read the file.

The builder writes the file once. Index servers check all of it before they use any. Limits apply to the file, to each
document, to the number of documents and to their total size. Writer and reader enforce the same limits, so a small file
cannot make its reader allocate gigabytes.
"""

import hashlib
import os
import struct
import sys
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from usher.chunk_store import PartialFile
from usher.errors import BadInput, UnsoundChunk
from usher.http.client.download import MAX_FILE_BYTES
from usher.index.document import IndexDocument

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC: Final = b"USHERIDX"
VERSION: Final = 1
MAX_DOCUMENT_BYTES: Final = 8 * 2**20  # the longest document of `from_page` has 5 million
MAX_DOCUMENTS: Final = 50_000
MAX_TOTAL_BYTES: Final = 512 * 2**20  # of all documents, uncompressed
ZSTD_LEVEL: Final = 3

_HEADER: Final = struct.Struct(">8sHQI")
_LENGTH: Final = struct.Struct(">I")
_DIGEST_BYTES: Final = 32
_BLOCK_BYTES: Final = 256 * 1024
_MAX_WINDOW_LOG: Final = 23  # log2 of the bytes that a file may make its reader buffer
_MAX_STREAM_BYTES: Final = MAX_TOTAL_BYTES + MAX_DOCUMENTS * _LENGTH.size
_DOWNLOAD_AGAIN: Final = (
    "Download it again from the builder or another server; if that fails, build the chunk again."
)
_REBUILD: Final = "Build the chunk again, with a builder that you trust."

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(IndexDocument)
# msgspec raises RecursionError for deep nesting and UnicodeDecodeError for text that is not UTF-8.
_DECODE_ERRORS: Final = (
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
        if number > MAX_DOCUMENTS or total > MAX_TOTAL_BYTES:
            return False
        if max(sizes, default=0) > MAX_DOCUMENT_BYTES:
            return False
        self._documents, self._bytes = number, total
        return True


class ChunkHeader(Struct, frozen=True):
    """The header of a file, with its size and the checksum of all its bytes."""

    chunk: int
    documents: int
    size: int
    sha256: str


def write(path: Path, chunk: int, documents: Sequence[IndexDocument]) -> ChunkHeader:
    """Write the file atomically; BadInput if the documents exceed a limit."""
    file = PartialFile(path)
    try:
        _write(file, chunk, documents)
        stored = file.commit()
    finally:
        file.discard()
    return ChunkHeader(chunk, len(documents), stored.size, stored.sha256)


def check(path: Path, chunk: int | None = None) -> ChunkHeader:
    """Read and check the whole file; BadInput says what is wrong with it."""
    with _open(path) as file:
        return _check(file, path, chunk)


def count(path: Path) -> int:
    """The number of documents according to the header."""
    with _open(path) as file:
        header = file.read(_HEADER.size)
    if len(header) < _HEADER.size or not header.startswith(MAGIC):
        raise BadInput(f"{path.name} is not an index chunk.", hint=_DOWNLOAD_AGAIN)
    return int(_HEADER.unpack(header)[3])


def read(path: Path, chunk: int | None = None) -> tuple[ChunkHeader, Iterator[IndexDocument]]:
    """Check the whole file, then yield its documents."""
    file = _open(path)
    try:
        header = _check(file, path, chunk)
    except BaseException:
        file.close()
        raise
    return header, _documents(file, path, header)


def _write(file: PartialFile, chunk: int, documents: Sequence[IndexDocument]) -> None:
    if len(documents) > MAX_DOCUMENTS:
        raise BadInput(
            f"Chunk {chunk} has {len(documents):,} documents, more than {MAX_DOCUMENTS:,}."
        )
    file.write(_HEADER.pack(MAGIC, VERSION, chunk, len(documents)))
    compressor, total = zstd.ZstdCompressor(level=ZSTD_LEVEL), 0
    for document in documents:
        data = _encoder.encode(document)
        if len(data) > MAX_DOCUMENT_BYTES:
            size = f"{len(data)} bytes, more than {MAX_DOCUMENT_BYTES}"
            raise BadInput(f"The document of {document.url} has {size}.")
        total += len(data)
        if total > MAX_TOTAL_BYTES:
            raise BadInput(f"The documents of chunk {chunk} exceed {MAX_TOTAL_BYTES:,} bytes.")
        file.write(compressor.compress(_LENGTH.pack(len(data)) + data))
    file.write(compressor.flush())
    file.write(bytes.fromhex(file.sha256()))


def _open(path: Path) -> BufferedReader:
    try:
        return path.open("rb")
    except OSError as error:
        message = f"{path.name} cannot be read: {error.strerror}."
        raise BadInput(message, hint=_DOWNLOAD_AGAIN) from error


def _check(file: BufferedReader, path: Path, chunk: int | None) -> ChunkHeader:
    name, size = path.name, os.fstat(file.fileno()).st_size
    header = file.read(_HEADER.size)
    if not header.startswith(MAGIC[: len(header)]) or not header:
        raise BadInput(f"{name} is not an index chunk.", hint=_DOWNLOAD_AGAIN)
    if size > MAX_FILE_BYTES["index"]:
        raise BadInput(f"{name} is too large: it has {size:,} bytes.", hint=_REBUILD)
    if size < _HEADER.size + _DIGEST_BYTES:
        raise BadInput(f"{name} is truncated: it has only {size} bytes.", hint=_DOWNLOAD_AGAIN)
    _, version, own_chunk, documents = _HEADER.unpack(header)
    if version != VERSION:
        hint = "Upgrade this server." if version > VERSION else "Build the chunk again."
        raise BadInput(
            f"{name} has version {version}; this program reads version {VERSION}.", hint=hint
        )
    digest = _digest(file, header, size)
    own_digest = file.read(_DIGEST_BYTES)
    if own_digest != digest.digest():
        raise BadInput(
            f"{name} is damaged or truncated: its checksum is wrong.", hint=_DOWNLOAD_AGAIN
        )
    if chunk is not None and chunk != own_chunk:
        raise BadInput(f"{name} holds chunk {own_chunk}, not {chunk}.", hint=_DOWNLOAD_AGAIN)
    if documents > MAX_DOCUMENTS:
        message = f"{name} holds {documents:,} documents, more than {MAX_DOCUMENTS:,}."
        raise UnsoundChunk(message, hint=_REBUILD)
    digest.update(own_digest)
    return ChunkHeader(own_chunk, documents, size, digest.hexdigest())


def _digest(file: BufferedReader, header: bytes, size: int) -> "hashlib._Hash":
    digest = hashlib.sha256(header)
    left = size - len(header) - _DIGEST_BYTES
    while left > 0 and (block := file.read(min(left, _BLOCK_BYTES))):
        digest.update(block)
        left -= len(block)
    return digest


def _documents(file: BufferedReader, path: Path, header: ChunkHeader) -> Iterator[IndexDocument]:
    """Yield the documents; the checksum was right, so an error is due to the builder that wrote the file."""
    with file:
        file.seek(_HEADER.size)
        stream = _Decompressor(file, header.size - _HEADER.size - _DIGEST_BYTES)
        try:
            for _ in range(header.documents):
                (length,) = _LENGTH.unpack(stream.take(_LENGTH.size))
                yield _decoder.decode(stream.take(length))
            stream.check_end()
        except _DECODE_ERRORS as error:
            raise UnsoundChunk(
                f"{path.name} is not what its header says: {error}.", hint=_REBUILD
            ) from error


class _Decompressor:
    """Decompresses a file with at most one document and one block in memory."""

    def __init__(self, file: BufferedReader, size: int) -> None:
        self.file = file
        self.left = size
        self.zstd = zstd.ZstdDecompressor(
            options={zstd.DecompressionParameter.window_log_max: _MAX_WINDOW_LOG}
        )
        self.buffer = bytearray()
        self.total = 0

    def take(self, size: int) -> bytes:
        """The next bytes; EOFError if a limit is exceeded or the file ends."""
        if size > MAX_DOCUMENT_BYTES:
            raise EOFError(f"a document has {size:,} bytes, more than {MAX_DOCUMENT_BYTES:,}")
        self.total += size
        if self.total > _MAX_STREAM_BYTES:
            raise EOFError(f"its documents exceed {MAX_TOTAL_BYTES:,} bytes")
        while len(self.buffer) < size:
            if not self.fill():
                raise EOFError("it ends too early")
        data = bytes(self.buffer[:size])
        del self.buffer[:size]
        return data

    def fill(self) -> bool:
        """Decompress up to one more block; False at the end."""
        before = len(self.buffer)
        while len(self.buffer) == before and not self.zstd.eof:
            block = b""
            if self.zstd.needs_input:
                block = self.file.read(min(self.left, _BLOCK_BYTES))
                self.left -= len(block)
                if not block:
                    break
            self.buffer += self.zstd.decompress(block, max_length=_BLOCK_BYTES)
        return len(self.buffer) > before

    def check_end(self) -> None:
        """Raise EOFError if bytes are left or the frame is incomplete."""
        rest = self.buffer or self.fill() or self.left or self.zstd.unused_data
        if rest or not self.zstd.eof:
            raise EOFError("it does not end with its last document")
