"""What the endpoints of the queue share: a transaction, numbers, spans, times, and how they decline."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg

from usher import spans
from usher.db import IN_THE_WAY, Connection
from usher.errors import BadInput, NotFound, Unreachable
from usher.porch.entry import Declined
from usher.queue.jobs import reason
from usher.queue.policy import to_span
from usher.web.app import Call
from usher.web.queue_shapes import MOST_JOBS

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
LONGEST = timedelta(days=3650)
NUMBER = re.compile(r"[1-9][0-9]{0,17}")


@asynccontextmanager
async def at_the_desk(call: Call[Any]) -> AsyncIterator[Connection]:
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


def number(call: Call[Any]) -> int:
    """The job or task that the path names."""
    word = call.words["id"]
    if not NUMBER.fullmatch(word):
        raise NotFound(f"{word[:40]!a} is not a number.")
    return int(word)


def span(value: str | float, name: str, least: timedelta, most: timedelta = LONGEST) -> timedelta:
    try:
        found = to_span(value)
    except ValueError as error:
        raise BadInput(f"{name} cannot be {value!r:.40}: {error}.") from None
    if not least <= found <= most:
        raise BadInput(f"{name} is from {spans.show(least)} to {spans.show(most)}.")
    return found


def at_most(given: Sequence[object], what: str) -> None:
    if len(given) > MOST_JOBS:
        message = f"{len(given):,} {what} are more than {MOST_JOBS:,}."
        raise Declined(413, "too_large", message, hint="Ask in several requests.")


def wrong_state(message: str, hint: str = "") -> Declined:
    return Declined(409, "wrong_state", message, hint=hint)
