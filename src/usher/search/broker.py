"""The broker: sends a query to the index servers and returns one result, as complete as the deadline allows.

It queries one row, and others if that row is late or incomplete. One round trip gets term statistics unless they are
cached. One gets hits, and each server sends snippets with the first of them. One gets the snippets that are missing.

    result = await Broker(cluster).search(parse_query("open source"), k=10)
"""

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, groupby
from typing import Final, NamedTuple

import msgspec

from usher.errors import Unreachable
from usher.query.language import Query, apply_corrections, parse_query
from usher.query.results import Hits, Passage, TermStats, rank_key
from usher.query.rpc_messages import HitAddress, QueryRequest, SearchRequest, SnippetsRequest
from usher.search.cluster_map import ClusterView
from usher.search.failover import Failover, RowAttempt
from usher.search.index_servers import (
    SEARCH,
    SNIPPETS,
    SUGGEST,
    IndexServer,
    call_servers,
    loop_time,
    seconds_left,
)
from usher.search.merge import (
    MergedHits,
    choose_suggestions,
    documents_with,
    has_more,
    merge,
)
from usher.search.metrics import SEARCH_SECONDS, SEARCHES
from usher.search.search_result import MAX_HITS, SearchResult
from usher.search.term_stats import TermStatsClient

DEADLINE_SECONDS: Final = 1.5
EXTRA_HITS: Final = 5  # requested because some hits may be copies
MORE_HITS_FACTOR: Final = 8  # if copies leave too few hits, so many times as many are requested
SUGGESTION_MAX_HITS: Final = 4  # with more hits no spelling is suggested
MAX_SNIPPETS_WITH_HITS: Final = 50
MAX_SPARE_SNIPPETS: Final = 2  # times as many snippets as are shown may be made
SNIPPET_GRACE_SECONDS: Final = 0.3  # for snippets and suggestions, however long the hits took
Snippets = dict[HitAddress, Passage]


class SpellingSuggestion(NamedTuple):
    """The query in a better spelling, certain if no page has a word that it replaces; empty if there is none."""

    text: str = ""
    is_certain: bool = False


