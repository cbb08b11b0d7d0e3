"""The guestbook: every page we know, judged and settled in batches, one statement each."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple

from usher.db.pool import Connection
from usher.db.statements import array as written
from usher.db.statements import load_statements
from usher.door.rules import Knock, Reason

store = load_statements(__file__)
# A page that is unchanged, gone, moved elsewhere or barred by robots.txt was settled like one that was fetched.
FetchResult = Literal["success", "unchanged", "failure", "gone", "moved", "barred"]
STALE: Final = "?"
FRESH: Final = frozenset("NQ")  # letters of pages that were not known before
LETTERS: Final = {
    "w": Reason.ALREADY_WAITING,
    "P": Reason.SINGLE_PASS,
    "Q": Reason.SINGLE_PASS,
    "D": Reason.PAGE_DUE,
    "p": Reason.PAGE_NOT_DUE,
    "N": Reason.NEW_PAGE,
    "h": Reason.HOST_NOT_DUE,
    "F": Reason.FULL_PASS,
    "H": Reason.HOST_DUE,
}


@dataclass(slots=True)
class PackedUrls:
    """Different URLs, packed for the statements: hosts once each, then place, path and scheme of every URL."""

    hosts: dict[int, int] = field(default_factory=dict)  # number → place, from 1
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
    """PostgreSQL's own text for an array; the driver would take ten times as long over a list."""
    return "{" + ",".join(map(str, values)) + "}"


async def disable_sequential_scans(conn: Connection) -> None:
    """For the rest of the transaction no table is read from end to end."""
    await store.disable_sequential_scans.tuples(conn)


async def knock(
    conn: Connection,
    batch: PackedUrls,
    *,
    knock: Knock,
    house_revision: int,
    now: datetime,
    depth: int = 0,
) -> tuple[str, int]:
    """One letter for each URL, and how many other pages of their hosts came in with them."""
    given = {
        "hosts": array_text(batch.hosts),
        "revisions": array_text(batch.revisions),
        "places": array_text(batch.places),
        "paths": "\n".join(batch.paths),
        "schemes": bytes(batch.schemes),
        "hall_pass": knock.hall_pass,
        "house_revision": house_revision,
        "depth": depth,
        "grace": knock.grace,
        "source": knock.source or "",
        "now": now,
    }
    await disable_sequential_scans(conn)
    if knock.kind == "full":
        ((letters, brought),) = await store.knock_full.tuples(conn, **given)
        return letters or "", brought
    ((letters,),) = await store.knock_single.tuples(conn, **given)
    return letters or "", 0


async def hint(
    conn: Connection, batch: PackedUrls, *, changed: Sequence[datetime], now: datetime
) -> int:
    """Have pages come sooner that their site says have changed; how many do."""
    await disable_sequential_scans(conn)
    return await store.hint.run(
        conn,
        hosts=array_text(batch.hosts),
        places=array_text(batch.places),
        paths="\n".join(batch.paths),
        changed=array_text([moment.isoformat() for moment in changed]),
        now=now,
    )


class PageReport(NamedTuple):
    """What a fetch of one page brought."""

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


# What the parameters are called that take each field of all outcomes.
COLUMNS: Final = (
    "domain64s", "paths", "results", "chunks", "statuses", "types", "lengths", "hashes", "etags", "modified", "texts",
    "hidden", "schemes", "reasons",
)  # fmt: skip


class SettledPage(NamedTuple):
    """A page as it is now, in which chunk its text was `before` and is `after`, and whether others of its host wait."""

    domain64: int
    path: str
    state: str
    next_fetch: datetime
    id: int
    before: int | None
    after: int | None
    waits: bool


async def settle(
    conn: Connection, *, outcomes: Sequence[PageReport], now: datetime
) -> list[SettledPage]:
    """Record what fetches brought; only pages that were being crawled in that chunk are returned and changed."""
    return await store.settle.rows(conn, SettledPage, **report_columns(outcomes), now=now)


def report_columns(outcomes: Sequence[PageReport]) -> dict[str, str | None]:
    """Outcomes as the arrays that functions of the schema take, by the names of our parameters."""
    values = zip(*outcomes, strict=True) if outcomes else [()] * len(COLUMNS)
    return dict(zip(COLUMNS, map(written, values), strict=True))


async def close_crawls(conn: Connection, *, domain64s: Sequence[int], now: datetime) -> list[int]:
    """End the open crawls of these hosts where nothing waits any more; returns whose ended."""
    found = await store.close_crawls.tuples(conn, domain64s=list(domain64s), now=now)
    return [number for (number,) in found]


class RecrawlEntrance(NamedTuple):
    """Where to knock for a whole host (its root if there is no path), and how many of its pages are being crawled."""

    host: str
    scheme: int | None
    path: str | None
    crawling: int


async def recrawl_entrances(conn: Connection, *, hosts: Sequence[int]) -> list[RecrawlEntrance]:
    """The entrance of each host, by its number."""
    rows = await store.recrawl_entrances.tuples(conn, hosts=list(hosts))
    return [RecrawlEntrance(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class GuestbookPage:
    """A page with all we know of it."""

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


async def page(conn: Connection, *, domain64: int, path: str) -> GuestbookPage | None:
    return await store.page.row(conn, GuestbookPage, domain64=domain64, path=path)
