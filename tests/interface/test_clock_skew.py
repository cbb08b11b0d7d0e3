"""MGMT, the watchdog and commands on machines whose clock is wrong: the database's clock decides."""

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.mgmt.mgmt_process import Mgmt, mgmt
from support.mgmt.plain_components import Component, at_once, one
from support.processes.commands import clean, usher
from support.processes.killable import eventually

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
pytestmark = pytest.mark.skipif(
    LIBRARY is None, reason="libfaketime is not installed: scripts/packages"
)
LEASE = timedelta(minutes=5)
LEASE_LEFT = "select lease_until - now() from work.chunk where id = 101"
SEEN_AGO = "select now() - max(seen_at) from work.component"


def clock(offset: str) -> dict[str, str]:
    """The environment of a process whose clock is that much ahead or behind."""
    return {
        "LD_PRELOAD": str(LIBRARY),
        "FAKETIME": offset,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def claimed(server: Mgmt) -> list[str]:
    """The links of a new chunk for the crawler at this MGMT."""
    links = Component(server, host="127.0.0.1:7000").get("/get_links?wait=0")["links"]
    assert links
    return [str(link) for link in links]


@pytest.mark.parametrize("offset", ["+1h", "-6m"])
def test_leases_and_signs_of_life_are_written_in_the_databases_time(
    database: str, tmp_path: Path, offset: str
) -> None:
    at_once(database)
    with mgmt(database, tmp_path / "log", settings=clock(offset), is_forked=False) as skewed:
        skewed.knock("https://example.com/", "https://example.com/2")
        claimed(skewed)
    assert timedelta(minutes=4) < one(database, LEASE_LEFT) <= LEASE
    assert timedelta(0) <= one(database, SEEN_AGO) < timedelta(minutes=1)
    assert '"event": "clock_skew"' in (tmp_path / "log").read_text()


def test_a_report_is_accepted_whatever_the_clock_of_this_mgmt(
    database: str, tmp_path: Path
) -> None:
    at_once(database)
    with mgmt(database, tmp_path / "right") as right:
        right.knock("https://example.com/", "https://example.com/2")
        [link, *_] = claimed(right)
        with mgmt(database, tmp_path / "ahead", settings=clock("+1h"), is_forked=False) as ahead:
            crawler = Component(ahead, host="127.0.0.1:7000")
            kept = crawler.post("/set_link_state", link=link, state="crawled", chunk_id="101")
            assert kept["state"] == "crawled"
    assert timedelta(minutes=4) < one(database, LEASE_LEFT) <= LEASE
    assert timedelta(0) <= one(database, SEEN_AGO) < timedelta(minutes=1)


def test_the_watchdog_reports_its_skew_in_status(database: str) -> None:
    command = [sys.executable, "-m", "usher", "watchdog", "--every", "0.2"]
    environment = clean({"DATABASE_URL": database, **clock("+1h")})
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        recorded = "select clock_skew_seconds::int from work.watchdog_round"
        assert eventually(lambda: one(database, recorded) == 3600, 60)
        status = usher("status", environment={"DATABASE_URL": database, "USHER_DATA": "/nowhere"})
    finally:
        process.kill()
        process.wait()
    assert "3600.0 s ahead of the database's" in status.out
    assert "active; last round" in status.out


def test_doctor_and_status_report_the_skew_of_this_machine(database: str) -> None:
    environment = {"DATABASE_URL": database, "USHER_DATA": "/nowhere", **clock("-1h")}
    doctor = run(["doctor", "--json"], environment)
    [check] = [check for check in doctor if check["name"] == "clock"]
    words = "The clock of this machine is 3600.0 s behind the database's."
    assert (check["level"], check["detail"]) == ("warning", words)
    status = run(["status", "--json"], environment)
    assert "clock_skew" in [holdup["kind"] for holdup in status["holdups"]]
    assert abs(one(database, "select now() - %s::timestamptz", status["at"])) < timedelta(minutes=1)


def run(words: list[str], environment: dict[str, str]) -> Any:  # noqa: ANN401 - JSON
    """Run a command in a process of its own, because only a new one reads LD_PRELOAD."""
    command = [sys.executable, "-m", "usher", *words]
    ran = subprocess.run(command, env=clean(environment), capture_output=True, check=False)
    return json.loads(ran.stdout)
