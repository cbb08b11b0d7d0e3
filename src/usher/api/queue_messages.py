"""The messages of the queue, whose fields are types of `usher.queue`. Their bounds are those of columns and indexes."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from usher.queue.admin import TaskState
from usher.queue.job_states import JobState
from usher.queue.jobs import ClaimedJob
from usher.queue.queries import JobTreeNode, ListedJob, Need, StoredJob, StoredResult, WrittenRow

MAX_JOBS_PER_REQUEST = 10_000
MAX_JOBS_PER_CLAIM = 1_000
MAX_LIST_LENGTH = 1_000
MAX_NEEDS_PER_JOB = 1_000  # of one job
MAX_NAME_LENGTH = 200

Id = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Priority = Annotated[int, Meta(ge=-(2**15), le=2**15 - 1)]
Int = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Attempts = Annotated[int, Meta(ge=1, le=2**15 - 1)]
Type = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Machine = Annotated[str, Meta(pattern="^[A-Za-z0-9_.-]{1,255}$")]
NonEmpty = Annotated[str, Meta(min_length=1)]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
Key = Annotated[str, Meta(min_length=1, max_length=500)]
Message = Annotated[str, Meta(max_length=10_000)]
Row = Annotated[str, Meta(min_length=1, max_length=400)]
ListLimit = Annotated[int, Meta(ge=1, le=MAX_LIST_LENGTH)]
Time = Annotated[datetime, Meta(tz=True)]
Duration = Annotated[str | float, Meta(description="15m, 1h30m, 2d, or a number of seconds")]
EndState = Literal["completed", "temporary-error", "permanent-error", "cancelled", "pending"]
# The endpoint counts the items itself: it answers 413 where a limit of the type would give 422.
JOB_LIST = Meta(extra_json_schema={"maxItems": MAX_JOBS_PER_REQUEST})


class StrictRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """Unknown fields are refused."""


# -- jobs


class JobsQuery(StrictRequest):
    state: JobState | None = None
    type: str | None = None
    task: Id | None = None
    resource: str | None = None
    host: str | None = None
    contains: str | None = None
    since: Time | None = None
    before: Id | None = None
    ended_before: Time | None = None
    limit: ListLimit = 100
    log: bool = False


class JobList(Struct):
    """Jobs, the latest first. `before`, in the log with `ended_before`, is the query for more; null at the end."""

    jobs: list[ListedJob]
    before: int | None
    ended_before: datetime | None


class JobFields(StrictRequest):
    """The optional fields of a job."""

    args: list[str] = []
    scheduled: Time | None = None
    resource: Name | None = None
    priority: Priority = 0
    host_rule: str = ""
    key: Key | None = None
    data: str | None = None
    parent: Id | None = None
    needs: Annotated[list[Id], Meta(max_length=MAX_NEEDS_PER_JOB)] = []


class NewJob(JobFields, kw_only=True):
    type: Type
    program: NonEmpty


class NewJobs(JobFields):
    """One job, or `jobs` and nothing else."""

    type: Type | UnsetType = UNSET
    program: NonEmpty | UnsetType = UNSET
    jobs: Annotated[list[NewJob], JOB_LIST] | UnsetType = UNSET


class QueuedJob(Struct):
    """The id of a job; it is not new if a job with its key waits or runs already."""

    id: int
    new: bool


class QueuedJobs(Struct):
    jobs: list[QueuedJob]


class JobView(Struct):
    """A job, why it waits, its finished runs, its parent and children, and the rows that it wrote."""

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
    """The state of a job and its JSON result; `set` distinguishes a null result from none."""

    id: int
    state: str
    result: Any
    set: bool


class JobTree(Struct):
    """A job with its ancestors and descendants, the root first; `depth` counts from the requested job."""

    jobs: list[JobTreeNode]


class RetryAnswer(Struct):
    """The job that runs again: the same one, or a new child of it."""

    id: int
    new: bool


class CancelRequest(StrictRequest):
    why: Message = ""


class CancelAnswer(Struct):
    """A `cancelled` job has ended; its manager stops a `running` one."""

    id: int
    state: Literal["cancelled", "running"]


# -- runs


class ClaimedRunRequest(StrictRequest):
    """A request about a run; `claim` is its USHER_CLAIM."""

    claim: UUID


class MessageRequest(ClaimedRunRequest):
    message: Message


class OutputRequest(ClaimedRunRequest):
    output: str


class ResultRequest(ClaimedRunRequest):
    result: Any


class WrittenRowsRequest(ClaimedRunRequest):
    table: Name
    rows: Annotated[list[Row], JOB_LIST]


class ChildJobsRequest(NewJobs, kw_only=True):
    """Child jobs of a run."""

    claim: UUID


class JobClaimRequest(StrictRequest):
    """Without `host`, jobs for the host of the manager's token."""

    type: Type
    host: Machine | Literal[""] = ""
    n: Annotated[int, Meta(ge=1, le=MAX_JOBS_PER_CLAIM)] = 1
    lease: Duration = "60s"
    max_attempts: Attempts | None = None


