"""What broke the first MGMT, tried on ours; the numbers are those of the list of weaknesses in its study."""

import asyncio
import http.client
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.mgmt.mgmt_process import Mgmt, mgmt
from support.mgmt.plain_components import Component, at_once, one, states
from support.processes.killable import eventually
from usher.db.pool import connect
from usher.mgmt import chunks, placements

SOON = {"USHER_CHUNK_LEASE": "1"}


@pytest.fixture
def running(database: str, tmp_path: Path) -> Iterator[Mgmt]:
    at_once(database)
    with mgmt(database, tmp_path / "log") as started:
        yield started


@pytest.fixture
def crawler(running: Mgmt) -> Component:
    return Component(running, host="crawler:5000")


@pytest.fixture
def builder(running: Mgmt) -> Component:
    return Component(running, host="builder:5000")


def links(n: int, hosts: int = 1) -> list[str]:
    return [f"https://h{i % hosts}.example/{i}" for i in range(n)]


def crawled(crawler: Component, n: int) -> list[int]:
    """So many chunks that a builder can have."""
    crawler.post("/add_links", links=links(5 * n))
    made = [crawler.get("/get_links")["chunk_id"] for _ in range(n)]
    for chunk in made:
        crawler.post("/set_content_chunk_metadata", chunk_id=chunk, state="crawled")
    return made


def built(crawler: Component, builder: Component, n: int) -> list[int]:
    crawled(crawler, n)
    made = [each["chunk_id"] for each in builder.get(f"/get_content_chunk_metadata?n={n}")]
    for chunk in made:
        builder.post("/set_index_chunk_metadata", chunk_id=chunk, state="built")
    return made


def index_server(server: Mgmt, host: str, **more: object) -> Component:
    found = Component(server, host=host)
    found.post("/set_component_state", state="online", type="index-server", **more)
    return found


class Crawling(threading.Thread):
    """A crawler that takes what it gets, until it gets nothing for a while."""

    def __init__(self, crawler: Component, misses: int = 5) -> None:
        super().__init__()
        self.crawler, self.misses = crawler, misses
        self.chunks: list[dict[str, Any]] = []
        self.start()

    def run(self) -> None:
        missed = 0
        while missed < self.misses:
            try:
                told = self.crawler.get("/get_links")
            except (OSError, http.client.HTTPException):
                return  # the server was killed, perhaps amid its answer
            missed = 0 if told else missed + 1
            self.chunks += [told] if told else []


@pytest.mark.parametrize("strict", [False, True])
def test_w1_eight_crawlers_at_two_servers_share_nothing(
    database: str, tmp_path: Path, *, strict: bool
) -> None:
    at_once(database)
    wait = {"USHER_CHUNK_WAIT": "inf"} if strict else {}
    with (
        mgmt(database, tmp_path / "a", settings=wait) as first,
        mgmt(database, tmp_path / "b", settings=wait) as second,
    ):
        told = Component(first).post("/add_links", links=links(403, hosts=23))
        assert told["counts"]["admit"] == 403
        eight = [Crawling(Component((first, second)[n % 2], host=f"c{n}")) for n in range(8)]
        for each in eight:
            each.join(60)
        time.sleep(1)
        tail = Component(second, host="last").get("/get_links")
    packs = [pack for each in eight for pack in each.chunks] + ([tail] if tail else [])
    given = Counter(link for pack in packs for link in pack["links"])
    assert set(given.values()) == {1}
    sizes = Counter(len(pack["links"]) for pack in packs)
    assert len({pack["chunk_id"] for pack in packs}) == len(packs)
    assert sizes == ({5: 80} if strict else {5: 80, 3: 1})
    assert sum(given.values()) == (400 if strict else 403)


def test_w2_a_server_killed_amid_claims_leaves_nothing_half_done(
    database: str, tmp_path: Path
) -> None:
    at_once(database)
    with mgmt(database, tmp_path / "log") as server:
        Component(server).post("/add_links", links=links(5000, hosts=50))
        eight = [Crawling(Component(server, host=f"c{n}")) for n in range(8)]
        assert eventually(lambda: all(each.chunks for each in eight))
        server.process.kill()
        for each in eight:
            each.join(30)
    with psycopg.connect(database) as conn:
        sizes = conn.execute(
            "select count(*) from mgmt.chunk k join mgmt.link l on l.chunk_id = k.id "
            "where l.state = 'crawling' group by k.id"
        ).fetchall()
        alone = (
            "select count(*) from mgmt.link where (state = 'crawling') <> (chunk_id is not null)"
        )
        assert conn.execute(alone).fetchone() == (0,)
        assert conn.execute("select count(*) from mgmt.chunk").fetchone() == (len(sizes),)
        assert conn.execute("select count(*) from mgmt.crawler").fetchone() == (len(sizes),)
    assert {size for (size,) in sizes} == {5}
    assert len(sizes) >= sum(len(each.chunks) for each in eight)


