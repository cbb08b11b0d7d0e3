"""The values that producers pass to the queue and get from it."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict

from usher.errors import BadInput

ENDED_STATES: Final = frozenset({"completed", "permanent-error", "cancelled"})


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job to add: what to run, and under which conditions."""

    type: str
    program: str  # a path, or `module:function`
    args: Sequence[str] = ()
    at: datetime | None = None  # the earliest time, with a time zone; None: now
    delay: timedelta = timedelta(0)  # after `at`, or from now
    resource: str | None = None
    priority: int = 0  # lower runs first
    host_rule: str = ""
    key: str | None = None  # while a job with this key is in the queue, none is added
    data: str | None = None
    needs: Sequence[int] = ()  # jobs that must complete first

    def __post_init__(self) -> None:
        if isinstance(self.args, str):
            raise BadInput(
                "args is a list of arguments, not a text.", hint='For example args=["7"]'
            )
        if self.at is not None and self.at.tzinfo is None:
            raise BadInput("at needs a time zone.", hint="For example datetime.now(UTC)")


class JobOptions(TypedDict, total=False):
    """The optional fields of JobSpec, for calls that take them by keyword."""

    at: datetime | None
    delay: timedelta
    resource: str | None
    priority: int
    host_rule: str
    key: str | None
    data: str | None
    needs: Sequence[int]


@dataclass(frozen=True, slots=True)
class AddedJob:
    """The id of a job; `new` is False if a job with its key was in the queue already."""

    id: int
    new: bool


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The state of a job. `result` is final once the state is `completed`."""

    id: int
    state: str
    message: str | None
    exit_code: int | None
    attempts: int
    result: Any

    @property
    def ended(self) -> bool:
        return self.state in ENDED_STATES


class JobFailed(Exception):
    """A job failed permanently or was cancelled."""

    def __init__(self, status: JobStatus) -> None:
        reason = f": {status.message}" if status.message else ""
        super().__init__(
            f"Job {status.id} ended as {status.state}{reason}. See: usher jobs show {status.id}"
        )
        self.status = status


def encode_jobs(jobs: Iterable[JobSpec]) -> str:
    """Return jobs as control.add_jobs reads them."""
    return json.dumps([job_fields(job) for job in jobs])


def job_fields(job: JobSpec) -> dict[str, Any]:
    fields = asdict(job)
    at = fields.pop("at")
    fields |= {"scheduled": at and at.isoformat(), "delay": job.delay.total_seconds()}
    fields |= {"args": list(job.args), "needs": list(job.needs)}
    return {name: value for name, value in fields.items() if value}
