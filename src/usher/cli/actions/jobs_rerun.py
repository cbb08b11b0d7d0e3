"""`usher jobs rerun`: run an ended job again in the foreground."""

import socket
from collections.abc import Sequence

from usher.cli.app import App
from usher.cli.area_access import checked_transaction
from usher.cli.output import echo
from usher.cli.queue_access import open_queue
from usher.db.pool import Connection, Database
from usher.errors import BadInput
from usher.queue import admin, queries
from usher.queue.manager import ManagerConfig
from usher.queue.policy import read_policies
from usher.queue.rerun import RerunRequest, rerun
from usher.queue.runners.process_runner import RunEnded
from usher.queue.service import job_variables
from usher.queue.worker_login import worker_dsn
from usher.shutdown import stop_events

FAILED, NOT_STARTED, INTERRUPTED = 1, 2, 130
PASSED_EXIT_CODES = (0, 1, 2)  # mean the same for a job and for `usher`


async def rerun_job(app: App, id_: int, extra: Sequence[str]) -> int:
    async with open_queue(app) as db:
        async with checked_transaction(db) as conn:
            old = await ended_job(conn, id_)
        post = await run_context(app, db)
        with stop_events() as (stop, kill):
            event = await rerun(
                RerunRequest(
                    db=db,
                    config=post,
                    old=old,
                    extra_args=tuple(extra),
                    show_output=print_output,
                    show_progress=app.say,
                    stop=stop,
                    kill=kill,
                )
            )
    return exit_code(app, event)


async def ended_job(conn: Connection, id_: int) -> admin.EndedJob:
    """The job; BadInput if it has not ended."""
    jobs = await admin.load_ended_jobs(conn, [id_])
    if jobs:
        return jobs[0]
    live = await queries.show_job(conn, id_)
    hint = f"usher jobs retry {id_}, or usher jobs cancel {id_}"
    raise BadInput(f"Job {id_} has not ended: it is {live.job.state}.", hint=hint)


async def run_context(app: App, db: Database) -> ManagerConfig:
    return ManagerConfig(
        host=socket.gethostname().lower(),
        policies=read_policies(app.loaded.workers),
        dsn=await worker_dsn(db.dsn, app.settings.worker_url),
        env=job_variables(app.settings.data, app.loaded.file, app.settings.mgmt_url),
    )


def print_output(text: str) -> None:
    """Print output of the program; `echo` escapes control sequences."""
    if text:
        echo(text, nl=False)


def exit_code(app: App, event: RunEnded | None) -> int:
    if event is None or event.why == "cancelled":
        return INTERRUPTED
    if event.detail or event.code not in PASSED_EXIT_CODES:
        ended = f"exit code {event.code}" if event.code is not None else "it did not start"
        app.say(f"{event.why}: {event.detail or ended}")
    if event.why in {"missing", "forbidden"}:
        return NOT_STARTED
    return event.code if event.code in PASSED_EXIT_CODES and event.why == "ended" else FAILED
