"""An older dump is restored while components run: no answer is wrongly complete, and every page is found again."""

import http.client
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from support.index.stack import Stack, running_stack
from support.processes.crawls import EMBEDDED
from support.processes.killable import eventually
from support.processes.stack import USHER
from support.site.website import Response, Website

pytestmark = EMBEDDED
PAGES = 16
CHANGED = range(0, PAGES, 2)
WATCHDOG = ("--every", "0.3", "--misses", "200", "--probation", "0.3", "--grace", "600")
STEP_SECONDS = 180  # for anything that takes a few seconds on an idle machine
RECOVERY_SECONDS = 240
LOSS_SECONDS = (
    240  # a server asks for half a minute before a chunk counts as lost, then builders try it
)
ID_STEP = 1_000_000_000  # ids continue at the next multiple
POLL_SECONDS = 3  # in which a front-end has surely heard of a restore
LAST_CHUNK = "select max(id) from work.chunk"
UNRESTORED = "select count(*) from work.unrestored"


def page(number: int, version: int, links: str = "") -> Response:
    text = f"<html lang=en><title>Page {number}</title><p>stay{number}x version{version}n{number}x</p>{links}"
    return Response(text.encode())


def site() -> Website:
    links = "".join(f"<a href='/{number}'>{number}</a>" for number in range(PAGES))
    return Website(
        {
            "/": page(PAGES, 1, links),
            **{f"/{number}": page(number, 1) for number in range(PAGES)},
        }
    )


