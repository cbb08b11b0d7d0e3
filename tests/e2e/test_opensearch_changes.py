"""Changes of a site are visible in rows on Tantivy and on OpenSearch: new versions, removals, compaction."""

from pathlib import Path

import pytest

from support.index.stack import Stack, running_stack
from support.opensearch.cluster import OpenSearchCluster
from support.opensearch.rows import EngineRows
from support.processes.crawls import EMBEDDED
from support.processes.killable import eventually
from support.processes.stack import USHER
from support.site.website import Response, Website

pytestmark = [EMBEDDED, pytest.mark.soak]
PAGES = 60
KEPT = range(0, PAGES, 6)
WATCHDOG = ("--every", "0.3", "--misses", "2", "--probation", "0.3", "--grace", "60")
AGED = "update work.chunk set propagated_at = propagated_at - interval '2 days'"
DUE = "update work.compaction_candidate set check_at = '-infinity'"
SOURCES = "select from work.chunk_source limit 1"
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


def start(stack: Stack, rows: EngineRows) -> None:
    stack.crawl.run("update work.settings set rows = 2")
    rows.start_tantivy(1)
    rows.start_opensearch(2)
    stack.start("builder", "builder", "--processes", "1")
    stack.processes.start("watchdog", *USHER, "watchdog", *WATCHDOG)
    stack.crawl.crawler("crawler", "--pages", "6")


def find_in_both(stack: Stack, words: str, urls: list[str]) -> bool:
    return all(stack.find(row, words) == urls for row in (1, 2))


def test_new_versions_compaction_and_removal_in_both_rows(
    database: str, tmp_path: Path, opensearch: OpenSearchCluster
) -> None:
    with site() as web, running_stack(database, tmp_path, chunk_lease=5) as stack:
        rows = EngineRows(stack, opensearch, "changes")
        start(stack, rows)
        stack.crawl.add(web.url("/"), words=["--full"])
        assert eventually(lambda: stack.crawl.states().get("crawled") == PAGES + 1, 60)
        stack.propagated(90)
        crawl_again(stack, web)
        old = sorted([web.url("/"), *(web.url(f"/{number}") for number in KEPT)])
        new = sorted(web.url(f"/{number}") for number in set(range(PAGES)) - set(KEPT))
        compact(stack)
        assert eventually(lambda: find_in_both(stack, "visit1", old), 60), stack.crawl.log[-4000:]
        assert find_in_both(stack, "visit2", new)
        remove(stack, web)
        left = [url for url in old if url != web.url("/6")]
        assert eventually(lambda: find_in_both(stack, "visit1", left), 30), [
            stack.find(row, "visit1") for row in (1, 2)
        ]


def crawl_again(stack: Stack, web: Website) -> None:
    """Most pages change: each row finds the new version only."""
    changed = sorted(set(range(PAGES)) - set(KEPT))
    for number in changed:
        web.add(f"/{number}", page(number, 2))
    stack.crawl.usher("hosts", "recrawl", f"127.0.0.1:{web.port}", "--pass")
    urls = sorted(web.url(f"/{number}") for number in changed)
    assert eventually(lambda: find_in_both(stack, "visit2", urls), 90), stack.crawl.log[-4000:]
    assert eventually(
        lambda: len(stack.find(2, "visit1")) == len(stack.find(1, "visit1")) == len(KEPT) + 1, 60
    )
    stack.propagated(90)


def compact(stack: Stack) -> None:
    """Chunks of the first crawl with few live pages are merged, and both rows drop them."""
    stack.crawl.run(AGED)
    stack.crawl.run(DUE)
    assert eventually(lambda: bool(stack.crawl.ask(SOURCES)), 60), stack.crawl.log[-4000:]

    def is_over() -> bool:
        stack.crawl.run(DUE)
        return stack.crawl.ask(LEFT) == [(0,)]

    assert eventually(is_over, 90), stack.crawl.log[-4000:]


def remove(stack: Stack, web: Website) -> None:
    """A removed page leaves both rows."""
    stack.crawl.usher("remove", web.url("/6"), "--reason", "notice 17", "--yes")
    assert eventually(lambda: find_in_both(stack, "number6", []), 60), stack.crawl.log[-4000:]
