"""A crawler written from the first document keeps its chunk as long as it calls, and loses it when it is killed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from support.mgmt.mgmt_process import Mgmt, mgmt, watchdog
from support.mgmt.plain_components import Component, at_once, one
from support.processes.killable import eventually

LEASE_SECONDS = 4
HELD_SECONDS = 3 * LEASE_SECONDS
SETTINGS = {"USHER_CHUNK_LEASE": str(LEASE_SECONDS)}
HASTY = ("--every", "0.2", "--misses", "3", "--probation", "0", "--grace", "0")
ADDRESS = "127.0.0.5"
# It knows the address of MGMT, serves nothing, and calls once a second while it crawls.
CRAWLER = """
import http.client, json, sys, time

host, port, held_seconds, mine = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]

def call(method, path, body=None):
    line = http.client.HTTPConnection(host, port, timeout=30, source_address=(mine, 0))
    line.request(method, path, None if body is None else json.dumps(body))
    answer = line.getresponse()
    said = json.loads(answer.read())
    line.close()
    return answer.status, said

call("POST", "/set_component_state", {"state": "online"})
chunk = call("GET", "/get_links")[1]["chunk_id"]
print(chunk, flush=True)
until = time.monotonic() + held_seconds
while time.monotonic() < until:
    call("POST", "/add_links", {"links": ["https://found.example/"]})
    time.sleep(1)
print(json.dumps(call("POST", "/set_content_chunk_metadata", {"chunk_id": chunk, "state": "crawled"})), flush=True)
"""


@pytest.fixture
def running(database: str, tmp_path: Path) -> Iterator[Mgmt]:
    at_once(database)
    with (
        mgmt(database, tmp_path / "log", settings=SETTINGS) as started,
        watchdog(database, *HASTY, settings=SETTINGS),
    ):
        links = [f"https://h.example/{i}" for i in range(5)]
        Component(started).post("/add_links", links=links)
        yield started


@contextmanager
def crawler(server: Mgmt, held_seconds: float) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process, and the chunk that it got."""
    host, port = server.place
    words = [host, str(port), str(held_seconds), ADDRESS]
    process = subprocess.Popen(
        [sys.executable, "-c", CRAWLER, *words], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def test_a_crawler_that_calls_keeps_its_chunk(running: Mgmt, database: str) -> None:
    with crawler(running, HELD_SECONDS) as (process, chunk):
        assert process.stdout is not None
        status, told = json.loads(process.stdout.readline())
    assert (status, told) == (200, {"chunk_id": chunk, "state": "crawled"})
    with psycopg.connect(database) as conn:
        kinds = {kind for (kind,) in conn.execute("select kind from work.event").fetchall()}
        healths = conn.execute("select host, health from mgmt.host").fetchall()
    assert "crawl_expired" not in kinds
    assert healths == [(ADDRESS, "healthy")]


def test_a_crawler_that_is_killed_loses_its_chunk_after_the_lease(
    running: Mgmt, database: str
) -> None:
    other = Component(running, "127.0.0.6")
    other.post("/set_component_state", state="online")
    with crawler(running, 3600) as (process, chunk):
        process.kill()
        state = "select state from work.chunk where id = %s"
        assert eventually(lambda: one(database, state, chunk) == "error", 60)
    reason = "select reason from work.event where kind = 'crawl_expired' and chunk_id = %s"
    assert one(database, reason, chunk) == "the lease ended"
    assert len(other.get("/get_links")["links"]) == 5
