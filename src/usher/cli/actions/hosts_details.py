"""`usher hosts show`: one host as the door and the crawlers know it, as text or JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from usher import domain64
from usher.cli.actions.domain64 import range_name
from usher.cli.app import App, run, show_field, show_json
from usher.cli.area_access import READER, open_database
from usher.cli.door_access import door_transaction
from usher.cli.output import display_time
from usher.db.pool import Database
from usher.domain64 import Range
from usher.door import admin, cadence, filters, hosts, private_access
from usher.door.admin import MAX_PAGES_COUNTED, HostDetails
from usher.door.host_lookup import host_root, unknown_host
from usher.door.private_access import GrantedAccess
from usher.errors import NotAllowed
from usher.mgmt import page_history, page_versions, robots
from usher.mgmt.page_history import HostRest
from usher.mgmt.robots import RobotsRow, SitemapRow
from usher.urls import Scheme
from usher.wording import (
    capped_count,
    counted,
    duration_text,
    json_fields,
    json_value,
    printable,
    record_json,
    time_text,
)

Field = tuple[str, Sequence[str]]
SCOPE_TEXTS = {
    "host": "links on its pages admit no other host",
    "domain": "links on its pages admit hosts of the same domain",
    "listed": "links on its pages admit the hosts listed under reach",
    "any": "links on its pages admit any host",
}
MAX_SITEMAPS = 20
MAX_REASON_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class HostView:
    """A host with its scope, its pages by state, and the filters that apply to it."""

    host: HostDetails
    reach: list[str]
    pages: dict[str, int]
    known: int
    default_filters: Sequence[filters.Filter]
    private: Sequence[GrantedAccess] = ()


@dataclass(frozen=True, slots=True)
class HostCrawlState:
    """A host as crawlers know it; `held_back` pages are gone, but removing them needs `usher hosts release`."""

    rest: HostRest
    robots: Sequence[RobotsRow]
    sitemaps: Sequence[SitemapRow]
    held_back: int


async def find_host(app: App, text: str) -> tuple[HostView, HostCrawlState | None]:
    """The host and its crawl state, which is None if this user may not read it."""
    async with open_database(app, "work", READER) as reader:
        view = await read_host(app, text)
        try:
            return view, await read_crawl_state(reader, view.host.domain64)
        except NotAllowed:
            return view, None


async def read_host(app: App, text: str) -> HostView:
    name = host_root(text).host
    async with door_transaction(app) as conn:
        host = await admin.show_host(conn, name=name)
        if host is None:
            raise await unknown_host(conn, name)
        reach = [await range_name(conn, within) for within in reach_ranges(host)]
        pages = await admin.count_pages(conn, number=host.domain64)
        known = await admin.count_known_pages(
            conn, number=host.domain64, most=host.effective_max_pages
        )
        house, access = await hosts.door_settings(conn), await private_access.of_host(conn, name)
        return HostView(host, reach, pages, known, house.filters, access)


async def read_crawl_state(reader: Database, number: int) -> HostCrawlState:
    async with reader.transaction() as conn:
        return HostCrawlState(
            await page_history.host_rest(conn, number),
            await robots.robots_of(conn, number),
            await robots.sitemaps_of(conn, number, n=MAX_SITEMAPS + 1),
            await page_versions.held_back(conn, number),
        )


def show_host_details(app: App, text: str, *, as_json: bool) -> None:
    view, state = run(find_host(app, text))
    if as_json:
        show_json({**host_view_json(view), **(host_crawl_json(state) if state else {})})
        return
    show_host(view)
    for name, lines in host_crawl_fields(state, display_time()) if state else ():
        show_field(name, *lines)


def show_host(view: HostView) -> None:
    host = view.host
    show_clock(host, display_time())
    if view.reach:
        show_field("reach", *view.reach)
    if host.crawl_delay is not None:
        show_field("delay", f"{host.crawl_delay.total_seconds():g} s between requests")
    if view.private:
        show_field("private", *private_lines(view.private))
    show_field("limits", *limit_lines(host))
    show_field("filters", *(filter_lines(view) or ["none"]))
    pages = view.pages.items()
    counts = [f"{capped_count(number, MAX_PAGES_COUNTED)} {state}" for state, number in pages]
    show_field("pages", ", ".join(counts) or "none")
    if counts:
        full = "; new pages are refused" if view.known >= host.effective_max_pages else ""
        show_field("", f"{view.known:,} of at most {host.effective_max_pages:,}{full}")
    if view.pages.get("error"):
        show_field("", "pages in error are tried again with the nightly recrawl of `usher up`")


def show_clock(host: HostDetails, now: datetime, page_visit: str = "") -> None:
    """Name, number, clock, cadence and scope of a host; before its next visit, that of the page that is explained."""
    reason = f": {printable(host.policy_reason)}" if host.policy_reason else ""
    show_field("host", f"{host.name}, {host.policy}{reason}")
    show_field("number", f"{host.domain64}, hex {domain64.to_hex(host.domain64)}")
    show_field("clock", clock_text(host, now))
    often = cadence.show(host.cadence or host.general_cadence)
    adaptive = "; adapted to each page" if host.adaptive else ""
    show_field("cadence", f"{often}{default_mark(host.cadence)}{adaptive}")
    visit = next_host_visit_text(host, now)
    show_field("next visit", *([page_visit, f"Host: {visit}"] if page_visit else [visit]))
    show_field("scope", f"{host.scope}: {SCOPE_TEXTS[host.scope]}")


def next_host_visit_text(host: HostDetails, now: datetime) -> str:
    """When the pages of the host are fetched again, in plain words."""
    often = cadence.show(host.cadence or host.general_cadence)
    if host.policy != "open":
        return f"None while the host is {host.policy}."
    if host.crawl_started:
        return f"A crawl is in progress, since {time_text(host.crawl_started, now)}."
    if host.next_fetch <= now:
        return (
            "With the next recrawl: every night with `usher up`, or now with `usher hosts recrawl`."
        )
    return f"In {duration_text(host.next_fetch - now)} ({often}), with the recrawl of that night."


def clock_text(host: HostDetails, now: datetime) -> str:
    if host.crawl_started:
        return f"due: a crawl is open since {time_text(host.crawl_started, now)}"
    if host.next_fetch <= now:
        return f"due since {time_text(host.next_fetch, now)}; no crawl is open"
    return f"not due until {time_text(host.next_fetch, now)}"


def limit_lines(host: HostDetails) -> Iterator[str]:
    yield f"at most {host.effective_max_pages:,} pages{default_mark(host.max_pages)}"
    depth = f"new pages up to {host.effective_max_depth} clicks from the start of the crawl"
    yield f"{depth}{default_mark(host.max_depth)}"


def default_mark(own: object) -> str:
    return " (default)" if own is None else ""


def private_lines(private: Sequence[GrantedAccess]) -> list[str]:
    """The addresses at which crawlers may connect to a host that is not public."""
    allowed = [
        f"port {access.port} at {', '.join(map(str, access.addresses))} is allowed"
        for access in private
    ]
    forbidden = ["no permission; grant it with `usher hosts set URL --allow-private`"]
    return [*(allowed or forbidden), "links from other hosts are refused (private_host)"]


def filter_lines(view: HostView) -> list[str]:
    """The host's own filters, then the default filters that it does not replace."""
    own = {filter_name(rule) for rule in view.host.filters}
    others = [rule for rule in view.default_filters if filter_name(rule) not in own]
    lines = [printable(filters.describe(rule)) for rule in view.host.filters]
    return lines + [f"{printable(filters.describe(rule))} (default)" for rule in others]


