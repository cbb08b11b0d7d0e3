"""The workers of docs/workers.md, run as they stand there by a real manager."""

import re
import shutil
import tomllib
from pathlib import Path

import psycopg
import pytest

from support.mgmt.mgmt_process import mgmt
from support.processes.commands import usher
from support.processes.killable import eventually
from support.queue.job_runs import manager
from usher.queue.policy import read_policies

PAGE = (Path(__file__).parents[2] / "docs" / "workers.md").read_text()


def example(name: str) -> str:
    """One of the page's programs."""
    found = re.search(rf"<!-- test: {name} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def outcomes(dsn: str) -> list[tuple[object, ...]]:
    query = "select program, state, message, output from control.job_log order by id"
    with psycopg.connect(dsn) as conn:
        return conn.execute(query).fetchall()


def done(dsn: str, number: int) -> list[tuple[object, ...]]:
    assert eventually(lambda: len(outcomes(dsn)) >= number, 30), outcomes(dsn)
    return outcomes(dsn)


def add(dsn: str, *words: str) -> None:
    ran = usher("jobs", "add", *words, environment={"DATABASE_URL": dsn})
    assert ran.code == 0, ran.err


def test_in_a_shell(database: str, tmp_path: Path) -> None:
    script = tmp_path / "count.sh"
    script.write_text(example("shell"))
    script.chmod(0o755)
    add(database, "--type", "count", "--", str(script), "/etc/hosts")
    add(database, "--type", "count", "--", str(script), "/no/such; file")
    with manager({"DATABASE_URL": database}, tmp_path):
        good, bad = done(database, 2)
    lines = len(Path("/etc/hosts").read_text().splitlines())
    assert good[1] == "completed"
    assert str(good[3]).split()[-1] == str(lines)
    assert bad[1:] == (
        "permanent-error",
        "there is no /no/such; file",
        "there is no /no/such; file\n",
    )


def test_in_python(database: str, tmp_path: Path) -> None:
    (tmp_path / "titles.py").write_text(example("python"))
    (tmp_path / "names.txt").write_text("ada\ngrace\n")
    add(database, "--type", "title", "--", "titles:fetch", str(tmp_path / "names.txt"))
    add(database, "--type", "title", "--", "titles:fetch", "/no/such")
    with manager({"DATABASE_URL": database}, tmp_path):
        found = done(database, 4)
    assert sorted((row[1], row[2], row[3]) for row in found if row[0] == "titles:shout") == [
        ("completed", None, "ADA\n"),
        ("completed", None, "GRACE\n"),
    ]
    fetched = {row[1]: row[2] for row in found if row[0] == "titles:fetch"}
    assert fetched["completed"] == f"reading {tmp_path}/names.txt"
    assert fetched["permanent-error"] == "reading /no/such: there is no /no/such"


def test_inside_the_manager(database: str, tmp_path: Path) -> None:
    (tmp_path / "mails.py").write_text(example("async"))
    (tmp_path / "usher.toml").write_text('[worker.mail]\nrun = "async"\n')
    add(database, "--type", "mail", "--", "mails:send", "ada@example.org")
    add(database, "--type", "mail", "--", "mails:archive", "ada@example.org")
    settings = {"DATABASE_URL": database, "USHER_CONFIG": str(tmp_path / "usher.toml")}
    with manager(settings, tmp_path) as process:
        rows = done(database, 2)
        with psycopg.connect(database) as conn:
            pids = conn.execute("select distinct process_id from control.job_log").fetchall()
    assert sorted(rows) == [
        ("mails:archive", "completed", None, "archiving ada@example.org\n"),
        ("mails:send", "completed", "sent to ada@example.org", "sending to ada@example.org\n"),
    ]
    assert pids == [(process.pid,)]


@pytest.mark.skipif(not shutil.which("perl"), reason="perl is not installed")
def test_in_any_language(database: str, tmp_path: Path) -> None:
    script = tmp_path / "report.pl"
    script.write_text(example("perl"))
    script.chmod(0o755)
    with mgmt(database, tmp_path / "log") as server:
        environment = {"DATABASE_URL": database, "USHER_MGMT_URL": server.address}
        with manager(environment, tmp_path):
            add(database, "--type", "report", "--", str(script))
            [row] = done(database, 1)
    assert row[1:] == ("completed", "counting", "counted\n")
    with psycopg.connect(database) as conn:
        found = conn.execute("select table_name, table_row_id from control.job_table_item")
        assert sorted(found.fetchall()) == [("numbers", "1"), ("numbers", "2")]
        results = conn.execute("select value from control.job_result")
        assert results.fetchall() == [({"numbers": 2},)]


def test_a_job_is_given_what_the_page_lists(database: str, tmp_path: Path) -> None:
    listed = set(re.findall(r"`(USHER_\w+)`", section("The environment of a job")))
    add(database, "--type", "env", "--data", "d", "--", "/usr/bin/env")
    with manager({"DATABASE_URL": database, "USHER_TOKEN": "secret"}, tmp_path):
        [row] = done(database, 1)
    given = {line.partition("=")[0] for line in str(row[3]).splitlines()}
    passed = {name for name in given if name.startswith("USHER_")}
    assert passed == listed - {"USHER_TASK_ID", "USHER_CONFIG"}  # neither a task nor a file here
    usual = set(re.findall(r"`([A-Z_]+)`", section("The environment of a job"))) - listed
    known = usual | {name for name in given if name.startswith("LC_") or "PROXY" in name.upper()}
    assert given - passed <= known | {"PWD", "SHLVL", "_"}


def test_the_settings_of_the_page_are_settings() -> None:
    tables = [
        tomllib.loads(text)["worker"] for text in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    ]
    assert len(tables) == 4
    for table in tables:
        read_policies(table)


def section(title: str) -> str:
    """The text of a section of the page."""
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
