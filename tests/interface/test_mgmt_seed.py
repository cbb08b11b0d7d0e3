"""MGMT as its two documents have it: every example replayed, literally, against a running server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.mgmt.mgmt_process import Mgmt, mgmt
from support.mgmt.plain_components import Component, at_once, done, one, states
from usher.api.endpoints import CURRENT_ENDPOINTS, SEED_ALIASES

CRAWLER, BUILDER = "10.10.127.100:5000", "10.10.127.101:5000"
SERVERS = ("10.10.127.102:5000", "10.10.127.102:5001", "10.10.127.103:5000")
# The examples, as they are printed.
ONLINE = """{"state": "online"}"""
LINKS = """{
    "chunk_id": 101,
    "links": ["stuff_1.com", "stuff_2.com", "stuff_3.com", "stuff_4.com", "stuff_5.com"]
}"""
CRAWLED = """{"chunk_id": 101, "state": "crawled"}"""
ADD_LINKS = """{"links": ["google.com", "bing.com", "stuff.com"]}"""
CONTENT = """[{"chunk_id": 101, "host": "10.10.127.101"}]"""
BUILT = """{"chunk_id": 101, "state": "built"}"""
CHUNKS = """[
    {
        "chunk_id": 101,
        "crawler_host": "10.10.127.100:5000",
        "index_builder_host": "10.10.127.101:5000",
        "index_server_host": [
            {"row": 1, "host": "10.10.127.102:5000"},
            {"row": 2, "host": "10.10.127.102:5001"}
        ]
    }
]"""
STATS = """{"term": "Is mongodb webscale", "timestamp": 1512142011.098839, "query_time": "1s"}"""
SERVERS_MAP = """[
    {"row": 1, "servers": ["10.10.127.101:5000", "10.10.127.101:5001", "10.10.127.101:5002"]},
    {"row": 2, "servers": ["10.10.127.101:5000", "10.10.127.101:5001", "10.10.127.101:5002"]},
    {"row": 3, "servers": ["10.10.127.101:5000", "10.10.127.101:5001", "10.10.127.101:5002"]}
]"""
HEALTHY = """{"status": "healthy"}"""
ADDED = {f"https://{name}.com/" for name in ("google", "bing", "stuff")}
RELATIONS = {
    "link": ["index", "link", "chunk_id", "state"],
    "chunk": ["index", "id"],
    "host": ["index", "host", "type", "state", "health"],
    "crawler": ["index", "chunk_id", "c_host", "c_task"],
    "index_builder": ["index", "chunk_id", "ib_host", "ib_task"],
    "index_server": ["index", "row", "chunk_id", "is_host"],
}


def like(example: Any, told: Any) -> bool:  # noqa: ANN401
    """Whether an answer has all that the example has, of the same kinds."""
    if isinstance(example, dict):
        return isinstance(told, dict) and all(
            name in told and like(value, told[name]) for name, value in example.items()
        )
    if isinstance(example, list):
        return isinstance(told, list) and all(like(example[0], value) for value in told)
    return type(example) is type(told)


@pytest.fixture
def seeded(database: str, tmp_path: Path) -> Iterator[Mgmt]:
    at_once(database, rows=2)
    with mgmt(database, tmp_path / "log") as server:
        yield server


@pytest.fixture
def crawler(seeded: Mgmt) -> Component:
    return Component(seeded, host=CRAWLER)


@pytest.fixture
def builder(seeded: Mgmt) -> Component:
    return Component(seeded, host=BUILDER)


def sent(component: Component, path: str, example: str) -> Any:  # noqa: ANN401
    """What is answered to the example's very bytes."""
    return done(component.ask("POST", path, json.loads(example)))


def full_of_links(crawler: Component) -> list[str]:
    links: list[str] = json.loads(LINKS)["links"]
    crawler.post("/add_links", links=links)
    return [f"https://{link}/" for link in links]


