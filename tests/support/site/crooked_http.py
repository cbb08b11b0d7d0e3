"""Responses that stretch or break HTTP: unusual but valid ones, broken ones, and unusual codings.

Use with `Website(ODD | CROOKED)`; hostile.py has more, and hostile pages.
"""

import gzip
import zlib

from support.site.hostile import CHUNK, SQUEEZED, Pages, coded, forever, ok, said

GOOD = ok(Content_Length="4") + b"good"
CHUNKED = ok(Transfer_Encoding="chunked")
ZIPPED, NOTHING = gzip.compress(SQUEEZED, mtime=0), gzip.compress(b"", mtime=0)
ZSTD = b"\x28\xb5\x2f\xfd\x00"


def zstd(text: bytes) -> bytes:
    """Write a zstd frame by hand, with one block that is not packed at all."""
    return ZSTD + b"\x38" + (len(text) << 3 | 1).to_bytes(3, "little") + text


def with_header(line: bytes) -> bytes:
    return GOOD.replace(b"Content-L", line + b"\r\nContent-L")


# Not all of it is as the standard has it, but every browser shows the page.
ODD: Pages = {
    "/odd/old": said(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\ngood"),
    "/odd/no-reason": said(b"HTTP/1.1 200\r\nContent-Length: 4\r\n\r\ngood"),
    "/odd/bare-lf": said(GOOD.replace(b"\r\n", b"\n")),
    "/odd/folded": said(with_header(b"X-Long: one\r\n two")),
    "/odd/latin-1": said(with_header(b"X-Name: Caf\xe9")),
    "/odd/first-empty": said(b"\r\n" + GOOD),
    "/odd/hints": said(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 0.05, GOOD),
    "/odd/trailer": said(CHUNKED + b"4;x=y\r\ngood\r\n0\r\nX-End: 1\r\n\r\n"),
    "/odd/spaces": said(CHUNKED + b"4  \r\ngood\r\n0\r\n\r\n"),
    "/odd/bit-by-bit": said(*(x for i in range(len(GOOD)) for x in (GOOD[i : i + 1], 0.001))),
    "/odd/one-too-many": said(GOOD + GOOD.replace(b"good", b"evil"), end="keep"),
}
FRAMES: Pages = {
    "/ssh": said(b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n", 0.1),
    "/radio": said(b"ICY 200 OK\r\n\r\nla la la"),
    "/two-lengths": said(with_header(b"Content-Length: 3")),
    "/minus": said(ok(Content_Length="-3") + b"abc"),
    "/both-framings": said(ok(Content_Length="3", Transfer_Encoding="chunked") + CHUNK),
    "/status-000": said(b"HTTP/1.1 000 Nothing\r\nContent-Length: 0\r\n\r\n"),
    "/switching": said(b"HTTP/1.1 101 On\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n\0\1"),
    "/half-head": said(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "/endless-trailer": forever(CHUNKED + b"2\r\nab\r\n0\r\nX-More: ", b"and more" * 1000),
    "/endless-extension": forever(CHUNKED + b"1;", b"more=more;" * 1000),
    "/tiny-chunks": forever(CHUNKED, b"1\r\na\r\n" * 1000),
    "/endless-lines": forever(b"", b"\r\n" * 1000),
}
PACKED: Pages = {
    "/gzip/joined": coded("x-gzip", gzip.compress(SQUEEZED[:50]) + gzip.compress(SQUEEZED[50:])),
    "/gzip/junk": coded("GZIP", ZIPPED + b"junk after the end"),
    "/gzip/once-said-twice": coded("gzip, gzip", ZIPPED),
    "/gzip/members": coded("gzip", NOTHING * 100_000),
    "/gzip/empty": coded("gzip", b""),
    "/deflate/not": coded("deflate", SQUEEZED),
    "/zstd/page": coded("zstd", zstd(SQUEEZED)),
    "/zstd/joined": coded("zstd", zstd(SQUEEZED[:50]) + zstd(SQUEEZED[50:])),
    "/zstd/not": coded("zstd", SQUEEZED),
    "/zstd/wide": coded("zstd", ZSTD + b"\xa0\x09\0\0x"),  # asks for a window of a gigabyte
    "/br/page": coded("br", b"\x0b\x02\x80small\x03"),
    "/br/not": coded("br", SQUEEZED),
    "/coding/none": coded("identity", SQUEEZED),
    "/coding/stack": coded("deflate, gzip", gzip.compress(zlib.compress(SQUEEZED))),
    "/coding/too-many": coded("gzip, gzip, gzip, gzip", ZIPPED),
}
CROOKED: Pages = FRAMES | PACKED
