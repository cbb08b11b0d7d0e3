"""Content chunks: what was fetched, as one WARC 1.1 file with a gzip member for each record.

Comes from fetches, page by page; goes to a file that any WARC tool reads, under its name only once it is whole.

A page is up to three records: its `request`, Usher's own `metadata` (JSON, only if there is something to tell), and
its `response` or, where the content is what it was before, a `revisit`. A page without any answer has no third.
"""

import asyncio
import base64
import hashlib
import re
import secrets
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, Self

import msgspec

from usher import __version__
from usher.chunk_store import PartialFile, StoredFile

Truncated = Literal["", "length", "time", "disconnect", "unspecified"]
FLUSH_BYTES: Final = 1 << 18
THREAD_COMPRESS_BYTES: Final = 1 << 17  # bodies that are packed in a thread, lest everybody wait
SMALL, LARGE = 1 << 10, 1 << 13  # records that are not worth packing; that are worth a large window
NOT_MODIFIED: Final = 304
PROFILE: Final = "http://netpreserve.org/warc/1.1/revisit/"
STANDARD: Final = "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"
STATUS: Final = re.compile(rb"HTTP/\d(?:\.\d)? (\d{3})")
LINES: Final = re.IGNORECASE | re.MULTILINE
MASKED: Final = re.compile(rb"^(transfer-encoding|content-length)(?=[ \t]*:)", LINES)
# What deflate would only make longer.
PACKED: Final = re.compile(
    rb"^content-(?:encoding[ \t]*:[ \t]*(?!identity)\w"
    rb"|type[ \t]*:[ \t]*(?:image|audio|video|application/(?:pdf|zip|gzip|x-gzip))\b)",
    LINES,
)


@dataclass(frozen=True, slots=True)
class CrawlInfo:
    """Who crawls, and how; the first record of every file."""

    operator: str = ""
    contact: str = ""
    user_agent: str = ""
    robots: str = "obey"


@dataclass(frozen=True, slots=True)
class EarlierCapture:
    """Where the same content was seen before, as far as that is known."""

    url: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WarcPage:
    """One page as it was fetched.

    `request` and `head` are as they went over the wire, to the empty line; no `head` means no answer. `body` is as it
    was transferred, content encoding and all, but without chunks. With `earlier` it is not kept again.
    """

    url: str
    at: datetime
    request: bytes = b""
    head: bytes = b""
    body: bytes = b""
    ip: str = ""
    truncated: Truncated = ""
    earlier: EarlierCapture | None = None
    meta: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredWarc(StoredFile):
    """A content chunk on the disk; `records` is how many pages are in it."""

    records: int


class WarcWriter:
    """One content chunk in the making.

    Measured with gzip bodies of 4.7 kB and metadata, on two overloaded cores: 107 us of CPU for a page, 130 in files of
    50 with all that the disk costs. Level 1 on such bodies would take 170 us more and save 40 bytes.
    """

    def __init__(self, draft: PartialFile, about: CrawlInfo) -> None:
        self.records = 0
        self._draft = draft
        self._info, first = warcinfo(draft.path.name, about, datetime.now(UTC))
        self._waiting = [first]
        self._size = len(first)

    @classmethod
    def begin(cls, path: Path, about: CrawlInfo | None = None) -> Self:
        return cls(PartialFile(path), about or CrawlInfo())

    async def add(self, record: WarcPage) -> None:
        """One more page; many may be added at once."""
        if len(record.body) < THREAD_COMPRESS_BYTES:
            parts = encode_page(record, self._info)
        else:
            parts = await asyncio.to_thread(encode_page, record, self._info)
        self._waiting += parts
        self._size += sum(map(len, parts))
        self.records += 1
        if self._size >= FLUSH_BYTES:
            self._flush()

    async def close(self) -> StoredWarc:
        """The file under its own name, on the disk for good; the disk is waited for in a thread."""
        self._flush()
        kept = await asyncio.to_thread(self._draft.commit)
        return StoredWarc(kept.path, kept.sha256, kept.size, self.records)

    def abandon(self) -> None:
        """Leave nothing; after close() it changes nothing."""
        self._waiting.clear()
        self._draft.discard()

    def _flush(self) -> None:
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        self._draft.write(data)


def warcinfo(name: str, about: CrawlInfo, at: datetime) -> tuple[bytes, bytes]:
    """The first record and its id."""
    lines = {
        "software": f"Usher/{__version__}",
        "format": "WARC File Format 1.1",
        "conformsTo": STANDARD,
        "robots": about.robots,
        "operator": about.operator,
        "contact": about.contact,
        "http-header-user-agent": about.user_agent,
    }
    block = b"".join(field_of(key.encode(), value) for key, value in lines.items() if value)
    fields = field_of(b"WARC-Date", stamp(at)) + field_of(b"WARC-Filename", name)
    id_ = new_id()
    return id_, packed(warc(b"warcinfo", id_, fields, b"warc-fields", block))


