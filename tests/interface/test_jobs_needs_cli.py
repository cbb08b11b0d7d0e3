"""Results, dependencies, pauses and the database shell at the command line."""

import json
from pathlib import Path

import psycopg
import pytest

from interface.test_jobs_cli import added, at, shown
from usher.errors import NoServer
from usher.schema.shell import find_psql

pytestmark = pytest.mark.soak  # a process for each command takes its time


def test_a_job_needs_another(database: str) -> None:
    first = added(database, "true")
    second = added(database, "--needs", str(first), "--", "true")
    job = shown(database, second)
    assert (job["state"], job["needs"]) == ("waiting", [{"id": first, "state": "pending"}])
    assert f"needed by   job {second}" in at(database, "jobs", "show", str(first)).out
    assert at(database, "jobs", "list", "--state", "waiting", "--ids").out == f"{second}\n"
    assert "waiting" in at(database, "jobs", "list", "--summary").out
    lines = json.dumps({"type": "t", "program": "true", "needs": [first]}).encode()
    assert "1 new" in at(database, "jobs", "add", "-", given=lines).err
    bad = at(database, "jobs", "add", "--needs", "99999999", "true")
    assert (bad.code, "there is no job 99999999" in bad.err) == (2, True)


def test_the_result_of_a_job(database: str) -> None:
    id_ = added(database, "true")
    waiting = at(database, "jobs", "result", str(id_))
    assert (waiting.code, "has not ended" in waiting.err) == (1, True)
    with psycopg.connect(database) as conn:
        for query in (
            "delete from control.job where id = %(id)s",
            """
            insert into control.job_log (id, type, program, state, attempts, "end", host_rule)
            values (%(id)s, 't', 'true', 'completed', 1, now(), '')
            """,
        ):
            conn.execute(query, {"id": id_})
    assert at(database, "jobs", "result", str(id_)).code == 3
    with psycopg.connect(database) as conn:
        conn.execute('insert into control.job_result values (%s, 1, \'{"n": "ü"}\')', [id_])
    result = at(database, "jobs", "result", str(id_), "--wait", "0.5s")
    assert (result.code, result.out) == (0, '{"n": "ü"}\n')
    assert shown(database, id_)["result"]["value"] == {"n": "ü"}


def test_types_and_resources_are_paused(database: str) -> None:
    added(database, "--type", "fetch", "--resource", "a b", "true")
    assert at(database, "jobs", "pause", "fetch", "--reason", "down").code == 0
    [pause] = at(database, "jobs", "paused", "--json").json
    assert (pause["type"], pause["reason"]) == ("fetch", "down")
    status = at(database, "status")
    assert "paused: type fetch" in status.out
    assert "usher jobs resume fetch" in status.out + status.err
    assert at(database, "jobs", "resume", "fetch").code == 0
    again = at(database, "jobs", "resume", "fetch")
    assert (again.code, "was not paused" in again.err) == (3, True)
    assert "0 of 1, paused" in at(database, "resources", "pause", "a b").out
    assert "0 of 1" in at(database, "resources", "resume", "a b").out
    missing = at(database, "resources", "pause", "none")
    assert (missing.code, "usher resources list" in missing.err) == (3, True)
    assert at(database, "resources", "set", "a b", "--interval", "0.25s", "--json").json[0][
        "interval"
    ] == pytest.approx(0.25)


def test_the_database_shell(database: str) -> None:
    query = "select count(*), current_user from job"
    ran = at(database, "db", "shell", "--", "-XAtc", query)
    assert (ran.code, ran.out.startswith("0|")) == (0, True), ran.err
    ran = at(database, "db", "shell", "--role", "usher_reader", "--", "-XAtc", query)
    assert ran.out == "0|usher_reader\n", ran.err
    ran = at(
        database, "db", "shell", "--schema", "work", "--", "-XAtc", "select count(*) from hosts"
    )
    assert ran.out == "0\n", ran.err
    assert at(database, "db", "shell", "--", "-XAtc", "select 1/0").code == 1
    assert at(database, "db", "shell", "--role", "missing").code == 2


def test_a_missing_psql_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoServer, match="No psql was found") as error:
        find_psql([tmp_path], str(tmp_path))
    assert "USHER_PG_BIN" in error.value.hint
    (tmp_path / "psql").touch(mode=0o755)
    assert find_psql([], str(tmp_path)) == find_psql([tmp_path]) == str(tmp_path / "psql")
