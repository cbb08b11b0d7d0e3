"""What the endpoints of the queue share: a transaction, numbers, spans, times, and how they decline."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import psycopg

from usher import durations
from usher.api.app import Call
from usher.api.queue_messages import MAX_JOBS_PER_REQUEST
from usher.db.pool import IN_THE_WAY, Connection
from usher.errors import BadInput, NotAllowed, NotFound, Unreachable
from usher.http.server.middleware import HttpError
from usher.queue.jobs import reason
from usher.queue.policy import to_span
from usher.queue.queries import Job, Listed, Node
from usher.queue.task_queries import Task

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
LONGEST = timedelta(days=3650)
HIDDEN = "(hidden: needs the scope admin)"
View = TypeVar("View", Listed, Job, Node, Task)
NUMBER = re.compile(r"[1-9][0-9]{0,17}")


@asynccontextmanager
async def queue_transaction(call: Call[Any]) -> AsyncIterator[Connection]:
    """A transaction at the queue; what cannot be stored is the caller's to mend, whoever noticed it first."""
    try:
        async with call.rooms.control.transaction() as conn:
            yield conn
    except BadInput as error:
        raise BadInput(error.message, hint=error.hint) from None
    except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
        raise BadInput(f"That cannot be stored: {reason(error)}.") from None
    except IN_THE_WAY as error:
        raise Unreachable("Others stood in the way.", hint="Ask again.") from error


def path_id(call: Call[Any]) -> int:
    """The job or task that the path names."""
    word = call.words["id"]
    if not NUMBER.fullmatch(word):
        raise NotFound(f"{word[:40]!a} is not a path_id.")
    return int(word)


def span(value: str | float, name: str, least: timedelta, most: timedelta = LONGEST) -> timedelta:
    try:
        found = to_span(value)
    except ValueError as error:
        raise BadInput(f"{name} cannot be {value!r:.40}: {error}.") from None
    if not least <= found <= most:
        raise BadInput(f"{name} is from {durations.show(least)} to {durations.show(most)}.")
    return found


def check_batch_size(given: Sequence[object], what: str) -> None:
    if len(given) > MAX_JOBS_PER_REQUEST:
        message = f"{len(given):,} {what} are more than {MAX_JOBS_PER_REQUEST:,}."
        raise HttpError(413, "too_large", message, hint="Ask in several requests.")


def sees_arguments(call: Call[Any]) -> bool:
    """Whether the caller may read what jobs and tasks are given; the scope `read` is not enough."""
    token = call.asker.token
    return token is not None and token.scope == "admin"


def shown_to(call: Call[Any], job: View) -> View:
    """A job or task as this caller may see it: what it was given and what it printed is for operators."""
    if sees_arguments(call):
        return job
    hidden: dict[str, Any] = {"args": [HIDDEN] if job.args else job.args}
    for name in ("key", "data", "output", "message"):
        if getattr(job, name, None) is not None:
            hidden[name] = HIDDEN
    return replace(job, **hidden)


def check_contains(call: Call[Any], contains: str | None) -> None:
    """Raise if a search would tell a caller what it may not read."""
    if contains is not None and not sees_arguments(call):
        raise NotAllowed(
            "`contains` looks into arguments, which needs the scope admin.",
            hint="usher tokens add --scope admin",
        )


def wrong_state(message: str, hint: str = "") -> HttpError:
    return HttpError(409, "wrong_state", message, hint=hint)
