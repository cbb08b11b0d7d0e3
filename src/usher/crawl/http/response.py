"""The response to one request: as the host sent it, decoded, or why there is none."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Final, Literal

from usher import urls
from usher.urls import Url

REDIRECT_STATUSES: Final = frozenset({301, 302, 303, 307, 308})
FailureKind = Literal[
    "", "scheme", "port", "private", "own", "dns", "refused", "connect", "tls", "timeout", "reset", "head",
    "body", "protocol", "encoding",
]  # fmt: skip


class FetchFailure(Exception):
    """Why there is no response, or no complete one; never leaves this package."""

    def __init__(self, kind: FailureKind, words: str) -> None:
        super().__init__(words)
        self.kind: FailureKind = kind
        self.words = words


@dataclass(slots=True)
class FetchResponse:
    """A response, complete or not; `error` says what is wrong with it and `kind` classifies that."""

    url: Url
    request: bytes = b""  # as sent
    status: int | None = None
    reason: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    raw: bytes = b""  # the body as transferred, without chunked encoding
    body: bytes = b""  # without content codings
    truncated: bool = False
    ip: str = ""
    error: str = ""
    kind: FailureKind = ""
    sent_at: float = 0.0  # on the loop's clock, as the next
    head_at: float = 0.0
    seconds: float = 0.0  # from the DNS lookup to the last byte

    def fail(self, kind: FailureKind, words: str) -> None:
        """Note a failure; the first one is the cause of the others."""
        self.truncated = self.truncated or self.status is not None
        if not self.kind:
            self.kind, self.error = kind, words

    def headers_of(self, name: str) -> list[str]:
        """Return every value of a header."""
        name = name.lower()
        return [value for key, value in self.headers if key.lower() == name]

    def header(self, name: str) -> str:
        """Return all values of a header that is a list, joined."""
        return ", ".join(self.headers_of(name))

    def first(self, name: str) -> str:
        """Return the first value of a header that may occur only once."""
        return next(iter(self.headers_of(name)), "").strip()

    @property
    def media_type(self) -> str:
        return self.first("content-type").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str:
        """The charset that the header declares, in lower case."""
        content_type = self.first("content-type")
        if "charset" not in content_type.lower():
            return ""
        message = Message()
        message["Content-Type"] = content_type
        return str(message.get_param("charset", "")).strip("\"' ").lower()

    @property
    def etag(self) -> str | None:
        return self.first("etag") or None

    @property
    def last_modified(self) -> datetime | None:
        return _parse_date(self.first("last-modified"))

    @property
    def location(self) -> Url | None:
        """The target of a redirect, if it is a valid URL."""
        location = self.first("location")
        if not location or self.status is None or not 300 <= self.status < 400:  # noqa: PLR2004 - redirects
            return None
        target = urls.parse(_as_utf8(location), self.url)
        return target if isinstance(target, Url) else None

    def retry_after(self, now: datetime) -> float | None:
        """Return the seconds of a Retry-After header; None without one."""
        value = self.first("retry-after")
        if value.isascii() and value.isdecimal():
            return float(value[:12])
        date = _parse_date(value)
        return None if date is None else max(0.0, (date - now).total_seconds())


def format_bytes(size: int) -> str:
    for unit, word in ((1_000_000, "MB"), (1_000, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {word}"
    return f"{size} bytes"


def _parse_date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def _as_utf8(text: str) -> str:
    """Decode a header again: headers are read as latin-1, but most locations that are not ASCII are UTF-8."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text
