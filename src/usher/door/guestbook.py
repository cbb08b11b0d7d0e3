"""The guestbook: every page that Usher knows, judged and settled in batches, one statement each."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from usher.db.pool import Connection
from usher.db.statements import array as array_or_null
from usher.db.statements import load_statements
from usher.door.rules import Knock, Reason
from usher.urls import url_text

store = load_statements(__file__)
# A page that is unchanged, gone, moved elsewhere or barred by robots.txt is settled like one that was fetched.
FetchResult = Literal["success", "unchanged", "failure", "gone", "moved", "barred"]


class UrlJudgement(NamedTuple):
    """The answer to one URL; without a reason if the host changed since the caller read it."""

    reason: Reason | None
    is_new_page: bool = False


# The letter with which knock_single and knock_full answer each URL.
JUDGEMENTS: Final[Mapping[str, UrlJudgement]] = MappingProxyType(
    {
        "?": UrlJudgement(None),
        "w": UrlJudgement(Reason.ALREADY_WAITING),
        "P": UrlJudgement(Reason.SINGLE_PASS),
        "Q": UrlJudgement(Reason.SINGLE_PASS, is_new_page=True),
        "D": UrlJudgement(Reason.PAGE_DUE),
        "p": UrlJudgement(Reason.PAGE_NOT_DUE),
        "N": UrlJudgement(Reason.NEW_PAGE, is_new_page=True),
        "h": UrlJudgement(Reason.HOST_NOT_DUE),
        "F": UrlJudgement(Reason.FULL_PASS),
        "H": UrlJudgement(Reason.HOST_DUE),
    }
)


@dataclass(slots=True)
class PackedUrls:
    """Distinct URLs: each host once, then for every URL the position of its host, its path and its scheme."""

    hosts: dict[int, int] = field(default_factory=dict)  # domain64 → position, from 1
    revisions: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    schemes: bytearray = field(default_factory=bytearray)

    def add(self, domain64: int, revision: int, path: str, scheme: int) -> None:
        place = self.hosts.get(domain64)
        if place is None:
            place = self.hosts[domain64] = len(self.hosts) + 1
            self.revisions.append(revision)
        self.places.append(place)
        self.paths.append(path)
        self.schemes.append(scheme)

    def without(self, positions: Collection[int]) -> "PackedUrls":
        """The same without the URLs at these positions."""
        stay = [at for at in range(len(self.paths)) if at not in positions]
        return PackedUrls(
            self.hosts,
            self.revisions,
            [self.places[at] for at in stay],
            [self.paths[at] for at in stay],
            bytearray(self.schemes[at] for at in stay),
        )


def array_text(values: Iterable[object]) -> str:
    """A PostgreSQL array of numbers or times as text: the driver takes ten times as long for a list."""
    return "{" + ",".join(map(str, values)) + "}"


def pack_paths(paths: Iterable[str]) -> str:
    """Paths for `string_to_table` in the statements; a path contains no newline."""
    return "\n".join(paths)


def unpack_judgements(letters: str | None) -> list[UrlJudgement]:
    """The answer of a knock statement, one letter for each URL."""
    return [JUDGEMENTS[letter] for letter in letters or ""]


async def disable_sequential_scans(conn: Connection) -> None:
    """For the rest of the transaction PostgreSQL reads no table from end to end."""
    await store.disable_sequential_scans.tuples(conn)


async def knock(
    conn: Connection,
    urls: PackedUrls,
    *,
    knock: Knock,
    settings_revision: int,
    now: datetime,
    depth: int = 0,
) -> tuple[list[UrlJudgement], int]:
    """Judge the URLs and queue the admitted ones.

    Returns a judgement for each URL, and how many other pages of their hosts a full knock queued with them.
    """
    parameters = {
        "hosts": array_text(urls.hosts),
        "revisions": array_text(urls.revisions),
        "places": array_text(urls.places),
        "paths": pack_paths(urls.paths),
        "schemes": bytes(urls.schemes),
        "hall_pass": knock.hall_pass,
        "settings_revision": settings_revision,
        "depth": depth,
        "grace": knock.grace,
        "source": knock.source or "",
        "now": now,
    }
    await disable_sequential_scans(conn)
    if knock.kind == "full":
        ((letters, brought),) = await store.knock_full.tuples(conn, **parameters)
        return unpack_judgements(letters), brought
    return unpack_judgements(await store.knock_single.value(conn, **parameters)), 0


async def hint(
    conn: Connection, urls: PackedUrls, *, changed: Sequence[datetime], now: datetime
) -> int:
    """Make pages due earlier that changed according to their site; returns how many."""
    await disable_sequential_scans(conn)
    return await store.hint.run(
        conn,
        hosts=array_text(urls.hosts),
        places=array_text(urls.places),
        paths=pack_paths(urls.paths),
        changed=array_text([moment.isoformat() for moment in changed]),
        now=now,
    )


class FetchReport(NamedTuple):
    """The result of fetching one page; the statements name their parameters after these fields."""

    domain64: int
    path: str
    result: FetchResult
    chunk_id: int | None = None
    status: int | None = None
    content_type: int = 1
    content_length: int = 0
    content_sha1: str | None = None
    etag: str | None = None
    last_modified: datetime | None = None
    text64: int | None = None
    noindex: bool = False
    scheme: int | None = None
    reason: str | None = None


class SettledPage(NamedTuple):
    """A settled page, the chunk its text was in `before` and is in `after`, and whether its host has pending pages."""

    domain64: int
    path: str
    state: str
    next_fetch: datetime
    id: int
    before: int | None
    after: int | None
    waits: bool


async def settle(
    conn: Connection, *, reports: Sequence[FetchReport], now: datetime
) -> list[SettledPage]:
    """Record the results of fetches; changes and returns only pages that were being crawled in that chunk."""
    return await store.settle.rows(conn, SettledPage, **report_columns(reports), now=now)


def report_columns(reports: Sequence[FetchReport]) -> dict[str, str | None]:
    """One array for each field of the reports, by the name of the field."""
    columns = zip(*reports, strict=True) if reports else [()] * len(FetchReport._fields)
    return dict(zip(FetchReport._fields, map(array_or_null, columns), strict=True))


async def close_crawls(conn: Connection, *, domain64s: Sequence[int], now: datetime) -> list[int]:
    """End the open crawls of those hosts that have no page left to crawl; returns these hosts."""
    return await store.close_crawls.column(conn, domain64s=list(domain64s), now=now)


@dataclass(frozen=True, slots=True)
class GuestbookRow:
    """The row of a page."""

    id: int
    domain64: int
    path: str
    scheme: int
    state: str
    priority: int
    next_fetch: datetime
    admitted_at: datetime | None
    last_fetched: datetime | None
    last_modified: datetime | None
    content_length: int
    content_type: str | None
    content_sha1: str | None
    etag: str | None
    status: int | None
    failures: int
    gone: bool
    cadence: timedelta | None
    chunk_id: int | None
    depth: int


async def page(conn: Connection, *, domain64: int, path: str) -> GuestbookRow | None:
    return await store.page.row(conn, GuestbookRow, domain64=domain64, path=path)


@dataclass(frozen=True, slots=True)
class FailedPage:
    """A page whose last fetch failed, and when it is due again."""

    id: int
    scheme: int
    host: str
    path: str
    depth: int
    next_fetch: datetime

    @property
    def url(self) -> str:
        return url_text(self.scheme, self.host, self.path)


async def failed_and_due(
    conn: Connection, *, now: datetime, after: datetime, after_id: int, n: int
) -> list[FailedPage]:
    return await store.failed_and_due.rows(
        conn, FailedPage, now=now, after=after, after_id=after_id, n=n
    )
