"""What came of one request: the answer as it was sent, the body as it was meant, or why there is none.

Comes from `fetch`, filled in by the line while it is read. Goes to whoever walks the page, minds the host's pace and
writes the content chunk.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Literal

from usher import urls
from usher.urls import Url

FailureKind = Literal[
    "", "scheme", "port", "private", "own", "dns", "refused", "connect", "tls", "timeout", "reset", "head",
    "body", "protocol", "encoding",
]  # fmt: skip


class FetchFailure(Exception):
    """Why there is no answer, or no whole one; stays inside the client."""

    def __init__(self, kind: FailureKind, words: str) -> None:
        super().__init__(words)
        self.kind: FailureKind = kind
        self.words = words


@dataclass(slots=True)
class FetchResponse:
    """An answer, or as much of one as there was; `error` is one sentence and `kind` one word for counting."""

    url: Url
    request: bytes = b""  # as sent
    status: int | None = None
    reason: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    raw: bytes = b""  # as transferred, without its chunks
    body: bytes = b""  # without its codings
    truncated: bool = False
    ip: str = ""
    error: str = ""
    kind: FailureKind = ""
    sent_at: float = 0.0  # on the loop's clock, as the next
    head_at: float = 0.0
    seconds: float = 0.0  # from the look at the name to the last byte

    def fail(self, kind: FailureKind, words: str) -> None:
        """Note what went wrong; the first trouble is the cause of any other."""
        self.truncated = self.truncated or self.status is not None
        if not self.kind:
            self.kind, self.error = kind, words

    def headers_of(self, name: str) -> list[str]:
        """Every value of a header, as often as it was sent."""
        name = name.lower()
        return [value for key, value in self.headers if key.lower() == name]

    def header(self, name: str) -> str:
        """All values of a header that is a list, as one."""
        return ", ".join(self.headers_of(name))

    def first(self, name: str) -> str:
        """The first value of a header that makes no sense twice."""
        return next(iter(self.headers_of(name)), "").strip()

    @property
    def media_type(self) -> str:
        return self.first("content-type").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str:
        """The charset that the header names, as it names it, in lower case."""
        said = self.first("content-type")
        if "charset" not in said.lower():
            return ""
        message = Message()
        message["Content-Type"] = said
        return str(message.get_param("charset", "")).strip("\"' ").lower()

    @property
    def etag(self) -> str | None:
        return self.first("etag") or None

    @property
    def last_modified(self) -> datetime | None:
        return _date(self.first("last-modified"))

    @property
    def location(self) -> Url | None:
        """Where a redirect leads, if to a URL of ours."""
        said = self.first("location")
        if not said or self.status is None or not 300 <= self.status < 400:  # noqa: PLR2004 - redirects
            return None
        found = urls.parse(_as_meant(said), self.url)
        return found if isinstance(found, Url) else None

    def retry_after(self, now: datetime) -> float | None:
        """How many seconds from now we are asked to stay away."""
        said = self.first("retry-after")
        if said.isascii() and said.isdecimal():
            return float(said[:12])
        date = _date(said)
        return None if date is None else max(0.0, (date - now).total_seconds())


def format_bytes(size: int) -> str:
    """A number of bytes as people say it."""
    for unit, word in ((1_000_000, "MB"), (1_000, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {word}"
    return f"{size} bytes"


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def _as_meant(text: str) -> str:
    """Headers are read as latin-1; a location that is not ASCII was written in UTF-8 more often than not."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text
