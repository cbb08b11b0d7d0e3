"""Open the queue for a command, and parse and show commands, times and durations.

Commands import this module when they run because it loads the PostgreSQL driver.
"""

import difflib
import re
import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

from usher import durations
from usher.cli.app import App
from usher.cli.area_access import checked_transaction, open_database
from usher.db.pool import Connection, Database
from usher.errors import BadInput, NotFound
from usher.queue import task_queries
from usher.queue.policy import JOB_TYPE
from usher.queue.task_queries import StoredTask
from usher.queue.times import checked_time
from usher.wording import printable

ROLE = "usher_manager"
MAX_CANDIDATES = 10_000
TASK_NUMBER = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
MAX_DURATION = timedelta(days=3650)
DURATION_HINT = "Examples: 0.5s, 90s, 15m, 1h30m, 2d."
TIME_HINT = "Examples: 2026-11-30T08:00 (UTC), 2026-11-30T08:00+01:00, {}."
COMMAND_CHARACTERS = 60  # of a command line in a table


def open_queue(app: App) -> AbstractAsyncContextManager[Database]:
    return open_database(app, "control", ROLE)


@asynccontextmanager
async def queue_transaction(app: App) -> AsyncIterator[Connection]:
    async with open_queue(app) as db, checked_transaction(db) as conn:
        yield conn


async def find_task(conn: Connection, text: str) -> StoredTask:
    """The task with this number or name; NotFound suggests a similar name."""
    if TASK_NUMBER.fullmatch(text):
        with suppress(NotFound):
            return await task_queries.show_task(conn, int(text))
    try:
        return await task_queries.show_task(conn, text)
    except NotFound as error:
        tasks = await task_queries.list_tasks(conn, n=MAX_CANDIDATES)
        similar = difflib.get_close_matches(text, [task.name for task in tasks if task.name], n=1)
        hint = f"Did you mean {similar[0]}?" if similar else error.hint
        raise NotFound(error.message, hint=hint) from error


def parse_command(words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Program and arguments; a single word is split as a shell would split it, but no shell runs."""
    if len(words) == 1:
        try:
            words = shlex.split(words[0])
        except ValueError as error:
            raise BadInput(
                f"{words[0][:80]!a} cannot be split into words: {error}.",
                hint="Give the program and each argument as separate words after --",
            ) from error
    if not words or not words[0]:
        raise BadInput("The program is missing.", hint="Usage: -- PROGRAM [ARGS...]")
    program, *args = words
    return program, tuple(args)


def parse_type(text: str) -> str:
    if not JOB_TYPE.fullmatch(text):
        raise BadInput(
            f"{text[:80]!a} is not a job type.",
            hint="A type has at most 64 letters, digits, dots, hyphens and underscores.",
        )
    return text


def command_line(program: str, args: Sequence[str], length: int = COMMAND_CHARACTERS) -> str:
    """The command on one line, quoted for a shell."""
    return printable(shlex.join([program, *args]), length)


def parse_duration(text: str) -> timedelta:
    duration = durations.parse(text.strip())
    if duration is None:
        raise BadInput(f"{text[:40]!a} is not a duration.", hint=DURATION_HINT)
    if duration > MAX_DURATION:
        raise BadInput(f"A duration is at most {durations.show(MAX_DURATION)}.", hint=DURATION_HINT)
    return duration


def parse_start(text: str, now: datetime) -> datetime:
    """A time, or a duration from now after a plus sign."""
    if text.startswith("+"):
        return now + parse_duration(text[1:])
    return parse_time(text, TIME_HINT.format("+15m (from now)"))


def parse_since(text: str, now: datetime) -> datetime:
    """A time, or a duration before now."""
    if durations.parse(text.strip()):
        return now - parse_duration(text)
    return parse_time(text, TIME_HINT.format("2h (ago)"))


def parse_time(text: str, hint: str) -> datetime:
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise BadInput(f"{text[:40]!a} is not a time.", hint=hint) from error
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    try:
        checked_time(time)
    except BadInput as error:
        raise BadInput(error.message, hint=hint) from error
    return time
