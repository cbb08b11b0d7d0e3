"""Reads content chunks: one entry for each page, from any WARC file, compressed with gzip or not.

The file may be truncated, damaged or written by another program. At most one page is in memory, up to a size limit.
"""

import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from usher.crawl.http.decompress import decompress
from usher.crawl.warc.records import DamagedWarc, NotWarc, WarcRecord, parse_fields, read_records
from usher.crawl.warc.writer import STATUS
from usher.errors import BadContent, DiskUnusable, NotFound

MAX_BODY_BYTES: Final = 20_000_000
MAX_HEAD_BYTES: Final = 1 << 20
MAX_METADATA_BYTES: Final = 1 << 20  # Usher writes less than 2 kB
CHUNK: Final = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\n]*)?\r?\n")
EntryKind = Literal["page", "unchanged", "failed"]


@dataclass(frozen=True, slots=True)
class WarcEntry:
    """A page that was fetched (`page`), did not change (`unchanged`), or has no response (`failed`).

    `body` is without its codings. `truncated` says why it is incomplete, `problem` why it could not be decoded. Names
    of `headers` are in lower case, in their order.
    """

    url: str
    at: datetime
    kind: EntryKind
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    meta: dict[str, Any] = field(default_factory=dict)
    ip: str = ""
    truncated: str = ""
    problem: str = ""

    def header(self, name: str) -> str:
        """Return all values of a header, joined."""
        return ", ".join(value for key, value in self.headers if key == name)


def read_entries(
    path: Path, *, name: str = "", max_body: int = MAX_BODY_BYTES
) -> Iterator[WarcEntry]:
    """Yield the pages of a content chunk; raise BadContent at the first damaged record.

    Errors call the file by its `name`, because other machines show them; without one by its path.
    """
    pages, name = 0, name or str(path)
    try:
        with path.open("rb") as file:
            for entry in join_records(read_records(file, max_body + MAX_HEAD_BYTES), max_body):
                yield entry
                pages += 1
    except NotWarc as error:
        raise BadContent(f"{name} is not a WARC file, uncompressed or in gzip.") from error
    except (DamagedWarc, EOFError, zlib.error) as error:
        where = f"after {pages} complete pages" if pages else "from the start"
        raise BadContent(f"{name} is damaged {where}: {error}.") from error
    except FileNotFoundError as error:
        raise NotFound(f"There is no {name}.") from error
    except OSError as error:
        raise DiskUnusable(f"{name} cannot be read: {error.strerror}.") from error


def join_records(records: Iterator[WarcRecord], max_body: int) -> Iterator[WarcEntry]:
    """Combine the records of each page; in Usher's files the metadata precedes the response."""
    request, meta_of, meta = "", "", dict[str, Any]()
    for record in records:
        id_ = record.fields.get("warc-record-id", "")
        other = record.fields.get("warc-concurrent-to", "")
        match record.fields.get("warc-type"):
            case "request":
                request = id_
            case "metadata" if media_type(record) == "application/json":
                meta_of, meta = other, parse_metadata(record)
                if other in ("", request):
                    yield replace(entry_of(record, "failed"), meta=meta)
            case "response" if media_type(record) == "application/http":
                yield parse_response(record, "page", meta if meta_of == id_ else {}, max_body)
            case "revisit":
                yield parse_response(record, "unchanged", meta if meta_of == id_ else {}, max_body)


def media_type(record: WarcRecord) -> str:
    return record.fields.get("content-type", "").partition(";")[0].strip().lower()


def parse_metadata(record: WarcRecord) -> dict[str, Any]:
    if record.cut or len(record.block) > MAX_METADATA_BYTES:
        raise DamagedWarc(f"the metadata of a page has more than {MAX_METADATA_BYTES:,} bytes")
    with suppress(msgspec.MsgspecError, RecursionError):
        return msgspec.json.decode(record.block, type=dict[str, Any])
    return {}


def entry_of(record: WarcRecord, kind: EntryKind) -> WarcEntry:
    """Return an entry with the fields of a record."""
    url = record.fields.get("warc-target-uri", "").removeprefix("<").removesuffix(">")
    try:
        at = datetime.fromisoformat(record.fields.get("warc-date", ""))
    except ValueError:
        raise DamagedWarc("a record has no valid date") from None
    if not url:
        raise DamagedWarc("a record has no URL")
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    truncated = record.fields.get("warc-truncated", "length" if record.cut else "")
    ip = record.fields.get("warc-ip-address", "")
    return WarcEntry(url, at, kind, ip=ip, truncated=truncated)


def parse_response(
    record: WarcRecord, kind: EntryKind, meta: dict[str, Any], max_body: int
) -> WarcEntry:
    """Return the entry of an HTTP response, also of an invalid one."""
    head, _, body = record.block.partition(b"\r\n\r\n")
    entry = replace(entry_of(record, kind), meta=meta)
    if len(head) > MAX_HEAD_BYTES:
        return replace(entry, problem="the head of the response is too long")
    headers = tuple(parse_fields(head.decode("latin-1").splitlines()[1:]))
    entry = replace(entry, headers=headers)
    status = STATUS.match(head)
    if status is None:
        return replace(entry, problem="the response is not HTTP")
    if "chunked" in entry.header("transfer-encoding").lower():
        body = join_chunks(body)
    content = decompress(body, entry.header("content-encoding"), max_body)
    cut = content.kind == "body" or len(content.body) > max_body
    return replace(
        entry,
        status=int(status[1]),
        body=content.body[:max_body],
        truncated=entry.truncated or ("length" if cut else ""),
        problem=content.words,
    )


def join_chunks(body: bytes) -> bytes:
    """Join the chunks of a body; other crawlers store it with chunks, or without them despite the header."""
    parts, at = list[bytes](), 0
    while chunk := CHUNK.match(body, at):
        size = int(chunk[1], 16)
        parts.append(body[chunk.end() : chunk.end() + size])
        at = chunk.end() + size + 2
        if size == 0 or at > len(body):
            return b"".join(parts)
    return b"".join(parts) if parts else body
