"""Crawlers of any make send anchor texts with links, and builders get them with the chunk."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.mgmt.mgmt_process import Mgmt, mgmt
from support.mgmt.plain_components import Component, at_once
from usher.anchor_text import MAX_ANCHOR_CHARACTERS

HOST = "https://one.test"


@pytest.fixture
def coordinator(database: str, tmp_path: Path) -> Iterator[Mgmt]:
    at_once(database)
    with mgmt(database, tmp_path / "log", settings={"USHER_CHUNK_WAIT": "0"}) as running:
        yield running


@pytest.fixture
def crawler(coordinator: Mgmt) -> Component:
    return Component(coordinator, host="c:1")


def anchors(dsn: str) -> dict[tuple[str, str], int]:
    """The number of linking pages by path and text."""
    query = (
        "select g.path, a.text, cardinality(a.own_pages || a.other_pages) "
        "from work.anchor a join work.guestbook g on g.id = a.page_id"
    )
    with psycopg.connect(dsn) as conn:
        return {(path, text): number for path, text, number in conn.execute(query)}


def add(crawler: Component, page: str, *links: tuple[str, str], **more: Any) -> Any:  # noqa: ANN401
    given = {"found_on": page, "anchors": [{"page": page, "links": links}], **more}
    return crawler.post("/add_links", links=[link for link, _ in links], **given)


def test_texts_are_stored_with_the_links_and_sent_to_builders(
    crawler: Component, coordinator: Mgmt, database: str
) -> None:
    crawler.post("/add_links", links=[f"{HOST}/", f"{HOST}/a"])
    for page in (f"{HOST}/", f"{HOST}/a", f"{HOST}/"):
        answer = add(crawler, page, (f"{HOST}/b?utm_source=x", "  the\nlighthouse "))
        assert sum(answer["counts"].values()) == 1
    assert anchors(database) == {("/b", "the lighthouse"): 2}
    chunk = crawler.get("/get_links")["chunk_id"]
    crawler.post("/set_content_chunk_metadata", chunk_id=chunk, state="crawled")
    [claimed] = Component(coordinator, host="b:1").get("/get_content_chunk_metadata")
    told = {page["key"]: page for page in claimed["links"]}
    assert told["one.test/b"] == {
        "key": "one.test/b",
        "inlinks": 2,
        "anchors": [["the lighthouse", 2]],
    }
    assert told.keys() == {"one.test/b"}  # nothing to say about the others


def test_links_may_have_been_added_before(crawler: Component, database: str) -> None:
    crawler.post("/add_links", links=[f"{HOST}/", f"{HOST}/b"])
    known = [{"page": f"{HOST}/", "links": [[f"{HOST}/b", "lighthouse"], [f"{HOST}/new", "new"]]}]
    crawler.post("/add_links", links=[], found_on=f"{HOST}/", anchors=known)
    assert anchors(database) == {("/b", "lighthouse"): 1}


def test_texts_are_bounded_and_useless_ones_are_dropped(crawler: Component, database: str) -> None:
    crawler.post("/add_links", links=[f"{HOST}/", f"{HOST}/b"])
    texts = ["x\0" * 50_000, "here", "", "→", *(f"text {number}" for number in range(9))]
    add(crawler, f"{HOST}/", *((f"{HOST}/b", text) for text in texts))
    assert anchors(database) == {
        ("/b", "x" * MAX_ANCHOR_CHARACTERS): 1,
        ("/b", "text 0"): 1,
        ("/b", "text 1"): 1,
    }


def test_pages_of_other_hosts_are_ignored(crawler: Component, database: str) -> None:
    crawler.post("/add_links", links=[f"{HOST}/b", "https://two.test/"])
    pages = ("https://two.test/", "no URL", "")
    given = [{"page": page, "links": [[f"{HOST}/b", "lighthouse"]]} for page in pages]
    for found_on in (f"{HOST}/", None):
        crawler.post("/add_links", links=[], found_on=found_on, anchors=given)
    assert anchors(database) == {}


def test_too_many_are_refused(crawler: Component) -> None:
    links = [[f"{HOST}/{number}", "lighthouse"] for number in range(10_001)]
    given = {"links": [], "found_on": HOST, "anchors": [{"page": HOST, "links": links}]}
    assert crawler.declined("/add_links", **given) == (413, "too_large")


def test_a_public_page_cannot_name_a_private_one(crawler: Component, database: str) -> None:
    crawler.post("/add_links", links=[f"{HOST}/", "http://10.0.0.7/"])
    add(crawler, f"{HOST}/", ("http://10.0.0.7/", "lighthouse"))
    assert anchors(database) == {}
