"""Links of crawlers that know only the requests of the seed: late ones, their order, and hosts without any."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from support.mgmt.mgmt_process import Mgmt, mgmt
from support.mgmt.plain_components import Component, at_once, make_hosts_ready, one

HOST = "https://one.test"
FINISHED_HOSTS = 3_000


@pytest.fixture
def coordinator(database: str, tmp_path: Path) -> Iterator[Mgmt]:
    at_once(database)
    with mgmt(database, tmp_path / "log", settings={"USHER_CHUNK_WAIT": "0"}) as running:
        yield running


@pytest.fixture
def crawler(coordinator: Mgmt) -> Component:
    return Component(coordinator, host="c:1")


def crawl(crawler: Component) -> int:
    """The next chunk, reported as the seed has it."""
    chunk: int = crawler.get("/get_links")["chunk_id"]
    crawler.post("/set_content_chunk_metadata", chunk_id=chunk, state="crawled")
    return chunk


@pytest.mark.seed("001.14")
def test_links_that_are_added_after_the_final_report_come_in(
    crawler: Component, database: str
) -> None:
    crawler.post("/add_links", links=[f"{HOST}/"])
    started = one(database, "select crawl_started from work.hosts")
    crawl(crawler)
    assert one(database, "select crawl_started from work.hosts") is None
    answer = crawler.post("/add_links", links=[f"{HOST}/{number}" for number in range(120)])
    assert answer["reasons"] == {"new_page": 120}
    for _ in range(24):
        crawl(crawler)
    clocks = "select next_fetch - interval '30 days' from work.hosts where crawl_started is null"
    assert one(database, clocks) == started


def test_a_page_of_another_host_does_not_reopen_a_crawl(crawler: Component) -> None:
    crawler.post("/add_links", links=[f"{HOST}/"])
    crawl(crawler)
    links = [f"{HOST}/new"]
    answer = crawler.post("/add_links", links=links, found_on="https://two.test/")
    assert answer["reasons"] == {"host_not_due": 1}
    assert crawler.post("/add_links", links=links, found_on=f"{HOST}/")["counts"]["admit"] == 1


@pytest.mark.seed("001.7")
def test_finished_hosts_do_not_hide_links(crawler: Component) -> None:
    crawler.post("/add_links", links=[f"https://h{n}.test/" for n in range(FINISHED_HOSTS)])
    for _ in range(FINISHED_HOSTS // 500):
        pack = crawler.get("/get_links?n=500")
        assert len(pack["links"]) == 500
        crawler.post("/set_content_chunk_metadata", chunk_id=pack["chunk_id"], state="crawled")
    waiting = [f"https://h{n}.test/new" for n in range(0, FINISHED_HOSTS, 500)]
    crawler.post("/add_links", links=waiting)
    assert crawler.get("/get_links")["links"] == waiting[:5]
    assert crawler.get("/get_links")["links"] == waiting[5:]
    assert crawler.get("/get_links") == {}


ORDERS = {
    "one host": [f"{HOST}/{n * 7 % 20}" for n in range(20)],
    "many hosts": [f"https://h{n * 7 % 20}.{('org', 'com', 'gov')[n % 3]}/" for n in range(20)],
    "subdomains": [f"https://{n * 7 % 20}.one.test/" for n in range(19)] + ["https://one.test/"],
}


@pytest.mark.seed("000.15")
@pytest.mark.parametrize("links", ORDERS.values(), ids=ORDERS.keys())
def test_links_of_one_call_keep_their_order(crawler: Component, links: list[str]) -> None:
    crawler.post("/add_links", links=links)
    assert [link for _ in range(4) for link in crawler.get("/get_links")["links"]] == links


@pytest.mark.seed("000.3")
def test_a_link_that_waits_again_shows_no_chunk(crawler: Component, database: str) -> None:
    crawler.post("/add_links", links=[f"{HOST}/"])
    chunk = crawler.get("/get_links")["chunk_id"]
    shown = "select chunk_id, state from mgmt.link"
    with psycopg.connect(database, autocommit=True) as conn:
        assert conn.execute(shown).fetchall() == [(chunk, "crawling")]
        crawler.post("/set_content_chunk_metadata", chunk_id=chunk, state="error")
        assert conn.execute(shown).fetchall() == [(None, "pending")]


@pytest.mark.seed("003.14")
@pytest.mark.parametrize("pages", [None, [{"link": f"{HOST}/", "state": "crawled"}]])
def test_a_page_that_is_reported_without_a_date_gets_the_time_of_its_fetch(
    crawler: Component, database: str, pages: object
) -> None:
    crawler.post("/add_links", links=[f"{HOST}/"])
    chunk = crawler.get("/get_links")["chunk_id"]
    body = {"pages": pages} if pages else {}
    crawler.post("/set_content_chunk_metadata", chunk_id=chunk, state="crawled", **body)
    same = "select last_fetched = last_modified from work.guestbook"
    assert one(database, same) is True
    with psycopg.connect(database) as conn:
        conn.execute("update work.guestbook set state = 'pending'")
    make_hosts_ready(database)
    [page] = crawler.get("/get_links?pages=1")["pages"]
    assert "last_modified" not in page
