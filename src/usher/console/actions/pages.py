"""Actions on pages: crawl again, remove, undo a removal."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from usher.api.context import MgmtCall
from usher.console.actions.action import (
    BECAUSE,
    ActionField,
    ActionFields,
    ActionResult,
    ConsoleAction,
    PrefilledForm,
    actor,
    whole_number,
)
from usher.console.page_conditions import CONDITION_NAMES, read_conditions
from usher.db.clock import server_time
from usher.db.pool import Connection
from usher.door import admin, guestbook, hosts, removals
from usher.door.rules import Knock, Verdict
from usher.errors import BadInput, Conflict, NotFound
from usher.mgmt import page_recrawl, page_removal
from usher.mgmt.page_list import RESULTS, STATES, PageConditions
from usher.mgmt.page_recrawl import MatchingPages
from usher.removal_rules import parse_target
from usher.urls import Url, parse
from usher.wording import counted

MAX_PAGES_COUNTED = 15_000  # for a form, so that it takes less than 50 ms
NOT_STORED = "not in the guestbook"
REASON_HELP = "Stored, and shown with each refusal."


async def recrawl(conn: Connection, call: MgmtCall[Any], fields: ActionFields) -> ActionResult:
    """Retry what failed at the host, and knock for the page with a hall pass."""
    url = parse(fields["url"])
    if not isinstance(url, Url):
        raise BadInput(f"That is not a URL: {url.detail}")
    before = await page_state(conn, url)
    numbers = [host.domain64 for host in await hosts.find(conn, names=[url.host])]
    async with call.context.door_db.transaction() as door:
        await admin.retry_failures(door, numbers)
    answers = await call.context.doorkeeper.knock([str(url)], knock=Knock("single", hall_pass=True))
    answer = answers.answers[0]
    if answer.verdict is Verdict.REFUSE:
        detail = f" ({answer.detail})" if answer.detail else ""
        raise Conflict(
            f"The door refuses it: {answer.reason}{detail}.", hint=f"usher explain {url}"
        )
    return ActionResult(before, "pending", f"The door answers {answer.verdict}: {answer.reason}.")


async def page_state(conn: Connection, url: Url) -> str:
    """The state of a page before a change."""
    registered = await hosts.find(conn, names=[url.host])
    if not registered:
        return NOT_STORED
    page = await guestbook.page(conn, domain64=registered[0].domain64, path=url.path)
    return page.state if page else NOT_STORED


async def remove(conn: Connection, call: MgmtCall[Any], fields: ActionFields) -> ActionResult:
    target = await removals.resolve(conn, parse_target(fields["target"]))
    seen = await removals.preview(conn, target)
    number = await removals.add_removal(
        conn, target, reason=fields["reason"], author=actor(call), now=await server_time(conn)
    )
    if number is None:
        raise Conflict(f"{target.text} is removed already.", hint="usher remove --list")
    covered = f"{counted(seen.pages, 'known page')}, {seen.searchable:,} of them searchable"
    return ActionResult(covered, f"removal {number}", f"Removed {target.text}: {covered}.")


async def undo_removal(conn: Connection, call: MgmtCall[Any], fields: ActionFields) -> ActionResult:
    target = parse_target(fields["target"])
    number = await removals.undo_removal(
        conn, target, author=actor(call), now=await server_time(conn)
    )
    if number is None:
        raise NotFound(f"There is no removal of {target.text}.", hint="usher remove --list")
    message = "Its pages are crawled again, and are then searchable."
    return ActionResult(f"removal {number}", "undone", message)


async def preview_removal(conn: Connection, fields: ActionFields) -> list[str]:
    """How many pages a removal covers now."""
    target = await removals.resolve(conn, parse_target(fields["target"]))
    seen = await removals.preview(conn, target)
    covered = f"{counted(seen.pages, 'known page')}, {seen.searchable:,} of them searchable"
    return [f"{target.text} covers {covered}."]


async def recrawl_matching(
    conn: Connection, call: MgmtCall[Any], fields: ActionFields
) -> ActionResult:
    """Knock for the pages that match, and for no more than the operator confirmed."""
    conditions = await matching_conditions(conn, fields)
    matching = await page_recrawl.count_matching(conn, conditions)
    limit = whole_number(fields["limit"], "limit")
    result = await page_recrawl.recrawl_pages(
        conn, call.context.doorkeeper, conditions, limit=limit
    )
    return ActionResult(f"{matching.text} matched", result.text, f"{result.text}.")


async def matching_conditions(conn: Connection, fields: ActionFields) -> PageConditions:
    if not any(fields[name] for name in CONDITION_NAMES):
        raise BadInput("Fill in at least one condition.")
    return await read_conditions(conn, fields, await server_time(conn))


async def preview_matching(conn: Connection, fields: ActionFields) -> list[str]:
    return list((await matching_limit(conn, fields)).notes)


async def matching_limit(conn: Connection, fields: ActionFields) -> PrefilledForm:
    """The number of pages that match, which the operator confirms."""
    if not any(fields[name] for name in CONDITION_NAMES):
        return PrefilledForm({})
    matching = await page_recrawl.count_matching(
        conn, await matching_conditions(conn, fields), most=MAX_PAGES_COUNTED
    )
    return limited_form(matching, page_recrawl.MAX_PAGES_PER_RECRAWL, "crawls")


def limited_form(matching: MatchingPages, most: int, verb: str) -> PrefilledForm:
    note = f"{matching.text} match now; one action {verb} {most:,} at most.".capitalize()
    return PrefilledForm({"limit": str(max(1, min(matching.number, most)))}, [note])


async def remove_matching(
    conn: Connection, call: MgmtCall[Any], fields: ActionFields
) -> ActionResult:
    """Remove the pages that match, and no more than the operator confirmed."""
    conditions = await matching_conditions(conn, fields)
    matching = await page_removal.count_removable(conn, conditions)
    result = await page_removal.remove_pages(
        conn,
        conditions,
        limit=whole_number(fields["limit"], "limit"),
        reason=fields[BECAUSE],
        author=actor(call),
        now=await server_time(conn),
    )
    return ActionResult(f"{matching.text} matched", result.text, f"{result.text}.")


async def preview_matching_removal(conn: Connection, fields: ActionFields) -> list[str]:
    return list((await removal_limit(conn, fields)).notes)


async def removal_limit(conn: Connection, fields: ActionFields) -> PrefilledForm:
    """The number of pages that match and are not removed, which the operator confirms."""
    if not any(fields[name] for name in CONDITION_NAMES):
        return PrefilledForm({})
    matching = await page_removal.count_removable(
        conn, await matching_conditions(conn, fields), most=MAX_PAGES_COUNTED
    )
    return limited_form(matching, page_removal.MAX_PAGES_PER_REMOVAL, "removes")


def matching_words(fields: ActionFields, verb: str, names: Sequence[str]) -> list[str]:
    given = [word for name in names if fields[name] for word in (f"--{name}", fields[name])]
    return ["pages", verb, *given, "--limit", fields["limit"], "--yes"]


def explanation_path(fields: ActionFields) -> str:
    return f"/explain?url={quote(fields['url'], safe='')}"


CONDITION_FIELDS = (
    ActionField("host", "Host", required=False),
    ActionField("state", "State", required=False, options=STATES),
    ActionField("result", "Result", required=False, options=RESULTS),
    ActionField("reason", "Reason contains", required=False),
    ActionField("path", "Path contains", required=False),
    ActionField("status", "HTTP status", required=False),
    ActionField("due", "Next visit within", required=False, help="Such as 7d or 12h"),
    ActionField("older", "Fetched longer ago than", required=False, help="Such as 7d or 12h"),
    ActionField("newer", "Fetched in the last", required=False, help="Such as 7d or 12h"),
    ActionField("limit", "At most this many pages"),
)
ACTIONS = (
    ConsoleAction(
        "page-recrawl",
        "Crawl now",
        "The door admits the page, due or not, and a crawler fetches it as soon as its host is ready.",
        (ActionField("url", "URL"),),
        lambda fields: ["add", "--pass", fields["url"]],
        "mgmt",
        recrawl,
        explanation_path,
    ),
    ConsoleAction(
        "pages-recrawl",
        "Crawl all that match",
        "The door admits the pages that match, due or not, and no more of them than you confirm.",
        CONDITION_FIELDS,
        lambda fields: matching_words(fields, "recrawl", CONDITION_NAMES),
        "mgmt",
        recrawl_matching,
        lambda _fields: "/pages?state=pending",
        preview_matching,
        matching_limit,
    ),
    ConsoleAction(
        "pages-remove",
        "Remove all that match",
        "Front-ends hide the pages that match, and no more of them than you confirm; the door refuses them, and Usher "
        "deletes their text. Each page gets its own removal, which you can undo.",
        (*CONDITION_FIELDS, ActionField(BECAUSE, "Reason of the removal", help=REASON_HELP)),
        lambda fields: matching_words(fields, "remove", (*CONDITION_NAMES, BECAUSE)),
        "door",
        remove_matching,
        lambda _fields: "/removals",
        preview_matching_removal,
        removal_limit,
    ),
    ConsoleAction(
        "page-remove",
        "Remove",
        "Front-ends hide these pages within 2 seconds, the door refuses them, and Usher deletes their text.",
        (
            ActionField("target", "URL, prefix, host or *.domain"),
            ActionField("reason", "Reason", help=REASON_HELP),
        ),
        lambda fields: ["remove", fields["target"], "--reason", fields["reason"], "--yes"],
        "door",
        remove,
        lambda _fields: "/removals",
        preview_removal,
    ),
    ConsoleAction(
        "removal-undo",
        "Undo",
        "The door admits these pages again; they are searchable when they have been crawled and indexed.",
        (ActionField("target", "Target of the removal"),),
        lambda fields: ["remove", "--undo", fields["target"]],
        "door",
        undo_removal,
        lambda _fields: "/removals",
    ),
)
