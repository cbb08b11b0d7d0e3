"""W12 over HTTP: what only a dead crawler or builder had is made again; a page crawled again is indexed again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.mgmt.mgmt_process import Mgmt, mgmt, watchdog
from support.mgmt.plain_components import Component, at_once
from support.processes.killable import eventually
from support.processes.standins import Standin, standins

LINKS = [f"https://h.example/{i}" for i in range(5)]
HASTY = ("--every", "0.1", "--misses", "2", "--probation", "0", "--grace", "0")


@pytest.fixture
def running(database: str, tmp_path: Path) -> Iterator[Mgmt]:
    at_once(database)
    with mgmt(database, tmp_path / "log") as started:
        yield started


def enter(server: Mgmt, standin: Standin, type_: str) -> Component:
    found = Component(server, host=standin.host)
    found.post("/set_component_state", state="online", type=type_)
    return found


def given(asks: Component, path: str) -> Any:  # noqa: ANN401 - whatever it is
    """What a component is given, as soon as it is given something."""
    found: dict[str, Any] = {}

    def asked() -> bool:
        found[path] = asks.get(path)
        return bool(found[path])

    assert eventually(asked)
    return found[path]


def crawl(crawler: Component, sha1: str) -> tuple[int, list[str]]:
    """The next chunk, crawled, each page with this content."""
    pack = given(crawler, "/get_links")
    pages = [
        {"link": link, "result": "success", "status": 200, "sha1": sha1} for link in pack["links"]
    ]
    said = {"chunk_id": pack["chunk_id"], "state": "crawled", "pages": pages}
    crawler.post("/set_content_chunk_metadata", **said)
    return pack["chunk_id"], sorted(pack["links"])


def build(builder: Component) -> int:
    [one] = given(builder, "/get_content_chunk_metadata")
    builder.post("/set_index_chunk_metadata", chunk_id=one["chunk_id"], state="built")
    return int(one["chunk_id"])


def test_w12_chunks_that_only_dead_components_had_are_made_again(
    running: Mgmt, database: str
) -> None:
    with standins(5) as cast:
        [crawler, spare, builder, other, holder] = [
            enter(running, standin, type_)
            for standin, type_ in zip(
                cast, ["crawler"] * 2 + ["index-builder"] * 2 + ["index-server"], strict=True
            )
        ]
        crawler.post("/add_links", links=LINKS)
        lost, _ = crawl(crawler, "aa" * 20)
        with watchdog(database, *HASTY):
            cast[0].kill()
            again, links = crawl(spare, "aa" * 20)
            assert (again > lost, links) == (True, LINKS)
            told = running.get(f"/v1/chunks/{lost}").json["chunk"]
            assert (told["state"], told["reason"]) == ("error", f"{crawler.host} is gone")
            assert build(builder) == again
            [wanted] = holder.get("/get_chunks")
            assert wanted["index_builder_host"] == builder.host
            cast[2].kill()
            assert build(other) == again
            [wanted] = given(holder, "/get_chunks")
            assert (wanted["chunk_id"], wanted["index_builder_host"]) == (again, other.host)
            holder.post("/set_chunk_loaded", chunk_id=again)
            assert spare.get("/get_chunks/unpropagated")["chunks"] == []


def test_w12_a_page_that_is_crawled_again_is_indexed_again(running: Mgmt) -> None:
    crawler, builder, holder = (
        Component(running, host=f"{name}:5000") for name in ("crawler", "builder", "holder")
    )
    holder.post("/set_component_state", state="online", type="index-server")
    crawler.post("/add_links", links=LINKS)
    versions = []
    for sha1 in ("aa" * 20, "bb" * 20):
        chunk, links = crawl(crawler, sha1)
        assert build(builder) == chunk
        assert [one["chunk_id"] for one in holder.get("/get_chunks")] == [chunk]
        holder.post("/set_chunk_loaded", chunk_id=chunk)
        told = running.get(f"/v1/chunks/{chunk}").json
        assert sorted(page["url"] for page in told["pages"]) == links == LINKS
        assert told["chunk"]["propagated_at"]
        versions.append(chunk)
        assert running.knock(*LINKS, **{"pass": True}).json["counts"]["admit"] == 5
    assert versions == sorted(set(versions))
    assert running.get(f"/v1/chunks/{versions[0]}").json["pages"] == [], "they are in the newer one"
    full = [{"host": holder.host, "chunk_ids": versions}]
    assert eventually(lambda: bool(running.get("/get_map").json == [full]), 5)