class Broker:
    """Sends queries to the servers of a cluster; any number of queries at once."""

    def __init__(self, cluster: ClusterView, *, deadline: float = DEADLINE_SECONDS) -> None:
        self.cluster = cluster
        self.term_stats = TermStatsClient(cluster)
        self._deadline = deadline
        self._turn = 0

    async def search(
        self,
        query: Query,
        *,
        k: int = 10,
        offset: int = 0,
        hosts: bool = False,
        verbatim: bool = False,
        explain: bool = False,
    ) -> SearchResult:
        """The hits after the first `offset`; Unreachable if no server answers.

        If nothing matches well and a better spelling does, the result is that of the better spelling, unless the
        query is `verbatim`.
        """
        began = loop_time()
        offset, k = min(offset, MAX_HITS), max(0, min(k, MAX_HITS - offset))
        if not query or not k:
            return SearchResult(query, MergedHits(), {}, 0.0)
        wanted = partial(self._search, k=k, offset=offset, hosts=hosts, explain=explain)
        try:
            result, until = await self._first_answer(wanted, query)
        except Unreachable:
            SEARCHES.labels("unanswered").inc()
            raise
        until = max(until, loop_time() + SNIPPET_GRACE_SECONDS)
        if result.results.total <= SUGGESTION_MAX_HITS and query.words:
            suggestion = await self._suggestion(result, until)
            if suggestion.is_certain and not verbatim:
                with suppress(Unreachable):
                    better = await wanted(parse_query(suggestion.text), until=until)
                    result = msgspec.structs.replace(better, typed=query.text)
            else:
                result = msgspec.structs.replace(result, suggestion=suggestion.text)
        snippets = await self._snippets(result, until)
        seconds = loop_time() - began
        SEARCHES.labels("partial" if result.partial else "complete").inc()
        SEARCH_SECONDS.observe(seconds)
        return msgspec.structs.replace(result, snippets=snippets, seconds=seconds)

    # -- hits

    async def _first_answer(
        self, search: Callable[..., Awaitable[SearchResult]], query: Query
    ) -> tuple[SearchResult, float]:
        """The result and the end of its time; if all servers are away, it waits once until one is back."""
        until = loop_time() + self._deadline
        try:
            return await search(query, until=until), until
        except Unreachable:
            is_away = not self.cluster.has_available_server
            if not is_away or not await self.cluster.wait_for_server(until):
                raise
        until = loop_time() + self._deadline
        return await search(query, until=until), until

    async def _search(
        self,
        query: Query,
        *,
        k: int,
        offset: int,
        until: float,
        hosts: bool = False,
        explain: bool = False,
    ) -> SearchResult:
        """Request hits, and more of them if copies leave too few."""
        self._turn += 1
        turn = self._turn
        result: SearchResult | None = None
        wanted = min(offset + k + EXTRA_HITS, MAX_HITS)
        rows = self.cluster.row_map.rows
        min_servers = min((len(row.servers) for row in rows), default=1)
        complete: dict[str, Hits] = {}  # answers of servers that need not be asked again
        # With several servers, extra hits of each are of no use.
        first = wanted if min_servers == 1 else min(server_share(wanted, min_servers), offset + k)
        for limit in dict.fromkeys(
            (first, wanted, min(MORE_HITS_FACTOR * wanted, MAX_HITS), MAX_HITS)
        ):
            show = k if not offset and result is None else 0
            request = SearchRequest(query=query, k=limit, hosts=hosts, show=show, explain=explain)
            attempts = await self._query_rows(query, request, until, turn, complete)
            latest = self._combine(query, attempts, k=k, offset=offset)
            if latest is None or (result and latest.missing > result.missing):
                break  # no server answered, or the time was too short
            earlier = result.snippets if result else {}
            result = msgspec.structs.replace(latest, snippets=earlier | latest.snippets)
            answers = answers_of(attempts)
            unfinished = servers_with_more(answers, latest.results, k, wanted)
            if not unfinished:
                break
            complete = {host: hits for host, hits in answers.items() if host not in unfinished}
        if result is None:
            raise Unreachable(self._no_answer(), hint="See `usher components rows`.")
        return result

    async def _query_rows(
        self,
        query: Query,
        request: SearchRequest,
        until: float,
        turn: int,
        complete: Mapping[str, Hits],
    ) -> list[RowAttempt]:
        """Send a request to the rows; servers in `complete` are not asked again."""
        rows = self.cluster.row_map.rows
        shares = {
            host: snippet_share(request.show, len(row.servers))
            for row in rows
            for host in row.servers
        }
        # One body for all servers of a row; keeping the statistics keeps their id unique.
        bodies: dict[tuple[int, int], tuple[TermStats | None, bytes]] = {}

        async def call(server: IndexServer, stats: TermStats | None, until: float) -> Hits:
            if hits := complete.get(server.host):
                return hits
            show = min(shares.get(server.host, 0), MAX_SNIPPETS_WITH_HITS)
            if (key := (id(stats), show)) not in bodies:
                changed = msgspec.structs.replace(
                    request, deadline=seconds_left(until), stats=stats, show=show
                )
                bodies[key] = stats, msgspec.json.encode(changed)
            return await server.call(SEARCH, bodies[key][1], until)

        get_stats = partial(self.term_stats.get, query)
        return await Failover(self.cluster, get_stats, call, until).run(turn)

    def _combine(
        self, query: Query, attempts: Sequence[RowAttempt], *, k: int, offset: int
    ) -> SearchResult | None:
        """Merge the answers of one complete row; else of all rows, which share hits, so the total is a minimum."""
        answers = answers_of(attempts)
        if not answers:
            return None
        removed = self.cluster.hidden
        results = merge(answers, k=k, offset=offset, removed=removed)
        snippets = snippets_of(answers.values())
        if len(attempts) == 1 and attempts[0].is_complete:
            return SearchResult(query, results, snippets, 0.0)
        best = max(attempts, key=lambda row: sum(hits.total for hits in row.answers.values()))
        best_row = merge(best.answers, k=k, offset=offset, removed=removed)
        good = sum(not merged.hit.weak for merged in results.hits)
        results = msgspec.structs.replace(
            results,
            total=max(best_row.total, offset + good if good else 0),
            hosts=best_row.hosts,
            exact=False,
        )
        missing = self._missing_share(attempts, answers)
        if self.cluster.is_outdated or not all(map(self.cluster.matches_map, answers.values())):
            missing = missing or 1.0  # unknown
        return SearchResult(query, results, snippets, 0.0, missing, at_least=True)

    def _missing_share(self, attempts: Sequence[RowAttempt], answers: Mapping[str, Hits]) -> float:
        """The missing share of chunks if the map lists them, else of servers of the best row."""
        if not self.cluster.row_map.chunks:
            return min(
                1
                - sum(1 - hits.missing for hits in attempt.answers.values())
                / len(attempt.row.servers)
                for attempt in attempts
            )
        missing_share = self.cluster.row_map.missing_share
        missing = missing_share(list(answers))
        partial = max(hits.missing for hits in answers.values())
        whole = [host for host, hits in answers.items() if not hits.missing]
        # Of the chunks that only partial answers cover, that share is missing.
        return missing + (missing_share(whole) - missing) * partial

    def _no_answer(self) -> str:
        if not self.cluster.has_map:
            return f"There is no map of the index servers yet. {self.cluster.mgmt_error}".strip()
        if not self.cluster.servers:
            return "There are no index servers."
        return f"None of {len(self.cluster.servers)} index servers answered in time."

    # -- snippets

    async def _snippets(self, result: SearchResult, until: float) -> Snippets:
        """The snippets of the hits; if a server does not answer, from others that have the chunk."""
        sources = {(hit.hit.url, hit.hit.chunk): [hit.server] for hit in result.results.hits}
        came = result.snippets
        snippets = {address: came[address] for address in sources if address in came}
        for _ in range(2):
            missing = {key: hosts for key, hosts in sources.items() if key not in snippets}
            if not missing:
                break
            snippets |= await self._request_snippets(result.query, missing, until)
            holders = self.cluster.row_map.holders
            sources = {
                (url, chunk): [host for host in holders(chunk) if host not in hosts]
                for (url, chunk), hosts in missing.items()
            }
        return snippets

    async def _request_snippets(
        self, query: Query, sources: dict[HitAddress, list[str]], until: float
    ) -> Snippets:
        """Request each snippet from the first available host."""
        pairs = sorted(
            (host, address)
            for address, hosts in sources.items()
            if (host := next(filter(self.cluster.is_available, hosts), ""))
        )
        bodies = {}
        for host, group in groupby(pairs, key=lambda pair: pair[0]):
            wanted = [address for _, address in group]
            request = SnippetsRequest(query=query, wanted=wanted, deadline=seconds_left(until))
            bodies[self.cluster.servers[host]] = msgspec.json.encode(request)
        answers = await call_servers(SNIPPETS, bodies, until)
        snippets = chain.from_iterable(answers.values())
        return {(snippet.url, snippet.chunk): snippet for snippet in snippets}

    # -- spelling

    async def _suggestion(self, result: SearchResult, until: float) -> "SpellingSuggestion":
        """The query in a better spelling, if that has more good matches."""
        query, total = result.query, result.results.total
        body = msgspec.json.encode(QueryRequest(query=query, deadline=seconds_left(until)))
        hosts = [host for row in self.cluster.ordered_rows(self._turn)[:1] for host in row.servers]
        servers = [self.cluster.servers[host] for host in filter(self.cluster.is_available, hosts)]
        answers = await call_servers(SUGGEST, dict.fromkeys(servers, body), until)
        corrections = choose_suggestions(answers.values())
        text = apply_corrections(query.text, corrections)
        if text.casefold() == query.text.casefold():
            return SpellingSuggestion()
        try:
            better = await self._search(parse_query(text), k=1, offset=0, until=until)
        except Unreachable:
            return SpellingSuggestion()
        if better.results.total <= total:
            return SpellingSuggestion()
        is_unknown = not documents_with(corrections, answers.values())
        return SpellingSuggestion(text, is_certain=total == 0 and is_unknown)


