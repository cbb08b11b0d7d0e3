"""The path of a URL from the door to the search result: where it is, and the step where it stopped. Pure functions."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from usher.door.guestbook import GuestbookRow
from usher.mgmt.page_history import PageHistory
from usher.mgmt.queries import stage
from usher.observe.explain import UrlExplanation
from usher.wording import counted, time_text

StepName = Literal["door", "queue", "fetch", "build", "load", "search"]
StepState = Literal["done", "stopped", "active", "later"]
STEPS: Final[tuple[StepName, ...]] = ("door", "queue", "fetch", "build", "load", "search")
STEP_TITLES: Final = {
    "door": "Door",
    "queue": "Queue",
    "fetch": "Fetch",
    "build": "Index chunk",
    "load": "Index servers",
    "search": "Search result",
}
LOADED_STAGES: Final = frozenset({"built", "propagated", "retired"})
ACTIVE_STAGES: Final = frozenset({"crawled", "building"})


@dataclass(frozen=True, slots=True)
class PathStep:
    """One step: done, the step where the page stopped or is now (`active`), or a later one."""

    name: StepName
    title: str
    state: StepState
    detail: str


def page_path(explanation: UrlExplanation) -> list[PathStep]:
    """The six steps of a URL."""
    stop = last_step(explanation)
    details = dict(step_details(explanation))
    finding = explanation.finding
    steps = []
    for position, name in enumerate(STEPS):
        state: StepState = "later"
        if stop is None or position < STEPS.index(stop):
            state = "done"
        elif name == stop:
            state = "active" if is_active(explanation) else "stopped"
        words = finding.words if finding and state in ("stopped", "active") else ""
        detail = words or (details.get(name, "") if state != "later" else "")
        steps.append(PathStep(name, STEP_TITLES[name], state, detail))
    return steps


def last_step(explanation: UrlExplanation) -> StepName | None:
    """The step at which the page stopped or waits; None if searches find it."""
    page, trail, finding = explanation.page, explanation.trail, explanation.finding
    if finding is not None and finding.is_searchable:
        return None
    if page is None or trail is None or explanation.removals or page.state == "idle":
        return "door"
    if trail.indexed is not None:
        return "load" if stage(trail.indexed) in LOADED_STAGES else "build"
    return "queue" if page.state == "pending" else "fetch"


def is_active(explanation: UrlExplanation) -> bool:
    """Whether the page moves on without the operator."""
    page, trail = explanation.page, explanation.trail
    if page is None or trail is None or explanation.removals:
        return False
    workers, chunk = trail.workers, trail.indexed
    if chunk is not None:
        return workers.builders > 0 and stage(chunk) in ACTIVE_STAGES
    is_open = explanation.rest is not None and explanation.rest.policy == "open"
    waits = page.state == "pending" and workers.crawlers > 0 and is_open
    return waits or page.state == "crawling"


def step_details(explanation: UrlExplanation) -> Iterator[tuple[StepName, str]]:
    """What is known about the steps that the page has passed."""
    page, trail, now = explanation.page, explanation.trail, explanation.now
    if page is None or trail is None:
        return
    since = f" {time_text(page.admitted_at, now)}" if page.admitted_at else ""
    yield "door", f"Admitted{since}"
    if trail.crawled:
        yield "queue", f"Claimed by {trail.crawled.crawler} in chunk {trail.crawled.id}"
    yield "fetch", fetch_detail(page, trail, now)
    if trail.indexed:
        built = trail.indexed.built_at
        yield (
            "build",
            f"Chunk {trail.indexed.id}" + (f", built {time_text(built, now)}" if built else ""),
        )
    rows = len({copy.row for copy in trail.answering})
    yield "load", f"Loaded in {rows} of {counted(trail.workers.rows, 'row')}"
    if explanation.finding:
        yield "search", f"Searchable: {explanation.finding.words}"


def fetch_detail(page: GuestbookRow, trail: PageHistory, now: datetime) -> str:
    status = f"HTTP {page.status}" if page.status else trail.text.reason or ""
    fetched = (
        f"Fetched {time_text(page.last_fetched, now)}" if page.last_fetched else "Not fetched yet"
    )
    return f"{fetched}: {status}" if status else fetched
