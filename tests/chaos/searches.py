"""Constant searches on both front-ends, and what each answer must contain."""

import json
import random
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from chaos.cluster import Cluster
from chaos.pages import Page
from chaos.scale import SCALE, SEARCH_SECONDS, elapsed

PAUSE_SECONDS = 0.2
BATCH_PAGES = 10  # results of one page
SETTLE_SECONDS = 10 * SCALE  # until a front-end surely knows a copy that every row has loaded
Outcome = Literal["found", "partial", "missing", "failed"]


@dataclass(frozen=True, slots=True)
class Answer:
    outcome: Outcome
    detail: str = ""


def ask(cluster: Cluster, front: int, query: str) -> Any:  # noqa: ANN401 - JSON
    url = f"{cluster.front_url(front)}/search.json?q={quote(query)}"
    with urllib.request.urlopen(url, timeout=SEARCH_SECONDS) as response:  # noqa: S310
        return json.load(response)


def found_among(cluster: Cluster, front: int, pages: Sequence[Page]) -> set[Page]:
    """The pages of a batch that one complete answer has; up to as many as fit on a result page."""
    try:
        answer = ask(cluster, front, " OR ".join(page.word for page in pages))
    except (OSError, ValueError):
        return set()
    urls = set() if answer["partial"] else {result["url"] for result in answer["results"]}
    return {page for page in pages if page.url in urls}


def search(cluster: Cluster, front: int, page: Page) -> Answer:
    """Search the word of a page: found, not found in a partial or in a complete answer, or no answer at all."""
    try:
        answer = ask(cluster, front, page.word)
    except (OSError, ValueError) as error:
        return Answer("failed", f"{type(error).__name__}: {error}")
    if answer["partial"]:
        return Answer("partial", f"missing {answer['missing']}")
    if page.url not in [result["url"] for result in answer["results"]]:
        return Answer("missing", f"{answer['total']} results")
    return Answer("found")


@dataclass(slots=True)
class Searchable:
    """Pages that every row has, each with the time at which the database said so."""

    since: dict[Page, float] = field(default_factory=dict)

    def add(self, page: Page) -> None:
        self.since.setdefault(page, time.monotonic())

    def settled(self) -> list[Page]:
        latest = time.monotonic() - SETTLE_SECONDS
        return [page for page, since in list(self.since.items()) if since < latest]


class Searcher(threading.Thread):
    """Searches through one front-end without end; counts what it gets."""

    def __init__(self, cluster: Cluster, front: int, searchable: Searchable, seed: int) -> None:
        super().__init__(name=f"searcher-{front}", daemon=True)
        self.cluster, self.front, self.searchable = cluster, front, searchable
        self.dice = random.Random(seed * 2 + front)  # noqa: S311 - which page is no secret
        self.counts: Counter[Outcome] = Counter()
        self.excused = 0  # searches that failed while they were disturbed
        self.problems: list[str] = []
        self.stopping = threading.Event()
        self.disturbed = threading.Event()  # a fault is on this front-end, or on every row
        self.disturbances = 0  # faults so far that disturbed this searcher

    def run(self) -> None:
        while not self.stopping.wait(PAUSE_SECONDS):
            pages = self.searchable.settled()
            if pages:
                self.search_once(self.dice.choice(pages))

    def search_once(self, page: Page) -> None:
        was_disturbed, before = self.disturbed.is_set(), self.disturbances
        started = time.monotonic()
        answer = search(self.cluster, self.front, page)
        # A fault that began and ended meanwhile may have lost the answer.
        is_disturbed = was_disturbed or self.disturbances > before
        if answer.outcome == "failed" and is_disturbed:
            self.excused += 1
            return
        self.counts[answer.outcome] += 1
        if answer.outcome in ("failed", "missing"):
            seconds = time.monotonic() - started
            self.problems.append(
                f"{answer.outcome} at {elapsed(started):.1f} after {seconds:.1f} s through front-{self.front}: "
                f"{page.word} ({page.url}): {answer.detail}"
            )
