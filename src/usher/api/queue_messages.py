"""What requests to the queue and its answers look like; bounds are those of the columns, and of what an index holds."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from usher.queue.admin import TaskState
from usher.queue.job_states import JobState
from usher.queue.jobs import ClaimedJob
from usher.queue.queries import JobTreeNode, ListedJob, Need, StoredJob, StoredResult, WrittenRow

MOST_JOBS = 10_000
MOST_CLAIMED = 1_000
MOST_LISTED = 1_000
MAX_NEEDS = 1_000  # of one job
LONGEST_NAME = 200

Id = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Priority = Annotated[int, Meta(ge=-(2**15), le=2**15 - 1)]
Int = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Attempts = Annotated[int, Meta(ge=1, le=2**15 - 1)]
Type = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Machine = Annotated[str, Meta(pattern="^[A-Za-z0-9_.-]{1,255}$")]
Some = Annotated[str, Meta(min_length=1)]
Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
Key = Annotated[str, Meta(min_length=1, max_length=500)]
Message = Annotated[str, Meta(max_length=10_000)]
Row = Annotated[str, Meta(min_length=1, max_length=400)]
Limit = Annotated[int, Meta(ge=1, le=MOST_LISTED)]
Time = Annotated[datetime, Meta(tz=True)]
Span = Annotated[str | float, Meta(description="15m, 1h30m, 2d, or a number of seconds")]
EndState = Literal["completed", "temporary-error", "permanent-error", "cancelled", "pending"]
# Counted by the endpoint, which answers 413; the reader of this type would answer 422.
MANY = Meta(extra_json_schema={"maxItems": MOST_JOBS})


class Strict(Struct, forbid_unknown_fields=True, kw_only=True):
    """A misspelt field is refused."""


# -- jobs


class JobsQuery(Strict):
    state: JobState | None = None
    type: str | None = None
    task: Id | None = None
    resource: str | None = None
    host: str | None = None
    contains: str | None = None
    since: Time | None = None
    before: Id | None = None
    ended_before: Time | None = None
    limit: Limit = 100
    log: bool = False


class JobList(Struct):
    """Jobs, the latest first; `before`, in the log with `ended_before`, asks for more; null where there is none."""

    jobs: list[ListedJob]
    before: int | None
    ended_before: datetime | None


class Conditions(Strict):
    """Under which conditions a job is to run."""

    args: list[str] = []
    scheduled: Time | None = None
    resource: Name | None = None
    priority: Priority = 0
    host_rule: str = ""
    key: Key | None = None
    data: str | None = None
    parent: Id | None = None
    needs: Annotated[list[Id], Meta(max_length=MAX_NEEDS)] = []


class NewJob(Conditions, kw_only=True):
    type: Type
    program: Some


class NewJobs(Conditions):
    """One job, or `jobs` and nothing else."""

    type: Type | UnsetType = UNSET
    program: Some | UnsetType = UNSET
    jobs: Annotated[list[NewJob], MANY] | UnsetType = UNSET


class EnteredJob(Struct):
    """Where a job stands; not new if one with its key waits or runs already."""

    id: int
    new: bool


class EnteredJobs(Struct):
    jobs: list[EnteredJob]


class ShownJob(Struct):
    """A job, why it waits, each run that ended, its kin, and the rows it wrote."""

    job: StoredJob
    live: bool
    why: list[str]
    runs: list[ListedJob]
    parent: int | None
    root_task: int | None
    children: int
    wrote: list[WrittenRow]
    result: StoredResult | None
    needs: list[Need]
    needed_by: list[int]


class JobResult(Struct):
    """The state of a job and the JSON value it set; `set` tells a result of null from none."""

    id: int
    state: str
    result: Any
    set: bool


class Tree(Struct):
    """A job among its kin, the root first; `depth` counts from the job asked for."""

    jobs: list[JobTreeNode]


class Retried(Struct):
    """The job that is tried: the same one, or a new one below it."""

    id: int
    new: bool


class CancelRequest(Strict):
    why: Message = ""


class Cancelled(Struct):
    """`cancelled` has ended; `running` will be stopped by its manager."""

    id: int
    state: Literal["cancelled", "running"]


# -- runs


class Fenced(Strict):
    """The claim is that of the run, as in USHER_CLAIM."""

    claim: UUID


class MessageRequest(Fenced):
    message: Message


class OutputRequest(Fenced):
    output: str


class ResultRequest(Fenced):
    result: Any


class WroteRequest(Fenced):
    table: Name
    rows: Annotated[list[Row], MANY]


class BelowRequest(NewJobs, kw_only=True):
    """Jobs to put in below a run."""

    claim: UUID


class ClaimRequest(Strict):
    """Without a host: that of the manager's token."""

    type: Type
    host: Machine | Literal[""] = ""
    n: Annotated[int, Meta(ge=1, le=MOST_CLAIMED)] = 1
    lease: Span = "60s"
    max_attempts: Attempts | None = None


