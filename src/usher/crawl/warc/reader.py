"""Content chunks read back: one entry for each page, from any WARC file, compressed with gzip or not.

Comes from a file that may be cut short, damaged or made by somebody else; goes to the builder. No more than one page is
in memory, and of that no more than the limit.
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
    """A page: fetched (`page`), as it was before (`unchanged`), or without an answer (`failed`).

    `body` is without its codings. `truncated` says why there is less of it than there was, `problem` why it cannot be
    had as it was meant. Names of `headers` are in lower case, and in their order.
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
        """All values of a header, as one."""
        return ", ".join(value for key, value in self.headers if key == name)


def read_entries(path: Path, *, name: str = "", most: int = MAX_BODY_BYTES) -> Iterator[WarcEntry]:
    """The pages of a content chunk; BadContent where it is damaged, after all that came whole before that.

    Errors call the file by its `name`, because other machines show them; without one by its path.
    """
    pages, name = 0, name or str(path)
    try:
        with path.open("rb") as file:
            for entry in joined(read_records(file, most + MAX_HEAD_BYTES), most):
                yield entry
                pages += 1
    except NotWarc as error:
        raise BadContent(f"{name} is not a WARC file, uncompressed or in gzip.") from error
    except (DamagedWarc, EOFError, zlib.error) as error:
        after = f"after {pages} whole pages" if pages else "from the start"
        raise BadContent(f"{name} is damaged {after}: {error}.") from error
    except FileNotFoundError as error:
        raise NotFound(f"There is no {name}.") from error
    except OSError as error:
        raise DiskUnusable(f"{name} cannot be read: {error.strerror}.") from error


def joined(found: Iterator[WarcRecord], most: int) -> Iterator[WarcEntry]:
    """Records as pages; what our own files tell of a page comes right before it."""
    request, about, meta = "", "", dict[str, Any]()
    for raw in found:
        id_, other = raw.fields.get("warc-record-id", ""), raw.fields.get("warc-concurrent-to", "")
        match raw.fields.get("warc-type"):
            case "request":
                request = id_
            case "metadata" if media_type(raw) == "application/json":
                about, meta = other, told(raw)
                if other in ("", request):
                    yield replace(begun(raw, "failed"), meta=meta)
            case "response" if media_type(raw) == "application/http":
                yield answered(raw, "page", meta if about == id_ else {}, most)
            case "revisit":
                yield answered(raw, "unchanged", meta if about == id_ else {}, most)


def media_type(raw: WarcRecord) -> str:
    return raw.fields.get("content-type", "").partition(";")[0].strip().lower()


def told(raw: WarcRecord) -> dict[str, Any]:
    if raw.cut or len(raw.block) > MAX_METADATA_BYTES:
        raise DamagedWarc(f"the metadata of a page has more than {MAX_METADATA_BYTES:,} bytes")
    with suppress(msgspec.MsgspecError, RecursionError):
        return msgspec.json.decode(raw.block, type=dict[str, Any])
    return {}


def begun(raw: WarcRecord, kind: EntryKind) -> WarcEntry:
    """What a record's own fields say."""
    url = raw.fields.get("warc-target-uri", "").removeprefix("<").removesuffix(">")
    try:
        at = datetime.fromisoformat(raw.fields.get("warc-date", ""))
    except ValueError:
        raise DamagedWarc("a record does not say from when it is") from None
    if not url:
        raise DamagedWarc("a record does not say of which page it is")
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    truncated = raw.fields.get("warc-truncated", "length" if raw.cut else "")
    return WarcEntry(url, at, kind, ip=raw.fields.get("warc-ip-address", ""), truncated=truncated)


def answered(raw: WarcRecord, kind: EntryKind, meta: dict[str, Any], most: int) -> WarcEntry:
    """An answer of HTTP; whatever a server sent, there is an entry."""
    head, _, body = raw.block.partition(b"\r\n\r\n")
    if len(head) > MAX_HEAD_BYTES:
        return replace(begun(raw, kind), meta=meta, problem="the head of the answer is too long")
    status = STATUS.match(head)
    headers = tuple(parse_fields(head.decode("latin-1").splitlines()[1:]))
    entry = replace(begun(raw, kind), headers=headers, meta=meta)
    if status is None:
        return replace(entry, problem="the answer is no HTTP")
    if "chunked" in entry.header("transfer-encoding").lower():
        body = unchunked(body)
    unpacked = decompress(body, entry.header("content-encoding"), most)
    cut = unpacked.kind == "body" or len(unpacked.body) > most
    return replace(
        entry,
        status=int(status[1]),
        body=unpacked.body[:most],
        truncated=entry.truncated or ("length" if cut else ""),
        problem=unpacked.words,
    )


def unchunked(body: bytes) -> bytes:
    """A body as other crawlers may keep it, with its chunks put together; some keep it without them."""
    parts, at = list[bytes](), 0
    while found := CHUNK.match(body, at):
        size = int(found[1], 16)
        parts.append(body[found.end() : found.end() + size])
        at = found.end() + size + 2
        if size == 0 or at > len(body):
            return b"".join(parts)
    return b"".join(parts) if parts else body
