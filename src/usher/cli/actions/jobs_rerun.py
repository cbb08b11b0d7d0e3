"""The work behind `usher jobs rerun`: a job that ended, run in the foreground."""

import socket
from collections.abc import Sequence

from usher.cli.app import App
from usher.cli.output import echo
from usher.cli.queue_access import queue_of, within
from usher.db.pool import Connection, Database
from usher.errors import BadInput
from usher.queue import admin, queries
from usher.queue.manager import ManagerConfig
from usher.queue.policy import read_policies
from usher.queue.rerun import RerunRequest, rerun
from usher.queue.runners.process_runner import RunEnded
from usher.queue.service import job_variables
from usher.queue.worker_login import worker_dsn
from usher.shutdown import told_to_stop

FAILED, NEVER, INTERRUPTED = 1, 2, 130
OWN = (0, 1, 2)  # the exit codes that mean the same to us


async def run_again(app: App, id_: int, extra: Sequence[str]) -> int:
    async with queue_of(app) as db:
        async with within(db) as conn:
            old = await over(conn, id_)
        post = await posted(app, db)
        with told_to_stop() as (stop, kill):
            event = await rerun(
                RerunRequest(
                    db=db,
                    config=post,
                    old=old,
                    extra_args=tuple(extra),
                    show_output=heard,
                    show_progress=app.say,
                    stop=stop,
                    kill=kill,
                )
            )
    return exit_code(app, event)


async def over(conn: Connection, id_: int) -> admin.EndedJob:
    """The job, which has ended."""
    found = await admin.load_ended_jobs(conn, [id_])
    if found:
        return found[0]
    live = await queries.show_job(conn, id_)
    raise BadInput(
        f"Job {id_} has not ended: {live.job.state}.", hint=f"usher jobs retry {id_}, or cancel it"
    )


async def posted(app: App, db: Database) -> ManagerConfig:
    return ManagerConfig(
        host=socket.gethostname().lower(),
        policies=read_policies(app.loaded.workers),
        dsn=await worker_dsn(db.dsn, app.settings.worker_url),
        env=job_variables(app.settings.data, app.loaded.file, app.settings.mgmt_url),
    )


def heard(words: str) -> None:
    """Print a part of the program's output; `echo` makes its escape sequences visible."""
    if words:
        echo(words, nl=False)


def exit_code(app: App, event: RunEnded | None) -> int:
    if event is None or event.why == "cancelled":
        return INTERRUPTED
    if event.detail or event.code not in OWN:
        ended = f"exit code {event.code}" if event.code is not None else "it never ran"
        app.say(f"{event.why}: {event.detail or ended}")
    if event.why in {"missing", "forbidden"}:
        return NEVER
    return event.code if event.code in OWN and event.why == "ended" else FAILED
