"""After a release, `make migrations` writes what the files of a schema add, and refuses what old code would miss.

Each test has a copy of the sources, whose migrations are released, and runs the script there.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from usher import __version__
from usher.versions import minor_version

TREE = Path(__file__).parents[2]
COMPONENTS, ORDER = "tables/components.sql", "order"
EVENTS = "tables/events.sql"


class Sources:
    """A copy of the package and the script."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.work = directory / "src" / "usher" / "schema" / "work"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(TREE / "src", directory / "src", ignore=ignored)
        shutil.copytree(TREE / "scripts", directory / "scripts", ignore=ignored)
        self.script("--release")
        self.released = self.files()

    def script(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(self.directory / "scripts" / "migrations.py"), *words]
        return self.run(command)

    def run(self, command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if "USHER" not in name}
        environment = {**kept, "PYTHONPATH": str(self.directory / "src"), **more}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def usher(self, dsn: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run([sys.executable, "-m", "usher", *words], DATABASE_URL=dsn)

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.work.glob("[0-9]*.sql")}

    def new(self) -> list[str]:
        """The migrations after the released ones."""
        files = self.files()
        assert {name: files[name] for name in self.released} == self.released
        return sorted(set(files) - set(self.released))

    def edit(self, name: str, pattern: str, replacement: str) -> None:
        path = self.work / name
        text, count = re.subn(pattern, replacement, path.read_text(), count=1, flags=re.MULTILINE)
        assert count == 1, (name, pattern)
        path.write_text(text)


@pytest.fixture
def sources(data: Path) -> Sources:
    return Sources(data.parent / "copy")


def add_much(sources: Sources) -> None:
    """A column with a check and a comment, a table, an index on a table that exists, a changed and a new function."""
    sources.edit(
        COMPONENTS,
        r"^    draining boolean .*$",
        "    zone text not null default 'a;b' constraint zone_short check (length(zone) < 9),\\n\\g<0>",
    )
    sources.edit(
        COMPONENTS, r"\Z", "\ncomment on column work.component.zone is 'Where it is; far.';\n"
    )
    sources.edit(EVENTS, r"\Z", "\ncreate index event_reasons on work.event (reason, id);\n")
    (sources.work / "tables" / "zone.sql").write_text(
        "create table work.zone (id bigint generated always as identity primary key, name text not null unique);\n"
    )
    (sources.work / "functions" / "zones.sql").write_text(
        "create function work.zones() returns bigint language sql stable set search_path = ''\n"
        "as $$ select count(*) from work.zone where name <> ';' $$;\n"
    )
    sources.edit(ORDER, r"^tables/events.sql$", "\\g<0>\ntables/zone.sql\nfunctions/zones.sql")
    sources.edit("functions/session_versions.sql", "distinct", "distinct /* once */")


@pytest.mark.soak
def test_what_is_added_becomes_a_migration(sources: Sources, empty_database: str) -> None:
    assert sources.usher(empty_database, "db", "migrate").returncode == 0
    before = columns(empty_database)
    add_much(sources)
    done = sources.script()
    assert done.returncode == 0, done.stderr
    difference, index = sources.new()
    assert difference.endswith("_difference.sql")
    assert index.endswith("_index.sql")
    own = minor_version(__version__)
    assert f"'Works with Usher {own} and newer.'" in sources.files()[difference]
    assert "CREATE INDEX CONCURRENTLY event_reasons" in sources.files()[index]
    assert sources.script().stdout == ""  # the same again
    assert sources.new() == [difference, index]
    done = sources.usher(empty_database, "db", "migrate")
    assert done.returncode == 0, done.stderr
    assert columns(empty_database) - before == {
        ("component", "zone", "'a;b'::text"), ("zone", "id", None), ("zone", "name", None),
    }  # fmt: skip
    with psycopg.connect(empty_database) as conn:
        assert conn.execute("select work.zones()").fetchone() == (0,)
        assert conn.execute("select to_regclass('work.event_reasons') is not null").fetchone() == (
            True,
        )
    undone = sources.usher(
        empty_database, "db", "rollback", "--schema", "work", "--steps", "2", "--yes"
    )
    assert undone.returncode == 0, undone.stderr
    assert columns(empty_database) == before


def columns(dsn: str) -> set[tuple[str, str, str | None]]:
    with psycopg.connect(dsn) as conn:
        rows = conn.execute(
            "select table_name, column_name, column_default from information_schema.columns "
            "where table_schema = 'work'"
        ).fetchall()
    return {(table, column, default) for table, column, default in rows}


def remove_column(sources: Sources) -> None:
    sources.edit(COMPONENTS, r"^    version text .*\n", "")
    sources.edit(COMPONENTS, r"^comment on column work.component.version .*\n", "")


def need_column(sources: Sources) -> None:
    sources.edit(COMPONENTS, r"^    draining boolean", "    zone text not null,\n\\g<0>")


def change_column(sources: Sources) -> None:
    sources.edit(COMPONENTS, r"^    misses smallint", "    misses integer")


def forbid_more(sources: Sources) -> None:
    sources.edit(COMPONENTS, r"weight > 0\)", "weight > 0 and weight < 9)")


def remove_function(sources: Sources) -> None:
    (sources.work / "functions" / "session_versions.sql").unlink()
    sources.edit(ORDER, r"^functions/session_versions.sql\n", "")


def make_unique(sources: Sources) -> None:
    sources.edit(EVENTS, r"\Z", "\ncreate unique index one_event on work.event (at);\n")


def test_what_old_code_would_miss_is_refused(sources: Sources) -> None:
    for change in (
        remove_column, need_column, change_column, forbid_more, remove_function, make_unique,
    ):  # fmt: skip
        change(sources)
    done = sources.script()
    assert done.returncode == 1, done.stdout
    for problem in (
        "work.component: column version is removed",
        "work.component: zone text NOT NULL: old code inserts rows without it",
        "work.component: column misses changes",
        "component_weight_positive",
        "function work.session_versions() is removed",
        "index work.one_event is new on a table that exists",
    ):
        assert problem in done.stderr
    assert sources.new() == []


@pytest.mark.soak
def test_what_the_last_release_does_not_use_can_be_removed(
    sources: Sources, empty_database: str
) -> None:
    assert sources.usher(empty_database, "db", "migrate").returncode == 0
    before = columns(empty_database)
    remove_column(sources)
    remove_function(sources)
    sources.edit("grants.sql", r"^grant execute on function work.session_versions.*\n", "")
    done = sources.script("--remove")
    assert done.returncode == 0, done.stderr
    [name] = sources.new()
    assert "DROP FUNCTION IF EXISTS work.session_versions()" in sources.files()[name]
    done = sources.usher(empty_database, "db", "migrate")
    assert done.returncode == 0, done.stderr
    assert {row[:2] for row in before - columns(empty_database)} == {("component", "version")}


def test_a_released_migration_does_not_change(sources: Sources) -> None:
    path = sources.work / next(iter(sources.released))
    path.write_text(path.read_text() + "\n-- one more line\n")
    done = sources.script()
    assert done.returncode == 1
    assert "has been released and must not change" in done.stderr
