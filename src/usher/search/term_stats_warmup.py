"""Loads the statistics of frequent words in advance, so that most queries need one round trip less.

It runs when the servers have held the same chunks for a moment, and asks for a few words at a time.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from usher.query.language import Query, QueryTerm
from usher.query.rpc_messages import FrequentWordsRequest
from usher.search.cluster_map import ClusterView
from usher.search.index_servers import (
    FREQUENT_WORDS,
    IndexServer,
    call_servers,
    loop_time,
    seconds_left,
)
from usher.search.term_stats import UNCHANGED_SECONDS, TermStatsClient
from usher.telemetry import Log

log = Log("search")
WORDS: Final = 5_000  # four of five queries in bench/search.py have no others
WORDS_PER_REQUEST: Final = 24
CHECK_SECONDS: Final = 1.0
TIMEOUT_SECONDS: Final = 5.0  # of one request
REST_FACTOR: Final = 1.0  # pause after a request, in multiples of its duration
PAUSE_FACTOR: Final = (
    20.0  # pause after a warmup, in multiples of its duration: servers may load all day
)


class TermStatsWarmup:
    """The background task of a front-end."""

    def __init__(self, cluster: ClusterView, term_stats: TermStatsClient) -> None:
        self._cluster, self._term_stats = cluster, term_stats

    async def run(self) -> None:
        """Warm up forever: after a change, and when the cached statistics expire."""
        version, warm_version, expires_at, not_before = 0, 0, 0.0, 0.0
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            before, version = version, self._cluster.version
            is_needed = version != warm_version or loop_time() >= expires_at
            if version and version == before and is_needed and loop_time() >= not_before:
                began = loop_time()
                if await self.warm_up(version):
                    warm_version, expires_at = version, loop_time() + UNCHANGED_SECONDS
                not_before = loop_time() + PAUSE_FACTOR * (loop_time() - began)

    async def warm_up(self, version: int) -> bool:
        """Load the statistics of frequent words; False if the cluster changes meanwhile or is incomplete."""
        row = next(iter(self._cluster.ordered_rows(0)), None)
        if row is None or not self._cluster.is_complete(row):
            return False
        if len(row.servers) == 1:
            return True
        servers = [self._cluster.servers[host] for host in row.servers]
        words = await self._frequent_words(servers[0])
        for start in range(0, len(words), WORDS_PER_REQUEST):
            began = loop_time()
            if self._cluster.version != version or not self._cluster.is_complete(row):
                return False
            groups = tuple((QueryTerm(word),) for word in words[start : start + WORDS_PER_REQUEST])
            await self._term_stats.get(Query(groups=groups), servers, began + TIMEOUT_SECONDS)
            await asyncio.sleep(REST_FACTOR * (loop_time() - began))
        log.debug("words_learnt", words=len(words))
        return True

    async def _frequent_words(self, server: IndexServer) -> Sequence[str]:
        until = loop_time() + TIMEOUT_SECONDS
        request = FrequentWordsRequest(most=WORDS, deadline=seconds_left(until))
        body = msgspec.json.encode(request)
        return (await call_servers(FREQUENT_WORDS, {server: body}, until)).get(server, [])
