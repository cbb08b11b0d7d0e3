"""Runs a front-end: the search page, its API and the broker. It also works while MGMT is unavailable."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from usher.background import background_tasks
from usher.errors import UsherError
from usher.http.client.mgmt_client import Client
from usher.http.server.component import GuardOptions, serve_component
from usher.http.server.credentials import credential
from usher.http.server.listen import Bind
from usher.index.component_lifecycle import register
from usher.search.broker import DEADLINE_SECONDS, Broker
from usher.search.cluster_map import MGMT_TIMEOUT_SECONDS, open_cluster
from usher.search.endpoints import SearchEndpoints
from usher.search.query_reports import QueryReports
from usher.search.term_stats_warmup import TermStatsWarmup
from usher.settings import Settings
from usher.telemetry import Log

log = Log("search")
Ready = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEndOptions:
    """Options of a front-end; `host` is its address for others if it is not the bind address."""

    bind: Bind
    host: str = ""
    deadline: float = DEADLINE_SECONDS
    insecure: bool = False


async def run_front_end(
    settings: Settings, options: FrontEndOptions, stop: asyncio.Event, *, ready: Ready
) -> None:
    """Run a front-end until `stop` is set."""
    bind, reports = options.bind, QueryReports()
    async with open_cluster(settings) as cluster, background_tasks(log, cluster.run()):
        broker = Broker(cluster, deadline=options.deadline)
        # The search page is public: other machines need no ticket.
        guard = GuardOptions(insecure=options.insecure or not bind.loopback)
        endpoints = SearchEndpoints(broker, reports).endpoints()
        async with (
            background_tasks(log, TermStatsWarmup(cluster, broker.term_stats).run()),
            serve_component(endpoints, bind, options=guard) as address,
        ):
            ready(f"search page at {address}/")
            host = options.host or bind.public_host(address)
            log.info("searching", mgmt=settings.mgmt_url, host=host)
            client = Client(
                settings.mgmt_url,
                host=host,
                token=credential(settings),
                timeout=MGMT_TIMEOUT_SECONDS,
            )
            async with client as mgmt, background_tasks(log, reports.run(mgmt)):
                await register(mgmt, stop, "front-end")
                await stop.wait()
                with suppress(UsherError):
                    await mgmt.set_state("waiting", reason="stopped in order")
    log.info("stopped")
