"""Actions on all jobs that match a list: retry failed ones, cancel live ones. The operator confirms their number."""

from collections.abc import Sequence
from typing import Any, Final

from usher.api.context import MgmtCall
from usher.console.actions.action import (
    BECAUSE,
    ActionField,
    ActionFields,
    ActionResult,
    ConsoleAction,
    PrefilledForm,
    whole_number,
)
from usher.console.text_values import one_of
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.errors import BadInput
from usher.queue import bulk_cancel, bulk_retry
from usher.queue.bulk_cancel import LIVE_STATES, MAX_JOBS_PER_CANCEL, LiveJobConditions
from usher.queue.bulk_retry import (
    FAILED_STATES,
    MAX_JOBS_PER_RETRY,
    FailedJobConditions,
    failed_text,
)

CONDITIONS: Final = ("state", "type", "resource", "contains")
CONDITION_FIELDS: Final = (
    ActionField("type", "Type", required=False),
    ActionField("resource", "Resource", required=False),
    ActionField("contains", "Contains", required=False),
)
LIMIT: Final = ActionField("limit", "At most this many jobs")


def failed_conditions(fields: ActionFields) -> FailedJobConditions:
    return FailedJobConditions(
        state=one_of("state", fields["state"], FAILED_STATES) or "permanent-error",
        **texts(fields),
    )


def live_conditions(fields: ActionFields) -> LiveJobConditions:
    state = one_of("state", fields["state"], LIVE_STATES)
    if state is None:
        raise BadInput("Choose a state.")
    return LiveJobConditions(state=state, **texts(fields))


def texts(fields: ActionFields) -> dict[str, str | None]:
    return {name: fields[name] or None for name in CONDITIONS[1:]}


async def retry_matching(
    conn: Connection, _call: MgmtCall[Any], fields: ActionFields
) -> ActionResult:
    """Retry the failed jobs that match, and no more than the operator confirmed."""
    conditions, limit = failed_conditions(fields), whole_number(fields["limit"], "limit")
    matching = failed_text(await bulk_retry.count_failed(conn, conditions))
    now = await server_time(conn)
    result = await bulk_retry.retry_failed(conn, conditions, limit=limit, now=now)
    return ActionResult(f"{matching} matched", result.text, f"{result.text}.")


async def cancel_matching(
    conn: Connection, _call: MgmtCall[Any], fields: ActionFields
) -> ActionResult:
    """Cancel the live jobs that match, and no more than the operator confirmed."""
    conditions, limit = live_conditions(fields), whole_number(fields["limit"], "limit")
    matching = failed_text(await bulk_cancel.count_live(conn, conditions))
    result = await bulk_cancel.cancel_live(
        conn, conditions, limit=limit, reason=fields[BECAUSE], now=await server_time(conn)
    )
    return ActionResult(f"{matching} matched", result.text, f"{result.text}.")


async def preview_retry(conn: Connection, fields: ActionFields) -> list[str]:
    return list((await retry_limit(conn, fields)).notes)


async def preview_cancel(conn: Connection, fields: ActionFields) -> list[str]:
    return list((await cancel_limit(conn, fields)).notes)


async def retry_limit(conn: Connection, fields: ActionFields) -> PrefilledForm:
    """The number of jobs that match, which the operator confirms."""
    number = await bulk_retry.count_failed(conn, failed_conditions(fields))
    return limited_form(number, MAX_JOBS_PER_RETRY, "retries")


async def cancel_limit(conn: Connection, fields: ActionFields) -> PrefilledForm:
    """The number of jobs that match, which the operator confirms."""
    if not fields["state"]:
        return PrefilledForm({})
    number = await bulk_cancel.count_live(conn, live_conditions(fields))
    return limited_form(number, MAX_JOBS_PER_CANCEL, "cancels")


def limited_form(number: int, most: int, verb: str) -> PrefilledForm:
    note = f"{failed_text(number)} match now; one action {verb} {most:,} at most.".capitalize()
    return PrefilledForm({"limit": str(max(1, min(number, most)))}, [note])


def matching_words(fields: ActionFields, verb: str) -> list[str]:
    given = option_words(fields, CONDITIONS)
    reason = ["--reason", fields[BECAUSE]] if fields.get(BECAUSE) else []
    return ["jobs", verb, *given, "--limit", fields["limit"], *reason, "--yes"]


def option_words(fields: ActionFields, names: Sequence[str]) -> list[str]:
    return [word for name in names if fields[name] for word in (f"--{name}", fields[name])]


ACTIONS = (
    ConsoleAction(
        "jobs-retry",
        "Retry all that match",
        "The latest failed jobs that match run again, and no more of them than you confirm. "
        "An ended job is added as a new job, also if it was retried before.",
        (ActionField("state", "State", options=FAILED_STATES), *CONDITION_FIELDS, LIMIT),
        lambda fields: matching_words(fields, "retry"),
        "control",
        retry_matching,
        lambda _fields: "/jobs",
        preview_retry,
        retry_limit,
    ),
    ConsoleAction(
        "jobs-cancel",
        "Cancel all that match",
        "The latest jobs that match end, and no more of them than you confirm; those that run are stopped.",
        (
            ActionField("state", "State", options=LIVE_STATES),
            *CONDITION_FIELDS,
            LIMIT,
            ActionField(BECAUSE, "Reason", help="Stored as the message of the jobs."),
        ),
        lambda fields: matching_words(fields, "cancel"),
        "control",
        cancel_matching,
        lambda _fields: "/jobs",
        preview_cancel,
        cancel_limit,
    ),
)
