"""MGMT retries transactions that conflict; only repeated conflicts are errors."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.mgmt.mgmt_process import Mgmt, mgmt
from support.mgmt.plain_components import Component, at_once, one, states
from support.processes.killable import eventually

# Counted outside of transactions: a sequence is not undone.
STUMBLE = """
create sequence work.stumbles;
grant usage on sequence work.stumbles to usher_mgmt;
create function work.stumble() returns trigger language plpgsql as $$
begin
    if nextval('work.stumbles') <= {most} then
        raise exception 'stumbled' using errcode = '{code}';
    end if;
    return new;
end $$;
create trigger stumbles before {event} for each row execute function work.stumble();
"""


@pytest.fixture
def running(database: str, tmp_path: Path) -> Iterator[Mgmt]:
    at_once(database)
    with mgmt(database, tmp_path / "log") as started:
        yield started


def stumble(dsn: str, event: str, *, most: int, code: str = "40P01") -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(STUMBLE.format(event=event, most=most, code=code).encode())


def stumbles(dsn: str) -> int:
    return int(one(dsn, "select last_value from work.stumbles"))


def claimed(server: Mgmt) -> tuple[Component, dict[str, Any]]:
    crawler = Component(server, host="crawler:5000")
    crawler.post("/add_links", links=[f"https://h.example/{i}" for i in range(5)])
    return crawler, crawler.get("/get_links")


class Reporting(threading.Thread):
    """A crawler's report in a thread of its own."""

    def __init__(self, crawler: Component, chunk: int) -> None:
        super().__init__()
        self.crawler, self.chunk = crawler, chunk
        self.told: object = None
        self.start()

    def run(self) -> None:
        said = {"chunk_id": self.chunk, "state": "crawled"}
        self.told = self.crawler.post("/set_content_chunk_metadata", **said)


def waiting(dsn: str) -> bool:
    """Whether a transaction waits for a row."""
    asked = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    return bool(one(dsn, asked))


def test_a_deadlock_is_retried_without_an_error(running: Mgmt, database: str) -> None:
    crawler, given = claimed(running)
    with psycopg.connect(database) as other:
        other.execute("set deadlock_timeout = '1h'")  # so that MGMT is the one to give way
        other.execute("select from work.guestbook where chunk_id is not null for update")
        report = Reporting(crawler, given["chunk_id"])
        assert eventually(lambda: waiting(database))
        # There once MGMT gave way, and at that moment: for a row it would have to hurry, lest MGMT be back first.
        other.execute("lock table work.chunk in share mode")
        other.rollback()
        report.join(20)
        lost = other.execute(
            "select deadlocks from pg_stat_database where datname = current_database()"
        )
        assert lost.fetchone() == (1,)
    assert report.told == {"chunk_id": given["chunk_id"], "state": "crawled"}
    assert states(database) == {"crawled": 5}


@pytest.mark.parametrize("code", ["40P01", "40001"])
def test_a_conflict_is_tried_four_times(running: Mgmt, database: str, code: str) -> None:
    crawler, given = claimed(running)
    stumble(database, "update on work.chunk", most=100, code=code)
    told = crawler.ask(
        "POST", "/set_content_chunk_metadata", {"chunk_id": given["chunk_id"], "state": "crawled"}
    )
    assert told.problem == (503, "unreachable")
    assert int(told.headers["retry-after"]) > 0
    assert stumbles(database) == 4
    assert states(database) == {"crawling": 5}
    assert one(database, "select state from work.chunk") == "crawling"


def test_a_component_is_identified_despite_a_deadlock(running: Mgmt, database: str) -> None:
    stumble(database, "insert on work.component", most=3)
    told = Component(running, host="new:1").post("/set_component_state", state="online")
    assert told["host"] == "new:1"
    assert stumbles(database) == 4


def test_a_single_statement_is_retried(running: Mgmt, database: str) -> None:
    crawler, given = claimed(running)
    stumble(database, "update on work.chunk", most=2)
    told = crawler.post("/v1/lease", chunks=[given["chunk_id"]])
    assert told == {"held": [given["chunk_id"]], "lost": []}
    assert stumbles(database) == 3


@pytest.mark.parametrize(
    "first", [{}, {"pages": []}, {"pages": "all"}], ids=["bare", "none", "all"]
)
def test_a_final_report_may_be_repeated(
    running: Mgmt, database: str, first: dict[str, Any]
) -> None:
    """MGMT may die after the end is written and before it is told; the second word changes nothing."""
    crawler, given = claimed(running)
    chunk, told_of = given["chunk_id"], {"link": given["links"][0], "state": "crawled"}
    said = {"chunk_id": chunk, "state": "crawled"} | first
    if said.get("pages") == "all":
        said["pages"] = [{"link": link, "state": "crawled"} for link in given["links"]]
    over = {"chunk_id": chunk, "state": "crawled"}
    assert crawler.post("/set_content_chunk_metadata", **said) == over
    before = written(database)
    words: list[dict[str, Any]] = [{}, {"pages": []}, {"pages": [told_of]}]
    for more in words:
        assert crawler.post("/set_content_chunk_metadata", **(over | more)) == over
    stranger = Component(running, host="stranger:5000")
    assert stranger.declined("/set_content_chunk_metadata", **over)[0] == 409
    lost = {"chunk_id": chunk, "state": "error", "reason": "lost"}
    assert crawler.declined("/set_content_chunk_metadata", **lost)[0] == 409
    assert written(database) == before


def written(dsn: str) -> list[Any]:
    """Which transaction wrote each page, host and chunk last."""
    with psycopg.connect(dsn) as conn:
        return conn.execute(
            "select 'page', id, xmin::text from work.guestbook union all "
            "select 'host', id, xmin::text from work.hosts union all "
            "select 'chunk', id, xmin::text from work.chunk order by 1, 2"
        ).fetchall()
