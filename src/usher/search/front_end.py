"""A front-end as an actor: its page, its broker, its client at MGMT; answers until told to stop.

Comes from settings and the command line; goes on until the event is set. MGMT may be away: the page is there, and the
last map is used.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from usher.errors import Unreachable, UsherError
from usher.http.client.mgmt_client import Client
from usher.http.server.component import GuardOptions, serve_component
from usher.http.server.credentials import credential
from usher.http.server.listen import Bind
from usher.index.component_lifecycle import background_task
from usher.search.broker import DEADLINE, Broker
from usher.search.cluster_map import TIMEOUT, open_cluster
from usher.search.endpoints import SearchEndpoints
from usher.search.query_reports import QueryReports
from usher.search.term_stats_warmup import TermStatsWarmup
from usher.settings import Settings
from usher.telemetry import Log

log = Log("search")
AGAIN_SECONDS: Final = 2.0
Ready = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEndOptions:
    """What the operator asked of a front-end; `host` is where others reach it, if not where it listens."""

    bind: Bind
    host: str = ""
    deadline: float = DEADLINE
    insecure: bool = False


async def run_front_end(
    settings: Settings, wish: FrontEndOptions, stop: asyncio.Event, *, ready: Ready
) -> None:
    """Run a front-end until told to stop."""
    reports = QueryReports()
    async with open_cluster(settings) as hall, background_task(hall.keep()):
        broker = Broker(hall, deadline=wish.deadline)
        desk = SearchEndpoints(broker, reports)
        async with (
            background_task(TermStatsWarmup(hall, broker.scales).run()),
            serve_component(
                desk.endpoints(),
                wish.bind,
                # The search page is public: where other machines reach it, they need no ticket.
                options=GuardOptions(insecure=wish.insecure or not wish.bind.loopback),
            ) as address,
        ):
            ready(f"search page at {address}/")
            host = wish.host or wish.bind.public_host(address)
            log.info("searching", mgmt=settings.mgmt_url, host=host)
            token = credential(settings)
            client = Client(settings.mgmt_url, host=host, token=token, timeout=TIMEOUT)
            async with client as mgmt, background_task(reports.run(mgmt)):
                await register(mgmt, stop)
                await stop.wait()
                with suppress(UsherError):
                    await mgmt.set_state("waiting", reason="stopped in order")
    log.info("stopped")


async def register(mgmt: Client, stop: asyncio.Event) -> None:
    """Say who we are as soon as MGMT listens; meanwhile searches are answered."""
    while not stop.is_set():
        try:
            await mgmt.set_state("online", type="front-end")
        except Unreachable as error:
            log.warning("mgmt_away", error=error.message)
        else:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_SECONDS):
                await stop.wait()
