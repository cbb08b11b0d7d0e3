"""A manager or a scheduler as a process: opens the control area and works until TERM or INT."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from usher.db.areas import Area, open_areas
from usher.db.pool import Database
from usher.queue.manager import Manager, ManagerConfig
from usher.queue.policy import read_policies
from usher.queue.runners import process_tree
from usher.queue.runners.accounts import check_users
from usher.queue.scheduler import Scheduler
from usher.queue.worker_login import worker_dsn
from usher.schema import migrate
from usher.schema.roles import usable_role
from usher.settings import LoadedSettings, Settings
from usher.shutdown import stop_events
from usher.telemetry import Log

log = Log("queue")
MANAGER, SCHEDULER = "usher_manager", "usher_scheduler"
Ready = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class QueueServiceOptions:
    """The options of a manager."""

    host: str = ""
    types: frozenset[str] = frozenset()
    max_processes: int | None = None


async def run_manager(
    loaded: LoadedSettings,
    options: QueueServiceOptions,
    *,
    ready: Ready,
    stop_event: asyncio.Event | None = None,
) -> None:
    """Run jobs on this machine."""
    settings = loaded.settings
    policies = read_policies(loaded.workers)
    check_users(policies)
    process_tree.hide_memory()
    host = (options.host or socket.gethostname()).lower()
    async with control_dsn(settings) as dsn:
        role = await usable_role(dsn, MANAGER, patience=settings.connect_timeout)
        config = ManagerConfig(
            host=host,
            policies=policies,
            dsn=await worker_dsn(dsn, settings.worker_url),
            env=job_variables(settings.data, loaded.file, settings.mgmt_url),
            types=options.types,
            max_processes=options.max_processes,
            lease=timedelta(seconds=settings.job_lease),
        )
        async with Database(dsn, size=settings.pool_size, role=role) as db:
            with stop_events(stop_event) as (stop, stop_now):
                ready(f"manager at {host}")
                await Manager(db, config).run(stop, stop_now)


async def run_scheduler(
    settings: Settings, *, ready: Ready, stop_event: asyncio.Event | None = None
) -> None:
    """Add jobs of tasks, and requeue failed and lost jobs."""
    async with control_dsn(settings) as dsn:
        role = await usable_role(dsn, SCHEDULER, patience=settings.connect_timeout)
        with stop_events(stop_event) as (stop, _):
            ready("scheduler")
            await Scheduler(dsn, role=role).run(stop)
    log.info("stopped")


@asynccontextmanager
async def control_dsn(settings: Settings) -> AsyncIterator[str]:
    """Yield the DSN of the control area, whose schema is up to date."""
    with open_areas(settings) as areas:
        await migrate.ensure(areas, ("control",), patience=settings.connect_timeout)
        yield areas.dsns[Area.CONTROL]


def job_variables(data: Path, file: Path | None, mgmt_url: str) -> dict[str, str]:
    """Return the variables with which a job that runs `usher …` finds the same settings and MGMT, without passwords."""
    shared = {"USHER_DATA": str(data.absolute()), "USHER_MGMT_URL": mgmt_url}
    return shared | ({"USHER_CONFIG": str(file.absolute())} if file else {})
