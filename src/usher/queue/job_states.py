"""The states of a job, and what the ending of its process means for it.

Comes from the process that ended and the policy of its type; goes to the settling of the job.
"""

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
# The exit codes with a meaning.
EXIT_CODE_STATES: Final = MappingProxyType(
    {0: JobState.COMPLETED, 1: JobState.TEMPORARY_ERROR, 2: JobState.PERMANENT_ERROR}
)
EndReason = Literal[
    "ended", "timeout", "cancelled", "unstoppable", "missing", "forbidden", "unstartable"
]


@dataclass(slots=True)
class ProcessEnd:
    """How a process ended: by itself, by us, or before it began."""

    code: int | None  # the exit code, or minus the signal; None if it never ran
    why: EndReason = "ended"
    detail: str = ""


@dataclass(slots=True)
class JobOutcome:
    """What becomes of the job; without a message, what the worker itself wrote stays."""

    state: JobState
    exit_code: int | None
    message: str | None = None
    retry_in: timedelta | None = None
    note: str = ""  # why it is not tried again; a message says it already


def job_outcome(ending: ProcessEnd, *, attempts: int, policy: Policy, luck: float) -> JobOutcome:
    """`attempts` counts the run that ended; `luck` is from 0 up to 1 and spreads the retries."""
    state, message = state_and_message(ending, policy)
    if state is not JobState.TEMPORARY_ERROR:
        return JobOutcome(state, ending.code, message)
    note = no_retry_reason(attempts, policy)
    if note:
        message = f"{message}; {note}" if message else None
        return JobOutcome(JobState.PERMANENT_ERROR, ending.code, message, note=note)
    return JobOutcome(state, ending.code, message, retry_delay(attempts, policy, luck))


def state_and_message(ending: ProcessEnd, policy: Policy) -> tuple[JobState, str | None]:
    """JobState and message, before anybody counts attempts."""
    killed = JobState.TEMPORARY_ERROR if policy.retry_after_kill else JobState.PERMANENT_ERROR
    match ending.why:
        case "cancelled":
            return (
                JobState.CANCELLED,
                f"Cancelled: {ending.detail}" if ending.detail else "Cancelled",
            )
        case (
            "missing" | "forbidden" | "unstoppable"
        ):  # code that runs on would run beside its retry
            return JobState.PERMANENT_ERROR, ending.detail or "Program not found"
        case "unstartable":
            reason = f": {ending.detail}" if ending.detail else ""
            return JobState.TEMPORARY_ERROR, f"Could not be started{reason}"
        case "timeout":
            return (
                killed,
                f"Timed out after {durations.show(policy.kill_after)}{stop_effect(ending.code)}",
            )
    if ending.code is not None and ending.code < 0:
        return killed, f"Killed by signal {signal_name(-ending.code)}"
    return state_of_exit_code(ending)


def state_of_exit_code(ending: ProcessEnd) -> tuple[JobState, str | None]:
    if ending.code is None:
        return JobState.TEMPORARY_ERROR, ending.detail or "Nobody saw how it ended"
    if ending.code in EXIT_CODE_STATES:
        return EXIT_CODE_STATES[ending.code], ending.detail or None
    return JobState.TEMPORARY_ERROR, f"Invalid exit code: {ending.code}"


def stop_effect(code: int | None) -> str:
    """What a process did that was told to stop; it may have caught the signal."""
    if code is None:
        return ""
    return f": killed by signal {signal_name(-code)}" if code < 0 else f": exit code {code}"


def signal_name(number: int) -> str:
    """TERM for 15; the bare number if it has no name here."""
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)


def no_retry_reason(attempts: int, policy: Policy) -> str:
    """EndReason a temporary error is the last, empty if it is not."""
    if not policy.auto_reschedule:
        return "not tried again: auto_reschedule is off"
    if attempts >= policy.max_attempts:
        return f"given up after {attempts} attempt{'s' if attempts != 1 else ''}"
    return ""


def retry_delay(attempts: int, policy: Policy, luck: float) -> timedelta:
    """Longer after each attempt up to the most there is, then spread."""
    try:
        longer = policy.backoff ** max(attempts - 1, 0)
    except OverflowError:
        longer = sys.float_info.max
    seconds = min(
        policy.reschedule_after.total_seconds() * longer, policy.most_wait.total_seconds()
    )
    return timedelta(seconds=seconds * (1 + policy.jitter * (2 * luck - 1)))
