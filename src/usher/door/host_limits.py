"""The limits of a host: whether a new page may come in, by the number of pages of the host and the depth of the page.

The database counts rarely: at the first knock of a small host or after a thousand new pages of a larger one, and more
often as the room shrinks. Pages are never deleted, so a count is never too high; the next count includes the pages that
other processes admitted meanwhile.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter

from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.door import guestbook
from usher.door.guestbook import PackedUrls, UrlJudgement, array_text, pack_paths
from usher.door.host_cache import MAX_CACHED_HOSTS, SMALL_HOST_PAGES, CachedHost
from usher.door.rules import Reason, limit_reason

store = load_statements(__file__)
MAX_PAGES_BETWEEN_COUNTS = 1_000  # of one host, admitted by this process
ROOM_DIVISOR = 8  # between two counts a process admits at most this part of the room
MAX_CONCURRENT_BATCHES_PER_HOST = 4  # with more at once, a host may exceed its limit


@dataclass(frozen=True, slots=True)
class PageCount:
    """The number of pages of a host, counted up to a maximum."""

    number: int
    maximum: int


@dataclass(frozen=True, slots=True)
class LimitDecision:
    """Positions in a batch that are refused and why, and how many new pages of each host are reserved."""

    refused: dict[int, Reason] = field(default_factory=dict)
    reserved: Counter[int] = field(default_factory=Counter)


async def count_up_to(conn: Connection, *, maximums: dict[int, int]) -> dict[int, int]:
    """The number of pages of each host, counted up to its maximum."""
    await guestbook.disable_sequential_scans(conn)
    rows = await store.count_up_to.tuples(
        conn, domain64s=array_text(maximums), maximums=array_text(maximums.values())
    )
    return dict(rows)


async def find_known_pages(
    conn: Connection, *, domain64s: Sequence[int], paths: Sequence[str]
) -> Collection[int]:
    """The positions of those pages that are in the guestbook."""
    await guestbook.disable_sequential_scans(conn)
    positions = await store.find_known_pages.column(
        conn, domain64s=array_text(domain64s), paths=pack_paths(paths)
    )
    return {position - 1 for position in positions}


class PageLimits:
    """Page counts of hosts; one object for each process."""

    def __init__(self) -> None:
        self._counts: dict[int, PageCount] = {}
        self._since = Counter[int]()  # admitted by this process since the count
        self._reserved = Counter[int]()  # of batches in flight
        self._being_counted: set[int] = set()
        self._changed = asyncio.Event()  # a new one after each change

    def limited(self, hosts: Iterable[CachedHost], *, depth: int) -> list[CachedHost]:
        """The hosts that may have to refuse a new page."""
        counts, since = self._counts, self._since.get
        return [
            host
            for host in hosts
            if host.strict
            or (number := host.domain64) in counts
            or since(number, 0) >= MAX_PAGES_BETWEEN_COUNTS
            or depth > host.max_depth
        ]

    def uncounted(self, hosts: Iterable[CachedHost]) -> dict[int, int]:
        """The hosts to count before they admit a page, each with the maximum to count to."""
        return {host.domain64: host.max_pages for host in hosts if self._needs_count(host)}

    def _needs_count(self, host: CachedHost) -> bool:
        since, last = self._since[host.domain64], self._counts.get(host.domain64)
        if host.pages >= host.max_pages:
            return False
        if last is None:
            return host.max_pages <= SMALL_HOST_PAGES or since >= MAX_PAGES_BETWEEN_COUNTS
        if last.number >= last.maximum:
            return last.maximum < host.max_pages
        room = host.max_pages - last.number
        step = max(1, min(MAX_PAGES_BETWEEN_COUNTS, host.max_pages // 10), room // ROOM_DIVISOR)
        return room > 0 and since >= min(room, step)

    async def count(self, conn: Connection, maximums: dict[int, int]) -> None:
        """Count the pages of hosts, unless another task counts them meanwhile.

        A count may or may not include the pages of batches in flight. So this waits for them, and `decide` starts no
        others until the count is done.
        """
        before = {number: self._counts.get(number) for number in maximums}
        await self._until(lambda: self._being_counted.isdisjoint(maximums))
        due = {n: top for n, top in maximums.items() if self._counts.get(n) is before[n]}
        self._being_counted |= due.keys()
        try:
            await self._until(lambda: not any(self._reserved[number] for number in due))
            for number, pages in (await count_up_to(conn, maximums=due)).items() if due else ():
                self._counts[number] = PageCount(pages, due[number])
                self._since[number] = 0
        finally:
            self._being_counted -= due.keys()
            self._notify()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def room(self, host: CachedHost) -> int:
        """How many new pages the host may still admit, as far as this process knows."""
        last = self._counts.get(host.domain64)
        ours = self._since[host.domain64] + self._reserved[host.domain64]
        return host.max_pages - max(host.pages, ours + (last.number if last else 0))

    async def decide(
        self, conn: Connection, urls: PackedUrls, hosts: Sequence[CachedHost], *, depth: int
    ) -> LimitDecision:
        """Refuse the new pages that exceed a limit; known pages are left to the decision table."""
        tight = self._tight(urls, hosts, depth)
        if not tight:
            return LimitDecision()
        doubtful = [at for at, place in enumerate(urls.places) if place in tight]
        known = await find_known_pages(
            conn,
            domain64s=[tight[urls.places[at]].domain64 for at in doubtful],
            paths=[urls.paths[at] for at in doubtful],
        )
        new = [(at, tight[urls.places[at]]) for n, at in enumerate(doubtful) if n not in known]
        numbers = {host.domain64 for _, host in new}
        await self._until(lambda: self._being_counted.isdisjoint(numbers))
        return self._reserve(new, depth)

    def _tight(
        self, urls: PackedUrls, hosts: Sequence[CachedHost], depth: int
    ) -> dict[int, CachedHost]:
        """The hosts, by their position in the batch, that may not take all of its URLs."""
        numbers = Counter(urls.places)
        places = {urls.hosts.get(host.domain64, 0): host for host in hosts}
        return {
            place: host
            for place, host in places.items()
            if place
            and (
                depth > host.max_depth
                or self.room(host) < MAX_CONCURRENT_BATCHES_PER_HOST * numbers[place]
            )
        }

    def _reserve(self, new: Iterable[tuple[int, CachedHost]], depth: int) -> LimitDecision:
        """Reserve room for new pages in their order until it is used up, and refuse the others."""
        decision = LimitDecision()
        for at, host in new:
            reason = limit_reason(depth=depth, max_depth=host.max_depth, room=self.room(host))
            if reason:
                decision.refused[at] = reason
            else:
                decision.reserved[host.domain64] += 1
                self._reserved[host.domain64] += 1
        return decision

    def release(self, reserved: Counter[int]) -> None:
        """Release reservations: the pages were added or did not come in."""
        self._reserved -= reserved
        self._notify()

    def add(self, urls: PackedUrls, judgements: Sequence[UrlJudgement]) -> None:
        """Count the new pages that the statement admitted."""
        if len(self._since) > MAX_CACHED_HOSTS:  # hosts are counted again when they come back
            self._counts, self._since = {}, Counter()
        # Without a Python loop, which takes three times as long for every batch.
        by_place = [0, *urls.hosts]
        new = compress(urls.places, map(attrgetter("is_new_page"), judgements))
        self._since.update(map(by_place.__getitem__, new))
