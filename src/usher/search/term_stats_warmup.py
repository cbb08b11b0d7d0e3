"""How rare common words are, asked before anybody searches for them: most queries then need one round less.

Comes from the servers of a row, a few words at a time, which keeps them busy for a small part of the time; goes to the
broker's scales. Only when the servers have held the same for a moment: what is learnt is good as long as they do.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from usher.query.language import MAX_TERMS, Query, QueryTerm
from usher.query.rpc_messages import FrequentWordsRequest
from usher.search.cluster_map import ClusterView
from usher.search.index_servers import FREQUENT_WORDS, IndexServer, call_servers, seconds_left
from usher.search.term_stats import LONGER, TermStatsClient
from usher.telemetry import Log

log = Log("search")
WORDS: Final = 5_000  # most queries have no others: four of five of those in bench/search.py
LOOK_SECONDS: Final = 1.0
PATIENCE: Final = 5.0  # seconds for one answer
REST: Final = 1.0  # times as long as servers took to answer they are left alone
PAUSE: Final = 20.0  # times as long as it took to learn nothing is learnt, whatever servers load: they may load all day


class TermStatsWarmup:
    """What a front-end does between queries."""

    def __init__(self, hall: ClusterView, scales: TermStatsClient) -> None:
        self._hall, self._scales = hall, scales

    async def run(self) -> None:
        now = asyncio.get_running_loop().time
        seen, learnt, old_at, again_at = 0, 0, 0.0, 0.0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            before, seen = seen, self._hall.state
            is_wanted = seen != learnt or now() >= old_at
            if seen and seen == before and is_wanted and now() >= again_at:
                began = now()
                if await self.learn(seen):
                    learnt, old_at = seen, now() + LONGER  # when all of it is forgotten
                again_at = now() + PAUSE * (now() - began)

    async def learn(self, state: int) -> bool:
        """Ask for common words, and what a row knows of them; False if it has to be done again."""
        bench = next(iter(self._hall.in_order(0)), None)
        if bench is None or not self._hall.whole(bench):
            return False
        if len(bench.servers) == 1:
            return True
        servers = [self._hall.servers[host] for host in bench.servers]
        words = await self._common(servers[0])
        for start in range(0, len(words), MAX_TERMS):
            began = asyncio.get_running_loop().time()
            if self._hall.state != state or not self._hall.whole(bench):
                return False
            terms = [QueryTerm(word) for word in words[start : start + MAX_TERMS]]
            asked = Query(groups=tuple((term,) for term in terms))
            await self._scales.weigh(asked, servers, began + PATIENCE)
            await asyncio.sleep(REST * (asyncio.get_running_loop().time() - began))
        log.debug("words_learnt", words=len(words))
        return True

    async def _common(self, server: IndexServer) -> Sequence[str]:
        """None of a server that knows nothing of this."""
        until = asyncio.get_running_loop().time() + PATIENCE
        body = msgspec.json.encode(FrequentWordsRequest(most=WORDS, deadline=seconds_left(until)))
        return (await call_servers(FREQUENT_WORDS, {server: body}, until)).get(server, [])
