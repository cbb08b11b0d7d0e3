"""The front-end's view of the rows of index servers: polls MGMT for the map and probes the servers.

While MGMT is unavailable the last map stays in use.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple

from usher.errors import BadInput, UsherError
from usher.http.client.mgmt_client import NOT_MODIFIED, Client
from usher.http.client.mgmt_responses import decode_answer, to_error
from usher.http.server.credentials import credential
from usher.messages.front_end import ClusterMap, HiddenPages, ServerRow
from usher.query.results import Hits
from usher.removal_rules import RemovalIndex
from usher.search.index_servers import IndexServer, loop_time
from usher.search.metrics import BROKEN
from usher.search.row_map import Holdings, RowMap, SearchRow
from usher.settings import Settings
from usher.telemetry import Log, log_failure

log = Log("search")
OK, NOT_FOUND = 200, 404
POLL_SECONDS: Final = 1.0
HIDDEN_POLL_SECONDS: Final = 0.5  # a removed page is hidden within two seconds
PROBE_SECONDS: Final = 1.0
MGMT_TIMEOUT_SECONDS: Final = 5.0
UPDATE_SECONDS: Final = 60.0  # an unchanged map is applied again, so that departed servers expire
UNLISTED_SECONDS: Final = 5.0  # a server that is in no map any more stays the second choice
RECOVERY_PAUSE_SECONDS: Final = 0.1  # between two looks for a server while searches wait for one
HOLDINGS_TIME_SHARE: Final = 0.05  # of the time at most is spent reading holdings, which are large


class MapClient(Client):
    """MGMT's API with the maps that list chunks; an unchanged map costs almost nothing."""

    def __init__(self, url: str, *, token: str = "", timeout: float = MGMT_TIMEOUT_SECONDS) -> None:
        super().__init__(url, token=token, timeout=timeout)
        self._maps: dict[str, tuple[str, ClusterMap]] = {}  # by path: etag and map
        self._hidden_etag, self._hidden = "", RemovalIndex()

    async def cluster_map(self, path: str = "/v1/map") -> ClusterMap:
        """The chunks of each healthy server by row; `/v1/probation` has those of servers on probation."""
        etag, cluster = self._maps.get(path, ("", ClusterMap()))
        answer = await self._call("GET", path, headers={"If-None-Match": etag} if etag else {})
        if answer.status != NOT_MODIFIED:
            cluster = decode_answer(answer, ClusterMap)
            self._maps[path] = (answer.headers.get("etag", ""), cluster)
        return cluster

    async def hidden_pages(self) -> RemovalIndex:
        """The pages that the operator removed; the same object while they are the same.

        An MGMT of another make may not offer them (404): then no page is removed.
        """
        headers = {"If-None-Match": self._hidden_etag} if self._hidden_etag else {}
        answer = await self._pool.ask("GET", "/v1/hidden", b"", {**self._headers, **headers})
        if answer.status in (NOT_FOUND, NOT_MODIFIED):
            return self._hidden
        if answer.status != OK:
            raise to_error(answer)
        self._hidden = RemovalIndex(decode_answer(answer, HiddenPages).rules)
        self._hidden_etag = answer.headers.get("etag", "")
        return self._hidden


def holdings_of(cluster: ClusterMap) -> Holdings:
    return {
        row: {server.host: server.chunk_ids for server in servers}
        for row, servers in enumerate(cluster.rows, 1)
    }


def holdings_in(rows: Sequence[ServerRow], cluster: ClusterMap) -> Holdings:
    """The holdings by row; a server that its row does not list has what another row lists for it.

    The two maps may be from before and after a change: the number of a removed row is given to another one.
    """
    holdings = holdings_of(cluster)
    moved = {host: chunks for servers in holdings.values() for host, chunks in servers.items()}
    return {
        **holdings,
        **{
            row.row: {host: moved[host] for host in row.servers if host in moved}
            | dict(holdings.get(row.row, {}))
            for row in rows
        },
    }


class ListedServer(NamedTuple):
    """A server of a map: its row, its chunks, and when a map listed it last."""

    row: int
    chunks: Collection[int]
    listed_at: float


