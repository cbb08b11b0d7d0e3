"""The command line as a person meets it: words, exit codes, what goes where."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from support.db.fixtures import DEBIAN
from support.processes.commands import usher
from support.processes.killable import supervisor_pids
from usher import __version__
from usher.cli.commands.db import SCHEMA_NAMES
from usher.db.areas import SCHEMAS

ROOT = Path(__file__).parents[2]


def to(dsn: str) -> dict[str, str]:
    return {"DATABASE_URL": dsn}


def test_version() -> None:
    assert usher("version").out == f"usher {__version__}\n"
    assert usher("version", "--json").json["usher"] == __version__


def test_help_begins_with_what_it_is_and_examples() -> None:
    for words in (("--help",), ("-h",), ("db", "--help"), ("settings", "--help")):
        ran = usher(*words)
        assert ran.code == 0
        assert "Examples:" in ran.out


def test_the_cli_names_every_schema() -> None:
    assert tuple(SCHEMAS) == SCHEMA_NAMES


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nonsense",), 2, "No such command 'nonsense'"),
        (("db", "rollback"), 2, "Missing option '--schema'"),
        (("db", "status", "--schema", "nonsense"), 2, "Invalid value"),
        (("db", "rollback", "--schema", "work"), 2, "--yes"),
        (("db", "drop"), 2, "--yes"),
        (("crawl", "--data", "x", "a.test"), 2, "before the command: usher --data PATH crawl …"),
        (("pages", "errors", "-q"), 2, "-q goes before the command: usher -q pages errors …"),
        (("bench", "nonsense"), 3, "no benchmark named 'nonsense'"),
        (("--config", "/nowhere/usher.toml", "settings"), 2, "cannot be read"),
    ],
)
def test_bad_usage(words: tuple[str, ...], code: int, said: str, data: Path) -> None:
    ran = usher("--data", data, *words)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://example.com/a", "Usher fetches only http and https, not ftp."),
        ("http://me:secret@example.com/", "The URL has a user name or a password; remove them."),
    ],
)
def test_a_url_that_cannot_be_crawled_starts_nothing(url: str, reason: str, data: Path) -> None:
    ran = usher("--data", data, "crawl", url)
    assert (ran.code, ran.out) == (2, "")
    assert reason in ran.err
    assert "secret" not in ran.err
    assert "Starting" not in ran.err


def test_a_hint_repeats_the_data_directory(tmp_path: Path) -> None:
    data = tmp_path / "my data"
    words = ("search", "--front", "http://127.0.0.1:1", "cat")
    ran = usher("--data", data, *words)
    assert (ran.code, ran.out) == (5, "")
    assert f"→ Start one with `usher --data '{data}' front`" in ran.err
    ran = usher(*words, environment={"USHER_DATA": str(data)})
    assert "→ Start one with `usher front`" in ran.err


def make_checkout(directory: Path) -> None:
    """Make a directory with the launcher of a checkout, which is installed."""
    (directory / ".venv/bin").mkdir(parents=True)
    shutil.copy(ROOT / "usher", directory)
    shutil.copy(ROOT / "requirements.lock", directory)
    shutil.copy(ROOT / "requirements.lock", directory / ".venv")
    python = directory / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)


def test_links_to_the_launcher_run_it(tmp_path: Path) -> None:
    make_checkout(tmp_path / "a checkout")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/first").symlink_to("../a checkout/usher")
    (tmp_path / "bin/second").symlink_to(tmp_path / "bin/first")
    for name in ("first", "second"):
        words = [str(tmp_path / "bin" / name), "version"]
        ran = subprocess.run(words, cwd="/", capture_output=True, text=True, check=False)
        assert (ran.stdout, ran.stderr) == (f"usher {__version__}\n", "")


def test_a_hint_begins_as_the_user_called_the_launcher(tmp_path: Path) -> None:
    make_checkout(tmp_path)
    words = ["./usher", "--data", "data", "search", "--front", "http://127.0.0.1:1", "cat"]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 5
    assert "→ Start one with `./usher --data data front`" in ran.stderr


def test_settings_show_value_and_origin(tmp_path: Path) -> None:
    (tmp_path / "usher.toml").write_text("pool_size = 3\n")
    ran = usher(
        "settings", "--json", environment=to("postgresql://me:pa55w0rd@here/db"), cwd=tmp_path
    )
    shown = {one["name"]: one for one in ran.json}
    assert (shown["pool_size"]["value"], shown["pool_size"]["origin"]) == ("3", "usher.toml")
    assert shown["database_url"]["origin"] == "DATABASE_URL"
    assert "pa55w0rd" not in ran.out
    assert usher("settings", cwd=tmp_path).out.startswith("SETTING")


def test_settings_check(tmp_path: Path) -> None:
    assert usher("settings", "--check", cwd=tmp_path).code == 0
    ran = usher("settings", "--check", environment={"USHER_POOL_SIZ": "3"})
    assert (ran.code, ran.out) == (2, "")
    assert "Did you mean USHER_POOL_SIZE?" in ran.err


def test_doctor_makes_everything_ready_and_leaves_nothing_running(data: Path) -> None:
    ran = usher("--data", data, "doctor", "--json")
    assert ran.code == 0, ran.err
    assert {check["name"] for check in ran.json} == {
        "versions", "postgres", "data", "database", "clock", "schema", "roles", "running",
        "user", "network", "permissions",
    }  # fmt: skip
    # The user and the network are those of the test run.
    checks = [check for check in ran.json if check["name"] not in {"user", "network"}]
    assert {check["level"] for check in checks} == {"good"}
    deadline = time.monotonic() + 20
    while supervisor_pids(data) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not supervisor_pids(data)


def test_doctor_says_what_to_do(empty_database: str) -> None:
    ran = usher("doctor", environment=to(empty_database))
    assert ran.code == 3
    assert "NO  schema" in ran.out
    assert "usher db migrate" in ran.out


@pytest.mark.parametrize(
    ("dsn", "code", "said"),
    [
        ("postgresql://me:secret@127.0.0.1:1/db", 5, "refused"),
        ("postgresql://[nonsense", 2, "not a PostgreSQL address"),
        ("postgresql:///db?host=/nowhere/at/all", 5, "No such file"),
    ],
)
def test_a_wrong_dsn_is_one_paragraph_and_the_next_step(dsn: str, code: int, said: str) -> None:
    for command in (
        ("db", "status"),
        ("db", "migrate"),
        ("db", "create"),
        ("db", "roles", "check"),
    ):
        ran = usher(*command, environment={**to(dsn), "USHER_CONNECT_TIMEOUT": "0"})
        assert (ran.code, ran.out) == (code, "")
        assert said in ran.err
        assert "→" in ran.err
        assert "Traceback" not in ran.err
        assert "secret" not in ran.err


def test_doctor_as_a_lesser_role_still_answers(database: str) -> None:
    ran = usher("doctor", environment=to(make_conninfo(database, user="usher_door")))
    assert ran.code == 0
    assert "ok  database" in ran.out
    assert "!!  schema" in ran.out


def test_the_embedded_server_gets_its_roles_with_its_schemas(data: Path) -> None:
    assert usher("--data", data, "db", "migrate").code == 0
    assert usher("--data", data, "db", "roles", "check").code == 0


def test_a_schema_behind_is_exit_code_6(empty_database: str) -> None:
    ran = usher("db", "status", environment=to(empty_database))
    assert ran.code == 6
    assert "usher db migrate" in ran.err
    assert [line.split()[:2] for line in ran.out.splitlines()[1:]] == [
        [name, "-"] for name in SCHEMAS
    ]


@pytest.mark.seed("002.2", "003.4")
def test_migrate_status_rollback_drop(empty_database: str) -> None:
    there = to(empty_database)
    made = usher("db", "migrate", "--json", environment=there)
    assert {change["schema"] for change in made.json} == set(SCHEMAS)
    assert "Nothing to do." in usher("db", "migrate", environment=there).err
    assert all(
        state["current"] for state in usher("db", "status", "--json", environment=there).json
    )
    undone = usher("db", "rollback", "--schema", "work", "--yes", environment=there)
    assert undone.out.startswith("undone work 2026")
    assert usher("db", "status", "--schema", "work", environment=there).code == 6
    assert usher("db", "drop", "--schema", "feeds", "--yes", environment=there).code == 0


@pytest.mark.seed("000.31", "002.2")
def test_create_makes_the_database_too(empty_database: str) -> None:
    fresh = make_conninfo(empty_database, dbname="made_by_usher")
    assert usher("db", "status", environment=to(fresh)).code == 5
    try:
        assert usher("db", "create", environment=to(fresh)).code == 0
        assert usher("db", "create", environment=to(fresh)).code == 0
        assert usher("db", "status", environment=to(fresh)).code == 0
    finally:
        import psycopg

        with psycopg.connect(empty_database, autocommit=True) as conn:
            conn.execute("drop database if exists made_by_usher")


@pytest.mark.seed("002.10")
def test_roles(database: str) -> None:
    import psycopg

    there = to(database)
    assert usher("db", "roles", "check", environment=there).code == 0
    with psycopg.connect(database) as conn:
        conn.execute("revoke select on work.hosts from usher_reader")
    ran = usher("db", "roles", "check", environment=there)
    assert ran.code == 3
    assert ran.out == "missing grant  usher_reader select on relation work.hosts\n"
    assert usher("db", "roles", "create", environment=there).code == 0
    assert usher("db", "roles", "check", environment=there).code == 0


def test_a_role_without_the_right_is_exit_code_4(database: str) -> None:
    ran = usher(
        "db", "roles", "create", environment=to(make_conninfo(database, user="usher_reader"))
    )
    assert ran.code == 4
    assert "CREATEROLE" in ran.err


@pytest.mark.seed("002.2")
def test_dump_and_restore(database: str, tmp_path: Path) -> None:
    there = to(database)
    ran = usher("db", "dump", tmp_path / "backup", "--json", environment=there)
    assert {one["schema"] for one in ran.json} == set(SCHEMAS)
    refused = usher("db", "restore", tmp_path / "backup", environment=there)
    assert refused.code == 2
    assert "--replace" in refused.err
    assert usher("db", "restore", tmp_path / "backup", "--replace", environment=there).code == 0


def test_schema_prints_sql(database: str) -> None:
    ran = usher("db", "schema", "--schema", "work", environment=to(database))
    assert "CREATE TABLE work.hosts" in ran.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    assert "_USHER_COMPLETE" in usher("completion", shell).out


def test_completion_completes() -> None:
    asked = {"_USHER_COMPLETE": "bash_complete", "COMP_WORDS": "usher db ro", "COMP_CWORD": "2"}
    assert set(usher(environment=asked).out.split()) == {"plain,rollback", "plain,roles"}


def test_a_reader_that_goes_away_is_no_error() -> None:
    ran = subprocess.run(
        f"{sys.executable} -m usher --help | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.startswith("Usage: usher")
    assert "Traceback" not in ran.stderr


def test_interrupted_is_130(data: Path) -> None:
    """Ctrl-C while waiting for a server that never answers."""
    process = subprocess.Popen(
        [sys.executable, "-m", "usher", "--data", data, "db", "migrate"],
        env={**os.environ, **to("postgresql://127.0.0.1:1/db"), "USHER_CONNECT_TIMEOUT": "60"},
        stderr=subprocess.PIPE,
        text=True,
        # Tests in the background of a shell inherit an ignored Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    try:
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in said


def test_a_data_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = usher("--data", tmp_path / "file", "db", "status")
    assert ran.code == 1
    assert "--data" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.debian
@pytest.mark.skipif(not DEBIAN.exists(), reason="Debian's PostgreSQL 15 is not installed")
def test_other_programs_can_be_embedded(data: Path) -> None:
    ran = usher("--data", data, "doctor", environment={"USHER_PG_BIN": str(DEBIAN)})
    assert ran.code == 0, ran.out + ran.err
    assert "PostgreSQL 15" in ran.out
