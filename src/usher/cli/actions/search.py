"""The work behind `usher search`: who is asked, and what was found, told in lines.

Commands import this when they run.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from urllib.parse import urlencode, urlsplit

import msgspec

from usher.cli.app import App
from usher.cli.commands.search import FRONT
from usher.cli.output import echo, style
from usher.cli.wording import printable
from usher.errors import BadInput, Unreachable, UsherError, errors_by_code
from usher.http.client.pool import Lines
from usher.messages import Problem
from usher.query.language import parse
from usher.search.broker import Broker
from usher.search.cluster_map import hall_at
from usher.search.json_results import Listing, Piece, Result, listing
from usher.search.result_view import day, duration
from usher.settings import Settings

OK = 200
TIMEOUT = 10.0
LONGEST = 400  # characters of a line


async def ask(
    settings: Settings, text: str, limit: int, *, front: str | None, mgmt: str | None
) -> Listing:
    """What a front-end finds; without one, what a broker of our own does."""
    if front:
        return await at_front(settings, front, text, limit)
    if mgmt is None:
        with suppress(UsherError):  # nobody there, or somebody else
            return await at_front(settings, FRONT, text, limit)
    return await at_servers(replace(settings, mgmt_url=mgmt) if mgmt else settings, text, limit)


async def at_front(settings: Settings, url: str, text: str, limit: int) -> Listing:
    """As many pages as are needed, as one."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise BadInput(f"{url!r} is not the address of a front-end.", hint=FRONT)
    hint = "Start one with `usher front`, or ask the index servers with --mgmt."
    lines = Lines(
        parts.hostname, parts.port or 80, timeout=TIMEOUT, name="The front-end", hint=hint
    )
    headers = {"Host": parts.netloc.rpartition("@")[2]}
    if settings.token:
        headers["Authorization"] = f"Bearer {settings.token}"
    try:
        told = await page_of(lines, headers, text, 1)
        while len(told.results) < min(limit, told.total) and told.page < told.pages:
            more = await page_of(lines, headers, text, told.page + 1)
            told.results += more.results
            told.page = more.page
    finally:
        lines.close()
    told.page, told.results = 1, told.results[:limit]
    return told


async def page_of(lines: Lines, headers: dict[str, str], text: str, page: int) -> Listing:
    asked = urlencode({"q": text, "page": page}, errors="replace")
    answer = await lines.ask("GET", f"/search.json?{asked}", b"", headers)
    try:
        if answer.status == OK:
            return msgspec.json.decode(answer.body, type=Listing)
        problem = msgspec.json.decode(answer.body, type=Problem)
    except msgspec.MsgspecError as error:
        raise Unreachable("That is no front-end.", hint="Check the address.") from error
    raise (errors_by_code().get(problem.code) or Unreachable)(problem.detail, hint=problem.hint)


async def at_servers(settings: Settings, text: str, limit: int) -> Listing:
    async with hall_at(settings) as hall:
        if not hall.heard:
            raise Unreachable(
                hall.trouble, hint="Start `usher up`, or say where with --front or --mgmt."
            )
        answer = await Broker(hall).search(parse(text), k=limit, hosts=True)
        return listing(answer, 1)


def show_data(told: Listing) -> None:
    echo(msgspec.json.format(msgspec.json.encode(told), indent=2).decode())


def show(app: App, told: Listing) -> None:
    """Results to stdout, and what else there is to say to stderr."""
    for number, one in enumerate(told.results, 1):
        show_one(number, one)
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


def show_one(number: int, one: Result) -> None:
    echo(f"{number:>3}. {marked(one.title_pieces, bold=True)}")
    echo(f"     {style(printable(one.url, LONGEST), fg='cyan')}")
    facts = [day(one.published)] if one.published else []
    facts += [f"{one.copies} near-copies"] if one.copies else []
    lead = f"{', '.join(facts)} · " if facts else ""
    if one.snippet:
        echo(f"     {lead}{marked(one.snippet_pieces)}")
    elif lead:
        echo(f"     {lead.removesuffix(' · ')}")
    echo()


def marked(pieces: Sequence[Piece], *, bold: bool = False) -> str:
    """The words that were found stand out on a terminal; elsewhere click takes the colours away."""
    return "".join(
        style(printable(one.text, LONGEST), bold=True, fg="yellow" if one.marked else None)
        if one.marked or bold
        else printable(one.text, LONGEST)
        for one in pieces
    )
