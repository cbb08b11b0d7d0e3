"""The rows of index servers, kept fresh: who is there, who holds what, who is broken.

Comes from MGMT, which is asked every second and may be away: the last map that was heard is the one in force. Goes to
the broker.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from usher.client import NOT_MODIFIED, Client
from usher.errors import BadInput, UsherError
from usher.messages import ClusterMap, Row
from usher.mgmt_answers import read
from usher.porch.credentials import credential
from usher.search.answers import Hits
from usher.search.counts import BROKEN
from usher.search.seats import Bench, Holdings, Seats
from usher.search.servers import Server
from usher.settings import Settings
from usher.telemetry import Log

log = Log("search")
POLL_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 1.0
TIMEOUT: Final = 5.0  # seconds for one call to MGMT
SEE_SECONDS: Final = (
    60.0  # a map that stays the same is looked at again: what is missed is not missed for ever
)
SHARE: Final = 0.05  # of the time may go into reading who holds what: that map can be large


class Mgmt(Client):
    """MGMT's API, with the map that also names the chunks."""

    def __init__(self, url: str, *, token: str = "", timeout: float = TIMEOUT) -> None:
        super().__init__(url, token=token, timeout=timeout)
        self._maps: dict[str, tuple[str, ClusterMap]] = {}  # by path: the version and the map

    async def cluster_map(self) -> ClusterMap:
        """The chunks of each healthy server, by row."""
        return await self._cluster_map("/v1/map")

    async def probation_map(self) -> ClusterMap:
        """The chunks of each server on probation, by row."""
        return await self._cluster_map("/v1/probation")

    async def _cluster_map(self, path: str) -> ClusterMap:
        """One of the maps with chunks; an unchanged map costs almost nothing."""
        version, cluster = self._maps.get(path, ("", ClusterMap()))
        known = {"If-None-Match": version} if version else {}
        answer = await self._call("GET", path, headers=known)
        if answer.status != NOT_MODIFIED:
            cluster = read(answer, ClusterMap)
            self._maps[path] = (answer.headers.get("etag", ""), cluster)
        return cluster


def holdings_of(cluster: ClusterMap) -> Holdings:
    return {
        row: {server.host: server.chunk_ids for server in servers}
        for row, servers in enumerate(cluster.rows, 1)
    }


