"""Hosts and URLs told to people and to programs: `usher explain`, `usher hosts show`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from usher import domain64
from usher.cli.actions.door import COLOURS, WIDEST
from usher.cli.actions.door_details import behind_json, sections
from usher.cli.app import App, tell
from usher.cli.area_access import opened
from usher.cli.door_access import at_the_door
from usher.cli.output import echo, style
from usher.cli.wording import display_time, encodable, plain, plain_value, printable, when
from usher.domain64 import Range
from usher.door import cadence, filters
from usher.door.admin import MOST, Shown
from usher.door.guestbook import Guest
from usher.door.private_access import Access
from usher.door.rules import Reason
from usher.urls import Scheme

if TYPE_CHECKING:
    from usher.observe.explain import Story, Would

SCOPES = {
    "host": "links found here bring in no other host",
    "domain": "links found here bring in hosts of the same domain",
    "listed": "links found here bring in hosts of what is listed for it",
    "any": "links found here bring in any host",
}
BRINGS = {
    Reason.HOST_DUE: "with every due page of the host",
    Reason.FULL_PASS: "with every known page of the host",
}
READER = "usher_reader"
FINDABLE = {True: ("yes", "green"), False: ("no", "red")}
LONG = 2_100  # characters, where they are all there is to see


async def read_story(app: App, url: str) -> "Story":
    from usher.observe.explain import explain

    async with at_the_door(app) as doorkeeper, opened(app, "work", READER) as reader:
        return await explain(doorkeeper, url, now=reader.clock.now(), reader=reader)


def show_story(story: "Story") -> None:
    echo(style(printable(str(story.url or story.given), LONG), bold=True))
    if story.refused:
        tell("refused", f"{story.refused.reason}: {story.refused.detail}")
        show_finding(story)
        return
    if str(story.url) != story.given:
        tell("given", printable(story.given))
    if story.host:
        show_clock(story.host, story.now)
    else:
        tell("host", "not registered yet; the first knock registers it, due at once")
    if story.is_private:
        tell("private", *private_words(story.private))
    tell("filters", filter_words(story))
    show_path(story)
    echo("\nThe door would answer now")
    for would in story.would:
        show_would(would)
    behind = list(sections(story))
    if behind:
        echo("\nBehind the door")
    for name, lines in behind:
        tell(name, *lines)
    show_finding(story)


def show_finding(story: "Story") -> None:
    """The last line: whether it can be found now, else why not and what to do."""
    if story.finding is None:
        echo("\nFindable now: not known, for this user may not look behind the door.")
        return
    word, colour = FINDABLE[story.finding.findable]
    words = printable(story.finding.words, LONG)
    echo(f"\nFindable now: {style(word, fg=colour, bold=True)}. {words[:1].upper()}{words[1:]}")
    if story.finding.command:
        echo(f"  → {printable(story.finding.command, LONG)}")


def filter_words(story: "Story") -> str:
    if story.filtered:
        return f"{story.filtered.name} refuses it: {printable(story.filtered.detail)}"
    names = [name_of(one) for one in story.filters]
    return f"let it through: {', '.join(names)}" if names else "none"


def show_path(story: "Story") -> None:
    if story.url and story.path and story.path != story.url.path:
        tell("kept as", f"{story.path} (the filters drop the rest)")
    if story.page:
        tell("page", *page_words(story.page, story.now))
    elif story.host and not story.filtered:
        tell("page", "not in the guestbook")


def page_words(page: Guest, now: datetime) -> Iterable[str]:
    """What the guestbook says, a line for each thing worth one."""
    yield state_words(page, now)
    yield f"due {'since ' if page.next_fetch <= now else ''}{when(page.next_fetch, now)}"
    if page.last_fetched:
        yield f"last fetched {when(page.last_fetched, now)}{answer_words(page)}"
    else:
        yield "never fetched"
    if page.last_modified:
        yield f"last changed {when(page.last_modified, now)}"
    if page.failures:
        yield f"failed {page.failures} times in a row{answer_words(page)}"
    if page.gone:
        yield "gone: the server has said so"
    if page.depth:
        yield f"{page.depth} click{'' if page.depth == 1 else 's'} from where the crawl came in"
    if page.cadence:
        yield f"its own cadence is {cadence.show(page.cadence)}"


def state_words(page: Guest, now: datetime) -> str:
    since = f" since {when(page.admitted_at, now)}" if page.admitted_at else ""
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


def answer_words(page: Guest) -> str:
    if page.status is None:
        return ""
    length = f", {page.content_length:,} bytes" if page.content_length else ""
    return f", status {page.status}, {page.content_type or 'unknown type'}{length}"


def show_would(would: "Would") -> None:
    asked = f"{would.kind}{', pass' if would.hall_pass else ''}"
    verdict = style(f"{would.verdict:<6}", fg=COLOURS[would.verdict])
    row = f"row {would.row}" if would.row else "before the table"
    more = printable(would.detail) or BRINGS.get(would.reason, "")
    echo(f"  {asked:<14}{verdict}  {would.reason:<{WIDEST}}  {row}  {more}".rstrip())


def show_clock(host: Shown, now: datetime) -> None:
    """What every look at a host begins with."""
    reason = f": {printable(host.policy_reason)}" if host.policy_reason else ""
    tell("host", f"{host.name}, {host.policy}{reason}")
    tell("number", f"{host.domain64}, {domain64.to_hex(host.domain64)} in hex")
    tell("clock", *clock_words(host, now))
    tell("cadence", cadence_words(host))
    tell("scope", scope_words(host))


def clock_words(host: Shown, now: datetime) -> Iterable[str]:
    if host.crawl_started:
        yield f"due: a crawl is open since {when(host.crawl_started, now)}"
    elif host.next_fetch <= now:
        yield f"due since {when(host.next_fetch, now)}; no crawl is open"
    else:
        yield f"not due until {when(host.next_fetch, now)}"


def cadence_words(host: Shown) -> str:
    words = (
        cadence.show(host.cadence)
        if host.cadence
        else f"{cadence.show(host.house_cadence)}, as the house has it"
    )
    return f"{words}; pages find their own pace" if host.adaptive else words


def limit_words(host: Shown) -> Iterable[str]:
    by_house = ", as the house has it"
    yield f"at most {host.most_pages:,} pages{by_house if host.max_pages is None else ''}"
    depth = f"new pages up to {host.deepest} clicks from where the crawl came in"
    yield f"{depth}{by_house if host.max_depth is None else ''}"


def scope_words(host: Shown) -> str:
    return f"{host.scope}: {SCOPES[host.scope]}"


def ranges(host: Shown) -> list[Range]:
    return [Range(one.lower or 0, one.upper or domain64.MAX) for one in host.scope_ranges]


def show_filters(found: Iterable[Mapping[str, Any]]) -> None:
    tell("filters", *([filters.describe(one) for one in found] or ["none"]))


@dataclass(frozen=True, slots=True)
class Portrait:
    """A host with what is around it."""

    host: Shown
    reach: list[str]
    pages: dict[str, int]
    known: int
    house: Sequence[filters.Filter]
    private: Sequence[Access] = ()


def show_portrait(one: Portrait) -> None:
    show_clock(one.host, display_time())
    if one.reach:
        tell("reach", *one.reach)
    if one.host.crawl_delay is not None:
        tell("delay", f"{one.host.crawl_delay.total_seconds():g} s between two requests")
    if one.private:
        tell("private", *private_words(one.private))
    tell("limits", *limit_words(one.host))
    tell("filters", *(described_filters(one) or ["none"]))
    counts = [f"{number_words(number)} {state}" for state, number in one.pages.items()]
    tell("pages", ", ".join(counts) or "none")
    if counts:
        full = "; no new ones come in" if one.known >= one.host.most_pages else ""
        tell("", f"{one.known:,} of at most {one.host.most_pages:,}{full}")


def private_words(private: Sequence[Access]) -> list[str]:
    """Where crawlers may connect to a host that is not public, and which links lead to it."""
    allowed = [
        f"port {access.port} at {', '.join(map(str, access.addresses))} is allowed"
        for access in private
    ]
    unlisted = ["no permission; `usher hosts set URL --allow-private` gives one"]
    return [*(allowed or unlisted), "links from other hosts are refused (private_host)"]


def described_filters(one: Portrait) -> list[str]:
    """The host's own filters, then those of the house that it leaves in force."""
    own = {name_of(given) for given in one.host.filters}
    others = [given for given in one.house if name_of(given) not in own]
    told = [printable(filters.describe(given)) for given in one.host.filters]
    return told + [f"{printable(filters.describe(given))} (the house's)" for given in others]


def name_of(given: filters.Filter) -> str:
    return str(given.get("name", given.get("rule")))


def number_words(number: int) -> str:
    return f"≥ {number}" if number >= MOST else str(number)


def host_json(host: Shown) -> dict[str, Any]:
    known = asdict(host)
    for name in ("house_cadence", "house_max_pages", "house_max_depth", "id", "revision"):
        del known[name]
    return plain(
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
            "scope_ranges": [[str(one.start), str(one.end)] for one in ranges(host)],
        }
    )


def portrait_json(one: Portrait) -> dict[str, Any]:
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
            "granted_at": plain_value(access.granted_at),
        }
        for access in private
    ]


def page_json(page: Guest) -> dict[str, Any]:
    own = cadence.show(page.cadence) if page.cadence else None
    return plain({**asdict(page), "scheme": Scheme(page.scheme).word, "cadence": own})


def story_json(story: "Story") -> dict[str, Any]:
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
        "would": [would_json(would) for would in story.would],
        **behind_json(story),
    }


def would_json(would: "Would") -> dict[str, Any]:
    return {
        "kind": would.kind,
        "pass": would.hall_pass,
        "verdict": would.verdict.value,
        "reason": would.reason.value,
        "detail": would.detail,
        "row": would.row,
    }
