"""Tasks and resources at the command line."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.processes.commands import Ran, usher

pytestmark = pytest.mark.soak  # a process for each command takes its time


def at(dsn: str, *words: str | Path) -> Ran:
    ran = usher(*words, environment={"DATABASE_URL": dsn})
    assert "Traceback" not in ran.err
    return ran


def task(dsn: str, name: str) -> Any:  # noqa: ANN401 - JSON
    return at(dsn, "tasks", "show", "--json", name).json


def test_add_show_and_list(database: str) -> None:
    ran = at(
        database, "tasks", "add", "--name", "feed", "--every", "15m", "--jitter", "1m", "--auto", "--resource", "r",
        "--host", "deny:x", "--data", "d e", "--type", "fetch", "--priority", "2", "--", "curl", "-sS", "u",
    )  # fmt: skip
    assert (ran.code, "every 15m, first now" in ran.err) == (0, True)
    made = task(database, "feed")
    assert made["id"] == int(ran.out)
    assert {
        "type": "fetch", "program": "curl", "args": ["-sS", "u"], "periodicity": 900.0, "jitter": 60.0,
        "autoperiodicity": True, "resource": "r", "host_rule": "deny:x", "data": "d e", "priority": 2,
        "state": "enabled", "job_id": None, "runs": [],
    }.items() <= made.items()  # fmt: skip
    at(database, "tasks", "add", "--hour", "2", "--timezone", "Europe/Amsterdam", "true")
    at(database, "tasks", "add", "--cron", "@hourly", "my.module:function")
    table = at(database, "tasks", "list").out
    for words in ("every 15m", "every 1d at 02:00 Europe/Amsterdam", "cron 0 * * * *"):
        assert words in table
    listed = at(database, "tasks", "list", "--json", "--type", "fetch").json
    assert [one["name"] for one in listed] == ["feed"]
    assert "curl -sS u" in at(database, "tasks", "show", ran.out.strip()).out


@pytest.mark.parametrize(
    "words",
    [
        ["true"], ["--timezone", "UTC", "true"], ["--every", "often", "true"], ["--cron", "* *", "true"],
        ["--every", "1h", "--cron", "@daily", "true"], ["--every", "1h", "--timezone", "Mars", "true"],
        ["--every", "1h", "--type", "a b", "true"], ["--every", "1h", "--name", "prune-log", "true"],
        ["--every", "1h", "--jitter", "x", "true"],
    ],
)  # fmt: skip
def test_what_cannot_be_added(database: str, words: list[str]) -> None:
    ran = at(database, "tasks", "add", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("usher: ")


def test_set(database: str) -> None:
    at(
        database,
        "tasks",
        "add",
        "--name",
        "n",
        "--every",
        "1d",
        "--resource",
        "r",
        "--data",
        "d",
        "true",
    )
    assert at(database, "tasks", "set", "n").code == 2
    ran = at(
        database,
        "tasks",
        "set",
        "n",
        "--hour",
        "3",
        "--no-auto",
        "--resource",
        "",
        "--",
        "echo",
        "--x",
    )
    assert (ran.code, "every 1d at 03:00" in ran.err) == (0, True)
    made = task(database, "n")
    assert (made["hour"], made["resource"], made["data"]) == (3, None, "d")
    assert (made["program"], made["args"]) == ("echo", ["--x"])
    assert made["next_run"].endswith("T03:00:00+00:00")
    changed = at(database, "tasks", "set", "n", "--any-time", "--every", "2h", "--json").json
    assert (changed["hour"], changed["periodicity"]) == (None, 7200.0)
    changed = at(database, "tasks", "set", "n", "--cron", "@daily", "--name", "m", "--json").json
    assert (changed["cron"], changed["periodicity"], changed["name"]) == ("0 0 * * *", None, "m")
    assert at(database, "tasks", "set", "m", "--hour", "3", "--cron", "@daily").code == 2


def test_disable_enable_run_remove(database: str) -> None:
    at(database, "tasks", "add", "--name", "n", "--hour", "3", "true")
    made = at(database, "tasks", "run", "n")
    assert (made.code, made.err) == (0, "")
    again = at(database, "tasks", "run", "n", "--json")
    assert (again.code, again.json) == (3, [{"id": int(made.out), "new": False}])
    off = at(database, "tasks", "disable", "n")
    assert f"usher jobs cancel {made.out.strip()}" in off.err
    assert task(database, "n")["state"] == "disabled"
    assert "usher tasks enable n" in at(database, "jobs", "show", made.out.strip()).out
    assert [
        one["name"] for one in at(database, "tasks", "list", "--state", "disabled", "--json").json
    ] == ["n"]
    assert at(database, "tasks", "enable", "n", "nosuch").code == 3
    assert task(database, "n")["state"] == "disabled"
    assert at(database, "tasks", "enable", "n").code == 0
    assert task(database, "n")["state"] == "enabled"
    assert at(database, "tasks", "remove", "n").code == 2
    assert "removed" in at(database, "tasks", "remove", "n", "--yes").err
    assert at(database, "tasks", "show", "n").code == 3


def test_an_unknown_task_is_exit_code_3_with_the_nearest_name(database: str) -> None:
    for words in (["show", "prune-lo"], ["run", "prune-lo"], ["set", "prune-lo", "--every", "1h"]):
        ran = at(database, "tasks", *words)
        assert (ran.code, ran.out) == (3, "")
        assert "Did you mean prune-log?" in ran.err


def test_resources(database: str) -> None:
    ran = at(
        database, "resources", "set", "b.org", "--capacity", "2", "--interval", "30s", "--json"
    )
    assert (ran.code, ran.err) == (0, "created\n")
    at(database, "jobs", "add", "--resource", "a.org", "true")
    listed = at(database, "resources", "list", "--json").json
    assert [(one["name"], one["capacity"], one["interval"], one["waiting"]) for one in listed] == [
        ("a.org", 1, 10.0, 1), ("b.org", 2, 30.0, 0),
    ]  # fmt: skip
    assert at(database, "resources", "set", "a.org", "--interval", "0s").err == "set\n"
    table = at(database, "resources", "list", "--contains", "a.")
    assert table.out.splitlines()[1].split() == ["a.org", "0", "of", "1", "0s", "-", "1"]
    for words in (["a", "--interval", "x"], ["", "--capacity", "1"], ["a", "--capacity", "0"]):
        assert at(database, "resources", "set", *words).code == 2


def test_commands_need_no_more_than_the_managers_rights(database: str) -> None:
    with psycopg.connect(database) as conn:
        password = psycopg.sql.Literal(conn.info.password)
        make = psycopg.sql.SQL("create role plain login password {} in role usher_manager")
        conn.execute(make.format(password))
    try:
        dsn = psycopg.conninfo.make_conninfo(database, user="plain")
        assert at(dsn, "tasks", "add", "--name", "n", "--every", "1h", "true").code == 0
        assert at(dsn, "tasks", "run", "n").code == 0
        assert at(dsn, "jobs", "list").code == 0
        assert at(dsn, "hosts", "list").code == 4
    finally:
        with psycopg.connect(database) as conn:
            conn.execute("drop role plain")
