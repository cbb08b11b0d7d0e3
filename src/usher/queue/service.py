"""A manager or a scheduler as a process: opens the control area, works until told to stop, and leaves in order.

Comes from settings; goes on until TERM or INT. The first lets a manager's jobs end, the second gives them back.
"""

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
    """What the operator asked of a manager."""

    host: str = ""
    types: frozenset[str] = frozenset()
    most: int | None = None


async def run_manager(
    loaded: LoadedSettings,
    wish: QueueServiceOptions,
    *,
    ready: Ready,
    told: asyncio.Event | None = None,
) -> None:
    """Run jobs on this machine."""
    settings = loaded.settings
    rules = read_policies(loaded.workers)
    check_users(rules)
    process_tree.hide_memory()
    host = (wish.host or socket.gethostname()).lower()
    async with control_dsn(settings) as dsn:
        role = await usable_role(dsn, MANAGER, patience=settings.connect_timeout)
        post = ManagerConfig(
            host=host,
            policies=rules,
            dsn=await worker_dsn(dsn, settings.worker_url),
            env=job_variables(settings.data, loaded.file, settings.mgmt_url),
            types=wish.types,
            most=wish.most,
            lease=timedelta(seconds=settings.job_lease),
        )
        async with Database(dsn, size=settings.pool_size, role=role) as db:
            with stop_events(told) as (stop, stop_now):
                ready(f"manager at {host}")
                await Manager(db, post).run(stop, stop_now)


async def run_scheduler(
    settings: Settings, *, ready: Ready, told: asyncio.Event | None = None
) -> None:
    """Make jobs of tasks, and bring back what failed or was lost."""
    async with control_dsn(settings) as dsn:
        role = await usable_role(dsn, SCHEDULER, patience=settings.connect_timeout)
        with stop_events(told) as (stop, _):
            ready("scheduler")
            await Scheduler(dsn, role=role).run(stop)
    log.info("stopped")


@asynccontextmanager
async def control_dsn(settings: Settings) -> AsyncIterator[str]:
    """The control area, its tables up to date."""
    with open_areas(settings) as found:
        await migrate.ensure(found, ("control",), patience=settings.connect_timeout)
        yield found.dsns[Area.CONTROL]


def job_variables(data: Path, file: Path | None, mgmt_url: str) -> dict[str, str]:
    """So that a job that runs `usher …` or calls MGMT finds the same ones; passwords stay with the manager."""
    shared = {"USHER_DATA": str(data.absolute()), "USHER_MGMT_URL": mgmt_url}
    return shared | ({"USHER_CONFIG": str(file.absolute())} if file else {})
