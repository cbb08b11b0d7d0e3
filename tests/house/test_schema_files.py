"""Developers edit the files in tables/ and functions/ of each schema; `make migrations` writes the migration."""

import asyncio
import re
import runpy
import sys
from collections import Counter
from pathlib import Path

import pytest

from usher.db.areas import SCHEMAS
from usher.db.embedded.server_lease import lease_server
from usher.schema.migration_files import SCHEMA_DIRECTORY

SCRIPTS = Path(__file__).parents[2] / "scripts"
sys.path.append(str(SCRIPTS))  # the script has a second module
SCRIPT = runpy.run_path(str(SCRIPTS / "migrations.py"))
FUNCTION = re.compile(r"^create (?:or replace )?function ([\w.]+)\(", re.MULTILINE)
ARGUMENT = re.compile(r"(?:out |inout |variadic )?\w+ (.+?)(?: default .*)?", re.DOTALL)
MAX_LINES = 400


def sources(schema: str) -> list[Path]:
    return sorted(
        [
            *(SCHEMA_DIRECTORY / schema).glob("tables/*"),
            *(SCHEMA_DIRECTORY / schema).glob("functions/*"),
        ]
    )


def signatures(text: str) -> list[str]:
    """Return each function that a file defines, with the types of its arguments."""
    functions = []
    for match in FUNCTION.finditer(text):
        arguments = split_arguments(text[match.end() :])
        inputs = [argument for argument in arguments if not argument.startswith("out ")]
        types = [ARGUMENT.fullmatch(argument) for argument in inputs]
        functions.append(f"{match[1]}({', '.join(type_[1] for type_ in types if type_)})")
    return functions


def split_arguments(text: str) -> list[str]:
    """Return the arguments at the start of a text that follows the opening parenthesis."""
    arguments, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth < 0:
            break
        if character == "," and not depth:
            arguments.append("")
        else:
            arguments[-1] += character
    return [" ".join(argument.split()) for argument in arguments if argument.strip()]


def test_signatures_are_read_from_the_definitions() -> None:
    text = """
create function work.a(x integer, y numeric(4, 2) default 1, out z text) returns text
create function work.a(
    x bigint[],
    y work.hosts
) returns table (n text)
create or replace function work.b() returns void
"""
    expected = ["work.a(integer, numeric(4, 2))", "work.a(bigint[], work.hosts)", "work.b()"]
    assert signatures(text) == expected


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_migrations_match_the_files(schema: str, data: Path) -> None:
    files = {path.name: path for path in (SCHEMA_DIRECTORY / schema).glob("[0-9]*.sql")}
    if not SCRIPT["released"]():
        [migration] = files.values()
        assert migration.read_text("utf-8") == SCRIPT["migration"](schema), "run `make migrations`"
        return
    fixed = {path.name for path in SCRIPT["fixed_migrations"](schema)}
    with lease_server(data) as lease:
        expected = asyncio.run(SCRIPT["expected_files"](schema, lease.dsn, remove=True))
    written = {name: path.read_text("utf-8") for name, path in files.items() if name not in fixed}
    assert written == expected, "run `make migrations`"


def test_a_changed_migration_replaces_the_old_one_under_the_next_version(tmp_path: Path) -> None:
    write = SCRIPT["write"]
    first = write(tmp_path, "one")
    assert write(tmp_path, "one") == first
    second = write(tmp_path, "two")
    assert second.name > first.name
    assert [*tmp_path.iterdir()] == [second]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_order_lists_every_file_once(schema: str) -> None:
    listed = sorted(SCHEMA_DIRECTORY / schema / part for part in SCRIPT["parts"](schema))
    assert listed == sources(schema)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_function_is_defined_in_one_file(schema: str) -> None:
    counted = Counter(name for path in sources(schema) for name in signatures(path.read_text()))
    assert counted
    assert [name for name, count in counted.items() if count > 1] == []


@pytest.mark.parametrize("schema", SCHEMAS)
def test_functions_are_in_functions_and_tables_in_tables(schema: str) -> None:
    for path in sources(schema):
        text = path.read_text("utf-8")
        defines = "table" if path.parent.name == "functions" else "function"
        assert not re.search(rf"^create (or replace )?{defines} ", text, re.MULTILINE), path
        assert len(text.splitlines()) <= MAX_LINES, path