def filter_name(rule: filters.Filter) -> str:
    return str(rule.get("name", rule.get("rule")))


def reach_ranges(host: HostDetails) -> list[Range]:
    return [Range(part.lower or 0, part.upper or domain64.MAX) for part in host.scope_ranges]


def host_crawl_fields(state: HostCrawlState, now: datetime) -> Iterator[Field]:
    yield "politeness", list(politeness_lines(state.rest, now))
    lines = [line for read in state.robots for line in robots_lines(read, now)]
    yield "robots", lines or ["no crawler has read robots.txt yet"]
    if state.sitemaps:
        more = ["and more"] if len(state.sitemaps) > MAX_SITEMAPS else []
        shown = state.sitemaps[:MAX_SITEMAPS]
        yield "sitemaps", [*(sitemap_text(sitemap, now) for sitemap in shown), *more]
    if state.held_back:
        removal = "gone, but not removed because they are a large part of the host"
        yield "held back", [f"{state.held_back:,} pages: {removal}"]


def politeness_lines(rest: HostRest, now: datetime) -> Iterator[str]:
    """When the host may be requested, and what delays it."""
    until = rest.until(now)
    ready = (
        f"in {duration_text(until - now)}, {until.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        if until
        else "now"
    )
    if rest.held_by is not None:
        yield f"{rest.holder} is crawling it, in chunk {rest.held_by}; no other crawler may request it"
    else:
        yield f"ready {ready}"
    source = ", from its robots.txt" if rest.by_robots else ""
    yield f"{rest.delay.total_seconds():g} s between requests{source}"
    if rest.group:
        yield f"shares its delay with the group {printable(rest.group)}"
    if rest.troubles:
        last = f", last {time_text(rest.trouble_at, now)}" if rest.trouble_at else ""
        reason = printable(rest.trouble, MAX_REASON_CHARACTERS)
        yield f"failed {times(rest.troubles)}: {reason}{last}"