class JobClaimAnswer(Struct):
    """Jobs to run, the end of their lease, and `next_due` if there were fewer than requested."""

    jobs: list[ClaimedJob]
    lease_until: datetime
    next_due: datetime | None


class RunEnd(ClaimedRunRequest):
    """The end of a run by its state or its exit code; `pending` gives it back as if it had not started."""

    id: Id
    state: EndState | None = None
    exit_code: Int | None = None
    message: Message | None = None
    output: str | None = None
    pid: Positive | None = None
    retry_in: Duration | None = None
    result: Any | UnsetType = UNSET


class SettleRequest(StrictRequest):
    jobs: Annotated[list[RunEnd], JOB_LIST]


class SettledJob(Struct):
    id: int
    state: JobState
    retry_at: datetime | None


class SettleAnswer(Struct):
    """The settled runs, and those whose claims were lost."""

    settled: list[SettledJob]
    lost: list[int]


class RunClaim(ClaimedRunRequest):
    id: Id


class ExtendRequest(StrictRequest):
    jobs: Annotated[list[RunClaim], JOB_LIST]
    lease: Duration = "60s"


class ExtendAnswer(Struct):
    """Each run once: extended, to be stopped, or lost."""

    alive: list[int]
    stop: list[int]
    lost: list[int]


# -- tasks and resources


class TasksQuery(StrictRequest):
    state: TaskState | None = None
    type: str | None = None
    resource: str | None = None
    contains: str | None = None
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    limit: ListLimit = 100


class TaskFields(StrictRequest):
    """The optional fields of a task."""

    args: list[str] | UnsetType = UNSET
    name: Name | UnsetType | None = UNSET
    state: TaskState | UnsetType = UNSET
    host_rule: str | UnsetType = UNSET
    periodicity: Duration | UnsetType | None = UNSET
    hour: Int | UnsetType | None = UNSET
    minute: Int | UnsetType | None = UNSET
    second: Int | UnsetType | None = UNSET
    cron: str | UnsetType | None = UNSET
    timezone: str | UnsetType = UNSET
    jitter: Duration | UnsetType = UNSET
    autoperiodicity: bool | UnsetType = UNSET
    resource: Name | UnsetType | None = UNSET
    priority: Priority | UnsetType = UNSET
    data: str | UnsetType | None = UNSET


class NewTaskRequest(TaskFields, kw_only=True):
    type: Type
    program: NonEmpty


class TaskChangeRequest(TaskFields):
    """Changes the fields that are sent; null clears a field that may be empty."""

    type: Type | UnsetType = UNSET
    program: NonEmpty | UnsetType = UNSET


class TaskView(Struct):
    """A task with its schedule, and its live job if there is one."""

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
    """Tasks by number; `after` is the query for more, null at the end."""

    tasks: list[TaskView]
    after: int | None


class ResourcesQuery(StrictRequest):
    contains: str | None = None
    after: str = ""
    limit: ListLimit = 100


class ResourceChange(StrictRequest):
    """Changes the fields that are sent."""

    capacity: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    interval: Duration | None = None
    paused: bool | None = None


class ResourceView(Struct):
    """`waiting` is counted up to 10,000."""

    name: str
    capacity: int
    interval: str
    running: int
    waiting: int
    latest_run: datetime | None
    paused: bool


class TypeChange(StrictRequest):
    """Pauses a type of job, or resumes it; managers claim no jobs of a paused type."""

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
    """Resources by name; `after` is the query for more, null at the end."""

    resources: list[ResourceView]
    after: str | None
