"""A row on OpenSearch that is away: MGMT refuses another engine, and `usher status` says what to do."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from support.mgmt.mgmt_process import Mgmt, mgmt
from support.mgmt.plain_components import Component
from support.processes.commands import Ran, clean, usher
from support.processes.free_port import free_port
from support.processes.killable import eventually
from support.processes.stack import USHER, start_process

STATE = "/set_component_state"
CHUNKS = """
    insert into work.chunk (crawler_id, builder_id, claimed_at, state, crawled_at, index_state, built_at)
    select c.id, b.id, now(), 'crawled', now(), 'built', now() from work.component c, work.component b
    where c.host = 'c:1' and b.host = 'b:1';
    insert into work.placement (chunk_id, component_id, "row", state, since)
    select k.id, c.id, 1, 'loaded', now() from work.chunk k, work.component c where c.type = 'index-server'
"""
AWAY = "http://127.0.0.1:1"


@pytest.fixture
def running(database: str, tmp_path: Path) -> Iterator[Mgmt]:
    with mgmt(database, tmp_path / "log") as started:
        yield started


def load(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(
            "insert into work.component (host, type) values ('c:1', 'crawler'), ('b:1', 'index-builder')"
        )
        conn.execute(CHUNKS.encode())


def status(dsn: str) -> Ran:
    return usher("status", environment={"DATABASE_URL": dsn, "USHER_DATA": "/nowhere"})


def start_tantivy(server: Mgmt, data: Path, *words: str) -> Ran:
    command = ("index-server", "--mgmt", server.address, "--bind", f"127.0.0.1:{free_port()}")
    return usher(*command, *words, environment={"USHER_DATA": str(data)})


@contextmanager
def process(command: Sequence[str], data: Path) -> Iterator[None]:
    """A command that runs until it is stopped."""
    with data.with_suffix(".log").open("ab") as log:
        started = start_process([*USHER, *command], clean({"USHER_DATA": str(data)}), log)
        try:
            yield
        finally:
            started.terminate()
            started.wait(30)


def lists(dsn: str, host: str) -> bool:
    return host in usher("components", "list", environment={"DATABASE_URL": dsn}).out


def test_a_row_whose_cluster_is_away_takes_no_server_on_tantivy(
    database: str, tmp_path: Path, running: Mgmt
) -> None:
    port = free_port()
    own = ("--mgmt", running.address, "--bind", f"127.0.0.1:{port}", "--row", "1")
    engine = ("--engine", "opensearch", "--engine-url", AWAY)
    with process(("index-server", *own, *engine), tmp_path / "cluster"):
        says = f"Row 1 has no healthy server: 1 chunk is not searchable there. Its index server 127.0.0.1:{port}"
        reason = "is on OpenSearch and reports: 127.0.0.1:1 cannot be reached"
        assert eventually(lambda: lists(database, f"127.0.0.1:{port}"), 20)
        load(database)
        assert eventually(lambda: says in status(database).out, 20)
        out = status(database).out
        assert reason in out, out
        assert "Repair the cluster; the index server then continues." in out
        assert f"→ usher components show 127.0.0.1:{port}" in out
        assert "usher index-server --row 1" not in out
        for words in (("--row", "1"), ()):
            ran = start_tantivy(running, tmp_path / "tantivy", *words)
            assert (ran.code, "Traceback" in ran.err) == (3, False)
            assert (
                ran.err.count("A row has one engine") + ran.err.count("a row has one engine") == 1
            )
            assert "usher components rows --set 2" in ran.err
        second = start_tantivy(running, tmp_path / "second", "--row", "1", *engine)
        assert second.code == 3
        assert "Row 1 has its index server on OpenSearch already" in second.err
    stopped = status(database).out
    assert "does not run. Start it again, with the engine that it had." in stopped
    assert "→ usher index-server --row 1 --engine opensearch --engine-url URL,..." in stopped


def test_mgmt_refuses_another_engine(database: str, running: Mgmt) -> None:
    cluster, other = (
        Component(running, host="10.0.0.1:8441"),
        Component(running, host="10.0.0.2:8441"),
    )
    online = {"state": "online", "type": "index-server", "row": 1}
    cluster.post(STATE, **online, engine="opensearch")
    for engine in (None, "tantivy", "opensearch"):
        reply = other.ask("POST", STATE, {**online, "engine": engine})
        assert reply.problem == (409, "conflict")
        assert reply.json["hint"]
    assert cluster.post(STATE, **online)["row"] == 1  # an older index server names no engine
    cluster.post(STATE, state="error", reason="OpenSearch does not answer")
    shown = usher(
        "components", "show", "--json", "10.0.0.1:8441", environment={"DATABASE_URL": database}
    )
    assert (shown.json["engine"], shown.json["row"]) == ("opensearch", 1)
    assert other.declined(STATE, **online, engine="lucene")[0] == 422
    cluster.post(STATE, state="waiting", reason="stopped in order")
    assert other.post(STATE, **online, engine="opensearch")["row"] == 1
    assert cluster.declined(STATE, **online, engine="opensearch") == (409, "conflict")
