"""The broker: a query goes to the index servers, one answer comes back, as good as can be had in time.

Comes from the search page, the API and the command line; goes to one row of index servers, and to others where that
is not enough. One round finds out how rare words are in all servers together, if nobody asked for them lately; the next
gets hits, and another one the passages of those that are shown; of a server that is a row by itself both come at once.

    answer = await Broker(hall).search(parse("open source"), k=10)
"""

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

import msgspec

from usher.errors import Unreachable
from usher.query.highlight import Segment
from usher.query.language import Query, apply_corrections, parse_query
from usher.query.results import Hits, TermStats, rank_key
from usher.query.rpc_messages import QueryRequest, SearchRequest, SnippetsRequest
from usher.search.cluster_map import ClusterView
from usher.search.failover import Failover, RowAttempt
from usher.search.index_servers import (
    SEARCH,
    SNIPPETS,
    SUGGEST,
    IndexServer,
    call_servers,
    seconds_left,
)
from usher.search.merge import MergedHits, merge, suggest
from usher.search.metrics import SEARCH_SECONDS, SEARCHES
from usher.search.search_result import MAX_HITS, HitAddress, SearchResult
from usher.search.term_stats import TermStatsClient

DEADLINE: Final = 1.5  # seconds
MANY: Final = (
    8  # times as many, where copies leave too little to show: mostly enough, and far fewer than all
)
EXTRA: Final = 5  # hits more than are shown: some may turn out to be copies
FEW: Final = 5  # hits; with fewer another spelling is looked for
MOST_SHOWN: Final = 50  # passages that come with the hits
LATER: Final = 0.3  # seconds at least for passages and spellings, however long the hits took


