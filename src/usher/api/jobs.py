"""Endpoints for jobs: list, add, show, retry, cancel."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET

from usher.api.access import ADMIN, READ_QUEUE
from usher.api.context import MgmtCall
from usher.api.queue_calls import (
    check_contains,
    path_id,
    queue_transaction,
    redact,
    sees_arguments,
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
from usher.http.server.bodies import check_count
from usher.http.server.endpoint import EndpointList
from usher.queue import admin, jobs, queries, run_api
from usher.queue.job_states import JobState
from usher.queue.jobs import EnqueuedJob, JobRequest
from usher.queue.runners.output import without_nul
from usher.queue.times import checked_time
from usher.queue.waiting_reason import waiting_reasons

ONE_OR_MANY = "send type and program, or only jobs."
ENDPOINTS = EndpointList()


@ENDPOINTS.get("/v1/jobs", "Jobs of the queue or of the log, the latest first", READ_QUEUE)
async def list_jobs(call: MgmtCall[JobsQuery]) -> JobList:
    query = call.body
    check_contains(call, query.contains)
    async with queue_transaction(call) as conn:
        jobs_ = await queries.list_jobs(
            conn,
            states=None if query.state is None else [query.state.value],
            type=query.type,
            task=query.task,
            resource=query.resource,
            host=query.host,
            contains=query.contains,
            since=checked_time(query.since),
            after_id=query.before,
            after_end=checked_time(query.ended_before),
            n=query.limit,
            log=query.log,
        )
    listed = [redact(call, job) for job in jobs_]
    if len(jobs_) < query.limit:
        return JobList(listed, None, None)
    return JobList(listed, jobs_[-1].id, jobs_[-1].end if query.log else None)


@ENDPOINTS.post("/v1/jobs", f"Add one job, or up to {MAX_JOBS_PER_REQUEST:,}", ADMIN)
async def add_jobs(call: MgmtCall[NewJobs]) -> QueuedJobs:
    wanted = [(new_job(job), job.parent) for job in requested_jobs(call.body)]
    async with queue_transaction(call) as conn:
        return queued_jobs(
            await run_api.enqueue_with_parents(conn, wanted, now=await server_time(conn))
        )


def requested_jobs(request: NewJobs) -> list[NewJob]:
    """The jobs of a request, which has one or many."""
    fields = dict(job_fields(request))
    if request.jobs is not UNSET:
        check_count(request.jobs, "jobs", MAX_JOBS_PER_REQUEST)
        if fields:
            raise BadInput(f"{', '.join(sorted(fields))} beside jobs: {ONE_OR_MANY}")
        return request.jobs
    for name in ("type", "program"):
        if name not in fields:
            raise BadInput(f"{name} is missing: {ONE_OR_MANY}")
    return [NewJob(**fields)]


def job_fields(request: NewJobs) -> Iterator[tuple[str, Any]]:
    """The fields of a single job that the request sets."""
    for name in NewJob.__struct_fields__:
        value = getattr(request, name)
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


def queued_jobs(jobs_: Sequence[EnqueuedJob]) -> QueuedJobs:
    return QueuedJobs([QueuedJob(job.id, job.new) for job in jobs_])


@ENDPOINTS.get("/v1/jobs/{id}", "One job, why it waits, and its runs", READ_QUEUE)
async def show_job(call: MgmtCall[None]) -> JobView:
    async with queue_transaction(call) as conn:
        details = await queries.show_job(conn, path_id(call))
        why = await waiting_reasons(conn, details.job.id, now=await server_time(conn))
    return JobView(
        redact(call, details.job),
        details.live,
        why,
        [redact(call, attempt) for attempt in details.attempts],
        details.parent,
        details.root_task,
        details.children,
        details.wrote,
        details.result if sees_arguments(call) else None,
        details.needs,
        details.needed_by,
    )


@ENDPOINTS.get("/v1/jobs/{id}/result", "The result of a job", ADMIN)
async def show_result(call: MgmtCall[None]) -> JobResult:
    id_ = path_id(call)
    async with queue_transaction(call) as conn:
        shown = await queries.show_job(conn, id_)
    result = shown.result
    return JobResult(id_, shown.job.state, result and result.value, result is not None)


@ENDPOINTS.get("/v1/jobs/{id}/tree", "A job, its ancestors and its descendants", READ_QUEUE)
async def show_tree(call: MgmtCall[None]) -> JobTree:
    async with queue_transaction(call) as conn:
        nodes = await queries.job_tree(conn, path_id(call))
    return JobTree([redact(call, node) for node in nodes])


@ENDPOINTS.post("/v1/jobs/{id}/retry", "Retry a job now", ADMIN)
async def retry_job(call: MgmtCall[None]) -> RetryAnswer:
    id_ = path_id(call)
    async with queue_transaction(call) as conn:
        [result] = await admin.retry_jobs(conn, [id_], now=await server_time(conn))
    match result:
        case admin.RetryResult(what="pending" | "new", job=int(job)):
            return RetryAnswer(job, result.what == "new")
        case admin.RetryResult(what="live", job=job):
            reason = "it waits or runs" if job == id_ else f"job {job} of its task or key does"
            raise wrong_state(f"Job {id_} cannot be retried: {reason} already.")
    raise NotFound(f"There is no job {id_}.")


@ENDPOINTS.post(
    "/v1/jobs/{id}/cancel", "Cancel a job: end one that waits, stop one that runs", ADMIN
)
async def cancel_job(call: MgmtCall[CancelRequest]) -> CancelAnswer:
    id_ = path_id(call)
    async with queue_transaction(call) as conn:
        why, now = without_nul(call.body.why), await server_time(conn)
        cancelled = await jobs.cancel(conn, [id_], reason=why, now=now)
        if id_ not in cancelled:
            ended = await queries.show_job(conn, id_)
            raise wrong_state(f"Job {id_} has ended already: {ended.job.state}.")
    return CancelAnswer(id_, "running" if cancelled[id_] == JobState.RUNNING else "cancelled")
