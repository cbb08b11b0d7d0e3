"""Runs a watchdog with the settings: the database, the object store, and when it stops."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Final

from usher.background import background_tasks
from usher.db.areas import Area, open_areas
from usher.mgmt.health import HealthLimits
from usher.mgmt.object_sweep import ObjectSweep
from usher.mgmt.retention import Retention
from usher.mgmt.watchdog import CALL_SECONDS, Watchdog
from usher.object_store.store import open_store
from usher.schema import migrate
from usher.schema.roles import usable_role
from usher.settings import Settings
from usher.shutdown import stop_events
from usher.telemetry import Log

log = Log("watchdog")
ROLE: Final = "usher_mgmt"
# With more, a short outage of the object store would be shown only after its end; the next sweep tries again.
STORE_PATIENCE_SECONDS: Final = 3.0


async def watch(
    settings: Settings,
    *,
    ready: Callable[[str], None],
    tick: float,
    limits: HealthLimits,
    told: asyncio.Event | None = None,
) -> None:
    """Run a watchdog until `told` is set, or as a process until TERM or INT."""
    with open_areas(settings) as databases:
        await migrate.ensure(databases, ("work",), patience=settings.connect_timeout)
        dsn = databases.dsns[Area.WORK]
        role = await usable_role(dsn, ROLE, patience=settings.connect_timeout)
        with stop_events(told) as (stop, _):
            limits = replace(
                limits,
                call=timedelta(seconds=max(CALL_SECONDS, tick)),
                lease=timedelta(seconds=settings.chunk_lease),
            )
            days = timedelta(days=1)
            keep = Retention(settings.event_days * days, settings.query_days * days)
            watchdog = Watchdog(dsn, role=role, tick=tick, limits=limits, retention=keep)
            async with AsyncExitStack() as stack:
                if settings.chunk_store:
                    watchdog.sweep = open_sweep(settings, watchdog)
                    work = watchdog.sweep.run(dsn, stop, role=role)
                    await stack.enter_async_context(background_tasks(log, work))
                ready("watchdog")
                await watchdog.run(stop)
    log.info("stopped")


def open_sweep(settings: Settings, watchdog: Watchdog) -> ObjectSweep:
    """Return the sweep of the object store; it runs while the watchdog leads."""
    store = open_store(settings.chunk_store, settings, patience=STORE_PATIENCE_SECONDS)
    return ObjectSweep(store, watchdog.clock, is_leading=lambda: watchdog.leading)
