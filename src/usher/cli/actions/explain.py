"""Hosts and URLs told to people and to programs: `usher explain`, `usher hosts show`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from usher import domain64
from usher.cli.actions.add import COLOURS, REASON_WIDTH
from usher.cli.actions.explain_details import crawl_fields, crawl_state_json
from usher.cli.app import App, show_field
from usher.cli.area_access import open_database
from usher.cli.door_access import open_door
from usher.cli.output import echo, style
from usher.cli.wording import display_time, encodable, json_fields, json_value, printable, time_text
from usher.domain64 import Range
from usher.door import cadence, filters
from usher.door.admin import MOST, Shown
from usher.door.guestbook import Guest
from usher.door.private_access import Access
from usher.door.rules import Reason
from usher.urls import Scheme

if TYPE_CHECKING:
    from usher.observe.explain import DoorAnswer, UrlExplanation

SCOPE_TEXTS = {
    "host": "links found here bring in no other host",
    "domain": "links found here bring in hosts of the same domain",
    "listed": "links found here bring in hosts of what is listed for it",
    "any": "links found here bring in any host",
}
EXTRA_PAGES_TEXTS = {
    Reason.HOST_DUE: "with every due page of the host",
    Reason.FULL_PASS: "with every known page of the host",
}
READER = "usher_reader"
SEARCHABLE_LABELS = {True: ("yes", "green"), False: ("no", "red")}
MAX_URL_CHARACTERS = 2_100  # characters, where they are all there is to see


async def read_explanation(app: App, url: str) -> "UrlExplanation":
    from usher.observe.explain import explain

    async with open_door(app) as doorkeeper, open_database(app, "work", READER) as reader:
        return await explain(doorkeeper, url, now=reader.clock.now(), reader=reader)


def show_explanation(story: "UrlExplanation") -> None:
    echo(style(printable(str(story.url or story.given), MAX_URL_CHARACTERS), bold=True))
    if story.refused:
        show_field("refused", f"{story.refused.reason}: {story.refused.detail}")
        show_searchable(story)
        return
    if str(story.url) != story.given:
        show_field("given", printable(story.given))
    if story.host:
        show_clock(story.host, story.now)
    else:
        show_field("host", "not registered yet; the first knock registers it, due at once")
    if story.is_private:
        show_field("private", *private_lines(story.private))
    show_field("filters", filter_text(story))
    show_path(story)
    echo("\nThe door would answer now")
    for would in story.would:
        show_door_answer(would)
    behind = list(crawl_fields(story))
    if behind:
        echo("\nBehind the door")
    for name, lines in behind:
        show_field(name, *lines)
    show_searchable(story)


def show_searchable(story: "UrlExplanation") -> None:
    """The last line: whether it can be found now, else why not and what to do."""
    if story.finding is None:
        echo("\nFindable now: not known, for this user may not look behind the door.")
        return
    word, colour = SEARCHABLE_LABELS[story.finding.findable]
    words = printable(story.finding.words, MAX_URL_CHARACTERS)
    echo(f"\nFindable now: {style(word, fg=colour, bold=True)}. {words[:1].upper()}{words[1:]}")
    if story.finding.command:
        echo(f"  → {printable(story.finding.command, MAX_URL_CHARACTERS)}")


def filter_text(story: "UrlExplanation") -> str:
    if story.filtered:
        return f"{story.filtered.name} refuses it: {printable(story.filtered.detail)}"
    names = [filter_name(one) for one in story.filters]
    return f"let it through: {', '.join(names)}" if names else "none"


def show_path(story: "UrlExplanation") -> None:
    if story.url and story.path and story.path != story.url.path:
        show_field("kept as", f"{story.path} (the filters drop the rest)")
    if story.page:
        show_field("page", *page_lines(story.page, story.now))
    elif story.host and not story.filtered:
        show_field("page", "not in the guestbook")


def page_lines(page: Guest, now: datetime) -> Iterable[str]:
    """What the guestbook says, a line for each thing worth one."""
    yield page_state_text(page, now)
    yield f"due {'since ' if page.next_fetch <= now else ''}{time_text(page.next_fetch, now)}"
    if page.last_fetched:
        yield f"last fetched {time_text(page.last_fetched, now)}{response_text(page)}"
    else:
        yield "never fetched"
    if page.last_modified:
        yield f"last changed {time_text(page.last_modified, now)}"
    if page.failures:
        yield f"failed {page.failures} times in a row{response_text(page)}"
    if page.gone:
        yield "gone: the server has said so"
    if page.depth:
        yield f"{page.depth} click{'' if page.depth == 1 else 's'} from where the crawl came in"
    if page.cadence:
        yield f"its own cadence is {cadence.show(page.cadence)}"


def page_state_text(page: Guest, now: datetime) -> str:
    since = f" since {time_text(page.admitted_at, now)}" if page.admitted_at else ""
    front = ", at the front" if page.priority == 0 else ""
    chunk = f" in chunk {page.chunk_id}" if page.chunk_id else ""
    words = {
        "pending": f"waits to be crawled{since}{front}",
        "crawling": f"is being crawled{chunk}, admitted{since.removeprefix(' since')}",
        "crawled": "crawled",
        "error": "the last fetch failed",
        "idle": "known, never admitted",
    }
    return f"{page.state}: {words[page.state]}; by {Scheme(page.scheme).word}"


def response_text(page: Guest) -> str:
    if page.status is None:
        return ""
    length = f", {page.content_length:,} bytes" if page.content_length else ""
    return f", status {page.status}, {page.content_type or 'unknown type'}{length}"


def show_door_answer(would: "DoorAnswer") -> None:
    asked = f"{would.kind}{', pass' if would.hall_pass else ''}"
    verdict = style(f"{would.verdict:<6}", fg=COLOURS[would.verdict])
    row = f"row {would.row}" if would.row else "before the table"
    more = printable(would.detail) or EXTRA_PAGES_TEXTS.get(would.reason, "")
    echo(f"  {asked:<14}{verdict}  {would.reason:<{REASON_WIDTH}}  {row}  {more}".rstrip())


def show_clock(host: Shown, now: datetime) -> None:
    """What every look at a host begins with."""
    reason = f": {printable(host.policy_reason)}" if host.policy_reason else ""
    show_field("host", f"{host.name}, {host.policy}{reason}")
    show_field("number", f"{host.domain64}, {domain64.to_hex(host.domain64)} in hex")
    show_field("clock", *clock_text(host, now))
    show_field("cadence", cadence_text(host))
    show_field("scope", scope_text(host))


def clock_text(host: Shown, now: datetime) -> Iterable[str]:
    if host.crawl_started:
        yield f"due: a crawl is open since {time_text(host.crawl_started, now)}"
    elif host.next_fetch <= now:
        yield f"due since {time_text(host.next_fetch, now)}; no crawl is open"
    else:
        yield f"not due until {time_text(host.next_fetch, now)}"


def cadence_text(host: Shown) -> str:
    words = (
        cadence.show(host.cadence)
        if host.cadence
        else f"{cadence.show(host.house_cadence)}, as the house has it"
    )
    return f"{words}; pages find their own pace" if host.adaptive else words


def limit_lines(host: Shown) -> Iterable[str]:
    by_house = ", as the house has it"
    yield f"at most {host.most_pages:,} pages{by_house if host.max_pages is None else ''}"
    depth = f"new pages up to {host.deepest} clicks from where the crawl came in"
    yield f"{depth}{by_house if host.max_depth is None else ''}"


def scope_text(host: Shown) -> str:
    return f"{host.scope}: {SCOPE_TEXTS[host.scope]}"


def reach_ranges(host: Shown) -> list[Range]:
    return [Range(one.lower or 0, one.upper or domain64.MAX) for one in host.scope_ranges]


def show_filters(found: Iterable[Mapping[str, Any]]) -> None:
    show_field("filters", *([filters.describe(one) for one in found] or ["none"]))


@dataclass(frozen=True, slots=True)
class HostView:
    """A host with what is around it."""

    host: Shown
    reach: list[str]
    pages: dict[str, int]
    known: int
    house: Sequence[filters.Filter]
    private: Sequence[Access] = ()


def show_host(one: HostView) -> None:
    show_clock(one.host, display_time())
    if one.reach:
        show_field("reach", *one.reach)
    if one.host.crawl_delay is not None:
        show_field("delay", f"{one.host.crawl_delay.total_seconds():g} s between two requests")
    if one.private:
        show_field("private", *private_lines(one.private))
    show_field("limits", *limit_lines(one.host))
    show_field("filters", *(filter_lines(one) or ["none"]))
    counts = [f"{capped_count(number)} {state}" for state, number in one.pages.items()]
    show_field("pages", ", ".join(counts) or "none")
    if counts:
        full = "; no new ones come in" if one.known >= one.host.most_pages else ""
        show_field("", f"{one.known:,} of at most {one.host.most_pages:,}{full}")


def private_lines(private: Sequence[Access]) -> list[str]:
    """Where crawlers may connect to a host that is not public, and which links lead to it."""
    allowed = [
        f"port {access.port} at {', '.join(map(str, access.addresses))} is allowed"
        for access in private
    ]
    unlisted = ["no permission; `usher hosts set URL --allow-private` gives one"]
    return [*(allowed or unlisted), "links from other hosts are refused (private_host)"]


def filter_lines(one: HostView) -> list[str]:
    """The host's own filters, then those of the house that it leaves in force."""
    own = {filter_name(given) for given in one.host.filters}
    others = [given for given in one.house if filter_name(given) not in own]
    told = [printable(filters.describe(given)) for given in one.host.filters]
    return told + [f"{printable(filters.describe(given))} (the house's)" for given in others]


