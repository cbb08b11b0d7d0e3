"""A bounded sample of URLs that the door refused, by reason and host, so that the operator sees what is refused."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.door.batch import UrlVerdict
from usher.door.rules import Reason, Verdict

store = load_statements(__file__)
MAX_URLS_PER_HOST: Final = 5  # of one reason
MAX_HOSTS_WAITING: Final = 500  # reasons and hosts that are stored at once
MAX_URLS_STORED: Final = 10_000
MAX_URL_BYTES: Final = 2_000
MAX_DETAIL_CHARACTERS: Final = 300
# Refused until a later visit: that is no problem, and frequent.
EXPECTED_REASONS: Final = frozenset({Reason.PAGE_NOT_DUE, Reason.HOST_NOT_DUE})
SAMPLED_REASONS: Final = tuple(
    reason
    for reason in Reason
    if reason.verdict is Verdict.REFUSE and reason not in EXPECTED_REASONS
)


@dataclass(frozen=True, slots=True)
class RefusedUrl:
    """A URL that the door refused, with the reason; the host is empty if the text is no URL."""

    reason: str
    host: str
    url: str
    detail: str
    at: datetime


@dataclass(frozen=True, slots=True)
class RefusedReason:
    """A reason for which the door refused URLs: how many of the sample, of how many hosts, and the latest."""

    reason: str
    urls: int
    hosts: int
    latest: datetime


class RefusedSample:
    """The refused URLs that are not stored yet: the first few of each reason and host."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[Reason, str], dict[str, str]] = {}

    def add(self, answers: Iterable[UrlVerdict]) -> None:
        """Keep those of the answers that are refusals of interest."""
        for answer in answers:
            if answer.reason not in SAMPLED_SET:
                continue
            key = (answer.reason, answer.url.host if answer.url else "")
            urls = self._waiting.get(key)
            if urls is None:
                if len(self._waiting) >= MAX_HOSTS_WAITING:
                    continue
                urls = self._waiting[key] = {}
            if len(urls) < MAX_URLS_PER_HOST:
                text = str(answer.url) if answer.url else answer.given
                urls[storable(text)] = answer.detail[:MAX_DETAIL_CHARACTERS]

    async def store(self, conn: Connection, *, now: datetime) -> int:
        """Store the waiting URLs; returns how many."""
        waiting, self._waiting = self._waiting, {}
        rows = [
            (reason.value, host, url, detail)
            for (reason, host), urls in waiting.items()
            for url, detail in urls.items()
        ]
        if not rows:
            return 0
        reasons, hosts, urls, details = (list(column) for column in zip(*rows, strict=True))
        await store.store_sample.run(
            conn,
            reasons=reasons,
            hosts=hosts,
            urls=urls,
            details=details,
            each=MAX_URLS_PER_HOST,
            now=now,
        )
        await store.prune_sample.run(conn, most=MAX_URLS_STORED)
        return len(rows)


SAMPLED_SET: Final = frozenset(SAMPLED_REASONS)


def storable(text: str) -> str:
    """The text without NUL and surrogates, cut to what the table takes."""
    encoded = text.replace("\0", "").encode(errors="replace")[:MAX_URL_BYTES]
    return encoded.decode(errors="ignore")


async def refused_urls(
    conn: Connection,
    *,
    reason: str | None = None,
    host: str | None = None,
    contains: str | None = None,
    after: tuple[str, str, str] = ("", "", ""),
    n: int = 100,
) -> list[RefusedUrl]:
    """The sample by reason, host and URL, after this one; `contains` is a part of the URL or detail."""
    after_reason, after_host, after_url = after
    return await store.list_sample.rows(
        conn,
        RefusedUrl,
        reason=reason,
        host=host,
        contains=contains,
        after_reason=after_reason,
        after_host=after_host,
        after_url=after_url,
        n=n,
    )


async def refused_reasons(conn: Connection, *, host: str | None = None) -> list[RefusedReason]:
    """The reasons in the sample, those of most hosts first."""
    return await store.refused_reasons.rows(conn, RefusedReason, host=host, most=MAX_URLS_STORED)
