"""The rest of what broke the first MGMT: what it believed, what it answered, and whom it let in."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from support.mgmt.mgmt_process import Mgmt, mgmt
from support.mgmt.plain_components import Component, at_once, one, states
from support.processes.commands import usher
from usher import __version__

NOWHERE = ("/clear_relation/chunk", "/get_relation/link", "/add_hosts", "/set_health")
HOSTILE = "x'); drop table work.chunk; --"


@pytest.fixture
def running(database: str, tmp_path: Path) -> Iterator[Mgmt]:
    at_once(database)
    with mgmt(database, tmp_path / "log") as started:
        yield started


@pytest.fixture
def crawler(running: Mgmt) -> Component:
    return Component(running, host="crawler:5000")


def links(n: int) -> list[str]:
    return [f"https://h.example/{i}" for i in range(n)]


def test_w13_a_page_that_was_not_fetched_is_not_crawled(crawler: Component, database: str) -> None:
    """A crawler that reports its pages and takes no notice of the one that came in place of another."""
    crawler.post("/add_links", links=links(6))
    pack = crawler.get("/get_links")
    crawler.post("/set_link_state", link=pack["links"][0], state="error")
    for link in pack["links"][1:]:
        crawler.post("/set_link_state", link=link, state="crawled")
    crawler.post("/set_content_chunk_metadata", chunk_id=pack["chunk_id"], state="crawled")
    assert states(database) == {"crawled": 4, "error": 1, "pending": 1}


def test_w13_results_of_pages_come_in_one_call(crawler: Component, database: str) -> None:
    crawler.post("/add_links", links=links(5))
    pack = crawler.get("/get_links")
    first, second, third, fourth, _ = pack["links"]
    facts = {"status": 200, "content_type": "text/html; charset=utf-8", "length": 9, "etag": "x"}
    pages = [
        {"link": first, "result": "success", "sha1": "ab" * 20, **facts},
        {"link": second, "state": "crawled"},
        {"link": third, "state": "error", "status": 500},
        {"link": fourth, "result": "gone", "status": 410},
    ]
    said = {"chunk_id": pack["chunk_id"], "state": "crawled"}
    elsewhere = {"link": "https://elsewhere.example/", "state": "crawled"}
    refused = crawler.declined("/set_content_chunk_metadata", **said, pages=[*pages, elsewhere])
    assert refused == (404, "not_found")
    assert states(database) == {"crawling": 5}
    for _ in range(2):
        told = crawler.post("/set_content_chunk_metadata", **said, pages=pages)
        assert told["state"] == "crawled"
    assert states(database) == {"crawled": 3, "error": 1, "pending": 1}
    with psycopg.connect(database) as conn:
        asks = "select content_sha1, content_type, content_length, etag from work.guestbook where path = '/0'"
        assert conn.execute(asks).fetchone() == ("ab" * 20, 2, 9, "x")
        assert conn.execute("select path from work.guestbook where gone").fetchall() == [("/3",)]


def test_w14_the_last_few_links_are_crawled_too(crawler: Component) -> None:
    crawler.post("/add_links", links=links(3))
    assert crawler.get("/get_links") == {}
    time.sleep(1)
    pack = crawler.get("/get_links")
    assert pack["links"] == links(3)
    told = crawler.post("/set_link_state", link=links(3)[0], state="error")
    assert told == {"chunk_id": pack["chunk_id"], "state": "error"}
    again = crawler.post("/set_link_state", link=links(3)[0], state="error")
    assert again == told


def test_w18_components_of_one_machine_are_told_apart(running: Mgmt, database: str) -> None:
    both = [Component(running, host=f"10.0.0.7:{port}") for port in (5000, 5001)]
    for each in both:
        each.post("/set_component_state", state="online")
    both[0].get("/get_links")
    both[1].get("/get_content_chunk_metadata")
    with psycopg.connect(database) as conn:
        found = conn.execute("select host, type from mgmt.host order by host").fetchall()
    assert found == [("10.0.0.7:5000", "Crawler"), ("10.0.0.7:5001", "Index Builder")]
    assert both[0].ask("GET", "/get_content_chunk_metadata").problem == (409, "conflict")


def test_w20_health_and_declared_state_are_apart(crawler: Component, database: str) -> None:
    crawler.post("/set_component_state", state="waiting")
    with psycopg.connect(database) as conn:
        conn.execute("update work.component set health = 'failure'")
    told = crawler.post("/set_component_state", state="paused", type="crawler")
    assert (told["state"], told["health"]) == ("paused", "failure")
    assert one(database, "select state || ' ' || health from mgmt.host") == "paused failure"
    crawler.post("/add_links", links=links(5))
    assert crawler.get("/get_links") == {}
    crawler.post("/set_component_state", state="online")
    assert crawler.get("/get_links")["links"] == links(5)


def test_w21_another_server_goes_on_where_one_died(database: str, tmp_path: Path) -> None:
    at_once(database)
    with mgmt(database, tmp_path / "a") as first, mgmt(database, tmp_path / "b") as second:
        crawler = Component(first, host="c")
        crawler.post("/add_links", links=links(5))
        chunk = crawler.get("/get_links")["chunk_id"]
        first.process.kill()
        first.process.wait(10)
        there = Component(second, host="c")
        there.post("/set_content_chunk_metadata", chunk_id=chunk, state="crawled")
    assert states(database) == {"crawled": 5}


def test_w22_nothing_is_deleted_with_its_host_or_chunk(crawler: Component, database: str) -> None:
    crawler.post("/add_links", links=links(5))
    crawler.get("/get_links")
    for table in ("component", "chunk", "guestbook"):
        with psycopg.connect(database) as conn, pytest.raises(psycopg.Error):
            conn.execute(f"delete from work.{table}")
    assert states(database) == {"crawling": 5}


def test_w15_what_goes_wrong_is_not_called_success(crawler: Component, database: str) -> None:
    wrong = [
        ("/set_component_state", {"state": "offline"}, 422),
        ("/set_component_state", {"state": "online", "type": "Toaster"}, 422),
        ("/set_component_state", {"state": "online", "row": 1}, 422),
        ("/set_component_state", {"state": "online", "host": "0.0.0.0:5000"}, 422),
        ("/set_component_state", {}, 422),
        ("/set_link_state", {"link": "https://unknown.example/", "state": "crawled"}, 404),
        ("/set_link_state", {"link": "http://[", "state": "crawled"}, 422),
        ("/set_link_state", {"link": "https://h.example/0", "state": "gone"}, 422),
        ("/set_content_chunk_metadata", {"chunk_id": 99999, "state": "crawled"}, 404),
        ("/set_content_chunk_metadata", {"chunk_id": "99999c", "state": "propagated"}, 404),
        ("/set_content_chunk_metadata", {"chunk_id": "c101", "state": "crawled"}, 422),
        ("/set_content_chunk_metadata", {"chunk_id": 0, "state": "crawled"}, 422),
        ("/set_content_chunk_metadata", {"chunk_id": 101, "state": "eaten"}, 422),
        ("/set_chunk_loaded", {}, 422),
        ("/send_query_stats", {"term": "x", "query_time": "long"}, 422),
        ("/send_query_stats", {"term": "x", "query_time": -1}, 422),
        ("/v1/query_stats", {"queries": [{"term": "x", "query_time": "long"}]}, 422),
        ("/v1/query_stats", {"queries": [{"term": "x", "query_time": 1}] * 1_001}, 413),
        ("/add_links", {"links": "https://a.example"}, 422),
        ("/add_links", {"links": ["x.example"] * 10_001}, 413),
        ("/v1/lease", {"chunks": [1] * 10_001}, 413),
    ]
    for path, body, status in wrong:
        assert crawler.ask("POST", path, body).problem[0] == status, (path, body)
    for path, status in (("/get_links/0", 422), ("/get_links/x", 404), ("/get_links/5", 409)):
        assert crawler.ask("GET", path).problem[0] == status
    assert crawler.ask("GET", "/get_links?n=0").problem == (422, "bad_input")
    assert crawler.ask("HEAD", "/get_links").status == 405
    assert states(database) == {}
    assert one(database, "select count(*) from work.query_stat") == 0


def test_w15_repeating_a_call_is_harmless(crawler: Component, database: str) -> None:
    crawler.post("/add_links", links=links(5))
    pack = crawler.get("/get_links")
    said = {"link": pack["links"][0], "state": "crawled", "chunk_id": f"{pack['chunk_id']}c"}
    done = {"chunk_id": pack["chunk_id"], "state": "error", "reason": "disk full"}
    for _ in range(2):
        assert crawler.post("/set_link_state", **said)["state"] == "crawled"
    for _ in range(2):
        assert crawler.post("/set_content_chunk_metadata", **done)["state"] == "error"
    # The content is lost, also of the page that was reported before.
    assert states(database) == {"pending": 5}
    done["state"] = "crawled"
    assert crawler.declined("/set_content_chunk_metadata", **done) == (409, "lease_lost")


def test_w16_only_the_holder_settles_a_chunk(running: Mgmt, crawler: Component) -> None:
    crawler.post("/add_links", links=links(5))
    pack = crawler.get("/get_links")
    thief, said = Component(running, host="thief"), {"chunk_id": pack["chunk_id"]}
    for state in ("crawled", "error", "crawling"):
        refused = thief.declined("/set_content_chunk_metadata", **said, state=state)
        assert refused == (409, "not_yours")
    refused = thief.declined("/set_link_state", link=pack["links"][0], state="error")
    assert refused == (409, "not_yours")
    assert thief.ask("GET", f"/get_links/1?chunk_id={pack['chunk_id']}").problem[0] == 409
    crawler.post("/set_content_chunk_metadata", **said, state="crawled")
    builder = Component(running, host="builder")
    builder.get("/get_content_chunk_metadata")
    other = Component(running, host="other-builder")
    for state in ("building", "built", "error"):
        refused = other.declined("/set_index_chunk_metadata", **said, state=state)
        assert refused == (409, "not_yours")


@pytest.mark.parametrize("path", NOWHERE)
def test_w16_there_is_no_way_to_dump_or_empty_tables(running: Mgmt, path: str) -> None:
    for method in ("GET", "POST"):
        assert running.ask(method, path, {}).problem == (404, "not_found")


def test_w16_the_front_page_shows_nothing_of_the_tables(
    running: Mgmt, crawler: Component, database: str
) -> None:
    before = running.get("/").body
    crawler.post("/add_links", links=links(6))
    crawler.get("/get_links")
    assert running.get("/").body == before
    assert running.ask("POST", "/", {}).problem == (405, "method_not_allowed")
    assert states(database) == {"crawling": 5, "pending": 1}


def test_w16_pages_of_other_sites_get_no_links(running: Mgmt) -> None:
    for path in ("/get_links", "/get_content_chunk_metadata"):
        told = running.ask("GET", path, headers={"Sec-Fetch-Site": "cross-site"})
        assert told.problem == (403, "not_allowed")


def made_token(database: str, *words: str) -> str:
    ran = usher("tokens", "add", *words, environment={"DATABASE_URL": database})
    assert ran.code == 0, ran.err
    return ran.out.strip()


def test_w16_from_other_machines_only_with_a_token(database: str, tmp_path: Path) -> None:
    at_once(database)
    work = made_token(database, "crawlers", "--scope", "work", "--type", "crawler")
    read = made_token(database, "front", "--scope", "read")
    with mgmt(database, tmp_path / "log", "--bind", "0.0.0.0:0") as started:
        server = replace(started, address=started.address.replace("0.0.0.0", "127.0.0.1"))
        assert server.ask_unproven("GET", "/get_health_status").status == 200
        assert server.ask_unproven("GET", "/get_links").problem == (401, "unproven")
        told = server.ask_unproven("GET", "/get_servers_map")
        assert told.headers["www-authenticate"] == "Bearer"
        for bad in ("nonsense", read + "x"):
            assert Component(server, token=bad).ask("GET", "/get_links").problem[0] == 401
        front = Component(server, token=read)
        assert front.get("/get_servers_map") == []
        assert front.ask("GET", "/get_links").problem == (403, "not_allowed")
        crawler = Component(server, host="10.0.0.7:5000", token=work)
        assert crawler.get("/get_links") == {}
        assert Component(server, token=work).post("/set_component_state", state="waiting") == {
            "host": "10.0.0.7:5000",
            "type": "crawler",
            "state": "waiting",
            "health": "healthy",
            "row": None,
            "version": __version__,
        }
        assert crawler.ask("GET", "/get_content_chunk_metadata").problem == (403, "not_allowed")
        assert crawler.ask("GET", "/v1/jobs").problem == (403, "not_allowed")
        assert crawler.ask("POST", "/v1/knock", {"urls": []}).problem == (403, "not_allowed")
        usher("tokens", "revoke", "crawlers", environment={"DATABASE_URL": database})
        time.sleep(2.1)
        assert crawler.ask("GET", "/get_links").problem == (401, "unproven")


def test_w17_texts_are_never_read_as_sql(crawler: Component, database: str) -> None:
    crawler.post("/send_query_stats", term=HOSTILE, query_time="250ms")
    crawler.post("/set_component_state", state="error", reason=HOSTILE)
    crawler.post("/add_links", links=[f"https://h.example/{HOSTILE}"])
    assert crawler.declined("/set_component_state", state="online", host=HOSTILE)[0] == 422
    assert one(database, "select term from work.query_stat") == HOSTILE
    assert one(database, "select state_reason from work.component") == HOSTILE
    assert one(database, "select count(*) from mgmt.chunk") == 0


def test_w17_what_no_text_can_hold_is_declined_or_left_out(crawler: Component) -> None:
    for path, body in (
        ("/send_query_stats", {"term": "a\0b", "query_time": 0.1}),
        ("/set_component_state", {"state": "error", "reason": "a\0b"}),
        ("/set_component_state", {"state": "online", "host": "a\0b"}),
        ("/set_component_state", {"state": "online", "type": "a\0b"}),
        ("/set_link_state", {"link": "https://h.example/\0", "state": "error"}),
        ("/add_links", {"links": ["https://h.example/\0", "\0"]}),
    ):
        assert crawler.ask("POST", path, body).status in {200, 404, 422}
    crawler.post("/add_links", links=links(5))
    chunk = crawler.get("/get_links")["chunk_id"]
    page = {"link": links(1)[0], "state": "crawled", "etag": "a\0b", "content_type": "\0"}
    said = {"chunk_id": chunk, "state": "crawled", "pages": [page]}
    assert crawler.ask("POST", "/set_content_chunk_metadata", said).status == 422
    said = {"chunk_id": chunk, "state": "error", "reason": "a\0b"}
    assert crawler.ask("POST", "/set_content_chunk_metadata", said).status in {200, 422}