def built(crawler: Component, builder: Component) -> None:
    full_of_links(crawler)
    crawler.get("/get_links")
    sent(crawler, "/set_content_chunk_metadata", CRAWLED)
    builder.get("/get_content_chunk_metadata")
    sent(builder, "/set_index_chunk_metadata", BUILT)


@pytest.mark.seed("001.1", "001.2", "001.6")
def test_a_component_that_starts_up_says_online(seeded: Mgmt, database: str) -> None:
    """The bare body works: who it is is where it calls from, and what it is shows in what it asks for."""
    crawler = Component(seeded, "127.0.0.2")
    told = sent(crawler, "/set_component_state", ONLINE)
    assert (told["host"], told["type"], told["state"]) == ("127.0.0.2", None, "online")
    for state in ("online", "error", "waiting", "paused"):
        assert crawler.post("/set_component_state", state=state)["state"] == state
        assert one(database, "select state from mgmt.host") == state
    crawler.get("/get_links")
    assert one(database, "select type from mgmt.host") == "Crawler"


@pytest.mark.seed("000.17", "000.18", "001.7", "001.10")
def test_links_are_five_with_a_chunk_id(crawler: Component, database: str) -> None:
    canonical = full_of_links(crawler)
    told = crawler.get("/get_links")
    assert like(json.loads(LINKS), told)
    assert told == {"chunk_id": 101, "links": canonical}
    with psycopg.connect(database) as conn:
        kept = conn.execute("select chunk_id, c_host, c_task from mgmt.crawler").fetchall()
    assert kept == [(101, CRAWLER, "crawling")]
    assert states(database) == {"crawling": 5}


@pytest.mark.seed("001.8")
def test_no_links_are_an_empty_object(crawler: Component) -> None:
    assert crawler.get("/get_links") == {}


@pytest.mark.seed("001.9")
def test_fewer_than_five_are_an_empty_object_at_first(crawler: Component) -> None:
    sent(crawler, "/add_links", ADD_LINKS)
    assert crawler.get("/get_links") == {}


@pytest.mark.seed("000.19", "000.20", "001.11", "001.13")
def test_crawled(crawler: Component, database: str) -> None:
    full_of_links(crawler)
    crawler.get("/get_links")
    assert sent(crawler, "/set_content_chunk_metadata", CRAWLED) == json.loads(CRAWLED)
    assert one(database, "select c_task from mgmt.crawler") == "crawled"
    assert states(database) == {"crawled": 5}


@pytest.mark.seed("000.3", "000.14", "001.14", "001.16")
def test_any_number_of_links_can_be_added(crawler: Component, database: str) -> None:
    told = sent(crawler, "/add_links", ADD_LINKS)
    assert told == {"counts": {"admit": 3, "wait": 0, "refuse": 0}, "reasons": {"new_page": 3}}
    with psycopg.connect(database) as conn:
        kept = conn.execute("select link, chunk_id, state from mgmt.link order by index").fetchall()
    assert kept == [
        (f"https://{name}.com/", None, "pending") for name in ("google", "bing", "stuff")
    ]


@pytest.mark.seed("000.4", "000.16", "000.17", "001.17")
def test_more_links_for_a_chunk_without_a_new_id(crawler: Component, database: str) -> None:
    full_of_links(crawler)
    crawler.get("/get_links")
    sent(crawler, "/add_links", ADD_LINKS)
    told = crawler.get("/get_links/2")
    assert told["chunk_id"] == 101
    assert len(set(told["links"]) & ADDED) == 2
    assert one(database, "select count(*) from mgmt.link where chunk_id = 101") == 7
    assert one(database, "select count(*) from mgmt.chunk") == 1


