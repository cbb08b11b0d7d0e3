"""The states of a job, and what the end of its process means for it."""

import signal
import sys
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal

from usher import durations
from usher.queue.policy import Policy


class JobState(StrEnum):
    PENDING = "pending"
    WAITING = "waiting"  # until the jobs that it needs have completed
    RUNNING = "running"
    COMPLETED = "completed"
    TEMPORARY_ERROR = "temporary-error"
    PERMANENT_ERROR = "permanent-error"
    CANCELLED = "cancelled"


FINAL_STATES: Final = frozenset({JobState.COMPLETED, JobState.PERMANENT_ERROR, JobState.CANCELLED})
EXIT_CODE_STATES: Final = MappingProxyType(
    {0: JobState.COMPLETED, 1: JobState.TEMPORARY_ERROR, 2: JobState.PERMANENT_ERROR}
)
EndReason = Literal[
    "ended", "timeout", "cancelled", "unstoppable", "missing", "forbidden", "unstartable"
]


@dataclass(slots=True)
class ProcessEnd:
    """How a process ended: by itself, stopped by the manager, or before it began."""

    code: int | None  # the exit code, or minus the signal; None if it never ran
    why: EndReason = "ended"
    detail: str = ""


@dataclass(slots=True)
class JobOutcome:
    """What becomes of the job. If the message is None, the worker's own message stays."""

    state: JobState
    exit_code: int | None
    message: str | None = None
    retry_in: timedelta | None = None
    note: str = ""  # why the queue does not retry it; part of the message, if there is one


def job_outcome(
    end: ProcessEnd, *, attempts: int, policy: Policy, random_share: float
) -> JobOutcome:
    """Return the outcome of a run. `attempts` includes this run; `random_share`, from 0 to 1, spreads retries."""
    state, message = state_and_message(end, policy)
    if state is not JobState.TEMPORARY_ERROR:
        return JobOutcome(state, end.code, message)
    note = no_retry_reason(attempts, policy)
    if note:
        message = f"{message}; {note}" if message else None
        return JobOutcome(JobState.PERMANENT_ERROR, end.code, message, note=note)
    return JobOutcome(state, end.code, message, retry_delay(attempts, policy, random_share))


def state_and_message(end: ProcessEnd, policy: Policy) -> tuple[JobState, str | None]:
    """Return the state and the message, regardless of the number of attempts."""
    killed = JobState.TEMPORARY_ERROR if policy.retry_after_kill else JobState.PERMANENT_ERROR
    match end.why:
        case "cancelled":
            return JobState.CANCELLED, f"Cancelled: {end.detail}" if end.detail else "Cancelled"
        case "missing" | "forbidden" | "unstoppable":  # unstoppable code would run beside its retry
            return JobState.PERMANENT_ERROR, end.detail or "Program not found"
        case "unstartable":
            reason = f": {end.detail}" if end.detail else ""
            return JobState.TEMPORARY_ERROR, f"Could not be started{reason}"
        case "timeout":
            limit = durations.show(policy.kill_after)
            return killed, f"Timed out after {limit}{stop_effect(end.code)}"
    if end.code is not None and end.code < 0:
        return killed, f"Killed by signal {signal_name(-end.code)}"
    return by_exit_code(end)


def by_exit_code(end: ProcessEnd) -> tuple[JobState, str | None]:
    """Return the state and the message of a process that ended by itself."""
    if end.code is None:
        return JobState.TEMPORARY_ERROR, end.detail or "Its end was not observed"
    if end.code in EXIT_CODE_STATES:
        return EXIT_CODE_STATES[end.code], end.detail or None
    return JobState.TEMPORARY_ERROR, f"Invalid exit code: {end.code}"


def stop_effect(code: int | None) -> str:
    """Describe how a process ended after the manager stopped it; it may have caught the signal."""
    if code is None:
        return ""
    return f": killed by signal {signal_name(-code)}" if code < 0 else f": exit code {code}"


def signal_name(number: int) -> str:
    """Return TERM for 15; the number itself if it has no name here."""
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)


def no_retry_reason(attempts: int, policy: Policy) -> str:
    """Return why a temporary error is not retried; empty if it is."""
    if not policy.auto_reschedule:
        return "not retried: auto_reschedule is off"
    if attempts >= policy.max_attempts:
        return f"given up after {attempts} attempt{'s' if attempts != 1 else ''}"
    return ""


def retry_delay(attempts: int, policy: Policy, random_share: float) -> timedelta:
    """Return the exponential back-off, up to its limit and spread by jitter."""
    try:
        factor = policy.backoff ** max(attempts - 1, 0)
    except OverflowError:
        factor = sys.float_info.max
    seconds = min(
        policy.reschedule_after.total_seconds() * factor, policy.most_wait.total_seconds()
    )
    return timedelta(seconds=seconds * (1 + policy.jitter * (2 * random_share - 1)))
