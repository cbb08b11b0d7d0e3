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
from usher.search.counts import BROKEN
from usher.search.seats import Bench, Holdings, Seats
from usher.search.servers import Server
from usher.settings import Settings
from usher.telemetry import Log

log = Log("search")
POLL_SECONDS: Final = 1.0
TIMEOUT: Final = 5.0  # seconds for one call to MGMT
SEE_SECONDS: Final = (
    60.0  # a map that stays the same is looked at again: what is missed is not missed for ever
)
SHARE: Final = 0.05  # of the time may go into reading who holds what: that map can be large


class Mgmt(Client):
    """MGMT's API, with the map that also names the chunks."""

    _cluster: tuple[str, ClusterMap] = ("", ClusterMap())

    async def cluster_map(self) -> ClusterMap:
        """The chunks of each server, by row; cheap to ask for as long as nothing changes."""
        version, cluster = self._cluster
        known = {"If-None-Match": version} if version else {}
        told = await self._call("GET", "/v1/map", headers=known)
        if told.status != NOT_MODIFIED:
            cluster = read(told, ClusterMap)
            self._cluster = (told.headers.get("etag", ""), cluster)
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
        self._drawn: tuple[list[Row], ClusterMap] = ([], ClusterMap())
        self._cluster_due = self._see_at = 0.0

    async def keep(self) -> None:
        said = False
        while True:
            await self.refresh()
            if self.trouble and not said:
                log.warning("no_map", error=self.trouble)
            said = bool(self.trouble)
            await asyncio.sleep(POLL_SECONDS)

    async def refresh(self) -> None:
        """Look at the maps and at broken servers, once."""
        try:
            await self._hear()
            self.trouble = ""
        except UsherError as error:
            self.trouble = error.message
        await asyncio.gather(*(server.look() for server in self.servers.values()))
        BROKEN.set(sum(server.broken for server in self.servers.values()))

    async def _hear(self) -> None:
        rows = await self.mgmt.servers_map()
        cluster = await self._cluster_map()
        now = time.monotonic()
        changed = (rows, cluster) != self._drawn
        self._changes += changed
        if changed or now >= self._see_at:
            if cluster.incarnation != self._drawn[1].incarnation:
                self.seats = Seats()  # what rows had in another history is not missed
            self._drawn, self._see_at = (rows, cluster), now + SEE_SECONDS
            self.seats.see(rows, holdings_of(cluster), now, unrestored=cluster.unrestored)
            self._meet(rows)
        for host, ticket in (await self.mgmt.tickets(self.servers)).items():
            self.servers[host].show(ticket)
        self.heard = True

    async def _cluster_map(self) -> ClusterMap:
        """Who holds what, not more often than its size allows; another's MGMT may not know it."""
        began = time.monotonic()
        known = self._drawn[1]
        if began < self._cluster_due and not self.is_outdated:
            return known
        with suppress(UsherError):
            known = await self.mgmt.cluster_map()
        self._cluster_due = time.monotonic() + (time.monotonic() - began) / SHARE
        return known

    @property
    def is_outdated(self) -> bool:
        """Whether the database was restored since the map was drawn, so that nobody knows what a row lacks."""
        return self.mgmt.incarnation != self._drawn[1].incarnation

    def _meet(self, rows: list[Row]) -> None:
        hosts = {host for one in rows for host in one.servers}
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
        """The rows, best first: those that can answer for all, then the least busy; equals take turns."""
        benches = self.seats.benches
        turned = (
            [*benches[turn % len(benches) :], *benches[: turn % len(benches)]] if benches else []
        )
        return sorted(turned, key=lambda one: (not self.whole(one), self._busy(one)))

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