@pytest.mark.seed("000.21", "000.22")
def test_a_link_that_fails_is_marked_and_another_comes_into_its_chunk(
    crawler: Component, database: str
) -> None:
    links = full_of_links(crawler)
    crawler.get("/get_links")
    sent(crawler, "/add_links", ADD_LINKS)
    told = crawler.post("/set_link_state", link="stuff_2.com", state="error")
    assert (told["chunk_id"], told["state"]) == (101, "error")
    assert told["link"] in ADDED
    asks = "select chunk_id, state from mgmt.link where link = %s"
    with psycopg.connect(database) as conn:
        assert conn.execute(asks, [links[1]]).fetchone() == (101, "error")
        assert conn.execute(asks, [told["link"]]).fetchone() == (101, "crawling")
    sent(crawler, "/set_content_chunk_metadata", CRAWLED)
    assert states(database) == {"crawled": 5, "error": 1, "pending": 2}


@pytest.mark.seed("000.25", "000.26", "001.18", "001.19")
def test_a_builder_gets_five_chunks_with_their_crawler(
    crawler: Component, builder: Component, database: str
) -> None:
    full_of_links(crawler)
    crawler.get("/get_links")
    sent(crawler, "/set_content_chunk_metadata", CRAWLED)
    sent(builder, "/set_component_state", ONLINE)
    told = builder.get("/get_content_chunk_metadata")
    assert like(json.loads(CONTENT), told)
    keys = [f"stuff_{number}.com/" for number in range(1, 6)]
    samples = {key: number for number, key in enumerate(keys, 1)}
    assert told == [{"chunk_id": 101, "host": CRAWLER, "keys": keys, "samples": samples}]
    with psycopg.connect(database) as conn:
        kept = conn.execute("select chunk_id, ib_host, ib_task from mgmt.index_builder").fetchall()
    assert kept == [(101, BUILDER, "building")]


@pytest.mark.seed("000.28", "001.22")
@pytest.mark.parametrize(
    ("state", "kept"),
    [("building", "building"), ("built", "built"), ("error", "error"), ("propagated", "building")],
)
def test_every_state_of_an_index_chunk(
    crawler: Component, builder: Component, state: str, kept: str
) -> None:
    full_of_links(crawler)
    crawler.get("/get_links")
    sent(crawler, "/set_content_chunk_metadata", CRAWLED)
    builder.get("/get_content_chunk_metadata")
    told = builder.post("/set_index_chunk_metadata", chunk_id=101, state=state)
    assert told == {"chunk_id": 101, "state": kept}


@pytest.mark.seed("000.30", "000.32", "001.21", "001.23", "001.25", "001.27", "001.29", "001.30")
def test_built_is_answered_and_distributed_to_every_row(
    seeded: Mgmt, crawler: Component, builder: Component, database: str
) -> None:
    for host in SERVERS[:2]:
        Component(seeded, host=host).post(
            "/set_component_state", state="online", type="Index Server"
        )
    built(crawler, builder)
    server = Component(seeded, host=SERVERS[0])
    told = server.get("/get_chunks")
    assert like(json.loads(CHUNKS), told)
    (found,) = told
    (example,) = json.loads(CHUNKS)
    assert {name: found[name] for name in example} == example
    assert Component(seeded).post("/get_chunks", host=SERVERS[0]) == told
    server.post("/set_chunk_loaded", chunk_id="101c")
    drawn = server.get("/get_map")
    assert drawn[0] == [{"host": SERVERS[0], "chunk_ids": [101]}]
    assert drawn[1] == [{"host": SERVERS[1], "chunk_ids": []}]
    with psycopg.connect(database) as conn:
        kept = conn.execute('select "row", chunk_id, is_host from mgmt.index_server').fetchall()
    assert sorted(kept) == [(1, 101, SERVERS[0]), (2, 101, SERVERS[1])]