async def test_w3_what_a_crashed_crawler_had_is_crawled_by_another(
    database: str, tmp_path: Path
) -> None:
    at_once(database)
    with mgmt(database, tmp_path / "log", settings=SOON) as server:
        dead, other = Component(server, host="dead"), Component(server, host="other")
        dead.post("/add_links", links=links(5))
        first = dead.get("/get_links")
        await asyncio.sleep(1.1)
        late = {"chunk_id": first["chunk_id"], "state": "crawled"}
        assert dead.declined("/set_content_chunk_metadata", **late) == (409, "lease_lost")
        async with await connect(database) as conn:
            await chunks.reap(conn, n=10, now=datetime.now(UTC))
        again = other.get("/get_links")
        assert again["links"] == first["links"]
        assert again["chunk_id"] > first["chunk_id"]
        assert dead.declined("/set_content_chunk_metadata", **late) == (409, "lease_lost")
        assert dead.declined("/set_link_state", link=first["links"][0], state="crawled") == (
            409,
            "not_yours",
        )
    assert states(database) == {"crawling": 5}


def test_w3_a_crawler_that_is_only_slow_renews_its_lease(database: str, tmp_path: Path) -> None:
    at_once(database)
    with mgmt(database, tmp_path / "log", settings=SOON) as server:
        slow = Component(server, host="slow")
        slow.post("/add_links", links=links(5))
        chunk = slow.get("/get_links")["chunk_id"]
        for _ in range(4):
            time.sleep(0.5)
            assert slow.post("/v1/lease", chunks=[chunk, 77]) == {"held": [chunk], "lost": [77]}
        slow.post("/set_content_chunk_metadata", chunk_id=chunk, state="crawled")


async def test_w4_what_a_crashed_builder_had_is_built_by_another(
    database: str, tmp_path: Path
) -> None:
    at_once(database)
    with mgmt(database, tmp_path / "log", settings=SOON) as server:
        dead, other = Component(server, host="dead"), Component(server, host="other")
        (chunk,) = crawled(Component(server, host="crawler"), 1)
        assert [each["chunk_id"] for each in dead.get("/get_content_chunk_metadata")] == [chunk]
        assert other.get("/get_content_chunk_metadata") == []
        await asyncio.sleep(1.1)
        async with await connect(database) as conn:
            await chunks.reap(conn, n=10, now=datetime.now(UTC))
        assert [each["chunk_id"] for each in other.get("/get_content_chunk_metadata")] == [chunk]
        late = {"chunk_id": chunk, "state": "built"}
        assert dead.declined("/set_index_chunk_metadata", **late) == (409, "not_yours")
        other.post("/set_index_chunk_metadata", **late)
    assert one(database, "select ib_host from mgmt.index_builder") == "other"


def test_w5_no_two_builders_build_the_same(running: Mgmt, crawler: Component) -> None:
    made = crawled(crawler, 20)
    four = [Component(running, host=f"b{n}").get("/get_content_chunk_metadata") for n in range(4)]
    assert [len(each) for each in four] == [5, 5, 5, 5]
    assert sorted(each["chunk_id"] for given in four for each in given) == made


def test_w6_built_twice_is_built_once(
    running: Mgmt, crawler: Component, builder: Component, database: str
) -> None:
    index_server(running, "s1")
    index_server(running, "s2")
    (chunk,) = built(crawler, builder, 1)
    for _ in range(3):
        told = builder.post("/set_index_chunk_metadata", chunk_id=chunk, state="built")
        assert told == {"chunk_id": chunk, "state": "built"}
    assert one(database, "select count(*) from mgmt.index_server") == 1


def test_w7_a_restart_uses_no_chunk_id_again(database: str, tmp_path: Path) -> None:
    at_once(database)
    seen = []
    for turn in range(3):
        with mgmt(database, tmp_path / "log") as server:
            crawler = Component(server, host="c")
            crawler.post("/add_links", links=[f"https://t{turn}.example/{n}" for n in range(5)])
            seen.append(crawler.get("/get_links")["chunk_id"])
            if turn == 1:
                server.process.kill()
    assert seen == sorted(set(seen))
    assert (
        one(database, "select max(n) from (select count(*) n from mgmt.link group by chunk_id) s")
        == 5
    )


async def test_w8_rows_outlive_restarts_and_joins(database: str, tmp_path: Path) -> None:
    at_once(database, rows=3)
    with mgmt(database, tmp_path / "log") as server:
        for name in ("s1", "s2", "s3"):
            index_server(server, name)
        built(Component(server, host="c"), Component(server, host="b"), 4)
        before = server.get("/get_servers_map").json
        holdings = [dict(each) for each in index_server(server, "s1").get("/get_chunks?n=100")]
    with mgmt(database, tmp_path / "log") as server:
        assert server.get("/get_servers_map").json == before
        for name in ("s4", "s5", "s6"):
            index_server(server, name)
        await asyncio.sleep(1.1)
        after = {each["row"]: each["servers"] for each in server.get("/get_servers_map").json}
        for each in before:
            assert set(each["servers"]) < set(after[each["row"]])
        kept = Component(server, host="s1").get("/get_chunks?n=100")
        assert [each["chunk_id"] for each in kept] == [each["chunk_id"] for each in holdings]