class ClusterView:
    """The rows and their servers; `run` keeps them up to date."""

    def __init__(self, mgmt: MapClient) -> None:
        self.mgmt = mgmt
        self.row_map = RowMap()
        self.servers: dict[str, IndexServer] = {}
        self.has_map = False  # whether MGMT ever sent a map
        self.mgmt_error = ""  # of the last poll
        self.hidden = RemovalIndex()  # pages that the operator removed
        self._changes = 0
        self._server_rows: list[ServerRow] = []
        self._cluster = ClusterMap()
        self._probation: Holdings = {}
        self._listed: dict[str, ListedServer] = {}
        self._holdings_due = self._update_due = 0.0
        self._map_lock = asyncio.Lock()
        self._recovery: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Poll MGMT and probe the servers forever, independently: a frozen MGMT must not delay the probes."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poll())
            group.create_task(self._keep_probing())
            group.create_task(self._keep_hiding())

    async def _poll(self) -> None:
        is_logged = False
        while True:
            await self._refresh_map()
            if self.mgmt_error and not is_logged:
                log.warning("no_map", error=self.mgmt_error)
            is_logged = bool(self.mgmt_error)
            await asyncio.sleep(POLL_SECONDS)

    async def _keep_probing(self) -> None:
        while True:
            await self._probe()
            await asyncio.sleep(PROBE_SECONDS)

    async def _keep_hiding(self) -> None:
        """Read the removed pages, independently of the maps, which may be large; without MGMT the last list stays."""
        while True:
            await asyncio.sleep(HIDDEN_POLL_SECONDS)
            with suppress(UsherError):
                self.hidden = await self.mgmt.hidden_pages()

    async def refresh(self) -> None:
        """Poll MGMT and probe the servers once."""
        await self._refresh_map()
        await self._probe()

    @property
    def has_available_server(self) -> bool:
        return any(map(self.is_available, self.servers))

    async def wait_for_server(self, until: float) -> bool:
        """Wait until a server is available, at most until then in the loop's time; False if none is.

        During an upgrade the servers restart one after the other. One that is back may not be in the map yet, or its
        next probe may be seconds away, when the last available one stops.
        """
        while not self.has_available_server:
            left = until - loop_time()
            if left <= 0 or not self._listed:
                return False
            if self._recovery is None or self._recovery.done():
                self._recovery = log_failure(asyncio.create_task(self._recover()), log)
            await asyncio.wait([self._recovery], timeout=left)
        return True

    async def _recover(self) -> None:
        """Look for an available server once, for all searches that wait for one."""
        await self._probe(at_once=True)
        if not self.has_available_server:
            await self._refresh_map()
            await asyncio.sleep(RECOVERY_PAUSE_SECONDS)

    async def _probe(self, *, at_once: bool = False) -> None:
        servers = list(self.servers.values())
        await asyncio.gather(*(server.probe(at_once=at_once) for server in servers))
        BROKEN.set(sum(server.broken for server in self.servers.values()))

    async def _refresh_map(self) -> None:
        async with self._map_lock:
            await self._refresh_map_alone()

    async def _refresh_map_alone(self) -> None:
        try:
            if not self.has_map:  # before the first map: a front-end never answers without the list
                self.hidden = await self.mgmt.hidden_pages()
            await self._read_map()
            await self._renew_tickets()
        except UsherError as error:
            self.mgmt_error = error.message
        else:
            self.has_map, self.mgmt_error = True, ""

    async def _read_map(self) -> None:
        # Rows last: a server that becomes healthy between the calls is then in both maps, not in neither.
        cluster, probation = await self._read_holdings()
        rows = await self.mgmt.servers_map()
        if self.mgmt.incarnation != cluster.incarnation:  # restored since the holdings were read
            self._holdings_due = 0.0
            cluster, probation = await self._read_holdings()
            rows = await self.mgmt.servers_map()
        now = time.monotonic()
        if cluster.incarnation != self._cluster.incarnation:
            self._listed.clear()
        probation = self._with_unlisted(rows, holdings_in(rows, cluster), probation, now)
        changed = (rows, cluster, probation) != (self._server_rows, self._cluster, self._probation)
        self._changes += changed
        if not changed and now < self._update_due:
            return
        if cluster.incarnation != self._cluster.incarnation:
            self.row_map = RowMap()  # chunks of another incarnation are not lost
        self._server_rows, self._cluster, self._probation = rows, cluster, probation
        self._update_due = now + UPDATE_SECONDS
        unrestored = cluster.unrestored
        holdings = holdings_in(rows, cluster)
        self.row_map.update(rows, holdings, now, probation, unrestored=unrestored)
        self._update_servers()

    def _with_unlisted(
        self, rows: Sequence[ServerRow], holdings: Holdings, probation: Holdings, now: float
    ) -> Holdings:
        """The servers on probation, and those that a map listed a moment ago.

        MGMT caches each map for a second, and several MGMT processes answer. So a server that changes from one map to
        the other may be in neither for a moment, and it may be the only one that answers.
        """
        healthy = {row.row: dict.fromkeys(row.servers, ()) for row in rows}
        current = {
            host: ListedServer(row, holdings.get(row, {}).get(host, ()), now)
            for row, servers in healthy.items()
            for host in servers
        }
        current |= {
            host: ListedServer(row, chunks, now)
            for row, servers in probation.items()
            for host, chunks in servers.items()
        }
        merged = {row: dict(servers) for row, servers in probation.items()}
        for host, server in self._listed.items():
            if host not in current and now - server.listed_at < UNLISTED_SECONDS:
                current[host] = server
                merged.setdefault(server.row, {})[host] = server.chunks
        self._listed = current
        return merged

    async def _renew_tickets(self) -> None:
        """Give each server its ticket; a ticket that a server refused is replaced."""
        self.mgmt.forget_tickets(host for host, server in self.servers.items() if server.refused)
        for host, ticket in (await self.mgmt.tickets(self.servers)).items():
            self.servers[host].set_ticket(ticket)

    async def _read_holdings(self) -> tuple[ClusterMap, Holdings]:
        """The holdings, read at the pace that their size allows, or at once while no row is complete.

        Another MGMT may not offer them.
        """
        began = time.monotonic()
        cluster, probation = self._cluster, self._probation
        if began < self._holdings_due and any(map(self.is_complete, self.row_map.rows)):
            return cluster, probation
        with suppress(UsherError):
            cluster = await self.mgmt.cluster_map()
            if cluster.incarnation != self._cluster.incarnation:
                probation = {}
            spare = await self.mgmt.cluster_map("/v1/probation")
            # A map of another incarnation may list chunks that the servers do not have.
            probation = holdings_of(spare) if spare.incarnation == cluster.incarnation else {}
        taken = time.monotonic() - began
        self._holdings_due = time.monotonic() + taken / HOLDINGS_TIME_SHARE
        return cluster, probation

    def _update_servers(self) -> None:
        hosts = {host for row in self._server_rows for host in row.servers}
        hosts |= {host for servers in self._probation.values() for host in servers}
        for host in self.servers.keys() - hosts:
            self.servers.pop(host).close()
        for host in hosts - self.servers.keys():
            try:
                self.servers[host] = IndexServer(host)
            except BadInput as error:
                log.warning("server_unusable", error=error.message)

    @property
    def is_outdated(self) -> bool:
        """Whether the database was restored since the map was read."""
        return self.mgmt.incarnation != self._cluster.incarnation

    def matches_map(self, hits: Hits) -> bool:
        """Whether a server has compared its chunks with the map's incarnation; servers of other makes do not say."""
        incarnation = self._cluster.incarnation
        return not hits.incarnation or not incarnation or hits.incarnation == incarnation

    @property
    def version(self) -> int:
        """A number that changes with the holdings; 0 if they are unknown."""
        return self._changes if self.row_map.chunks else 0

    def ordered_rows(self, turn: int) -> list[SearchRow]:
        """The rows, best first: complete, without servers on probation, least busy; equals alternate by `turn`."""
        rows = self.row_map.rows
        start = turn % len(rows) if rows else 0
        return sorted(
            [*rows[start:], *rows[:start]],
            key=lambda row: (not self.is_complete(row), row.probation, self._load(row)),
        )

    def is_complete(self, row: SearchRow) -> bool:
        """Whether the row has every chunk and all its servers are available."""
        has_all_chunks = not row.lost and not row.behind and not self.is_outdated
        return has_all_chunks and all(map(self.is_available, row.servers))

    def is_available(self, host: str) -> bool:
        server = self.servers.get(host)
        return server is not None and not server.broken

    def _load(self, row: SearchRow) -> int:
        """The open requests of the busiest server, which decides how long the row takes."""
        servers = (self.servers.get(host) for host in row.servers)
        return max((server.open_requests for server in servers if server), default=0)

    def close(self) -> None:
        if self._recovery is not None:
            self._recovery.cancel()
        for server in self.servers.values():
            server.close()


@asynccontextmanager
async def open_cluster(settings: Settings) -> AsyncIterator[ClusterView]:
    """Read the map once, as far as MGMT is available; closes the connections to the servers at the end."""
    async with MapClient(settings.mgmt_url, token=credential(settings)) as mgmt:
        cluster = ClusterView(mgmt)
        await cluster.refresh()
        try:
            yield cluster
        finally:
            cluster.close()