@pytest.mark.seed("001.11", "001.12")
def test_propagated_is_when_every_row_has_it(
    seeded: Mgmt, crawler: Component, builder: Component, database: str
) -> None:
    servers = [Component(seeded, host=host) for host in SERVERS[:2]]
    for server in servers:
        server.post("/set_component_state", state="online", type="index-server")
    built(crawler, builder)
    for number, server in enumerate(servers, 1):
        assert server.post("/set_chunk_loaded", chunk_id=101) == {"chunk_ids": [101]}
        expected = "propagated" if number == 2 else "crawled"
        assert one(database, "select c_task from mgmt.crawler") == expected
    assert one(database, "select ib_task from mgmt.index_builder") == "propagated"


@pytest.mark.seed("001.32")
def test_query_statistics(seeded: Mgmt, database: str) -> None:
    sent(Component(seeded, host=SERVERS[0]), "/send_query_stats", STATS)
    with psycopg.connect(database) as conn:
        asks = "select term, extract(epoch from at)::float8, seconds from work.query_stat"
        term, at, seconds = conn.execute(asks).fetchone() or (None, 0, 0)
    assert (term, seconds) == ("Is mongodb webscale", 1)
    assert at == pytest.approx(1512142011.098839)


@pytest.mark.seed("001.33", "001.34")
def test_the_map_of_servers(database: str, tmp_path: Path) -> None:
    at_once(database, rows=3)
    with mgmt(database, tmp_path / "log") as server:
        front = Component(server, "127.0.0.9")
        sent(front, "/set_component_state", ONLINE)
        for row, servers in enumerate((("a:1", "b:1", "c:1"), ("d:1", "e:1"), ("f:1",)), 1):
            for host in servers:
                Component(server, host=host).post(
                    "/set_component_state", state="online", type="index-server", row=row
                )
        told = front.get("/get_servers_map")
    assert like(json.loads(SERVERS_MAP), told)
    assert told == [
        {"row": 1, "servers": ["a:1", "b:1", "c:1"]},
        {"row": 2, "servers": ["d:1", "e:1"]},
        {"row": 3, "servers": ["f:1"]},
    ]


@pytest.mark.seed("001.37")
def test_health(seeded: Mgmt) -> None:
    assert seeded.get("/get_health_status").json == json.loads(HEALTHY)


def test_old_names_answer_like_the_new(seeded: Mgmt) -> None:
    """Each in an empty database, as a component of its own."""
    methods = {one.path: one.method for one in CURRENT_ENDPOINTS if not one.old}
    for number, (path, names) in enumerate(SEED_ALIASES.items()):
        caller, method = Component(seeded, host=f"c{number}"), methods[path]
        body: dict[str, str] | None = {} if method == "POST" else None
        told = caller.ask(method, path.replace("{number}", "1"), body)
        for name in names:
            same = caller.ask(method, name, body)
            assert (same.status, same.status < 400) == (told.status, told.json == same.json), name
    for name in ("/get_health", "/health_status"):
        assert seeded.get(name).json == json.loads(HEALTHY)


@pytest.mark.seed("000.1", "000.6", "000.7", "000.10", "000.11", "000.12")
async def test_the_six_relations_are_there(database: str) -> None:
    with psycopg.connect(database) as conn:
        for name, columns in RELATIONS.items():
            found = conn.execute(f"select * from mgmt.{name}").description
            assert [column.name for column in found or ()] == columns


@pytest.mark.seed("000.8", "000.9")
def test_the_hosts_of_the_first_document(seeded: Mgmt, database: str) -> None:
    """With the type that it misspells."""
    for host, kind in zip(
        (CRAWLER, BUILDER, SERVERS[0]), ("Crawler", "Index Builider", "Index Server"), strict=True
    ):
        Component(seeded).post("/set_component_state", state="online", type=kind, host=host)
    with psycopg.connect(database) as conn:
        asks = "select host, type, state, health from mgmt.host order by index"
        assert conn.execute(asks).fetchall() == [
            (CRAWLER, "Crawler", "online", "healthy"),
            (BUILDER, "Index Builder", "online", "healthy"),
            (SERVERS[0], "Index Server", "online", "healthy"),
        ]
