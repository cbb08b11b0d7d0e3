"""The action that adds a job."""

import shlex
from typing import Any

from usher.api.context import MgmtCall
from usher.console.actions.action import (
    ActionField,
    ActionFields,
    ActionResult,
    ConsoleAction,
)
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.errors import BadInput
from usher.queue import jobs
from usher.queue.jobs import JobRequest


def command_words(text: str) -> list[str]:
    """The program and its arguments, split as a shell would; no shell runs."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadInput(f"The command cannot be split: {error}.") from error
    if not words or not words[0]:
        raise BadInput("The command names no program.")
    return words


async def add_job(conn: Connection, _call: MgmtCall[Any], fields: ActionFields) -> ActionResult:
    program, *args = command_words(fields["command"])
    request = JobRequest(
        fields["type"], program, tuple(args), resource=fields.get("resource") or None
    )
    [added] = await jobs.enqueue(conn, [request], now=await server_time(conn))
    return ActionResult(
        "", f"job {added.id}", f"Job {added.id} runs as soon as a manager claims it."
    )


def add_words(fields: ActionFields) -> list[str]:
    resource = ["--resource", fields["resource"]] if fields.get("resource") else []
    words = program_words(fields["command"])
    return ["jobs", "add", "--type", fields["type"], *resource, "--", *words]


def program_words(text: str) -> list[str]:
    """The program and its arguments on a command line; a text that cannot be split yet stays one word."""
    try:
        words = command_words(text)
    except BadInput:
        words = [text]
    # A single word would be split again.
    return words if len(words) > 1 else [shlex.quote(word) for word in words]


ACTIONS = (
    ConsoleAction(
        "job-add",
        "Add a job",
        "A job is added to the queue; a manager that runs jobs of this type starts it.",
        (
            ActionField("type", "Type of job"),
            ActionField(
                "command", "Program and arguments", help="Split as a shell would, without a shell"
            ),
            ActionField("resource", "Resource", required=False),
        ),
        add_words,
        "control",
        add_job,
        lambda _fields: "/jobs",
    ),
)
