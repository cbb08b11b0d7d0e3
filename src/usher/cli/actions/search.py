"""`usher search`: ask a front-end or the index servers, and show the results."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

import msgspec

from usher.cli.app import App
from usher.cli.commands.search import FRONT_URL
from usher.cli.output import echo, style
from usher.crawl.own_endpoints import PORTS_FILE
from usher.errors import BadInput, Unreachable, UsherError, errors_by_code
from usher.http.client.pool import HttpPool
from usher.local.ports import DEMO_DIRECTORY, Ports, is_run_locked
from usher.messages.server import Problem
from usher.query.language import parse_query
from usher.search.broker import Broker
from usher.search.cluster_map import open_cluster
from usher.search.json_results import SearchListing, SearchListingItem, TextPiece, listing
from usher.search.result_view import day, duration
from usher.settings import Settings
from usher.wording import counted, printable

OK = 200
TIMEOUT_SECONDS = 10.0
MAX_LINE_CHARACTERS = 400
LINE_BREAK = "\n     "


@dataclass(frozen=True, slots=True)
class Request:
    """What to search for, and how."""

    text: str
    limit: int
    verbatim: bool = False
    explain: bool = False


async def search(
    app: App, request: Request, *, front: str | None, mgmt: str | None
) -> SearchListing:
    """Results of the given front-end, of the local one, or of the index servers that MGMT knows."""
    if front:
        return await search_front_end(app.settings, front, request)
    if mgmt is None:
        if running := running_front_end(app):
            return await search_front_end(app.settings, running, request)
        if not is_chosen_directory(app):
            with suppress(UsherError):  # no front-end runs on this machine
                return await search_front_end(app.settings, FRONT_URL, request)
        elif app.loaded.origins["mgmt_url"] == "default":
            words = f"Neither `usher up` nor `usher crawl` runs in {app.settings.data}."
            words += f" To search a front-end that runs on its own: --front {FRONT_URL}"
            raise Unreachable(words, hint=start_hint(app.settings))
    return await search_index_servers(app.settings_for(mgmt), request)


def running_front_end(app: App) -> str:
    """The front-end of Usher in the data directory, else of the demo unless --data is given; "" if neither runs."""
    data = app.settings.data
    if is_run_locked(data):
        return f"http://{Ports.read(data).bind('front')}"
    demo = data / DEMO_DIRECTORY
    if "data" in app.overrides or not is_run_locked(demo):
        return ""
    app.say(f"The demo answers. Its data directory is {demo}.")
    return f"http://{Ports.read(demo).bind('front')}"


def is_chosen_directory(app: App) -> bool:
    """Whether --data is given, or `usher up` or `usher crawl` ran in the directory.

    Then the default addresses of a front-end and of MGMT may be those of another directory.
    """
    return "data" in app.overrides or (app.settings.data / PORTS_FILE).exists()


def start_hint(settings: Settings) -> str:
    """The command that starts Usher; where only the demo ran, there are no pages to serve."""
    data = settings.data
    if (data / DEMO_DIRECTORY).exists() and not (data / PORTS_FILE).exists():
        return "`usher demo` starts the demo again; `usher crawl URL` crawls a site of yours."
    return "usher up"


async def search_front_end(settings: Settings, url: str, request: Request) -> SearchListing:
    """Fetch pages of results until there are enough, and return them as one."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise BadInput(f"{url!r} is not the address of a front-end.", hint=FRONT_URL)
    hint = "Start one with `usher front`, or ask the index servers with --mgmt."
    pool = HttpPool(
        parts.hostname, parts.port or 80, timeout=TIMEOUT_SECONDS, name="The front-end", hint=hint
    )
    headers = {"Host": parts.netloc.rpartition("@")[2]}
    if settings.token:
        headers["Authorization"] = f"Bearer {settings.token}"
    try:
        results = await fetch_page(pool, headers, request, 1)
        while len(results.results) < request.limit and results.page < results.pages:
            more = await fetch_page(pool, headers, request, results.page + 1)
            results.results += more.results
            results.page, results.pages = more.page, more.pages
    finally:
        pool.close()
    results.page, results.results = 1, results.results[: request.limit]
    return results