class ClaimAnswer(Struct):
    """Jobs to run now, until when without a sign of life; `next_due` where there were fewer than asked for."""

    jobs: list[ClaimedJob]
    lease_until: datetime
    next_due: datetime | None


class End(Fenced):
    """How a run ended, by its state or by its exit code; `pending` gives it back as if it had not begun."""

    id: Id
    state: EndState | None = None
    exit_code: Int | None = None
    message: Message | None = None
    output: str | None = None
    pid: Positive | None = None
    retry_in: Span | None = None
    result: Any | UnsetType = UNSET


class SettleRequest(Strict):
    jobs: Annotated[list[End], MANY]


class Ended(Struct):
    id: int
    state: JobState
    retry_at: datetime | None


class SettleAnswer(Struct):
    """What became of the runs; the claims of the lost ones held no longer."""

    settled: list[Ended]
    lost: list[int]


class Alive(Fenced):
    id: Id


class ExtendRequest(Strict):
    jobs: Annotated[list[Alive], MANY]
    lease: Span = "60s"


class ExtendAnswer(Struct):
    """Each run once: still the caller's, to be stopped by it, or no longer its."""

    alive: list[int]
    stop: list[int]
    lost: list[int]


# -- tasks and resources


class TasksQuery(Strict):
    state: TaskState | None = None
    type: str | None = None
    resource: str | None = None
    contains: str | None = None
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    limit: Limit = 100


class Changes(Strict):
    """What can be set for a task and may be left out."""

    args: list[str] | UnsetType = UNSET
    name: Name | UnsetType | None = UNSET
    state: TaskState | UnsetType = UNSET
    host_rule: str | UnsetType = UNSET
    periodicity: Span | UnsetType | None = UNSET
    hour: Int | UnsetType | None = UNSET
    minute: Int | UnsetType | None = UNSET
    second: Int | UnsetType | None = UNSET
    cron: str | UnsetType | None = UNSET
    timezone: str | UnsetType = UNSET
    jitter: Span | UnsetType = UNSET
    autoperiodicity: bool | UnsetType = UNSET
    resource: Name | UnsetType | None = UNSET
    priority: Priority | UnsetType = UNSET
    data: str | UnsetType | None = UNSET


class NewTask(Changes, kw_only=True):
    type: Type
    program: Some


class TaskChange(Changes):
    """Sets what is given and keeps the rest; null empties what may be empty."""

    type: Type | UnsetType = UNSET
    program: Some | UnsetType = UNSET


class Task(Struct):
    """A task with its clock, and its live job if there is one."""

    id: int
    name: str | None
    type: str
    program: str
    args: list[str]
    state: str
    host_rule: str
    periodicity: str | None
    hour: int | None
    minute: int | None
    second: int | None
    cron: str | None
    timezone: str
    jitter: str
    autoperiodicity: bool
    next_run: datetime
    latest_run: datetime | None
    resource: str | None
    priority: int
    data: str | None
    job_id: int | None
    job_state: str | None


class TaskList(Struct):
    """Tasks by number; `after` asks for more, and is null where there is none."""

    tasks: list[Task]
    after: int | None


class ResourcesQuery(Strict):
    contains: str | None = None
    after: str = ""
    limit: Limit = 100


class ResourceChange(Strict):
    """Sets what is given and keeps the rest."""

    capacity: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    interval: Span | None = None
    paused: bool | None = None


class Resource(Struct):
    """`waiting` is counted up to 10,000."""

    name: str
    capacity: int
    interval: str
    running: int
    waiting: int
    latest_run: datetime | None
    paused: bool


class TypeChange(Strict):
    """Whether managers may claim jobs of a type."""

    paused: bool
    reason: Message = ""


class JobType(Struct):
    """`reason` and `since` are those of the pause."""

    type: str
    paused: bool
    reason: str
    since: datetime | None


class JobTypeList(Struct):
    types: list[JobType]


class ResourceList(Struct):
    """Resources by name; `after` asks for more, and is null where there is none."""

    resources: list[Resource]
    after: str | None