def search(port: int, query: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with closing(connection):
        connection.request("GET", f"/search.json?q={quote(query)}")
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        found: dict[str, Any] = json.loads(text)
        return found


@dataclass
class Sampler:
    """Asks a front-end for words again and again, and records complete answers that lack a page."""

    port: int
    words: Sequence[str]
    wrong: list[str] = field(default_factory=list)
    asked: int = 0
    partial: int = 0

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            for word in self.words:
                with suppress(AssertionError, OSError):
                    self.sample(word)
            time.sleep(0.05)

    def sample(self, word: str) -> None:
        found = search(self.port, word)
        self.asked += 1
        self.partial += found["partial"]
        if not found["total"] and not found["partial"]:
            self.wrong.append(word)


@contextmanager
def sampled(port: int, words: Sequence[str]) -> Iterator[Sampler]:
    sampler, stop = Sampler(port, words), threading.Event()
    thread = threading.Thread(target=sampler.run, args=(stop,))
    thread.start()
    try:
        yield sampler
    finally:
        stop.set()
        thread.join()


@contextmanager
def cluster(dsn: str, directory: Path) -> Iterator[tuple[Stack, Website]]:
    """Every component, and a site that is crawled and searchable."""
    with site() as web, running_stack(dsn, directory) as stage:
        stage.servers(rows=1, each=1)
        stage.start("builder", "builder", "--processes", "1")
        stage.start("front", "front", "--deadline", "5")
        stage.processes.start("watchdog", *USHER, "watchdog", *WATCHDOG)
        stage.crawl.crawler("crawler", "--pages", "4")
        stage.crawl.add(web.url("/"), words=["--full"])
        assert eventually(lambda: stage.crawl.states() == {"crawled": PAGES + 1}, STEP_SECONDS)
        stage.propagated(STEP_SECONDS)
        yield stage, web


def texts(numbers: Sequence[int] = range(PAGES), version: int = 1) -> list[str]:
    return [f"version{version}n{number}x" for number in numbers]


def stays() -> list[str]:
    return [f"stay{number}x" for number in range(PAGES)]


def change(stage: Stack, web: Website, numbers: Sequence[int]) -> None:
    """Have pages crawled with another text, until servers have taken out the old copies."""
    for number in numbers:
        web.add(f"/{number}", page(number, 2))
    stage.crawl.add(*(web.url(f"/{number}") for number in numbers), words=["--pass"])
    gone = [*texts(numbers)]
    done = eventually(lambda: not any(stage.find(1, word) for word in gone), STEP_SECONDS)
    assert done, stage.crawl.log[-4000:]
    stage.propagated(STEP_SECONDS)


def complete(stage: Stack, words: Sequence[str]) -> bool:
    """Whether the front-end finds each of these, and says that it found all there is."""
    with suppress(AssertionError, OSError):
        answers = [search(stage.crawl.ports["front"], word) for word in words]
        return all(answer["total"] and not answer["partial"] for answer in answers)
    return False


def files(stage: Stack) -> set[int]:
    return {int(path.stem) for path in stage.crawl.directory.glob("data/index/*/chunks/**/*.idx")}


def sources(stage: Stack) -> set[int]:
    """The chunks that a builder or a crawler still has, from which a server could load them again."""
    data = stage.crawl.directory / "data"
    paths = [*data.glob("built/**/*"), *data.glob("content/**/*")]
    names = (path.name.split(".")[0] for path in paths if path.is_file())
    return {int(name) for name in names if name.isdigit()}


def test_texts_that_were_taken_out_since_the_dump_are_searchable_again(
    database: str, tmp_path: Path
) -> None:
    with cluster(database, tmp_path) as (stage, web):
        front = stage.crawl.ports["front"]
        stage.crawl.usher("db", "dump", str(tmp_path / "backup"))
        change(stage, web, CHANGED)
        web.add("/late", page(99, 1))
        stage.crawl.add(web.url("/late"), words=["--pass"])
        assert eventually(lambda: complete(stage, ["stay99x"]), STEP_SECONDS), stage.crawl.log[
            -4000:
        ]
        [(last,)] = stage.crawl.ask(LAST_CHUNK)
        with sampled(front, stays()) as kept:
            stage.crawl.usher("db", "restore", str(tmp_path / "backup"), "--replace")
            time.sleep(POLL_SECONDS)
            with sampled(front, texts()) as old:
                is_recovered = eventually(lambda: complete(stage, texts()), RECOVERY_SECONDS)
                time.sleep(1)
        assert (kept.wrong, old.wrong) == ([], [])
        assert is_recovered, stage.crawl.log[-6000:]
        assert kept.asked
        assert old.asked
        assert kept.partial
        assert eventually(lambda: not stage.find(1, "stay99x"), STEP_SECONDS)
        explained = json.loads(stage.crawl.usher("explain", "--json", web.url("/0")))
        assert explained["findable"], explained
        # What only the lost history knew is crawled again when it is added again, in a chunk with an id of its own.
        stage.crawl.add(web.url("/late"), words=["--pass"])
        assert eventually(lambda: complete(stage, ["stay99x"]), STEP_SECONDS), stage.crawl.log[
            -4000:
        ]
        [(new,)] = stage.crawl.ask(LAST_CHUNK)
        assert new >= ID_STEP > last


@pytest.mark.soak
def test_a_server_that_was_down_compares_its_chunks_when_it_starts(
    database: str, tmp_path: Path
) -> None:
    with cluster(database, tmp_path) as (stage, web):
        stage.crawl.usher("db", "dump", str(tmp_path / "backup"))
        change(stage, web, CHANGED)
        stage.kill("server-1-1")
        stage.crawl.usher("db", "restore", str(tmp_path / "backup"), "--replace")
        explained = json.loads(stage.crawl.usher("explain", "--json", web.url("/0")))
        assert not explained["findable"], explained
        stage.start("server-1-1", "index-server", "--row", "1")
        with sampled(stage.crawl.ports["front"], [*stays(), *texts()]) as sampler:
            is_recovered = eventually(lambda: complete(stage, texts()), RECOVERY_SECONDS)
        assert sampler.wrong == []
        assert is_recovered, stage.crawl.log[-6000:]


@pytest.mark.soak
def test_pages_without_any_copy_left_are_crawled_again_and_answers_stay_partial(
    database: str, tmp_path: Path
) -> None:
    with cluster(database, tmp_path) as (stage, web):
        stage.crawl.usher("db", "dump", str(tmp_path / "backup"))
        first = files(stage)
        change(stage, web, range(PAGES))
        stage.crawl.usher("chunks", "compact")
        # Of the old chunks at most that of the front page is left, which did not change; it may be indexed again.
        gone = eventually(
            lambda: len(first & files(stage)) <= 1 and not first & sources(stage), STEP_SECONDS
        )
        assert gone, (first, files(stage), sources(stage), stage.crawl.log[-4000:])
        with sampled(stage.crawl.ports["front"], stays()) as sampler:
            stage.crawl.usher("db", "restore", str(tmp_path / "backup"), "--replace")
            stage.crawl.forgive()
            time.sleep(POLL_SECONDS)
            is_recovered = eventually(
                lambda: complete(stage, [*stays(), *texts(version=2)]), LOSS_SECONDS
            )
        assert sampler.wrong == []
        assert is_recovered, stage.crawl.log[-6000:]
        assert sampler.partial
        assert stage.crawl.ask(UNRESTORED) == [(0,)]
