"""One machine plays every role of the first documents with their bare requests; its roles are told apart."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.mgmt.mgmt_process import Mgmt, mgmt
from support.mgmt.plain_components import Component, at_once, done, one

ONLINE = {"state": "online"}
HERE = "127.0.0.5"
ROLES = ["Crawler", "Front-End", "Index Builder", "Index Server"]


@pytest.fixture
def running(database: str, tmp_path: Path) -> Iterator[Mgmt]:
    at_once(database)
    with mgmt(database, tmp_path / "log") as started:
        yield started


@pytest.fixture
def machine(running: Mgmt) -> Component:
    """Every role calls from this address, without a name."""
    return Component(running, HERE)


def hosts(dsn: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as conn:
        return conn.execute("select host, type, state from mgmt.host order by type").fetchall()


def add(machine: Component, host: str = "h") -> None:
    machine.post("/add_links", links=[f"https://{host}.example/{i}" for i in range(5)])


def crawl(machine: Component, host: str = "h") -> int:
    add(machine, host)
    chunk = machine.get("/get_links")["chunk_id"]
    machine.post("/set_content_chunk_metadata", chunk_id=chunk, state="crawled")
    return int(chunk)


def build(machine: Component) -> None:
    for chunk in machine.get("/get_content_chunk_metadata"):
        machine.post("/set_index_chunk_metadata", chunk_id=chunk["chunk_id"], state="built")


@pytest.mark.seed("001.1", "001.18", "001.27", "001.33")
@pytest.mark.parametrize("order", ["one after the other", "all at first"])
def test_one_machine_plays_all_roles(machine: Component, database: str, order: str) -> None:
    if order == "all at first":
        for _ in range(4):
            machine.post("/set_component_state", **ONLINE)
    machine.post("/set_component_state", **ONLINE)
    chunk = crawl(machine)
    machine.post("/set_component_state", **ONLINE)
    build(machine)
    machine.post("/set_component_state", **ONLINE)
    [offered] = machine.get("/get_chunks")
    assert offered["chunk_id"] == chunk
    assert offered["crawler_host"] == offered["index_builder_host"] == HERE
    assert offered["index_server_host"] == [{"row": 1, "host": HERE}]
    said = {"chunk_id": chunk, "state": "propagated"}
    assert machine.post("/set_index_chunk_metadata", **said)["state"] == "propagated"
    machine.post("/set_component_state", **ONLINE)
    assert machine.get("/get_servers_map") == [{"row": 1, "servers": [HERE]}]
    machine.post("/send_query_stats", term="x", query_time="1s")
    known = [row for row in hosts(database) if row[1]]
    assert known == [(HERE, role, "online") for role in ROLES]
    asked = "select c.type from work.query_stat q join work.component c on c.id = q.component_id"
    assert one(database, asked) == "front-end"


def test_a_restart_is_the_same_component(machine: Component, database: str) -> None:
    crawl(machine)
    build(machine)
    before = hosts(database)
    machine.post("/set_component_state", **ONLINE)
    crawl(machine, "other")
    build(machine)
    assert [row for row in hosts(database) if row[1]] == before
    ids = "select count(distinct crawler_id) from work.chunk"
    assert one(database, ids) == 1


def test_a_state_without_a_type_is_that_of_the_only_role(machine: Component, database: str) -> None:
    """Where there are several, no role gets the state of another; with a type it gets its own."""
    machine.get("/get_links")
    assert machine.post("/set_component_state", state="waiting")["type"] == "crawler"
    machine.get("/get_content_chunk_metadata")
    told = machine.post("/set_component_state", state="error", reason="disk full")
    assert (told["type"], told["state"]) == (None, "error")
    assert machine.post("/set_component_state", state="paused", type="Crawler")["type"] == "crawler"
    assert hosts(database) == [
        (HERE, "Crawler", "paused"),
        (HERE, "Index Builder", "online"),
        (HERE, None, "error"),
    ]


def test_leases_and_kept_chunks_of_a_shared_address(machine: Component) -> None:
    first = crawl(machine)
    build(machine)
    second = crawl(machine, "second")
    machine.get("/get_content_chunk_metadata")
    add(machine, "third")
    open_chunk = machine.get("/get_links")["chunk_id"]
    told = machine.post("/v1/lease", chunks=[second, open_chunk])
    assert told == {"held": [second, open_chunk], "lost": []}
    assert machine.get("/get_chunks/unpropagated")["chunks"] == [first, second]


def test_a_name_has_one_role_and_the_error_says_how_to_get_another(running: Mgmt) -> None:
    named = Component(running, host="10.0.0.7:5000")
    named.get("/get_links")
    refused = named.ask("GET", "/get_content_chunk_metadata")
    assert refused.problem[0] == 409
    assert "`host`" in refused.json["hint"]
    assert "X-Usher-Host" in refused.json["hint"]


def test_other_identity_errors_name_host_and_header(running: Mgmt, machine: Component) -> None:
    chunk = crawl(machine)
    stranger = Component(running, "127.0.0.6")
    said = {"chunk_id": chunk, "state": "crawled"}
    for refused in (
        stranger.ask("POST", "/set_content_chunk_metadata", said),
        stranger.ask("POST", "/set_chunk_loaded", {"chunk_id": chunk}),
        stranger.ask("GET", "/get_links/3"),
    ):
        assert refused.problem[0] == 409
        assert "`host`" in refused.json["hint"]
        assert "X-Usher-Host" in refused.json["hint"]


def test_components_that_share_a_host_are_shown_by_type(running: Mgmt, machine: Component) -> None:
    machine.get("/get_links")
    machine.get("/get_content_chunk_metadata")
    assert running.get(f"/v1/components/{HERE}").problem[0] == 409
    shown = done(running.get(f"/v1/components/{HERE}?type=crawler"))
    assert (shown["type"], shown["health_url"]) == ("crawler", None)
    events = done(running.get(f"/v1/events?host={HERE}&type=index-builder"))["events"]
    assert [event["kind"] for event in events] == ["type", "registered"]


def test_a_reader_of_the_map_becomes_no_component(running: Mgmt, database: str) -> None:
    Component(running, "127.0.0.9").get("/get_servers_map")
    Component(running, "127.0.0.9").post("/add_links", links=["https://h.example/"])
    assert hosts(database) == []


# -- index servers


@pytest.fixture
def builder(running: Mgmt) -> Component:
    return Component(running, "127.0.0.8")


@pytest.mark.seed("001.28")
def test_a_server_that_never_acknowledges_is_offered_every_chunk_in_turn(
    running: Mgmt, machine: Component, builder: Component
) -> None:
    server = Component(running, "127.0.0.7")
    server.get("/get_chunks")
    made = [crawl(machine, f"h{n}") for n in range(12)]
    for _ in range(3):
        build(builder)
    turns = [[chunk["chunk_id"] for chunk in server.get("/get_chunks")] for _ in range(3)]
    assert turns == [made[:5], made[5:10], [*made[10:], *made[:3]]]
    by_id = [chunk["chunk_id"] for chunk in server.get("/get_chunks?after=0&n=12")]
    assert by_id == made


@pytest.mark.seed("001.12", "001.22")
@pytest.mark.parametrize("path", ["/set_content_chunk_metadata", "/set_index_chunk_metadata"])
def test_propagated_by_the_server_of_a_chunk_means_loaded(
    running: Mgmt, machine: Component, builder: Component, path: str
) -> None:
    server, stranger = Component(running, "127.0.0.7"), Component(running, host="s2:5000")
    server.get("/get_chunks")
    chunk = crawl(machine)
    build(builder)
    said = {"chunk_id": chunk, "state": "propagated"}
    stranger.post("/set_component_state", state="online", type="index-server")
    assert stranger.post(path, **said)["state"] != "propagated"
    assert builder.post(path, **said)["state"] != "propagated"
    assert [each["chunk_id"] for each in server.get("/get_chunks")] == [chunk]
    assert server.post(path, **said)["state"] == "propagated"
    assert server.get("/get_chunks") == []
    # What the builder says again is still true.
    again = builder.post("/set_index_chunk_metadata", chunk_id=chunk, state="built")
    assert again == {"chunk_id": chunk, "state": "propagated"}


def test_a_builder_that_says_propagated_does_not_speak_for_the_server_beside_it(
    machine: Component,
) -> None:
    machine.get("/get_chunks")
    chunk = crawl(machine)
    build(machine)
    said = {"chunk_id": chunk, "state": "propagated"}
    assert machine.post("/set_content_chunk_metadata", **said)["state"] == "crawled"
    assert [each["chunk_id"] for each in machine.get("/get_chunks")] == [chunk]
    assert machine.post("/set_content_chunk_metadata", **said)["state"] == "propagated"


@pytest.mark.seed("001.27")
def test_a_server_that_only_said_online_gets_chunks_at_its_first_question(
    running: Mgmt, machine: Component, builder: Component
) -> None:
    made = [crawl(machine, f"h{n}") for n in range(3)]
    build(builder)
    server = Component(running, "127.0.0.7")
    server.post("/set_component_state", **ONLINE)
    assert [chunk["chunk_id"] for chunk in server.get("/get_chunks")] == made


@pytest.mark.seed("000.28")
def test_a_build_that_failed_is_an_error(
    machine: Component, builder: Component, database: str
) -> None:
    chunk = crawl(machine)
    builder.get("/get_content_chunk_metadata")
    builder.post("/set_index_chunk_metadata", chunk_id=chunk, state="error")
    with psycopg.connect(database) as conn:
        tasks = conn.execute("select chunk_id, ib_host, ib_task from mgmt.index_builder").fetchall()
    assert tasks == [(chunk, builder.address, "error")]
    builder.get("/get_content_chunk_metadata")
    assert one(database, "select ib_task from mgmt.index_builder") == "building"
