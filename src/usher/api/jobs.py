"""Jobs over HTTP: listed, put in, shown, tried again, cancelled."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET

from usher.api.access import ADMIN, READ_QUEUE
from usher.api.context import MgmtCall
from usher.api.queue_calls import (
    check_batch_size,
    check_contains,
    path_id,
    queue_transaction,
    sees_arguments,
    shown_to,
    wrong_state,
)
from usher.api.queue_messages import (
    MAX_JOBS_PER_REQUEST,
    CancelAnswer,
    CancelRequest,
    JobList,
    JobResult,
    JobsQuery,
    JobTree,
    JobView,
    NewJob,
    NewJobs,
    QueuedJob,
    QueuedJobs,
    RetryAnswer,
)
from usher.db.clock import server_time
from usher.errors import BadInput, NotFound
from usher.http.server.endpoint import Endpoint
from usher.queue import admin, jobs, queries, run_api
from usher.queue.job_states import JobState
from usher.queue.jobs import EnqueuedJob, JobRequest
from usher.queue.runners.output import without_nul
from usher.queue.times import checked_time
from usher.queue.waiting_reason import waiting_reasons

ONE_OR_MANY = "type and program are wanted, or jobs and nothing beside them."


async def list_jobs(call: MgmtCall[JobsQuery]) -> JobList:
    asked = call.body
    check_contains(call, asked.contains)
    async with queue_transaction(call) as conn:
        found = await queries.list_jobs(
            conn,
            states=None if asked.state is None else [asked.state.value],
            type=asked.type,
            task=asked.task,
            resource=asked.resource,
            host=asked.host,
            contains=asked.contains,
            since=checked_time(asked.since),
            after_id=asked.before,
            after_end=checked_time(asked.ended_before),
            n=asked.limit,
            log=asked.log,
        )
    listed = [shown_to(call, job) for job in found]
    if len(found) < asked.limit:
        return JobList(listed, None, None)
    return JobList(listed, found[-1].id, found[-1].end if asked.log else None)


async def add_jobs(call: MgmtCall[NewJobs]) -> QueuedJobs:
    wanted = [(new_job(job), job.parent) for job in each(call.body)]
    async with queue_transaction(call) as conn:
        return entered(
            await run_api.enqueue_with_parents(conn, wanted, now=await server_time(conn))
        )


def each(asked: NewJobs) -> list[NewJob]:
    """The jobs of a request that has one or many."""
    one = dict(given(asked))
    if asked.jobs is not UNSET:
        check_batch_size(asked.jobs, "jobs")
        if one:
            raise BadInput(f"{', '.join(sorted(one))} beside jobs: {ONE_OR_MANY}")
        return asked.jobs
    for name in ("type", "program"):
        if name not in one:
            raise BadInput(f"{name} is missing: {ONE_OR_MANY}")
    return [NewJob(**one)]


def given(asked: NewJobs) -> Iterator[tuple[str, Any]]:
    """What is there of one job."""
    for name in NewJob.__struct_fields__:
        value = getattr(asked, name)
        if value not in (UNSET, None, [], "", 0):
            yield name, value


def new_job(job: NewJob) -> JobRequest:
    return JobRequest(
        job.type,
        job.program,
        tuple(job.args),
        scheduled=checked_time(job.scheduled),
        resource=job.resource,
        priority=job.priority,
        host_rule=job.host_rule,
        key=job.key,
        data=job.data,
        needs=tuple(job.needs),
    )


def entered(found: Sequence[EnqueuedJob]) -> QueuedJobs:
    return QueuedJobs([QueuedJob(one.id, one.new) for one in found])


async def show_job(call: MgmtCall[None]) -> JobView:
    async with queue_transaction(call) as conn:
        found = await queries.show_job(conn, path_id(call))
        why = await waiting_reasons(conn, found.job.id, now=await server_time(conn))
    return JobView(
        shown_to(call, found.job),
        found.live,
        why,
        [shown_to(call, attempt) for attempt in found.attempts],
        found.parent,
        found.root_task,
        found.children,
        found.wrote,
        found.result if sees_arguments(call) else None,
        found.needs,
        found.needed_by,
    )


async def show_result(call: MgmtCall[None]) -> JobResult:
    id_ = path_id(call)
    async with queue_transaction(call) as conn:
        shown = await queries.show_job(conn, id_)
    result = shown.result
    return JobResult(id_, shown.job.state, result and result.value, result is not None)


async def show_tree(call: MgmtCall[None]) -> JobTree:
    async with queue_transaction(call) as conn:
        nodes = await queries.job_tree(conn, path_id(call))
    return JobTree([shown_to(call, node) for node in nodes])


async def retry_job(call: MgmtCall[None]) -> RetryAnswer:
    id_ = path_id(call)
    async with queue_transaction(call) as conn:
        [found] = await admin.retry_jobs(conn, [id_], now=await server_time(conn))
    match found:
        case admin.RetryResult(what="pending" | "new", job=int(job)):
            return RetryAnswer(job, found.what == "new")
        case admin.RetryResult(what="live", job=job):
            words = "it waits or runs" if job == id_ else f"job {job} of its task or key does"
            raise wrong_state(f"Job {id_} cannot be tried again: {words} already.")
    raise NotFound(f"There is no job {id_}.")


async def cancel_job(call: MgmtCall[CancelRequest]) -> CancelAnswer:
    id_ = path_id(call)
    async with queue_transaction(call) as conn:
        why, now = without_nul(call.body.why), await server_time(conn)
        found = await jobs.cancel(conn, [id_], reason=why, now=now)
        if id_ not in found:
            ended = await queries.show_job(conn, id_)
            raise wrong_state(f"Job {id_} has ended already: {ended.job.state}.")
    return CancelAnswer(id_, "running" if found[id_] == JobState.RUNNING else "cancelled")


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/jobs",
        list_jobs,
        JobsQuery,
        JobList,
        "Jobs of the queue or of the log, the latest first",
        access=READ_QUEUE,
    ),
    Endpoint(
        "POST",
        "/v1/jobs",
        add_jobs,
        NewJobs,
        QueuedJobs,
        f"Put one job in, or up to {MAX_JOBS_PER_REQUEST:,}",
        access=ADMIN,
    ),
    Endpoint(
        "GET",
        "/v1/jobs/{id}",
        show_job,
        None,
        JobView,
        "One job, why it waits, and what became of it",
        access=READ_QUEUE,
    ),
    Endpoint(
        "GET",
        "/v1/jobs/{id}/result",
        show_result,
        None,
        JobResult,
        "The result of a job",
        access=ADMIN,
    ),
    Endpoint(
        "GET",
        "/v1/jobs/{id}/tree",
        show_tree,
        None,
        JobTree,
        "A job, its ancestors and its descendants",
        access=READ_QUEUE,
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{id}/retry",
        retry_job,
        None,
        RetryAnswer,
        "Try a job again now",
        access=ADMIN,
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{id}/cancel",
        cancel_job,
        CancelRequest,
        CancelAnswer,
        "End a job that waits, have one stopped that runs",
        access=ADMIN,
    ),
)
