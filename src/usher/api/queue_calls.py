"""What the endpoints of the queue share: a transaction, ids, durations, what a caller may see, errors."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import psycopg

from usher import durations
from usher.api.context import MgmtCall
from usher.db.pool import CONFLICT_ERRORS, Connection
from usher.errors import BadInput, NotAllowed, NotFound, Unreachable
from usher.http.server.middleware import HttpError
from usher.queue.jobs import error_reason
from usher.queue.policy import to_duration
from usher.queue.queries import JobTreeNode, ListedJob, StoredJob
from usher.queue.task_queries import StoredTask

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
MAX_DURATION = timedelta(days=3650)
HIDDEN = "(hidden: needs the scope admin)"
View = TypeVar("View", ListedJob, StoredJob, JobTreeNode, StoredTask)
NUMBER = re.compile(r"[1-9][0-9]{0,17}")


@asynccontextmanager
async def queue_transaction(call: MgmtCall[Any]) -> AsyncIterator[Connection]:
    """A transaction of the queue; what the database cannot store becomes BadInput."""
    try:
        async with call.context.control.transaction() as conn:
            yield conn
    except BadInput as error:
        raise BadInput(error.message, hint=error.hint) from None
    except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
        raise BadInput(f"That cannot be stored: {error_reason(error)}.") from None
    except CONFLICT_ERRORS as error:
        raise Unreachable("Other calls are in the way.", hint="Retry the call.") from error


def path_id(call: MgmtCall[Any]) -> int:
    """The id of the job or task in the path."""
    text = call.path_params["id"]
    if not NUMBER.fullmatch(text):
        raise NotFound(f"{text[:40]!a} is not a number.")
    return int(text)


def read_duration(
    value: str | float, name: str, least: timedelta, most: timedelta = MAX_DURATION
) -> timedelta:
    try:
        duration = to_duration(value)
    except ValueError as error:
        raise BadInput(f"{name} cannot be {value!r:.40}: {error}.") from None
    if not least <= duration <= most:
        raise BadInput(f"{name} is from {durations.show(least)} to {durations.show(most)}.")
    return duration


def sees_arguments(call: MgmtCall[Any]) -> bool:
    """Whether the caller may read the arguments of jobs and tasks; the scope `read` is not enough."""
    token = call.caller.token
    return token is not None and token.scope == "admin"


def redact(call: MgmtCall[Any], job: View) -> View:
    """The job or task as this caller may see it: only operators see arguments and output."""
    if sees_arguments(call):
        return job
    hidden: dict[str, Any] = {"args": [HIDDEN] if job.args else job.args}
    for name in ("key", "data", "output", "message"):
        if getattr(job, name, None) is not None:
            hidden[name] = HIDDEN
    return replace(job, **hidden)


def check_contains(call: MgmtCall[Any], contains: str | None) -> None:
    """Raise if a search would reveal what the caller may not read."""
    if contains is not None and not sees_arguments(call):
        raise NotAllowed(
            "`contains` looks into arguments, which needs the scope admin.",
            hint="usher tokens add --scope admin",
        )


def wrong_state(message: str, hint: str = "") -> HttpError:
    return HttpError(409, "wrong_state", message, hint=hint)