async def fetch_page(
    pool: HttpPool, headers: dict[str, str], request: Request, page: int
) -> SearchListing:
    flags = {"verbatim": request.verbatim, "explain": request.explain}
    params = {"q": request.text, "page": page} | {name: 1 for name, on in flags.items() if on}
    query = urlencode(params, errors="replace")
    answer = await pool.ask("GET", f"/search.json?{query}", b"", headers)
    try:
        if answer.status == OK:
            return msgspec.json.decode(answer.body, type=SearchListing)
        problem = msgspec.json.decode(answer.body, type=Problem)
    except msgspec.MsgspecError as error:
        raise Unreachable("The server is not a front-end.", hint="Check the address.") from error
    raise (errors_by_code().get(problem.code) or Unreachable)(problem.detail, hint=problem.hint)


async def search_index_servers(settings: Settings, request: Request) -> SearchListing:
    async with open_cluster(settings) as cluster:
        if not cluster.has_map:
            if is_local_default(settings):
                words = "Usher is not running on this machine."
                raise Unreachable(words, hint=start_hint(settings))
            hint = "Start `usher up`, or give an address with --front or --mgmt."
            raise Unreachable(cluster.mgmt_error, hint=hint)
        answer = await Broker(cluster).search(
            parse_query(request.text),
            k=request.limit,
            hosts=True,
            verbatim=request.verbatim,
            explain=request.explain,
        )
        return listing(answer, 1, explain=request.explain)


def is_local_default(settings: Settings) -> bool:
    """Whether the address of MGMT is the default one, at which nothing answered."""
    return settings.mgmt_url == Settings(data=settings.data).mgmt_url


def show_results_json(results: SearchListing) -> None:
    echo(msgspec.json.format(msgspec.json.encode(results), indent=2).decode())


def show_results(app: App, results: SearchListing) -> None:
    """Print the results to stdout and remarks to stderr."""
    was_weak = False
    for number, result in enumerate(results.results, 1):
        if result.weak and not was_weak:
            echo("These pages have some of the words:\n")
        was_weak = result.weak
        show_result(number, result)
    if results.partial:
        app.say(f"Part of the index did not answer: {results.missing:.0%} of it is missing.")
    if results.ignored:
        app.say(f"Ignored: {', '.join(map(printable, results.ignored))}")
    if results.typed:
        app.say(f"Showing results for: {printable(results.query)}")
        app.say("  → `usher search --verbatim` searches for the words as they are.")
    if results.suggestion:
        app.say(f"Did you mean: {printable(results.suggestion)}")
    if not results.results:
        app.say("No results.")
        app.say("  → `usher explain URL` shows what happened to a page that you expected.")
        return
    app.say(f"{total_text(results)} in {duration(results.seconds)}")


def total_text(results: SearchListing) -> str:
    """The number of good matches, in the words of the search page."""
    if not results.total:
        return "No page has all important words"
    minimum = "at least " if results.at_least else ""
    kind = " with all important words" if results.results[-1].weak else ""
    return f"{minimum}{counted(results.total, 'result')}{kind}"


def show_result(number: int, result: SearchListingItem) -> None:
    echo(f"{number:>3}. {highlighted(result.title_pieces, bold=True)}")
    echo(f"     {style(printable(result.url, MAX_LINE_CHARACTERS), fg='cyan')}")
    facts = [day(result.published)] if result.published else []
    if result.copies:
        facts.append("1 near-copy" if result.copies == 1 else f"{result.copies:,} near-copies")
    parts = [", ".join(facts), highlighted(result.snippet_pieces) if result.snippet else ""]
    if line := " · ".join(filter(None, parts)):
        echo(f"     {line}")
    for section in result.sections:
        echo(f"     # {printable(section.title, MAX_LINE_CHARACTERS)}")
        echo(f"       {style(printable(section.url, MAX_LINE_CHARACTERS), fg='cyan')}")
    if result.score is not None:
        echo(f"     {explanation(result)}")
    echo()


def explanation(result: SearchListingItem) -> str:
    """The score and its parts in words."""
    reasons = [f"{r.words} ({r.field}) {r.score:.2f}" for r in result.reasons or []]
    kind = "some of the words, " if result.weak else ""
    return f"{kind}score {result.score:.2f} = {' + '.join(map(printable, reasons)) or 'date'}"


def highlighted(pieces: Sequence[TextPiece], *, bold: bool = False) -> str:
    """The text with its matched words in colour; without a terminal `echo` removes the colours."""
    texts = [
        (LINE_BREAK.join(printable(line, MAX_LINE_CHARACTERS) for line in lines), piece.marked)
        for piece in pieces
        if (lines := piece.text.split("\n"))
    ]
    return "".join(
        style(text, bold=True, fg="yellow" if marked else None) if marked or bold else text
        for text, marked in texts
    )