def answers_of(attempts: Iterable[RowAttempt]) -> dict[str, Hits]:
    """The answers of all rows by host."""
    return {host: hits for attempt in attempts for host, hits in attempt.answers.items()}


def server_share(wanted: int, servers: int) -> int:
    """How many hits to request from each server; a server that has more of the best is asked again, which is rare."""
    mean = wanted / max(servers, 1)
    return min(wanted, math.ceil(mean + 2 * math.sqrt(mean) + 1))


def snippet_share(shown: int, servers: int) -> int:
    """How many of its first hits a server sends with snippets, so that three of four pages need no further round.

    Nothing in a row of many servers: it would make more snippets in vain than a round trip is worth.
    """
    if servers <= 1:
        return shown
    mean = shown / servers
    share = math.ceil(mean + math.sqrt(mean * (1 - 1 / servers)))
    return share if share * servers <= MAX_SPARE_SNIPPETS * shown else 0


def snippets_of(answers: Iterable[Hits]) -> Snippets:
    """The snippets that came with the hits."""
    return {
        (hit.url, hit.chunk): snippet
        for hits in answers
        for hit, snippet in zip(hits.hits, hits.shown, strict=False)
    }


def servers_with_more(
    answers: Mapping[str, Hits], results: MergedHits, k: int, wanted: int
) -> set[str]:
    """The servers that may have more hits for this page; each sends its hits in rank order."""
    cut = {host: hits for host, hits in answers.items() if hits.hits and has_more(hits)}
    if len(results.hits) < k:
        return set(cut)  # copies are among them
    if sum(hits.total for hits in answers.values()) <= wanted:
        # All good matches are few enough to request, and then the total counts no copy.
        incomplete = {host for host, hits in cut.items() if hits.total > hits.good}
    else:
        incomplete = set()
    worst = rank_key(results.hits[-1].hit)
    return incomplete | {host for host, hits in cut.items() if rank_key(hits.hits[-1]) < worst}