@pytest.mark.parametrize("servers", [0, 1, 2])
async def test_w9_fewer_servers_than_rows(database: str, tmp_path: Path, servers: int) -> None:
    at_once(database, rows=3)
    with mgmt(database, tmp_path / "log") as server:
        for n in range(servers):
            index_server(server, f"s{n}")
        made = built(Component(server, host="c"), Component(server, host="b"), 2)
        assert one(database, "select count(*) from mgmt.index_server") == 2 * servers
        for n in range(servers, 3):
            index_server(server, f"s{n}")
        async with await connect(database) as conn:
            await placements.plan(conn, now=datetime.now(UTC))
        for n in range(3):
            wanted = Component(server, host=f"s{n}").get("/get_chunks")
            assert [each["chunk_id"] for each in wanted] == made


def test_w10_a_dead_server_leaves_the_map(running: Mgmt, database: str) -> None:
    index_server(running, "alive")
    index_server(running, "dead")
    assert eventually(lambda: running.get("/get_servers_map").body.count(b"dead") == 1)
    with psycopg.connect(database) as conn:
        conn.execute("update work.component set health = 'failure' where host = 'dead'")
    wanted = [{"row": 1, "servers": ["alive"]}]
    assert eventually(lambda: bool(running.get("/get_servers_map").json == wanted), 5)


async def test_w11_a_server_that_joins_gets_its_share(
    running: Mgmt, crawler: Component, builder: Component, database: str
) -> None:
    first = index_server(running, "first")
    made = built(crawler, builder, 6)
    first.post("/set_chunk_loaded", chunk_ids=made)
    second = index_server(running, "second")
    async with await connect(database) as conn:
        await placements.plan(conn, now=datetime.now(UTC))
    given = [each["chunk_id"] for each in second.get("/get_chunks")]
    assert len(given) == 3
    assert first.get("/get_chunks/leaving") == {"chunks": []}
    assert second.get("/get_chunks")[0]["peers"] == ["first"]
    second.post("/set_chunk_loaded", chunk_ids=given)
    async with await connect(database) as conn, conn.transaction():
        await placements.drop(conn, now=datetime.now(UTC) - placements.RELEASED_COPY_DELAY)
    assert first.get("/get_chunks/leaving") == {"chunks": given}
    assert first.post("/set_chunk_dropped", chunk_ids=given) == {"chunk_ids": given}


def test_w12_propagated_is_found_out_and_not_believed(
    running: Mgmt, crawler: Component, builder: Component
) -> None:
    holder = index_server(running, "s1")
    (chunk,) = built(crawler, builder, 1)
    said = {"chunk_id": chunk, "state": "propagated"}
    assert builder.post("/set_content_chunk_metadata", **said)["state"] == "crawled"
    assert builder.post("/set_index_chunk_metadata", **said)["state"] == "built"
    for each in (crawler, builder):
        assert each.get("/get_chunks/unpropagated")["chunks"] == [chunk]
    stranger = index_server(running, "s2")
    assert stranger.declined("/set_chunk_loaded", chunk_id=chunk) == (409, "not_yours")
    holder.post("/set_chunk_loaded", chunk_id=f"{chunk}c")
    assert builder.post("/set_content_chunk_metadata", **said)["state"] == "propagated"
    for each in (crawler, builder):
        assert each.get("/get_chunks/unpropagated")["chunks"] == []


def test_w12_checksums_go_from_the_source_to_the_server(running: Mgmt, crawler: Component) -> None:
    crawler.post("/add_links", links=links(5))
    chunk = crawler.get("/get_links")["chunk_id"]
    content, index = {"sha256": "ab" * 32, "bytes": 7}, {"sha256": "cd" * 32, "bytes": 9}
    crawler.post("/set_content_chunk_metadata", chunk_id=chunk, state="crawled", **content)
    builder, holder = Component(running, host="b"), index_server(running, "s1")
    keys = [link.partition("://")[2] for link in links(5)]
    (claimed,) = builder.get("/get_content_chunk_metadata")
    samples = claimed.pop("samples")
    assert claimed == {"chunk_id": chunk, "host": "crawler:5000", "keys": keys, **content}
    assert list(samples) == keys
    builder.post("/set_index_chunk_metadata", chunk_id=chunk, state="built", **index)
    (told,) = holder.get("/get_chunks")
    assert (told["sha256"], told["bytes"]) == ("ab" * 32, 7)
    assert (told["index_sha256"], told["index_bytes"]) == ("cd" * 32, 9)
