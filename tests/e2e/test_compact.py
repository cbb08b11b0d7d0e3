"""Compaction with real processes, some of which are killed: no page is lost or there twice."""

import time
from pathlib import Path

import pytest

from support.index.stack import Stack, running_stack
from support.processes.crawls import EMBEDDED
from support.processes.killable import eventually
from support.processes.stack import USHER
from support.site.website import Response, Website

pytestmark = EMBEDDED
PAGES = 120
KEPT = range(0, PAGES, 6)
WATCHDOG = ("--every", "0.3", "--misses", "2", "--probation", "0.3", "--grace", "30")
AGED = "update work.chunk set propagated_at = propagated_at - interval '2 days'"
DUE = "update work.compaction_candidate set check_at = '-infinity'"
SEATED = "select distinct chunk_id from work.placement"
LEFT = "select (select count(*) from work.retirement) + (select count(*) from work.chunk_source where open)"


def page(number: int, visit: int) -> Response:
    text = (
        f"<html lang=en><title>Seat {number}</title><p>velvet seat visit{visit} number{number}</p>"
    )
    return Response(text.encode())


def site() -> Website:
    every = "".join(f"<a href='/{number}'>{number}</a>" for number in range(PAGES))
    front = Response(f"<title>The house</title><p>velvet visit1 front</p>{every}".encode())
    return Website({"/": front, **{f"/{number}": page(number, 1) for number in range(PAGES)}})


def complete(stage: Stack, old: list[str], new: list[str]) -> bool:
    return all(
        stage.find(row, "visit1") == old and stage.find(row, "visit2") == new for row in (1, 2)
    )


def files(stage: Stack) -> set[int]:
    found = stage.crawl.directory.glob("data/index/*/chunks/**/*.idx")
    return {int(path.stem) for path in found}


@pytest.mark.soak
def test_few_chunks_are_left_whoever_is_killed(database: str, tmp_path: Path) -> None:
    with site() as web, running_stack(database, tmp_path, chunk_lease=3) as stage:
        stage.servers(rows=2, each=1)
        stage.start("builder", "builder", "--processes", "1")
        stage.processes.start("watchdog", *USHER, "watchdog", *WATCHDOG)
        stage.crawl.crawler("crawler", "--pages", "6")
        stage.crawl.add(web.url("/"), words=["--full"])
        assert eventually(lambda: stage.crawl.states().get("crawled") == PAGES + 1, 60)
        stage.propagated(60)
        first = {chunk for (chunk,) in stage.crawl.ask(SEATED)}
        for number in set(range(PAGES)) - set(KEPT):
            web.add(f"/{number}", page(number, 2))
        stage.crawl.usher("hosts", "recrawl", f"127.0.0.1:{web.port}", "--pass")
        old = sorted([web.url("/"), *(web.url(f"/{number}") for number in KEPT)])
        new = sorted(web.url(f"/{number}") for number in set(range(PAGES)) - set(KEPT))
        assert eventually(lambda: complete(stage, old, new), 60), stage.crawl.log[-4000:]
        stage.propagated(60)
        assert "chunk" in stage.crawl.usher("chunks", "compact", "--dry-run")
        assert stage.crawl.ask("select from work.chunk_source") == []
        stage.crawl.run(AGED)
        stage.crawl.run(DUE)
        begun = "select from work.chunk_source limit 1"
        assert eventually(lambda: bool(stage.crawl.ask(begun)), 30), stage.crawl.log[-4000:]
        for name in ("builder", "mgmt", "server-1-1", "watchdog", "server-2-1", "builder"):
            stage.processes.kill(name)
            time.sleep(0.4)

        def over() -> bool:
            stage.crawl.run(DUE)
            seated = {chunk for (chunk,) in stage.crawl.ask(SEATED)}
            few = len(seated & first) <= len(first) // 2 and stage.crawl.ask(LEFT) == [(0,)]
            return few and files(stage) == seated

        assert eventually(over, 90), (stage.crawl.ask(SEATED), stage.crawl.log[-4000:])
        assert eventually(lambda: complete(stage, old, new), 30), stage.crawl.log[-4000:]
        story = stage.crawl.usher("explain", web.url("/0"))
        assert "merged from other chunks" in story
        assert stage.processes.stop(["builder", "watchdog"]) == [0, 0]