class Hall:
    """What a front-end knows of the rows; `keep` goes on for ever."""

    def __init__(self, mgmt: Mgmt) -> None:
        self.mgmt = mgmt
        self.seats = Seats()
        self.servers: dict[str, Server] = {}
        self.heard = False  # whether there ever was a map
        self.trouble = ""  # with MGMT, in words
        self._changes = 0
        self._drawn: tuple[list[Row], ClusterMap, Holdings] = ([], ClusterMap(), {})
        self._holdings_due = self._see_at = 0.0

    async def keep(self) -> None:
        """Poll MGMT and probe the servers, each at its own pace: a frozen MGMT must not delay the probes."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_map())
            group.create_task(self._keep_probing())

    async def _keep_map(self) -> None:
        said = False
        while True:
            await self._refresh_map()
            if self.trouble and not said:
                log.warning("no_map", error=self.trouble)
            said = bool(self.trouble)
            await asyncio.sleep(POLL_SECONDS)

    async def _keep_probing(self) -> None:
        while True:
            await self._probe()
            await asyncio.sleep(PROBE_SECONDS)

    async def refresh(self) -> None:
        """Look at the maps and at the servers, once."""
        await self._refresh_map()
        await self._probe()

    async def _refresh_map(self) -> None:
        try:
            await self._hear()
            self.trouble = ""
        except UsherError as error:
            self.trouble = error.message

    async def _probe(self) -> None:
        await asyncio.gather(*(server.look() for server in self.servers.values()))
        BROKEN.set(sum(server.broken for server in self.servers.values()))

    async def _hear(self) -> None:
        # The rows last: a server that becomes healthy between the calls is then in both maps, not in neither.
        cluster, probation = await self._holdings()
        rows = await self.mgmt.servers_map()
        if self.mgmt.incarnation != cluster.incarnation:  # restored since the holdings were read
            self._holdings_due = 0.0
            cluster, probation = await self._holdings()
            rows = await self.mgmt.servers_map()
        now = time.monotonic()
        changed = (rows, cluster, probation) != self._drawn
        self._changes += changed
        if changed or now >= self._see_at:
            if cluster.incarnation != self._drawn[1].incarnation:
                self.seats = Seats()  # what rows had in another history is not missed
            self._drawn, self._see_at = (rows, cluster, probation), now + SEE_SECONDS
            holdings, unrestored = holdings_of(cluster), cluster.unrestored
            self.seats.see(rows, holdings, now, probation, unrestored=unrestored)
            self._meet(rows, probation)
        await self._renew_tickets()
        self.heard = True

    async def _renew_tickets(self) -> None:
        """Show each server its ticket; one that a server refused is replaced by a new one."""
        self.mgmt.forget_tickets(host for host, one in self.servers.items() if one.refused)
        for host, ticket in (await self.mgmt.tickets(self.servers)).items():
            self.servers[host].show(ticket)

    async def _holdings(self) -> tuple[ClusterMap, Holdings]:
        """Who holds what, not more often than its size allows, unless no row is complete.

        Another's MGMT may not know this map.
        """
        began = time.monotonic()
        _, known, probation = self._drawn
        if began < self._holdings_due and any(map(self.whole, self.seats.benches)):
            return known, probation
        with suppress(UsherError):
            known = await self.mgmt.cluster_map()
            if known.incarnation != self._drawn[1].incarnation:
                probation = {}
            second = await self.mgmt.probation_map()
            # A map of another history may name chunks that the servers do not have now.
            probation = holdings_of(second) if second.incarnation == known.incarnation else {}
        self._holdings_due = time.monotonic() + (time.monotonic() - began) / SHARE
        return known, probation

    @property
    def is_outdated(self) -> bool:
        """Whether the database was restored since the map was drawn, so that nobody knows what a row lacks."""
        return self.mgmt.incarnation != self._drawn[1].incarnation

    def is_of_map(self, hits: Hits) -> bool:
        """Whether a server answered from the same history as the map's; servers of another make do not say."""
        incarnation = self._drawn[1].incarnation
        return not hits.incarnation or not incarnation or hits.incarnation == incarnation

    def _meet(self, rows: list[Row], probation: Holdings) -> None:
        hosts = {host for one in rows for host in one.servers}
        hosts |= {host for servers in probation.values() for host in servers}
        for host in self.servers.keys() - hosts:
            self.servers.pop(host).close()
        for host in hosts - self.servers.keys():
            try:
                self.servers[host] = Server(host)
            except BadInput as error:
                log.warning("server_unusable", error=error.message)

    @property
    def state(self) -> int:
        """Another number as soon as servers hold something else; 0 if nobody says what they hold."""
        return self._changes if self.seats.every else 0

    def in_order(self, turn: int) -> list[Bench]:
        """The rows, best first: complete ones, without servers on probation, the least busy; equals take turns."""
        benches = self.seats.benches
        turned = (
            [*benches[turn % len(benches) :], *benches[: turn % len(benches)]] if benches else []
        )
        return sorted(turned, key=lambda one: (not self.whole(one), one.probation, self._busy(one)))

    def whole(self, bench: Bench) -> bool:
        """Whether the row can answer for all there is."""
        return (
            not bench.lost
            and not bench.behind
            and not self.is_outdated
            and all(map(self.asked, bench.servers))
        )

    def asked(self, host: str) -> bool:
        server = self.servers.get(host)
        return server is not None and not server.broken

    def _busy(self, bench: Bench) -> int:
        """Of the busiest server, for it decides how long the row takes."""
        return max(
            (self.servers[host].busy for host in bench.servers if host in self.servers), default=0
        )

    def close(self) -> None:
        for server in self.servers.values():
            server.close()


@asynccontextmanager
async def hall_at(settings: Settings) -> AsyncIterator[Hall]:
    """The rows that MGMT knows, as far as it answers now."""
    token = credential(settings)
    async with Mgmt(settings.mgmt_url, token=token, timeout=TIMEOUT) as mgmt:
        hall = Hall(mgmt)
        await hall.refresh()
        try:
            yield hall
        finally:
            hall.close()
