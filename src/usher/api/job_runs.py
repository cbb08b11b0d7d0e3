"""Runs over HTTP: jobs claimed, kept alive and settled by managers, and what workers say and do meanwhile.

Whoever asks proves by its claim that a run is its own; so this can be spoken in any language.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NoReturn

from msgspec import UNSET

from usher.api.access import CLAIM, MANAGER
from usher.api.context import MgmtCall
from usher.api.jobs import each, entered, new_job
from usher.api.queue_calls import DAY, SECOND, check_batch_size, path_id, queue_transaction, span
from usher.api.queue_messages import (
    MAX_JOBS_PER_CLAIM,
    MAX_JOBS_PER_REQUEST,
    ChildJobsRequest,
    ClaimAnswer,
    ClaimRequest,
    ExtendAnswer,
    ExtendRequest,
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
from usher.http.server.endpoint import Endpoint
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

# -- what workers say and do


async def say(call: MgmtCall[MessageRequest]) -> Status:
    run = fence(call)
    async with queue_transaction(call) as conn:
        if not await run_api.set_message(conn, run, without_nul(call.body.message)):
            refuse(run)
    return Status("ok")


async def put_output(call: MgmtCall[OutputRequest]) -> Status:
    run = fence(call)
    async with queue_transaction(call) as conn:
        held = await run_api.active_runs(conn, [run])
        if run[0] not in held:
            refuse(run)
        output = kept(call.body.output, call.context.policies.of(held[run[0]].type))
        if not await run_api.set_output(conn, run, output):
            refuse(run)
    return Status("ok")


async def put_result(call: MgmtCall[ResultRequest]) -> Status:
    run, result = fence(call), encoded(call.body.result)
    async with queue_transaction(call) as conn:
        if not await run_api.set_result(conn, run, result, now=await server_time(conn)):
            refuse(run)
    return Status("ok")


def encoded(result: object) -> str:
    """A result as the database stores it."""
    try:
        return encode_result(result)
    except PermanentError as error:
        raise BadInput(str(error)) from None


async def wrote(call: MgmtCall[WrittenRowsRequest]) -> Status:
    run, asked = fence(call), call.body
    check_batch_size(asked.rows, "rows")
    async with queue_transaction(call) as conn:
        now = await server_time(conn)
        if not await run_api.record_written_rows(conn, run, asked.table, asked.rows, now=now):
            refuse(run)
    return Status("ok")


async def add_below(call: MgmtCall[ChildJobsRequest]) -> QueuedJobs:
    run, wanted = fence(call), each(call.body)
    if any(job.parent is not None for job in wanted):
        raise BadInput("parent is the job in the path.")
    async with queue_transaction(call) as conn:
        news, now = [new_job(job) for job in wanted], await server_time(conn)
        if held := (await run_api.active_runs(conn, [run])).get(run[0]):
            forbid(call.context.policies, Origin(held.type, held.program), news)
        found = await run_api.enqueue_children(conn, run, news, now=now)
        if found is None:
            refuse(run)
    return entered(found)


def forbid(policies: Policies, origin: Origin, news: Sequence[JobRequest]) -> None:
    """Decline a child job at once whose program its manager would not run."""
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


def refuse(run: Fence) -> NoReturn:
    """Say that a claim does not count; a caller without a good claim learns nothing about the job."""
    raise HttpError(
        409,
        "claim_lost",
        f"Job {run[0]} does not run under this claim.",
        hint="Stop: whatever the run still does, it does for nobody.",
    )


def kept(output: str, policy: Policy) -> str:
    """As much of an output as its type keeps."""
    found = Output(policy.output)
    found.add(output.encode())
    return found.text()


# -- what managers do


async def claim(call: MgmtCall[ClaimRequest]) -> ClaimAnswer:
    asked = call.body
    lease = span(asked.lease, "lease", SECOND, DAY)
    tries = asked.max_attempts or call.context.policies.of(asked.type).max_attempts
    host = host_of_manager(call.caller.token, asked.host)
    async with queue_transaction(call) as conn:
        now = await server_time(conn)
        found = await jobs.claim(conn, asked.type, host, asked.n, lease=lease, tries=tries, now=now)
        fewer = len(found) < asked.n
        due = await jobs.next_due(conn, asked.type, host) if fewer else None
    return ClaimAnswer(found, now + lease, due)


def host_of_manager(token: Token | None, declared: str) -> str:
    """The machine whose jobs the caller may claim: that of its token; the operator names one."""
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


async def extend(call: MgmtCall[ExtendRequest]) -> ExtendAnswer:
    lease = span(call.body.lease, "lease", SECOND, DAY)
    ours = fences(call.body.jobs)
    async with queue_transaction(call) as conn:
        stop = await jobs.extend(conn, ours, lease=lease, now=await server_time(conn))
    return ExtendAnswer(
        [id_ for id_, _ in ours if stop.get(id_) is False],
        [id_ for id_, _ in ours if stop.get(id_)],
        [id_ for id_, _ in ours if id_ not in stop],
    )


async def settle(call: MgmtCall[SettleRequest]) -> SettleAnswer:
    asked = call.body.jobs
    ours = fences(asked)
    async with queue_transaction(call) as conn:
        now, held = await server_time(conn), await run_api.active_runs(conn, ours)
        ends = [
            settled(end, held[end.id], call.context.policies, now)
            for end in asked
            if end.id in held
        ]
        done = await written(conn, ends, now)
    return SettleAnswer(
        [SettledJob(end.id, end.state, end.retry_at) for end in ends if end.id in done],
        [end.id for end in asked if end.id not in done],
    )


def fences(runs: Sequence[RunClaim | RunEnd]) -> list[Fence]:
    """Each run once: of two ends of one run, neither would be the true one."""
    check_batch_size(runs, "jobs")
    for id_, times in Counter(run.id for run in runs).items():
        if times > 1:
            raise BadInput(f"Job {id_} is there {times} times.")
    return [(run.id, run.claim) for run in runs]


async def written(conn: Connection, ends: Sequence[SettledRun], now: datetime) -> set[int]:
    """Settle what has ended and give back what has not begun; those that were still the caller's."""
    back = [(end.id, end.claim) for end in ends if end.state is JobState.PENDING]
    over = [end for end in ends if end.state is not JobState.PENDING]
    done = await jobs.settle(conn, over, now=now) if over else set()
    return done | (await jobs.give_back(conn, back, now=now) if back else set())


