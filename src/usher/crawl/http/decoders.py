"""Decoders for the content codings gzip, deflate, brotli and zstd, with one interface."""

import sys
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, Protocol

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

brotli: Any = import_module("brotli")  # it has no types

ACCEPT_ENCODING: Final = "gzip, deflate, br, zstd"
DECODER_ERRORS: Final = (zlib.error, zstd.ZstdError, brotli.error)
# Codings whose files may be concatenated; each begins with magic bytes.
MULTI_MEMBER_CODINGS: Final = frozenset({"gzip", "x-gzip", "zstd"})
# Browsers accept windows of up to 8 MB; a hostile frame may ask for gigabytes.
_WINDOW: Final[dict[int, int]] = {zstd.DecompressionParameter.window_log_max: 23}


class Decoder(Protocol):
    """The interface of zlib's decompressobj."""

    @property
    def eof(self) -> bool: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Zstd:
    unconsumed_tail = b""

    def __init__(self) -> None:
        self._decoder = zstd.ZstdDecompressor(options=_WINDOW)

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._decoder.decompress(data, max_length)


class _Brotli:
    unconsumed_tail = unused_data = b""

    def __init__(self) -> None:
        self._decoder = brotli.Decompressor()

    @property
    def eof(self) -> bool:
        return bool(self._decoder.is_finished())

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return bytes(self._decoder.process(data, output_buffer_limit=max_length))


# Returns a decoder for data with this start, or None if the data does not have the coding.
MakeDecoder = Callable[[bytes], Decoder | None]


def _gzip(start: bytes) -> Decoder | None:
    return zlib.decompressobj(31) if start.startswith(b"\x1f\x8b") else None


def _deflate(start: bytes) -> Decoder:
    """Return a decoder with or without zlib's frame: the standard requires it, but some servers leave it out."""
    framed = start[0] & 15 == zlib.DEFLATED and int.from_bytes(start[:2], "big") % 31 == 0
    return zlib.decompressobj(15 if framed else -15)


def _zstd(start: bytes) -> Decoder | None:
    skippable = start[1:4] == b"\x2a\x4d\x18" and start[0] >> 4 == 5  # noqa: PLR2004 - RFC 8878, 3.1.2
    return _Zstd() if skippable or start.startswith(b"\x28\xb5\x2f\xfd") else None


def _br(_start: bytes) -> Decoder:
    return _Brotli()


DECODERS: Final[dict[str, MakeDecoder]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _br,
    "zstd": _zstd,
}
