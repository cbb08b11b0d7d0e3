"""The work behind `usher search`: who is asked, and what was found, told in lines.

Commands import this when they run.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from urllib.parse import urlencode, urlsplit

import msgspec

from usher.cli.app import App
from usher.cli.commands.search import FRONT_URL
from usher.cli.output import echo, style
from usher.cli.wording import printable
from usher.errors import BadInput, Unreachable, UsherError, tree
from usher.http.client.pool import HttpPool
from usher.messages.server import Problem
from usher.query.language import parse_query
from usher.search.broker import Broker
from usher.search.cluster_map import open_cluster
from usher.search.json_results import SearchListing, SearchListingItem, TextPiece, listing
from usher.search.result_view import day, duration
from usher.settings import Settings

OK = 200
TIMEOUT_SECONDS = 10.0
MAX_LINE_CHARACTERS = 400  # characters of a line


async def search(
    settings: Settings, text: str, limit: int, *, front: str | None, mgmt: str | None
) -> SearchListing:
    """What a front-end finds; without one, what a broker of our own does."""
    if front:
        return await search_front_end(settings, front, text, limit)
    if mgmt is None:
        with suppress(UsherError):  # nobody there, or somebody else
            return await search_front_end(settings, FRONT_URL, text, limit)
    return await search_index_servers(
        replace(settings, mgmt_url=mgmt) if mgmt else settings, text, limit
    )


async def search_front_end(settings: Settings, url: str, text: str, limit: int) -> SearchListing:
    """As many pages as are needed, as one."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise BadInput(f"{url!r} is not the address of a front-end.", hint=FRONT_URL)
    hint = "Start one with `usher front`, or ask the index servers with --mgmt."
    lines = HttpPool(
        parts.hostname, parts.port or 80, timeout=TIMEOUT_SECONDS, name="The front-end", hint=hint
    )
    headers = {"Host": parts.netloc.rpartition("@")[2]}
    if settings.token:
        headers["Authorization"] = f"Bearer {settings.token}"
    try:
        told = await fetch_page(lines, headers, text, 1)
        while len(told.results) < min(limit, told.total) and told.page < told.pages:
            more = await fetch_page(lines, headers, text, told.page + 1)
            told.results += more.results
            told.page = more.page
    finally:
        lines.close()
    told.page, told.results = 1, told.results[:limit]
    return told


async def fetch_page(
    lines: HttpPool, headers: dict[str, str], text: str, page: int
) -> SearchListing:
    asked = urlencode({"q": text, "page": page}, errors="replace")
    answer = await lines.ask("GET", f"/search.json?{asked}", b"", headers)
    try:
        if answer.status == OK:
            return msgspec.json.decode(answer.body, type=SearchListing)
        problem = msgspec.json.decode(answer.body, type=Problem)
    except msgspec.MsgspecError as error:
        raise Unreachable("That is no front-end.", hint="Check the address.") from error
    raise (tree().get(problem.code) or Unreachable)(problem.detail, hint=problem.hint)


async def search_index_servers(settings: Settings, text: str, limit: int) -> SearchListing:
    async with open_cluster(settings) as hall:
        if not hall.has_map:
            raise Unreachable(
                hall.mgmt_error, hint="Start `usher up`, or say where with --front or --mgmt."
            )
        answer = await Broker(hall).search(parse_query(text), k=limit, hosts=True)
        return listing(answer, 1)


def show_results_json(told: SearchListing) -> None:
    echo(msgspec.json.format(msgspec.json.encode(told), indent=2).decode())


def show_results(app: App, told: SearchListing) -> None:
    """Results to stdout, and what else there is to say to stderr."""
    for number, one in enumerate(told.results, 1):
        show_result(number, one)
    if told.partial:
        app.say(f"Part of the index did not answer: {told.missing:.0%} of it is missing here.")
    if told.ignored:
        app.say(f"Left out: {', '.join(map(printable, told.ignored))}")
    if told.suggestion:
        app.say(f"Did you mean: {printable(told.suggestion)}")
    if not told.results:
        app.say("Nothing was found.")
        app.say("  → usher explain URL says what became of a page you expected.")
        return
    least = "at least " if told.at_least else ""
    plural = "" if told.total == 1 else "s"
    app.say(f"{least}{told.total:,} result{plural} in {duration(told.seconds)}")


def show_result(number: int, one: SearchListingItem) -> None:
    echo(f"{number:>3}. {highlighted(one.title_pieces, bold=True)}")
    echo(f"     {style(printable(one.url, MAX_LINE_CHARACTERS), fg='cyan')}")
    facts = [day(one.published)] if one.published else []
    facts += [f"{one.copies} near-copies"] if one.copies else []
    lead = f"{', '.join(facts)} · " if facts else ""
    if one.snippet:
        echo(f"     {lead}{highlighted(one.snippet_pieces)}")
    elif lead:
        echo(f"     {lead.removesuffix(' · ')}")
    echo()


def highlighted(pieces: Sequence[TextPiece], *, bold: bool = False) -> str:
    """The words that were found stand out on a terminal; elsewhere click takes the colours away."""
    return "".join(
        style(
            printable(one.text, MAX_LINE_CHARACTERS), bold=True, fg="yellow" if one.marked else None
        )
        if one.marked or bold
        else printable(one.text, MAX_LINE_CHARACTERS)
        for one in pieces
    )