def robots_lines(read: RobotsRow, now: datetime) -> Iterator[str]:
    """The last reading of a robots.txt, and the next."""
    status = f"HTTP {read.status}" if read.status else "no response"
    size = f", {len(read.body.encode()):,} bytes" if read.body else ""
    error = f": {printable(read.error, MAX_REASON_CHARACTERS)}" if read.error else ""
    yield f"{status}{size}{error}, read {time_text(read.fetched_at, now)}"
    if read.expires_at > now:
        failures = f", after {counted(read.failures, 'failure')}" if read.failures else ""
        yield f"kept until {time_text(read.expires_at, now)}{failures}"
    else:
        yield "read again with the next page"


def sitemap_text(sitemap: SitemapRow, now: datetime) -> str:
    if sitemap.read_at is None:
        result = f"found in {printable(sitemap.found_in)}, not read yet"
    else:
        others = f" and {sitemap.sitemaps:,} sitemaps" if sitemap.sitemaps else ""
        result = f"{sitemap.pages or 0:,} pages{others}, read {time_text(sitemap.read_at, now)}"
    problem = printable(sitemap.problem, MAX_REASON_CHARACTERS)
    return f"{printable(sitemap.path)}: {result}{f'; {problem}' if problem else ''}"


def times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def host_json(host: HostDetails) -> dict[str, Any]:
    fields = asdict(host)
    for name in ("general_cadence", "general_max_pages", "general_max_depth", "id", "revision"):
        del fields[name]
    return json_fields(
        {
            **fields,
            "hex": domain64.to_hex(host.domain64),
            "scheme": Scheme(host.scheme).word,
            "cadence": cadence.show(host.cadence or host.general_cadence),
            "cadence_of": "host" if host.cadence else "house",
            "max_pages": host.effective_max_pages,
            "max_pages_of": "house" if host.max_pages is None else "host",
            "max_depth": host.effective_max_depth,
            "max_depth_of": "house" if host.max_depth is None else "host",
            "scope_ranges": [[str(part.start), str(part.end)] for part in reach_ranges(host)],
        }
    )


def host_view_json(view: HostView) -> dict[str, Any]:
    return {
        **host_json(view.host),
        "reach": view.reach,
        "pages": view.pages,
        "known": view.known,
        "full": view.known >= view.host.effective_max_pages,
        "private": private_json(view.private),
    }


def private_json(private: Sequence[GrantedAccess]) -> list[dict[str, Any]]:
    return [
        {
            "port": access.port,
            "addresses": [str(address) for address in access.addresses],
            "granted_at": json_value(access.granted_at),
        }
        for access in private
    ]


def robots_json(read: RobotsRow) -> dict[str, Any]:
    return {**record_json(read), "body": len(read.body.encode())}


def host_crawl_json(state: HostCrawlState) -> dict[str, Any]:
    return {
        "pace": record_json(state.rest),
        "robots": [robots_json(read) for read in state.robots],
        "sitemaps": [
            {**record_json(sitemap), "scheme": Scheme(sitemap.scheme).word}
            for sitemap in state.sitemaps
        ],
        "held_back": state.held_back,
    }