def encode_page(record: WarcPage, info: bytes) -> list[bytes]:
    """The page's records as they go into the file."""
    return list(records(record, info))


def records(record: WarcPage, info: bytes) -> Iterator[bytes]:
    about = b"WARC-Target-URI: %b\r\nWARC-Date: %b\r\nWARC-Warcinfo-ID: %b\r\n" % (
        one_line(record.url),
        one_line(stamp(record.at)),
        info,
    )
    request, response = new_id() if record.request else b"", new_id() if record.head else b""
    if request:
        fields = about + together(response)
        block = closed(record.request)
        yield packed(warc(b"request", request, fields, b"http;msgtype=request", block))
    if record.meta or not response:
        fields = about + together(response or request)
        block = msgspec.json.encode(record.meta)
        yield packed(warc(b"metadata", new_id(), fields, b"json", block))
    if response:
        yield answered(record, response, about + together(request))


def together(other: bytes) -> bytes:
    """That a record belongs to another one, if there is one."""
    return b"WARC-Concurrent-To: %b\r\n" % other if other else b""


def answered(record: WarcPage, id_: bytes, fields: bytes) -> bytes:
    """The response; or that it was the same as before, with its head alone."""
    head = unchunked(closed(record.head), len(record.body))
    if record.ip:
        fields += field_of(b"WARC-IP-Address", record.ip)
    if record.truncated:
        fields += field_of(b"WARC-Truncated", record.truncated)
    unmodified = status_of(head) == NOT_MODIFIED
    if not unmodified:
        fields += b"WARC-Payload-Digest: %b\r\n" % digest(record.body)
    if unmodified or record.earlier:
        profile = "server-not-modified" if unmodified else "identical-payload-digest"
        fields += field_of(b"WARC-Profile", PROFILE + profile) + referring(record)
        return packed(warc(b"revisit", id_, fields, b"http;msgtype=response", head))
    whole = warc(b"response", id_, fields, b"http;msgtype=response", head + record.body)
    return packed(whole, plain=not PACKED.search(head))


def referring(record: WarcPage) -> bytes:
    earlier = record.earlier or EarlierCapture()
    found = field_of(b"WARC-Refers-To-Target-URI", earlier.url or record.url)
    return found + (field_of(b"WARC-Refers-To-Date", stamp(earlier.at)) if earlier.at else b"")


def field_of(name: bytes, value: str) -> bytes:
    return b"%b: %b\r\n" % (name, one_line(value))


def warc(type_: bytes, id_: bytes, fields: bytes, content: bytes, block: bytes) -> bytes:
    """A record as the standard wants it; `content` is what the block is, of all that applications know."""
    return (
        b"WARC/1.1\r\nWARC-Type: %b\r\nWARC-Record-ID: %b\r\n%b"
        b"Content-Type: application/%b\r\nWARC-Block-Digest: %b\r\nContent-Length: %d\r\n\r\n%b\r\n\r\n"
    ) % (type_, id_, fields, content, digest(block), len(block), block)


def packed(record: bytes, *, plain: bool = True) -> bytes:
    """A gzip member; what is small, or packed already, is only stored."""
    level = 1 if plain and len(record) > SMALL else 0
    window, memory = (31, 8) if level and len(record) > LARGE else (29, 5)
    deflate = zlib.compressobj(level, zlib.DEFLATED, window, memory)
    return deflate.compress(record) + deflate.flush()


def unchunked(head: bytes, length: int) -> bytes:
    """The head of a body whose chunks were put together.

    Tools that see Transfer-Encoding take chunks out of the body themselves, and some fail where there are none. So it
    goes by the name that Common Crawl gives it, and the true length is said instead.
    """
    if b"\ntransfer-encoding" not in head.lower():
        return head
    return b"%sContent-Length: %d\r\n\r\n" % (MASKED.sub(rb"X-Crawler-\1", head)[:-2], length)


def closed(head: bytes) -> bytes:
    """A head that ends as it should, whatever it came with."""
    if head.endswith(b"\r\n\r\n"):
        return head
    return b"\r\n".join(head.rstrip(b"\r\n").splitlines()) + b"\r\n\r\n"


def status_of(head: bytes) -> int:
    found = STATUS.match(head)
    return int(found[1]) if found else 0


def digest(data: bytes) -> bytes:
    return b"sha1:" + base64.b32encode(hashlib.sha1(data, usedforsecurity=False).digest())


def new_id() -> bytes:
    """A UUID of version 4, made without the class for it, which takes three times as long."""
    chance = secrets.token_hex(16)
    parts = (chance[:8], chance[8:12], f"4{chance[13:16]}", f"a{chance[17:20]}", chance[20:])
    return f"<urn:uuid:{'-'.join(parts)}>".encode()


def stamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def one_line(text: str) -> bytes:
    """A value of a header, which a line break would end."""
    if not text.isprintable():
        text = "".join(one if one.isprintable() else f"%{ord(one):02X}" for one in text)
    return text.encode("utf-8", "replace")
