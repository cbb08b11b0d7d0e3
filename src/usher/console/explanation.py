"""The page that explains one URL, and the input field that finds a URL, host, job or chunk."""

from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from usher.api.context import MgmtCall
from usher.api.mgmt_calls import database_time
from usher.console.actions.registry import ACTIONS, link_of_command
from usher.console.forms import query_text
from usher.console.page import ActionLink, ConsolePage
from usher.console.page_path import page_path
from usher.door import hosts
from usher.errors import BadInput, NotFound
from usher.mgmt import chunks
from usher.observe.explain import UrlExplanation, explain
from usher.queue import queries
from usher.urls import Url, parse

MAX_NUMBER_DIGITS = 18


async def explain_page(call: MgmtCall[Any]) -> ConsolePage:
    """Where a URL is on its path to the search result, and what to do."""
    text = query_text(call, "url")
    if not text:
        raise BadInput("Which URL?", hint="/explain?url=https://example.com/")
    explanation = await explain(
        call.context.doorkeeper, text, now=database_time(call), reader=call.context.mgmt_db
    )
    steps, finding = page_path(explanation), explanation.finding
    url = str(explanation.url or explanation.given)
    data = {
        "url": url,
        "searchable": finding and finding.is_searchable,
        "why": finding and finding.words,
        "command": finding.command or None if finding else None,
        "steps": [asdict(step) for step in steps],
        "door": [{**asdict(answer), "verdict": answer.verdict} for answer in explanation.would],
    }
    values = {
        "url": url,
        "explanation": explanation,
        "finding": finding,
        "steps": steps,
        "help": link_of_command(finding.command) if finding and finding.command else None,
        "actions": page_actions(explanation),
    }
    return ConsolePage("explain.html", "Explanation", values, data, f"usher explain {url}")


def page_actions(explanation: UrlExplanation) -> list[ActionLink]:
    """What an operator may want to do with a page, whatever its state."""
    if explanation.url is None:
        return []
    url = str(explanation.url)
    links = [ACTIONS["page-recrawl"].link(url=url)]
    links.append(ACTIONS["page-remove"].link(target=url))
    if explanation.host:
        links.append(ActionLink("Host", f"/hosts/{quote(explanation.url.host)}"))
    return links


async def find_path(call: MgmtCall[Any]) -> str:
    """The path of the page for what the operator typed: a URL, a host, or the number of a job or chunk."""
    text = query_text(call, "q")
    if not text:
        raise BadInput("Type a URL, a host, or the number of a job or chunk.")
    if text.isascii() and text.isdecimal() and len(text) <= MAX_NUMBER_DIGITS:
        return await number_path(call, int(text))
    url = parse(text)
    is_name = isinstance(url, Url) and "/" not in text
    if is_name and isinstance(url, Url):
        async with call.context.mgmt_db.connection() as conn:
            if await hosts.find(conn, names=[url.host]):
                return f"/hosts/{quote(url.host)}"
    return f"/explain?url={quote(text, safe='')}"


async def number_path(call: MgmtCall[Any], number: int) -> str:
    """The page of the job with this number, else of the chunk; NotFound if there is neither."""
    try:
        async with call.context.control.connection() as conn:
            await queries.show_job(conn, number)
    except NotFound:
        async with call.context.mgmt_db.connection() as conn:
            if await chunks.show(conn, number) is None:
                message = f"There is no job and no chunk {number}."
                raise NotFound(message, hint="/jobs and /chunks list them.") from None
        return f"/chunks/{number}"
    return f"/jobs/{number}"
