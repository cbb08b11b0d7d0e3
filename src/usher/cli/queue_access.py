"""The way from a command to the queue, and how its commands read and show programs, times and spans.

Commands import this when they run, because it brings the driver along.
"""

import difflib
import re
import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

import psycopg

from usher import durations
from usher.cli.app import App
from usher.cli.area_access import open_database
from usher.cli.wording import duration_text, printable
from usher.db.pool import Connection, Database
from usher.errors import BadInput, NotFound
from usher.queue import task_queries
from usher.queue.jobs import reason
from usher.queue.policy import TYPE
from usher.queue.task_queries import Task
from usher.queue.times import in_range

ROLE = "usher_manager"
MAX_CANDIDATES = 10_000
TASK_NUMBER = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
MAX_DURATION = timedelta(days=3650)
DURATION_HINT = "Such as 0.5s, 90s, 15m, 1h30m or 2d."
TIME_HINT = "Such as 2026-11-30T08:00 (in UTC) or 2026-11-30T08:00+01:00, or {}."
COMMAND_CHARACTERS = 60  # characters of a command line that a table shows


@asynccontextmanager
async def queue_transaction(app: App) -> AsyncIterator[Connection]:
    """A transaction at the queue."""
    async with open_queue(app) as db, checked_transaction(db) as conn:
        yield conn


def open_queue(app: App) -> AbstractAsyncContextManager[Database]:
    """The database of the queue, as the manager has it."""
    return open_database(app, "control", ROLE)


@asynccontextmanager
async def checked_transaction(db: Database) -> AsyncIterator[Connection]:
    """A transaction; what cannot be stored is the caller's to mend."""
    try:
        async with db.transaction() as conn:
            yield conn
    except (psycopg.DataError, psycopg.errors.CheckViolation) as error:
        raise BadInput(f"That cannot be stored: {reason(error)}.") from error
    except UnicodeEncodeError as error:
        raise BadInput(
            "Bytes that are not UTF-8 cannot be stored.",
            hint="Put them into a file, and its name into the arguments.",
        ) from error


async def find_task(conn: Connection, text: str) -> Task:
    """The task that a person named, by its number or its name."""
    if TASK_NUMBER.fullmatch(text):
        with suppress(NotFound):
            return await task_queries.show_task(conn, int(text))
    try:
        return await task_queries.show_task(conn, text)
    except NotFound as error:
        names = [
            task.name for task in await task_queries.list_tasks(conn, n=MAX_CANDIDATES) if task.name
        ]
        near = difflib.get_close_matches(text, names, n=1)
        raise NotFound(
            error.message, hint=f"Did you mean {near[0]}?" if near else error.hint
        ) from error


def parse_command(words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Program and arguments; a single word is split as a shell would, and no shell ever reads it."""
    if len(words) == 1:
        try:
            words = shlex.split(words[0])
        except ValueError as error:
            raise BadInput(
                f"{words[0][:80]!a} cannot be split into words: {error}.",
                hint="Give the program and each argument as words of their own, after --",
            ) from error
    if not words or not words[0]:
        raise BadInput("A program is wanted.", hint="As in -- PROGRAM [ARGS...]")
    program, *args = words
    return program, tuple(args)


def parse_type(text: str) -> str:
    if not TYPE.fullmatch(text):
        raise BadInput(
            f"{text[:80]!a} names no type of job.",
            hint="A type has at most 64 letters, digits, dots, hyphens and underscores.",
        )
    return text


def command_line(program: str, args: Sequence[str], most: int = COMMAND_CHARACTERS) -> str:
    """As a shell would take it, on one line."""
    return printable(shlex.join([program, *args]), most)


def parse_duration(text: str) -> timedelta:
    found = durations.read(text.strip())
    if found is None:
        raise BadInput(f"{text[:40]!a} is not a span of time.", hint=DURATION_HINT)
    if found > MAX_DURATION:
        raise BadInput(
            f"A span of time is at most {durations.show(MAX_DURATION)}.",
            hint=DURATION_HINT,
        )
    return found


def parse_start(text: str, now: datetime) -> datetime:
    """A moment, or with a + as long from now as it says."""
    if text.startswith("+"):
        return now + parse_duration(text[1:])
    return parse_time(text, TIME_HINT.format("+15m from now"))


def parse_since(text: str, now: datetime) -> datetime:
    """A moment, or as long ago as it says."""
    if durations.read(text.strip()):
        return now - parse_duration(text)
    return parse_time(text, TIME_HINT.format("2h for as long ago"))


def parse_time(text: str, hint: str) -> datetime:
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise BadInput(f"{text[:40]!a} is not a time.", hint=hint) from error
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    try:
        in_range(found)
    except BadInput as error:
        raise BadInput(error.message, hint=hint) from error
    return found


def relative_time(moment: datetime | None, now: datetime) -> str:
    """How far off a moment is, in a table."""
    if moment is None:
        return "-"
    return (
        f"in {duration_text(moment - now)}"
        if moment > now
        else f"{duration_text(now - moment)} ago"
    )