def settled(end: RunEnd, held: ActiveRun, policies: Policies, now: datetime) -> SettledRun:
    """What an end means by the rules of its type; what the manager says itself is taken at its word."""
    policy = policies.of(held.type)
    found = judged(end, held, policy)
    wait = found.retry_in
    if end.retry_in is not None:
        wanted = span(end.retry_in, "retry_in", 0 * SECOND)
        wait = wait and wanted
    return SettledRun(
        end.id,
        end.claim,
        found.state,
        exit_code=end.exit_code,
        pid=end.pid,
        message=message(end, found),
        output=None if end.output is None else kept(end.output, policy),
        retry_at=None if wait is None else now + wait,
        result=None if end.result is UNSET else encoded(end.result),
    )


def judged(end: RunEnd, held: ActiveRun, policy: Policy) -> JobOutcome:
    if end.state is None and end.exit_code is None:
        raise BadInput(f"Job {end.id} has neither state nor exit_code.")
    if end.state is not None and end.state != "temporary-error":
        return JobOutcome(JobState(end.state), end.exit_code)
    code = end.exit_code if end.state is None else 1
    why: EndReason = "cancelled" if held.cancel and end.state is None and code else "ended"
    rules = replace(policy, max_attempts=held.max_attempts or policy.max_attempts)
    luck = random.random()  # noqa: S311 - spreads retries
    return job_outcome(ProcessEnd(code, why), attempts=held.attempts, policy=rules, luck=luck)


def message(end: RunEnd, found: JobOutcome) -> str | None:
    """The manager's own words, with why it is the last attempt; else ours."""
    if end.message is None:
        return found.message
    return without_nul(f"{end.message}; {found.note}" if found.note else end.message)


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/jobs/claim",
        claim,
        ClaimRequest,
        ClaimAnswer,
        f"Take up to {MAX_JOBS_PER_CLAIM:,} jobs of a type to run them",
        access=MANAGER,
    ),
    Endpoint(
        "POST",
        "/v1/jobs/extend",
        extend,
        ExtendRequest,
        ExtendAnswer,
        "Signs of life: new leases for runs",
        access=MANAGER,
    ),
    Endpoint(
        "POST",
        "/v1/jobs/settle",
        settle,
        SettleRequest,
        SettleAnswer,
        f"End runs, up to {MAX_JOBS_PER_REQUEST:,} at once",
        access=MANAGER,
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{id}/message",
        say,
        MessageRequest,
        Status,
        "A worker says what it does",
        access=CLAIM,
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{id}/output",
        put_output,
        OutputRequest,
        Status,
        "The output of a run so far",
        access=CLAIM,
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{id}/result",
        put_result,
        ResultRequest,
        Status,
        "Set the result of a run",
        access=CLAIM,
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{id}/wrote",
        wrote,
        WrittenRowsRequest,
        Status,
        "Which rows a run wrote",
        access=CLAIM,
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{id}/jobs",
        add_below,
        ChildJobsRequest,
        QueuedJobs,
        "Put jobs in below a run",
        access=CLAIM,
    ),
)
