"""The census: whether a new page of a host may come in, by how many pages the host has and how deep the page is.

Comes from what the door lets in, and from the server, which is seldom asked to count: first when a small host knocks or
when a thousand new pages of another one came in, then ever more often as its room shrinks. Goes to the doorkeeper. No
page is ever deleted, so a number is never too high; how many others let in meanwhile shows at the next count.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.door import guestbook
from usher.door.guestbook import FRESH, PackedUrls, array_text
from usher.door.host_cache import MAX_CACHED_HOSTS, SMALL_HOST_PAGES, CachedHost
from usher.door.rules import Reason, limit_reason

store = load_statements(__file__)
MAX_PAGES_BETWEEN_COUNTS = (
    1_000  # new pages of a host that we let in without asking how many others did
)
ROOM_DIVISOR = 8  # of its room is let in between two counts, so that as many processes do no harm
MAX_CONCURRENT_BATCHES_PER_HOST = 4  # with more at once, a host may exceed its limit


@dataclass(frozen=True, slots=True)
class PageCount:
    """How many pages a host had, counted up to `most`."""

    number: int
    most: int


@dataclass(frozen=True, slots=True)
class LimitDecision:
    """Positions in a batch that stay out and why, and how many new pages of its hosts are on their way in."""

    out: dict[int, Reason] = field(default_factory=dict)
    held: Counter[int] = field(default_factory=Counter)


async def count_up_to(conn: Connection, *, mosts: dict[int, int]) -> dict[int, int]:
    """How many pages these hosts have, each counted up to the number given for it."""
    await guestbook.disable_sequential_scans(conn)
    found = await store.count_up_to.tuples(
        conn, domain64s=array_text(mosts), mosts=array_text(mosts.values())
    )
    return dict(found)


async def find_known_pages(
    conn: Connection, *, domain64s: Sequence[int], paths: Sequence[str]
) -> Collection[int]:
    """Which of these pages are in the guestbook: their places in the lists."""
    await guestbook.disable_sequential_scans(conn)
    found = await store.find_known_pages.tuples(
        conn, domain64s=array_text(domain64s), paths="\n".join(paths)
    )
    return {position - 1 for (position,) in found}


class PageLimits:
    """One for each process."""

    def __init__(self) -> None:
        self._counted: dict[int, PageCount] = {}
        self._since = Counter[int]()  # let in by us since it was counted
        self._held = Counter[int]()  # on their way in
        self._being_counted: set[int] = set()
        self._changed = asyncio.Event()  # a new one each time somebody is done

    def concerned(self, hosts: Iterable[CachedHost], *, depth: int) -> list[CachedHost]:
        """Those of which a new page may have to stay out; nothing is asked of the others."""
        counted, since = self._counted, self._since.get
        return [
            host
            for host in hosts
            if host.strict
            or (number := host.domain64) in counted
            or since(number, 0) >= MAX_PAGES_BETWEEN_COUNTS
            or depth > host.max_depth
        ]

    def uncounted(self, hosts: Iterable[CachedHost]) -> dict[int, int]:
        """Up to which number to count the pages of which hosts, before one may be let in."""
        return {host.domain64: host.max_pages for host in hosts if self._asks(host)}

    def _asks(self, host: CachedHost) -> bool:
        since, last = self._since[host.domain64], self._counted.get(host.domain64)
        if host.pages >= host.max_pages:
            return False
        if last is None:
            return host.max_pages <= SMALL_HOST_PAGES or since >= MAX_PAGES_BETWEEN_COUNTS
        if last.number >= last.most:
            return last.most < host.max_pages
        room = host.max_pages - last.number
        step = max(1, min(MAX_PAGES_BETWEEN_COUNTS, host.max_pages // 10), room // ROOM_DIVISOR)
        return room > 0 and since >= min(room, step)

    async def count(self, conn: Connection, mosts: dict[int, int]) -> None:
        """Ask the server for numbers that nobody else asks for meanwhile.

        Of pages that are on their way nobody knows whether it sees them: those that are are waited for, and no others
        set out until it has counted.
        """
        before = {number: self._counted.get(number) for number in mosts}
        await self._until(lambda: self._being_counted.isdisjoint(mosts))
        due = {n: most for n, most in mosts.items() if self._counted.get(n) is before[n]}
        self._being_counted |= due.keys()
        try:
            await self._until(lambda: not any(self._held[number] for number in due))
            for number, pages in (await count_up_to(conn, mosts=due)).items() if due else ():
                self._counted[number] = PageCount(pages, due[number])
                self._since[number] = 0
        finally:
            self._being_counted -= due.keys()
            self._wake()

    async def _until(self, true: Callable[[], bool]) -> None:
        while not true():
            await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def room(self, host: CachedHost) -> int:
        """How many new pages may come in, as far as we know."""
        last = self._counted.get(host.domain64)
        ours = self._since[host.domain64] + self._held[host.domain64]
        return host.max_pages - max(host.pages, ours + (last.number if last else 0))

    async def sort(
        self, conn: Connection, batch: PackedUrls, hosts: Sequence[CachedHost], *, depth: int
    ) -> LimitDecision:
        """Which new pages of the batch stay out; what is known is for the table to judge."""
        tight = self._tight(batch, hosts, depth)
        if not tight:
            return LimitDecision()
        doubtful = [at for at, place in enumerate(batch.places) if place in tight]
        there = await find_known_pages(
            conn,
            domain64s=[tight[batch.places[at]].domain64 for at in doubtful],
            paths=[batch.paths[at] for at in doubtful],
        )
        new = [(at, tight[batch.places[at]]) for n, at in enumerate(doubtful) if n not in there]
        numbers = {host.domain64 for _, host in new}
        await self._until(lambda: self._being_counted.isdisjoint(numbers))
        return self._let_in(new, depth)

    def _tight(
        self, batch: PackedUrls, hosts: Sequence[CachedHost], depth: int
    ) -> dict[int, CachedHost]:
        """The hosts, by their place, that may not take all the URLs of the batch."""
        urls = Counter(batch.places)
        places = {batch.hosts.get(host.domain64, 0): host for host in hosts}
        return {
            place: host
            for place, host in places.items()
            if place
            and (
                depth > host.max_depth
                or self.room(host) < MAX_CONCURRENT_BATCHES_PER_HOST * urls[place]
            )
        }

    def _let_in(self, new: Iterable[tuple[int, CachedHost]], depth: int) -> LimitDecision:
        """As many as there is room for, first come, first in; their room is held until they are in."""
        done = LimitDecision()
        for at, host in new:
            reason = limit_reason(depth=depth, max_depth=host.max_depth, room=self.room(host))
            if reason:
                done.out[at] = reason
            else:
                done.held[host.domain64] += 1
                self._held[host.domain64] += 1
        return done

    def release(self, held: Counter[int]) -> None:
        """They came in and were added, or did not come in."""
        self._held -= held
        self._wake()

    def add(self, batch: PackedUrls, letters: str) -> None:
        """What the table said of a batch: count what is new of each host."""
        if len(self._since) > MAX_CACHED_HOSTS:  # a host is counted anew when it comes again
            self._counted, self._since = {}, Counter()
        # A loop of Python's own would take three times as long, for every batch.
        by_place = [0, *batch.hosts]
        fresh = compress(batch.places, map(FRESH.__contains__, letters))
        self._since.update(map(by_place.__getitem__, fresh))