def filter_name(given: filters.Filter) -> str:
    return str(given.get("name", given.get("rule")))


def capped_count(number: int) -> str:
    return f"≥ {number}" if number >= MOST else str(number)


def host_json(host: Shown) -> dict[str, Any]:
    known = asdict(host)
    for name in ("house_cadence", "house_max_pages", "house_max_depth", "id", "revision"):
        del known[name]
    return json_fields(
        {
            **known,
            "hex": domain64.to_hex(host.domain64),
            "scheme": Scheme(host.scheme).word,
            "cadence": cadence.show(host.cadence or host.house_cadence),
            "cadence_of": "host" if host.cadence else "house",
            "max_pages": host.most_pages,
            "max_pages_of": "house" if host.max_pages is None else "host",
            "max_depth": host.deepest,
            "max_depth_of": "house" if host.max_depth is None else "host",
            "scope_ranges": [[str(one.start), str(one.end)] for one in reach_ranges(host)],
        }
    )


def host_view_json(one: HostView) -> dict[str, Any]:
    return {
        **host_json(one.host),
        "reach": one.reach,
        "pages": one.pages,
        "known": one.known,
        "full": one.known >= one.host.most_pages,
        "private": private_json(one.private),
    }


def private_json(private: Sequence[Access]) -> list[dict[str, Any]]:
    return [
        {
            "port": access.port,
            "addresses": [str(address) for address in access.addresses],
            "granted_at": json_value(access.granted_at),
        }
        for access in private
    ]


def page_json(page: Guest) -> dict[str, Any]:
    own = cadence.show(page.cadence) if page.cadence else None
    return json_fields({**asdict(page), "scheme": Scheme(page.scheme).word, "cadence": own})


def explanation_json(story: "UrlExplanation") -> dict[str, Any]:
    return {
        "url": encodable(story.given),
        "canonical": str(story.url) if story.url else None,
        "refused": asdict(story.refused) if story.refused else None,
        "host": host_json(story.host) if story.host else None,
        "filters": list(story.filters),
        "path": story.path,
        "filtered": asdict(story.filtered) if story.filtered else None,
        "page": page_json(story.page) if story.page else None,
        "private": private_json(story.private) if story.is_private else None,
        "would": [door_answer_json(would) for would in story.would],
        **crawl_state_json(story),
    }


def door_answer_json(would: "DoorAnswer") -> dict[str, Any]:
    return {
        "kind": would.kind,
        "pass": would.hall_pass,
        "verdict": would.verdict.value,
        "reason": would.reason.value,
        "detail": would.detail,
        "row": would.row,
    }