class Broker:
    """Asks the servers of a hall; any number of queries at once."""

    def __init__(self, hall: ClusterView, *, deadline: float = DEADLINE) -> None:
        self.hall = hall
        self._deadline = deadline
        self._turn = 0
        self.scales = TermStatsClient(hall)

    async def search(
        self, query: Query, *, k: int = 10, offset: int = 0, hosts: bool = False
    ) -> SearchResult:
        """The hits after the first `offset`; Unreachable if nobody answered at all."""
        began = asyncio.get_running_loop().time()
        offset, k = min(offset, MAX_HITS), max(0, min(k, MAX_HITS - offset))
        if not query or not k:
            return SearchResult(query, MergedHits(), {}, 0.0)
        until = began + self._deadline
        try:
            answer = await self._hits(query, k, offset, until, hosts=hosts)
        except Unreachable:
            SEARCHES.labels("unanswered").inc()
            raise
        later = max(until, asyncio.get_running_loop().time() + LATER)
        if answer.results.total < FEW and query.words:
            snippets, suggestion = await asyncio.gather(
                self._snippets(answer, later), self._better(answer, later)
            )
        else:
            snippets, suggestion = await self._snippets(answer, later), ""
        seconds = asyncio.get_running_loop().time() - began
        SEARCHES.labels("partial" if answer.partial else "complete").inc()
        SEARCH_SECONDS.observe(seconds)
        return msgspec.structs.replace(
            answer, snippets=snippets, suggestion=suggestion, seconds=seconds
        )

    # -- hits

    async def _hits(
        self, query: Query, k: int, offset: int, until: float, *, hosts: bool
    ) -> SearchResult:
        self._turn += 1
        turn = self._turn
        answer: SearchResult | None = None
        wanted = min(offset + k + EXTRA, MAX_HITS)
        fewest = min((len(bench.servers) for bench in self.hall.seats.benches), default=1)
        enough: dict[str, Hits] = {}  # from servers that have no more to give
        # More than are shown are of use only where all hits are one server's, and copies may be among them.
        first = wanted if fewest == 1 else min(part(wanted, fewest), offset + k)
        for most in dict.fromkeys((first, wanted, min(MANY * wanted, MAX_HITS), MAX_HITS)):
            show = k if not offset and answer is None else 0
            attempts = await self._asked(query, most, until, turn, enough, hosts=hosts, show=show)
            again = self._joined(query, attempts, k=k, offset=offset)
            if again is None or (answer and again.missing > answer.missing):
                break  # nobody answers, or there was no time for more
            known = answer.snippets if answer else {}
            answer = msgspec.structs.replace(again, snippets=known | again.snippets)
            heard = {host: hits for one in attempts for host, hits in one.answers.items()}
            lacking = who_lacks(heard, again.results, k, wanted)
            if not lacking:
                break
            enough = {host: hits for host, hits in heard.items() if host not in lacking}
        if answer is None:
            raise Unreachable(self._nobody(), hint="See `usher components rows`.")
        return answer

    async def _asked(
        self,
        query: Query,
        most: int,
        until: float,
        turn: int,
        enough: Mapping[str, Hits],
        *,
        hosts: bool,
        show: int,
    ) -> list[RowAttempt]:
        # Of a server that is a row by itself all hits are shown, and of others nobody knows yet which.
        alone = {b.servers[0] for b in self.hall.seats.benches if len(b.servers) == 1}

        async def count(
            servers: Sequence[IndexServer], until: float
        ) -> tuple[TermStats | None, set[IndexServer]]:
            return await self.scales.weigh(query, servers, until)

        def written(stats: TermStats | None, show: int) -> bytes:
            asked = SearchRequest(
                query=query,
                k=most,
                deadline=seconds_left(until),
                stats=stats,
                hosts=hosts,
                show=show,
            )
            return msgspec.json.encode(asked)

        # The same for all servers of a row; a row's statistics stay as long as their id names them.
        bodies: dict[tuple[int, int], tuple[TermStats | None, bytes]] = {}

        async def ask(server: IndexServer, stats: TermStats | None, until: float) -> Hits:
            if known := enough.get(server.host):
                return known
            shown = min(show, MOST_SHOWN) if server.host in alone else 0
            if (key := (id(stats), shown)) not in bodies:
                bodies[key] = stats, written(stats, shown)
            return await server.ask(SEARCH, bodies[key][1], until)

        return await Failover(self.hall, count, ask, until).run(turn)

    def _joined(
        self, query: Query, attempts: Sequence[RowAttempt], *, k: int, offset: int
    ) -> SearchResult | None:
        """The answers of one whole row, or of all servers: these may have the same hits, so nobody knows how many."""
        heard = {host: hits for one in attempts for host, hits in one.answers.items()}
        if not heard:
            return None
        results, passages = merge(dict(heard), k=k, offset=offset), passages_of(heard.values())
        if len(attempts) == 1 and attempts[0].is_whole:
            return SearchResult(query, results, passages, 0.0)
        best = max(attempts, key=lambda one: sum(hits.total for hits in one.answers.values()))
        alone = merge(dict(best.answers), k=k, offset=offset)
        last = offset + len(results.found) if results.found else 0
        total = max(alone.total, last)
        results = msgspec.structs.replace(
            results, total=total, more=total > last > 0, hosts=alone.hosts, exact=False
        )
        missing = self._missing(attempts, heard)
        if self.hall.is_outdated or not all(map(self.hall.is_of_map, heard.values())):
            missing = missing or 1.0  # nobody knows yet how much
        return SearchResult(query, results, passages, 0.0, missing, at_least=True)

    def _missing(self, attempts: Sequence[RowAttempt], heard: Iterable[str]) -> float:
        """By chunks where the map has them, else by servers of the row that answered best."""
        if self.hall.seats.every:
            return self.hall.seats.missing(list(heard))
        return min(1 - len(one.answers) / len(one.bench.servers) for one in attempts)

    def _nobody(self) -> str:
        if not self.hall.has_map:
            return f"There is no map of the index servers yet. {self.hall.mgmt_error}".strip()
        if not self.hall.servers:
            return "There is no index server that could be asked."
        return f"None of {len(self.hall.servers)} index servers answered in time."

    # -- passages

    async def _snippets(
        self, answer: SearchResult, until: float
    ) -> dict[HitAddress, list[Segment]]:
        """The passages of its hits; of a server that does not answer, from others that have the chunks."""
        query, came = answer.query, answer.snippets
        places = {(one.hit.url, one.hit.chunk): [one.server] for one in answer.results.found}
        known = {address: came[address] for address in places if address in came}
        if len(known) == len(places):
            return known
        wanted = {address: hosts for address, hosts in places.items() if address not in known}
        pieces = known | await self._pieces(query, wanted, until)
        rest = {
            address: [host for host in self.hall.seats.holders(address[1]) if host not in hosts]
            for address, hosts in wanted.items()
            if address not in pieces
        }
        return pieces | await self._pieces(query, rest, until)

    async def _pieces(
        self, query: Query, wanted: dict[HitAddress, list[str]], until: float
    ) -> dict[HitAddress, list[Segment]]:
        pairs = sorted(
            (host, address)
            for address, hosts in wanted.items()
            if (host := next(filter(self.hall.asked, hosts), ""))
        )
        bodies = {}
        for host, places in groupby(pairs, key=lambda pair: pair[0]):
            asked = SnippetsRequest(
                query=query,
                wanted=[address for _, address in places],
                deadline=seconds_left(until),
            )
            bodies[self.hall.servers[host]] = msgspec.json.encode(asked)
        told = await call_servers(SNIPPETS, bodies, until)
        return {(one.url, one.chunk): one.pieces for some in told.values() for one in some}

    # -- spelling

    async def _better(self, answer: SearchResult, until: float) -> str:
        """The query in other words, if they find more."""
        query, total = answer.query, answer.results.total
        body = msgspec.json.encode(QueryRequest(query=query, deadline=seconds_left(until)))
        hosts = [host for bench in self.hall.in_order(self._turn)[:1] for host in bench.servers]
        servers = [self.hall.servers[host] for host in hosts if self.hall.asked(host)]
        told = await call_servers(SUGGEST, dict.fromkeys(servers, body), until)
        text = apply_corrections(query.text, suggest(told.values()))
        if text.casefold() == query.text.casefold():
            return ""
        try:
            better = await self._hits(parse_query(text), 1, 0, until, hosts=False)
        except Unreachable:
            return ""
        return text if better.results.total > total else ""


def part(wanted: int, servers: int) -> int:
    """How many of the best hits one server of so many is asked for: seldom has one more, and then it is asked again."""
    mean = wanted / max(servers, 1)
    return min(wanted, math.ceil(mean + 2 * math.sqrt(mean) + 1))


def passages_of(heard: Iterable[Hits]) -> dict[HitAddress, list[Segment]]:
    """Those that came with the hits."""
    return {
        (hit.url, hit.chunk): pieces
        for hits in heard
        for hit, pieces in zip(hits.hits, hits.passages, strict=False)
    }


def who_lacks(heard: Mapping[str, Hits], results: MergedHits, k: int, wanted: int) -> set[str]:
    """Who may have more hits that belong here: servers give theirs in the order in which they are shown."""
    cut = {host: hits for host, hits in heard.items() if hits.hits and hits.total > len(hits.hits)}
    if len(results.found) < k or sum(hits.total for hits in heard.values()) <= wanted:
        return set(cut)  # few enough to see which are copies
    worst = rank_key(results.found[-1].hit)
    return {host for host, hits in cut.items() if rank_key(hits.hits[-1]) < worst}
