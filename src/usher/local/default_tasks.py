"""The tasks that `usher up` adds once, and their programs. The operator may change or remove them for good.

Feeds need none: each subscription has its own task.
"""

import subprocess
import sys
from datetime import datetime
from typing import Final

from usher import worker
from usher.db.areas import configured_dsns
from usher.db.pool import Connection
from usher.db.statements import load_statements
from usher.errors import BadInput, UsherError
from usher.queue import tasks
from usher.queue.periods import TaskSchedule
from usher.queue.tasks import TaskSpec
from usher.settings import LoadedSettings

store = load_statements(__file__)
RECRAWL_NAME: Final = "nightly-recrawl"
# Of the type of Usher's own tasks: while nothing runs, `usher status` does not report them as late.
RECRAWL_TASK: Final = TaskSpec(
    "usher",
    "usher.local.default_tasks:recrawl_due_hosts",
    TaskSchedule(cron="0 2 * * *"),
    name=RECRAWL_NAME,
)
DONE_CODES: Final = (0, 3)  # 3: the door refused every host
DATABASE_SETTINGS: Final = ("database_url", "work_url", "control_url")


async def add_default_tasks(conn: Connection, *, now: datetime) -> bool:
    """Add the tasks if no `usher up` did before; whether they were added."""
    if not await store.claim_default_tasks.column(conn, now=now):
        return False
    try:
        async with conn.transaction():
            await tasks.add_task(conn, RECRAWL_TASK, now=now)
    except BadInput:  # the operator has a task of this name
        return False
    return True


def jobs_find_the_database(loaded: LoadedSettings) -> bool:
    """Whether a job can open the same database: it gets the settings file, but no variables with passwords."""
    if not any(configured_dsns(loaded.settings).values()):
        return True
    named = [loaded.origins[name] for name in DATABASE_SETTINGS]
    return all(origin in ("default", str(loaded.file)) for origin in named)


def recrawl_due_hosts() -> None:
    """Run `usher hosts recrawl --due` as a job, with the settings that the manager gives to its jobs."""
    command = [sys.executable, "-m", "usher", "hosts", "recrawl", "--due"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    if done.returncode not in DONE_CODES:
        raise UsherError(f"usher hosts recrawl --due: {' '.join(lines[-2:]) or done.returncode}")
    admitted = [line for line in done.stdout.splitlines() if line.startswith("admit")]
    worker.job().message(f"OK {len(admitted)} hosts admitted" if admitted else "OK no host is due")
