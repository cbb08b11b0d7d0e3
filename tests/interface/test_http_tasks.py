"""Tasks and resources over HTTP, and where their server keeps them."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest

from support.mgmt.mgmt_process import Mgmt, mgmt
from support.processes.commands import clean

NUMBERS = count(1)


@pytest.fixture
def kind() -> str:
    """A type of job of the test's own."""
    return f"type-{next(NUMBERS)}"


def test_a_task_is_added_changed_run_and_deleted(door: Mgmt, kind: str) -> None:
    asked = {
        "name": kind,
        "type": kind,
        "program": "feed",
        "args": ["-u", "x"],
        "periodicity": "15m",
    }
    told = door.ask("POST", "/v1/tasks", {**asked, "jitter": 90, "resource": f"r-{kind}"})
    assert told.status == 200, told.body
    task = told.json
    assert (task["periodicity"], task["jitter"], task["state"]) == ("15m", "1m30s", "enabled")
    path = f"/v1/tasks/{task['id']}"
    assert door.get(path).json == door.get(f"/v1/tasks/{kind}").json == task
    listed = door.get(f"/v1/tasks?type={kind}").json
    assert listed == {"tasks": [task], "after": None}
    assert door.ask("POST", "/v1/tasks", asked).problem == (422, "bad_input")
    changed = door.ask("PUT", path, {"cron": "30 2 * * *", "timezone": "Europe/Amsterdam"}).json
    assert (changed["cron"], changed["periodicity"], changed["args"]) == (
        "30 2 * * *",
        None,
        ["-u", "x"],
    )
    assert door.ask("PUT", path, {"state": "disabled"}).json["state"] == "disabled"
    assert door.get(f"/v1/tasks?type={kind}&state=enabled").json["tasks"] == []
    job = door.ask("POST", f"{path}/run").json
    assert door.get(f"/v1/jobs/{job['id']}").json["root_task"] == task["id"]
    again = door.ask("POST", f"{path}/run")
    assert again.problem == (409, "wrong_state")
    assert str(job["id"]) in again.json["detail"]
    assert door.ask("DELETE", path).json["id"] == task["id"]
    for method, where in (
        ("GET", path),
        ("DELETE", path),
        ("POST", f"{path}/run"),
        ("GET", "/v1/tasks/x"),
    ):
        assert door.ask(method, where).problem == (404, "not_found")
    assert door.ask("PUT", path, {"priority": 1}).problem == (404, "not_found")


def test_resources(door: Mgmt, kind: str) -> None:
    path = f"/v1/resources/{kind}"
    told = door.ask("PUT", path, {"capacity": 2, "interval": "1m"})
    assert told.json == {
        "name": kind,
        "capacity": 2,
        "interval": "1m",
        "running": 0,
        "waiting": 0,
        "latest_run": None,
        "paused": False,
    }
    assert door.ask("PUT", path, {"interval": 0}).json["capacity"] == 2
    jobs = [{"type": kind, "program": "true", "resource": kind}] * 3
    door.ask("POST", "/v1/jobs", {"jobs": jobs})
    claimed = door.ask("POST", "/v1/jobs/claim", {"type": kind, "host": "one", "n": 3}).json
    assert len(claimed["jobs"]) == 2
    [found] = door.get(f"/v1/resources?contains={kind}").json["resources"]
    assert (found["running"], found["waiting"]) == (2, 1)
    assert door.get("/v1/resources?limit=1").json["after"] is not None


def test_it_works_under_the_role_of_the_manager(database: str, tmp_path: Path) -> None:
    with mgmt(database, tmp_path / "log") as server:
        with psycopg.connect(database) as conn:
            conn.execute("revoke insert on control.job from usher_manager")
        told = server.ask("POST", "/v1/jobs", {"type": "role", "program": "true"})
        assert told.problem == (500, "not_allowed")
        assert "usher db roles check" in told.json["hint"]


@contextmanager
def apart(work: str, control: str, log: Path) -> Iterator[Mgmt]:
    """A server whose areas are in two databases."""
    data = log.with_name("data")
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            [sys.executable, "-m", "usher", "mgmt", "--bind", "127.0.0.1:0"],
            env=clean(
                {
                    "USHER_WORK_URL": work,
                    "USHER_CONTROL_URL": control,
                    "USHER_SEARCH_URL": work,
                    "USHER_DATA": str(data),
                }
            ),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        with Mgmt(process, process.stdout.readline().strip(), log, data) as server:
            assert server.address, log.read_text()
            yield server


def test_work_and_control_may_be_in_different_databases(
    database: str, guestbook: str, tmp_path: Path
) -> None:
    with psycopg.connect(database) as conn:
        conn.execute("drop schema work cascade")
    with apart(guestbook, database, tmp_path / "log") as server:
        assert server.get("/readyz").json == {"status": "ready"}
        told = server.ask("POST", "/v1/jobs", {"type": "apart", "program": "true"})
        assert told.json["jobs"][0]["new"]
        assert server.knock("https://apart.example/").json["counts"]["admit"] == 1
        newest = "select max(version) from control.schema_migrations"
        for change, words in (
            (
                f"update control.schema_migrations set version = 'x' where version = ({newest})",
                "know",
            ),
            ("delete from control.schema_migrations where version = 'x'", "behind"),
        ):
            with psycopg.connect(database) as conn:
                conn.execute(change.encode())
            told = server.get("/readyz")
            assert told.problem == (503, "schema_out_of_date")
            assert "control" in told.json["detail"]
            assert words in told.json["detail"]
