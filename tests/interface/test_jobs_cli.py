"""Jobs at the command line."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.processes.commands import Ran, clean, usher
from usher.queue.scheduler import LEADER_LOCK

pytestmark = pytest.mark.soak  # a process for each command takes its time

LOGGED = """
    insert into control.job_log (id, type, program, args, state, exit_code, attempts, start, "end", host_rule)
    values (%s, 't', %s, %s, %s, 1, 1, now() - interval '4 days', now() - %s::interval, %s)
"""


def at(dsn: str, *words: str | Path, given: bytes = b"") -> Ran:
    ran = usher(*words, environment={"DATABASE_URL": dsn}, given=given)
    assert "Traceback" not in ran.err
    return ran


def added(dsn: str, *words: str) -> int:
    ran = at(dsn, "jobs", "add", *words)
    assert ran.code == 0, ran.err
    return int(ran.out)


def shown(dsn: str, id_: int) -> Any:  # noqa: ANN401 - JSON
    return at(dsn, "jobs", "show", "--json", str(id_)).json


def log(
    dsn: str,
    id_: int,
    *command: str,
    state: str = "permanent-error",
    ago: str = "1 hour",
    rule: str = "",
) -> None:
    """A job that ended."""
    program, *args = command or ("true",)
    with psycopg.connect(dsn) as conn:
        conn.execute(LOGGED, [id_, program, args, state, ago, rule])


def script(tmp_path: Path, text: str) -> str:
    file = tmp_path / "program"
    file.write_text(f"#!/bin/sh\n{text}")
    file.chmod(0o755)
    return str(file)


@pytest.mark.seed("002.14", "002.15")
def test_add_and_show(database: str) -> None:
    id_ = added(
        database, "--type", "fetch", "--at", "+15m", "--resource", "example.com", "--priority", "-3",
        "--host", "allow: B, a", "--key", "k", "--data", "d e", "--", "curl", "-sS", "https://example.com/a b",
    )  # fmt: skip
    job = shown(database, id_)
    assert (job["type"], job["program"], job["args"]) == (
        "fetch", "curl", ["-sS", "https://example.com/a b"],
    )  # fmt: skip
    assert (job["resource"], job["priority"], job["host_rule"], job["key"], job["data"]) == (
        "example.com", -3, "allow:a,b", "k", "d e",
    )  # fmt: skip
    assert (job["state"], job["live"], job["scheduled"].endswith("+00:00")) == (
        "pending", True, True,
    )  # fmt: skip
    assert job["why"][0].startswith("It is due at")
    told = at(database, "jobs", "show", str(id_)).out
    assert "curl -sS 'https://example.com/a b'" in told
    again = at(database, "jobs", "add", "--key", "k", "true")
    assert (again.code, int(again.out), "with this key already waits" in again.err) == (
        0,
        id_,
        True,
    )


def test_one_word_is_split_and_no_shell_reads_it(database: str) -> None:
    job = shown(database, added(database, """printf '%s\\n' "a b" '$HOME;' | cat"""))
    assert (job["program"], job["args"]) == ("printf", ["%s\\n", "a b", "$HOME;", "|", "cat"])
    job = shown(database, added(database, "ls", "-l", "--at"))
    assert (job["program"], job["args"], job["type"]) == ("ls", ["-l", "--at"], "default")


def test_add_names_the_next_command(database: str) -> None:
    ran = at(database, "jobs", "add", "--", "echo", "hello")
    id_ = int(ran.out)
    assert f"→ usher jobs show {id_}\n" in ran.err
    assert "No scheduler is running. `usher up` runs jobs." in ran.err
    assert "echo hello" in at(database, "jobs", "log", str(id_)).out
    with psycopg.connect(database) as conn:
        conn.execute(b"select pg_advisory_lock(%s)", [LEADER_LOCK])
        assert "No scheduler" not in at(database, "jobs", "add", "true").err


@pytest.mark.parametrize(
    "words",
    [
        ["--at", "soon", "x"], ["--host", "allow:", "x"], ["--type", "a b", "x"], ["'"], [""],
        ["--at", "+4000d", "x"], ["--at", "0001-01-01", "x"],
    ],
)  # fmt: skip
def test_what_cannot_be_added(database: str, words: list[str]) -> None:
    ran = at(database, "jobs", "add", *words)
    assert (ran.code, ran.out) == (2, "")
    assert "→" in ran.err


def test_add_many_lines(database: str) -> None:
    lines = [{"type": "t", "program": "true", "args": [str(number)]} for number in range(6000)]
    lines += [{"type": "t", "program": "true", "key": "k"}] * 2
    text = "\n\n".join(json.dumps(line) for line in lines).encode()
    assert at(database, "jobs", "add", "--json", "-", given=text).json == {"new": 6001, "known": 1}
    page = at(database, "jobs", "list", "--limit", "2")
    assert [line.split()[-1] for line in page.out.splitlines()[1:]] == ["true", "5999"]
    bad = b'{"type": "t", "program": "true"}\n{"type": "t", "program": "a\\u0000"}\n'
    ran = at(database, "jobs", "add", "-", given=bad)
    assert (ran.code, ran.out) == (2, "")
    assert "Line 2 is not a job" in ran.err
    assert "1 jobs before it were added" in ran.err


def test_list(database: str) -> None:
    first, second = added(database, "--type", "a", "needle"), added(database, "--type", "b", "x")
    listed = at(database, "jobs", "list", "--json").json
    assert [job["id"] for job in listed] == [second, first]
    assert at(database, "jobs", "list", "--ids", "--contains", "needle").out == f"{first}\n"
    table = at(database, "jobs", "list", "--limit", "1")
    assert [line.split()[0] for line in table.out.splitlines()] == ["ID", str(second)]
    assert f"--after {second}" in table.err
    after = at(database, "jobs", "list", "--ids", "--after", str(second))
    assert after.out == f"{first}\n"
    assert at(database, "jobs", "list", "--ids", "--state", "running").out == ""
    summary = at(database, "jobs", "list", "--summary", "--json").json
    assert [(one["type"], one["state"], one["number"]) for one in summary["live"]] == [
        ("a", "pending", 1), ("b", "pending", 1),
    ]  # fmt: skip


def test_what_others_wrote_cannot_move_the_cursor(database: str) -> None:
    id_ = str(added(database, "x"))
    with psycopg.connect(database) as conn:
        conn.execute(
            "update control.job set program = %s, args = %s, message = %s, output = %s",
            ["\x1b[31m", ["a\nb"], "\x1b]0;x\x07", "line\r\x1b[2J\nnext"],
        )
    for words in (["list"], ["show", id_], ["tree", id_]):
        ran = at(database, "jobs", *words)
        assert (ran.code, "\x1b" in ran.out, "\r" in ran.out) == (0, False, False)


def test_cancel(database: str) -> None:
    id_ = added(database, "true")
    ran = at(database, "jobs", "cancel", str(id_), "--reason", "enough")
    assert (ran.code, ran.out) == (0, f"{id_}  cancelled\n")
    assert shown(database, id_)["message"] == "enough"
    again = at(database, "jobs", "cancel", "--json", str(id_), "800000999")
    assert again.code == 3
    assert [one["what"] for one in again.json] == ["ended", "missing"]


def test_retry(database: str) -> None:
    log(database, 800000900, "true", "x")
    id_ = added(database, "true")
    ran = at(database, "jobs", "retry", "--json", "800000900", str(id_), "800000999")
    assert (ran.code, [one["what"] for one in ran.json]) == (3, ["new", "live", "missing"])
    new = ran.json[0]["job"]
    assert (shown(database, new)["parent"], shown(database, new)["args"]) == (800000900, ["x"])
    drawn = at(database, "jobs", "tree", str(new)).out.splitlines()
    assert [line.split()[0] for line in drawn] == ["800000900", str(new)]
    assert drawn[1].startswith("  ")
    assert drawn[1].endswith("←")
    assert [node["depth"] for node in at(database, "jobs", "tree", "--json", "800000900").json] == [
        0,
        1,
    ]


def test_log(database: str) -> None:
    log(database, 800000901, "old", ago="3 days")
    log(database, 800000902, "new", state="completed")
    log(database, 800000903, "tried", state="temporary-error")

    def ids(*words: str) -> list[str]:
        return at(database, "jobs", "log", "--ids", *words).out.split()

    assert ids() == ["800000902", "800000901"]
    assert ids("--since", "1d") == ["800000902"]
    assert ids("--since", "2020-01-01T00:00") == ["800000902", "800000901"]
    assert ids("--state", "permanent-error") == ["800000901"]
    assert sorted(ids("--state", "temporary-error", "--state", "completed")) == [
        "800000902",
        "800000903",
    ]
    assert ids("--after", "800000902") == ["800000901"]
    table = at(database, "jobs", "log", "--state", "temporary-error", "--limit", "1")
    cursor = table.err.split()[-1]
    assert cursor.startswith("800000903@")
    assert ids("--state", "temporary-error", "--after", cursor) == []
    with psycopg.connect(database) as conn:
        conn.execute(
            "insert into control.job_table_item (job_id, table_name, table_row_id) values (800000901, 'item', '7')"
        )
    assert at(database, "jobs", "list", "--ids", "--wrote", "item", "7").out == "800000901\n"
    assert "90d" in at(database, "jobs", "log", "--keep", "90d").err
    assert at(database, "jobs", "log", "--keep", "1h").code == 2


def test_nothing_there_is_exit_code_3_with_what_to_try(database: str) -> None:
    for words in (
        ["show", "800000999"],
        ["tree", "800000999"],
        ["rerun", "800000999"],
        ["list", "--task", "x"],
    ):
        ran = at(database, "jobs", *words)
        assert (ran.code, ran.out) == (3, "")
        assert "→ usher" in ran.err


def test_rerun_is_watched_and_ends_in_the_log(database: str, tmp_path: Path) -> None:
    program = script(
        tmp_path, 'echo "job $USHER_JOB_ID: $@"; sleep 0.6; echo oops >&2; exit ${3:-0}'
    )
    log(database, 800000904, program, "a", "b c", rule="elsewhere")
    ran = at(database, "jobs", "rerun", "800000904")
    new = ran.err.split()[1]
    assert (ran.code, ran.out) == (0, f"job {new}: a b c\noops\n")
    job = shown(database, int(new))
    assert (job["state"], job["parent"], job["type"], job["host_rule"], job["output"]) == (
        "completed", 800000904, "t", "elsewhere", ran.out,
    )  # fmt: skip
    for code in (1, 2):
        again = at(database, "jobs", "rerun", "800000904", "--", str(code))
        assert again.code == code
        job = shown(database, int(again.err.split()[1]))
        assert (job["state"], job["exit_code"], job["args"]) == (
            "permanent-error", code, ["a", "b c", str(code)],
        )  # fmt: skip
    log(database, 800000905, str(tmp_path / "nowhere"))
    assert at(database, "jobs", "rerun", "800000905").code == 2
    assert at(database, "jobs", "list", "--ids").out == ""


def test_rerun_of_what_has_not_ended(database: str) -> None:
    id_ = added(database, "true")
    ran = at(database, "jobs", "rerun", str(id_))
    assert (ran.code, f"usher jobs retry {id_}" in ran.err) == (2, True)


def test_rerun_waits_for_its_resource_and_is_interrupted(database: str, tmp_path: Path) -> None:
    program = script(tmp_path, "trap 'echo stopped; exit 0' TERM\necho begun; sleep 30 & wait")
    log(database, 800000906, program)
    with psycopg.connect(database) as conn:
        conn.execute(
            """insert into control.resource (name, latest_run, "interval") values ('disk', now(), '3 s')"""
        )
        conn.execute("update control.job_log set resource_id = (select id from control.resource)")
    process = subprocess.Popen(
        [sys.executable, "-m", "usher", "jobs", "rerun", "800000906"],
        env=clean({"DATABASE_URL": database}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        began = time.monotonic()
        assert process.stdout.readline() == "begun\n"
        assert time.monotonic() - began > 1
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "stopped\n")
    assert "waits for its resource disk" in err
    [job] = at(database, "jobs", "log", "--state", "cancelled", "--json").json
    assert (job["type"], job["resource"]) == ("t", "disk")
    with psycopg.connect(database) as conn:
        assert conn.execute("select running from control.resource").fetchall() == [(0,)]
