"""What the seed documents say about components, beyond their printed examples, against a running MGMT."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from support.mgmt.mgmt_process import Mgmt, mgmt
from support.mgmt.plain_components import Component, at_once, one

CRAWLER, BUILDER, SERVER = "10.10.127.100:5000", "10.10.127.101:5000", "10.10.127.102:5000"
CHUNKS = list(range(101, 108))


@pytest.fixture
def running(database: str, tmp_path: Path) -> Iterator[Mgmt]:
    at_once(database)
    with mgmt(database, tmp_path / "log") as server:
        yield server


@pytest.fixture
def crawler(running: Mgmt) -> Component:
    return Component(running, host=CRAWLER)


@pytest.fixture
def builder(running: Mgmt) -> Component:
    return Component(running, host=BUILDER)


@pytest.fixture
def index_server(running: Mgmt) -> Component:
    component = Component(running, host=SERVER)
    component.post("/set_component_state", state="online", type="index-server")
    return component


def crawl(crawler: Component, chunks: int) -> None:
    """Have so many chunks of five pages crawled."""
    crawler.post("/add_links", links=[f"site{page}.com" for page in range(5 * chunks)])
    for _ in range(chunks):
        chunk = crawler.get("/get_links")
        crawler.post("/set_content_chunk_metadata", chunk_id=chunk["chunk_id"], state="crawled")


def ids(chunks: list[dict[str, object]]) -> list[object]:
    return [chunk["chunk_id"] for chunk in chunks]


@pytest.mark.seed("001.5")
def test_a_paused_crawler_gets_nothing_until_it_is_online(crawler: Component) -> None:
    crawler.post("/add_links", links=[f"site{page}.com" for page in range(5)])
    crawler.post("/set_component_state", state="paused")
    assert crawler.get("/get_links") == {}
    crawler.post("/set_component_state", state="online")
    assert len(crawler.get("/get_links")["links"]) == 5


@pytest.mark.seed("001.4")
def test_a_waiting_crawler_gets_the_next_chunk(crawler: Component) -> None:
    assert crawler.get("/get_links") == {}
    crawler.post("/set_component_state", state="waiting")
    crawler.post("/add_links", links=[f"site{page}.com" for page in range(5)])
    assert len(crawler.get("/get_links")["links"]) == 5


@pytest.mark.seed("000.2")
def test_a_link_is_kept_once(crawler: Component, database: str) -> None:
    for _ in range(2):
        crawler.post("/add_links", links=["stuff.com", "https://stuff.com/"])
    assert one(database, "select array_agg(link) from mgmt.link") == ["https://stuff.com/"]


@pytest.mark.seed("001.15")
def test_any_number_of_links_may_be_added(crawler: Component, database: str) -> None:
    for call in range(2):
        links = [f"https://site.com/{call}/{page}" for page in range(10_000)]
        assert crawler.post("/add_links", links=links)["counts"]["admit"] == 10_000
    assert one(database, "select count(*) from mgmt.link") == 20_000


@pytest.mark.seed("000.24", "000.29", "001.19")
def test_a_builder_gets_the_first_five_chunks_and_then_the_rest(
    crawler: Component, builder: Component
) -> None:
    crawl(crawler, len(CHUNKS))
    assert ids(builder.get("/get_content_chunk_metadata")) == CHUNKS[:5]
    builder.post("/set_index_chunk_metadata", chunk_id=101, state="error")
    assert ids(builder.get("/get_content_chunk_metadata"))[:2] == CHUNKS[5:]


@pytest.mark.seed("000.27", "000.30", "001.24", "001.31")
def test_a_chunk_is_distributed_when_it_is_built(
    crawler: Component, builder: Component, index_server: Component, database: str
) -> None:
    crawl(crawler, 2)
    builder.get("/get_content_chunk_metadata")
    assert index_server.get("/get_chunks") == []
    builder.post("/set_index_chunk_metadata", chunk_id=101, state="built")
    assert one(database, "select ib_task from mgmt.index_builder where chunk_id = 101") == "built"
    assert ids(index_server.get("/get_chunks")) == [101]
    hosts = (
        "select c_host, ib_host, is_host from mgmt.crawler join mgmt.index_builder using (chunk_id) "
        "join mgmt.index_server using (chunk_id) where chunk_id = 101"
    )
    with psycopg.connect(database) as conn:
        assert conn.execute(hosts).fetchall() == [(CRAWLER, BUILDER, SERVER)]
        assert conn.execute("select chunk_id from mgmt.index_server").fetchall() == [(101,)]


@pytest.mark.seed("001.28")
def test_an_index_server_gets_five_chunks_each_time(
    crawler: Component, builder: Component, index_server: Component
) -> None:
    crawl(crawler, len(CHUNKS))
    for number in [*ids(builder.get("/get_content_chunk_metadata")), *CHUNKS[5:]]:
        if number == CHUNKS[5]:
            builder.get("/get_content_chunk_metadata")
        builder.post("/set_index_chunk_metadata", chunk_id=number, state="built")
    first = ids(index_server.get("/get_chunks"))
    assert len(first) == 5
    index_server.post("/set_chunk_loaded", chunk_ids=first)
    assert sorted([*first, *ids(index_server.get("/get_chunks"))], key=str) == CHUNKS
