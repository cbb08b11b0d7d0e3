"""Endpoints for runs: managers claim, extend and settle jobs; workers report messages, output, results and children.

A worker proves by its claim that a run is its own, so it can be written in any language.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from msgspec import UNSET

from usher.api.access import CLAIM, MANAGER
from usher.api.context import MgmtCall
from usher.api.jobs import new_job, queued_jobs, requested_jobs
from usher.api.queue_calls import DAY, SECOND, path_id, queue_transaction, read_duration
from usher.api.queue_messages import (
    MAX_JOBS_PER_CLAIM,
    MAX_JOBS_PER_REQUEST,
    ChildJobsRequest,
    ExtendAnswer,
    ExtendRequest,
    JobClaimAnswer,
    JobClaimRequest,
    MessageRequest,
    OutputRequest,
    QueuedJobs,
    ResultRequest,
    RunClaim,
    RunEnd,
    SettleAnswer,
    SettledJob,
    SettleRequest,
    WrittenRowsRequest,
)
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.errors import BadInput, NotAllowed
from usher.http.server.bodies import check_count
from usher.http.server.endpoint import EndpointList
from usher.http.server.middleware import HttpError
from usher.messages.server import Status
from usher.mgmt.tokens import Token
from usher.queue import jobs, run_api
from usher.queue.child_programs import Origin, known_refusal
from usher.queue.job_states import EndReason, JobOutcome, JobState, ProcessEnd, job_outcome
from usher.queue.jobs import JobRequest, SettledRun
from usher.queue.policy import Policies, Policy
from usher.queue.run_api import ActiveRun, Fence
from usher.queue.runners.output import Output, without_nul
from usher.worker import PermanentError, encode_result

ENDPOINTS = EndpointList()

# -- workers


@ENDPOINTS.post("/v1/jobs/{id}/message", "Set the message of a run", CLAIM)
async def set_message(call: MgmtCall[MessageRequest]) -> Status:
    run = fence(call)
    async with queue_transaction(call) as conn:
        check_claim(run, await run_api.set_message(conn, run, without_nul(call.body.message)))
    return Status("ok")


@ENDPOINTS.post("/v1/jobs/{id}/output", "Set the output of a run so far", CLAIM)
async def set_output(call: MgmtCall[OutputRequest]) -> Status:
    run = fence(call)
    async with queue_transaction(call) as conn:
        held = await run_api.active_runs(conn, [run])
        check_claim(run, run[0] in held)
        output = truncate_output(call.body.output, call.context.policies.of(held[run[0]].type))
        check_claim(run, await run_api.set_output(conn, run, output))
    return Status("ok")


@ENDPOINTS.post("/v1/jobs/{id}/result", "Set the result of a run", CLAIM)
async def set_result(call: MgmtCall[ResultRequest]) -> Status:
    run, result = fence(call), encode_checked(call.body.result)
    async with queue_transaction(call) as conn:
        now = await server_time(conn)
        check_claim(run, await run_api.set_result(conn, run, result, now=now))
    return Status("ok")


def encode_checked(result: object) -> str:
    """The result as the database stores it; BadInput if it is too large."""
    try:
        return encode_result(result)
    except PermanentError as error:
        raise BadInput(str(error)) from None


@ENDPOINTS.post("/v1/jobs/{id}/wrote", "Record the rows that a run wrote", CLAIM)
async def record_written_rows(call: MgmtCall[WrittenRowsRequest]) -> Status:
    run, request = fence(call), call.body
    check_count(request.rows, "rows", MAX_JOBS_PER_REQUEST)
    async with queue_transaction(call) as conn:
        now = await server_time(conn)
        check_claim(
            run, await run_api.record_written_rows(conn, run, request.table, request.rows, now=now)
        )
    return Status("ok")


@ENDPOINTS.post("/v1/jobs/{id}/jobs", "Add child jobs of a run", CLAIM)
async def add_children(call: MgmtCall[ChildJobsRequest]) -> QueuedJobs:
    run, wanted = fence(call), requested_jobs(call.body)
    if any(job.parent is not None for job in wanted):
        raise BadInput("parent is the job in the path.")
    async with queue_transaction(call) as conn:
        news, now = [new_job(job) for job in wanted], await server_time(conn)
        if held := (await run_api.active_runs(conn, [run])).get(run[0]):
            check_child_programs(call.context.policies, Origin(held.type, held.program), news)
        children = await run_api.enqueue_children(conn, run, news, now=now)
        check_claim(run, children is not None)
    return queued_jobs(children or [])


def check_child_programs(policies: Policies, origin: Origin, news: Sequence[JobRequest]) -> None:
    """Raise 403 for a child job whose program its manager would not run."""
    for job in news:
        if refusal := known_refusal(policies, origin, job.type, job.program):
            raise HttpError(
                403,
                "child_forbidden",
                f"{refusal}.",
                hint="See child_programs in docs/settings.md.",
            )


def fence(call: MgmtCall[Any]) -> Fence:
    return path_id(call), call.body.claim


def check_claim(run: Fence, is_held: bool) -> None:  # noqa: FBT001 - internal
    """Raise 409 unless the claim holds; a caller without a valid claim learns nothing about the job."""
    if not is_held:
        message = f"Job {run[0]} does not run under this claim."
        hint = "Stop the run: its results are discarded."
        raise HttpError(409, "claim_lost", message, hint=hint)


def truncate_output(text: str, policy: Policy) -> str:
    """As much of the output as the policy of its type keeps."""
    output = Output(policy.output)
    output.add(text.encode())
    return output.text()


# -- managers


@ENDPOINTS.post("/v1/jobs/claim", f"Claim up to {MAX_JOBS_PER_CLAIM:,} jobs of a type", MANAGER)
async def claim(call: MgmtCall[JobClaimRequest]) -> JobClaimAnswer:
    request = call.body
    lease = read_duration(request.lease, "lease", SECOND, DAY)
    attempts = request.max_attempts or call.context.policies.of(request.type).max_attempts
    host = host_of_manager(call.caller.token, request.host)
    async with queue_transaction(call) as conn:
        now = await server_time(conn)
        claimed = await jobs.claim(
            conn, request.type, host, request.n, lease=lease, max_attempts=attempts, now=now
        )
        has_fewer = len(claimed) < request.n
        due = await jobs.next_due(conn, request.type, host) if has_fewer else None
    return JobClaimAnswer(claimed, now + lease, due)


def host_of_manager(token: Token | None, declared: str) -> str:
    """The machine whose jobs the caller may claim: that of its token, or the one that the operator names."""
    host = declared.lower()  # as host rules are kept
    if token is None or token.address is None:
        if not host:
            raise BadInput("host is missing: the machine that runs the jobs.")
        return host
    if host not in ("", token.address):
        raise NotAllowed(
            f"The token {token.name!r} claims jobs for {token.address}, not for {host}.",
            hint="Leave out host, or ask the operator: usher tokens move",
        )
    return token.address


@ENDPOINTS.post("/v1/jobs/extend", "Extend the leases of runs", MANAGER)
async def extend(call: MgmtCall[ExtendRequest]) -> ExtendAnswer:
    lease = read_duration(call.body.lease, "lease", SECOND, DAY)
    runs = fences(call.body.jobs)
    async with queue_transaction(call) as conn:
        stop = await jobs.extend(conn, runs, lease=lease, now=await server_time(conn))
    return ExtendAnswer(
        [id_ for id_, _ in runs if stop.get(id_) is False],
        [id_ for id_, _ in runs if stop.get(id_)],
        [id_ for id_, _ in runs if id_ not in stop],
    )


@ENDPOINTS.post("/v1/jobs/settle", f"End runs, up to {MAX_JOBS_PER_REQUEST:,} at once", MANAGER)
async def settle(call: MgmtCall[SettleRequest]) -> SettleAnswer:
    requested = call.body.jobs
    runs = fences(requested)
    async with queue_transaction(call) as conn:
        now, held = await server_time(conn), await run_api.active_runs(conn, runs)
        ends = [
            settled_run(end, held[end.id], call.context.policies, now)
            for end in requested
            if end.id in held
        ]
        done = await store_ends(conn, ends, now)
    return SettleAnswer(
        [SettledJob(end.id, end.state, end.retry_at) for end in ends if end.id in done],
        [end.id for end in requested if end.id not in done],
    )


def fences(runs: Sequence[RunClaim | RunEnd]) -> list[Fence]:
    """The runs of a request; BadInput if one is there twice, because its ends may differ."""
    check_count(runs, "jobs", MAX_JOBS_PER_REQUEST)
    for id_, times in Counter(run.id for run in runs).items():
        if times > 1:
            raise BadInput(f"Job {id_} is there {times} times.")
    return [(run.id, run.claim) for run in runs]


async def store_ends(conn: Connection, ends: Sequence[SettledRun], now: datetime) -> set[int]:
    """Settle runs that ended and give back runs that did not start; returns the jobs that the caller still held."""
    back = [(end.id, end.claim) for end in ends if end.state is JobState.PENDING]
    over = [end for end in ends if end.state is not JobState.PENDING]
    done = await jobs.settle(conn, over, now=now) if over else set()
    return done | (await jobs.give_back(conn, back, now=now) if back else set())


def settled_run(end: RunEnd, held: ActiveRun, policies: Policies, now: datetime) -> SettledRun:
    """The end of a run by the policy of its type; what the manager decides itself is accepted."""
    policy = policies.of(held.type)
    outcome = outcome_of(end, held, policy)
    wait = outcome.retry_in
    if end.retry_in is not None:
        wanted = read_duration(end.retry_in, "retry_in", 0 * SECOND)
        wait = wait and wanted
    return SettledRun(
        end.id,
        end.claim,
        outcome.state,
        exit_code=end.exit_code,
        pid=end.pid,
        message=message(end, outcome),
        output=None if end.output is None else truncate_output(end.output, policy),
        retry_at=None if wait is None else now + wait,
        result=None if end.result is UNSET else encode_checked(end.result),
    )


def outcome_of(end: RunEnd, held: ActiveRun, policy: Policy) -> JobOutcome:
    if end.state is None and end.exit_code is None:
        raise BadInput(f"Job {end.id} has neither state nor exit_code.")
    if end.state is not None and end.state != "temporary-error":
        return JobOutcome(JobState(end.state), end.exit_code)
    code = end.exit_code if end.state is None else 1
    why: EndReason = "cancelled" if held.cancel and end.state is None and code else "ended"
    rules = replace(policy, max_attempts=held.max_attempts or policy.max_attempts)
    luck = random.random()  # noqa: S311 - spreads retries
    return job_outcome(
        ProcessEnd(code, why), attempts=held.attempts, policy=rules, random_share=luck
    )


def message(end: RunEnd, outcome: JobOutcome) -> str | None:
    """The manager's message, with the reason why there is no other attempt; without one, that of the outcome."""
    if end.message is None:
        return outcome.message
    return without_nul(f"{end.message}; {outcome.note}" if outcome.note else end.message)
