"""Writes the dbmate migrations of each schema from the files in its tables/ and functions/; `make migrations` runs it.

The file `order` of a schema lists these files in the order of the migration. Before the first release, each schema has
one migration. If it changes, the new one replaces it under the next version: Usher then refuses the database of an
older checkout, instead of failing later at a table that is not there.

`scripts/release --commit` lists the migrations in the file `released`; from then on they never change. The difference
between them and the files is one more migration, and one for each new index. It may only add, because the code of the
last release runs until it is upgraded too. With --remove, it also removes what the files no longer define: only what
the code of the last release does not use.
"""

import argparse
import asyncio
import hashlib
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from psycopg.conninfo import make_conninfo
from schema_difference import (
    INDEX_TABLE,
    Difference,
    SchemaObject,
    difference,
    schema_objects,
    unequal,
)

from usher import __version__
from usher.db.areas import SCHEMA_DIRECTORY, SCHEMAS, with_view_schemas
from usher.db.embedded.locks import is_locked
from usher.db.embedded.server_lease import lease_server
from usher.db.embedded.supervisor import SUPERVISOR_LOCK
from usher.schema.dump import PORTABLE_OPTIONS, client_program, run_client
from usher.schema.migration_files import read_migration
from usher.versions import minor_version

RELEASED = SCHEMA_DIRECTORY / "released"
FIRST_VERSION = 20261118000100
SUFFIX = "_schema.sql"
DIFFERENCE_SUFFIX = "_difference.sql"
INDEX_SUFFIX = "_index.sql"
STOP_SECONDS = 120.0
NEEDED_SCHEMAS = {"multimatch": ("feeds",)}
GENERATED = (SUFFIX, DIFFERENCE_SUFFIX, INDEX_SUFFIX)
HEAD = "-- `make migrations` writes this file from those that `order` lists. Do not edit it."
# Drops everything except dbmate's own table, also what was created later, such as partitions.
DOWN = """do $$
declare
    command text;
begin
    foreach command in array array(
        select format('drop table if exists %I.%I cascade', schemaname, tablename) from pg_tables
        where schemaname = '{schema}' and tablename <> 'schema_migrations'
        union all
        select format('drop routine if exists %s cascade', oid::regprocedure) from pg_proc
        where pronamespace = '{schema}'::regnamespace
        union all
        select format('drop domain if exists %s cascade', oid::regtype) from pg_type
        where typnamespace = '{schema}'::regnamespace and typtype = 'd'
    )
    loop
        execute command;
    end loop;
end
$$;
"""


def parts(schema: str) -> list[str]:
    """Return the files of a schema as its `order` lists them, relative to its directory."""
    lines = (SCHEMA_DIRECTORY / schema / "order").read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def up_script(schema: str) -> str:
    """Return the statements that create a schema from its files."""
    directory = SCHEMA_DIRECTORY / schema
    first, *views = with_view_schemas(schema)
    create = [f"create schema if not exists {name};\n" for name in (first, *views)]
    files = [f"-- {part}\n\n{(directory / part).read_text('utf-8')}" for part in parts(schema)]
    return "\n".join([*create, *files, close_to_public(schema)])


def close_to_public(schema: str) -> str:
    """By default PUBLIC, every login of the server, may execute new functions."""
    return f"revoke execute on all functions in schema {schema} from public;\n"


def migration(schema: str) -> str:
    """Return the migration for the files of a schema."""
    drop = [f"drop schema if exists {name} cascade;\n" for name in with_view_schemas(schema)[1:]]
    up = ["-- migrate:up\n", f"{HEAD}\n", up_script(schema)]
    return "\n".join([*up, "-- migrate:down\n", *drop, DOWN.replace("{schema}", schema)])


def write(directory: Path, text: str) -> Path:
    """Write the migration and delete all older ones; the file keeps its version if nothing changed."""
    existing = sorted(directory.glob(f"[0-9]*{SUFFIX}"))
    if existing and existing[-1].read_text("utf-8") == text:
        path = existing.pop()
    else:
        last = int(existing[-1].name.removesuffix(SUFFIX)) if existing else FIRST_VERSION - 1
        path = directory / f"{last + 1}{SUFFIX}"
        path.write_text(text, "utf-8")
        print(f"wrote {directory.name}/{path.name}: recreate databases of older checkouts")
    for old in existing:
        old.unlink()
    return path


# -- after a release


def released() -> Mapping[str, str]:
    """Return the released migrations, as `work/2026…_schema.sql`, with their checksums."""
    if not RELEASED.exists():
        return {}
    pairs = [line.split() for line in RELEASED.read_text("utf-8").splitlines()]
    return {name: checksum for checksum, name in pairs}


def release_all() -> None:
    """List all present migrations as released."""
    files = sorted(
        path for schema in SCHEMAS for path in (SCHEMA_DIRECTORY / schema).glob("[0-9]*")
    )
    lines = [f"{digest(path)}  {path.relative_to(SCHEMA_DIRECTORY)}\n" for path in files]
    RELEASED.write_text("".join(lines), "utf-8")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fixed_migrations(schema: str) -> list[Path]:
    """Return the migrations that this script does not write: released ones, and those that were written by hand."""
    known, fixed = released(), []
    for path in sorted((SCHEMA_DIRECTORY / schema).glob("[0-9]*.sql")):
        checksum = known.get(f"{schema}/{path.name}")
        if checksum is not None and checksum != digest(path):
            sys.exit(f"{schema}/{path.name} has been released and must not change.")
        if checksum is not None or not path.name.endswith(GENERATED):
            fixed.append(path)
    return fixed


async def expected_files(schema: str, server: str, *, remove: bool = False) -> dict[str, str]:
    """Return the migrations to write after the fixed ones, by their names; exit if the change does more than add."""
    fixed = fixed_migrations(schema)
    steps = [read_migration(path).up for path in fixed]
    before = await created_objects(server, f"{schema}_before", schema, steps)
    after = await created_objects(server, f"{schema}_after", schema, [up_script(schema)])
    if not any(unequal(before, after)):
        return {}
    up, down = difference(before, after, remove=remove), difference(after, before, remove=True)
    if up.problems:
        problems = "".join(f"  {problem}\n" for problem in up.problems)
        sys.exit(
            f"{schema}: the code of the last release would not continue to work:\n{problems}{REMOVE_HINT}"
        )
    texts = [difference_text(schema, up, down)] if up.statements else []
    texts += [index_text(statement) for statement in up.indexes]
    steps += [text.partition("-- migrate:up")[2].partition("-- migrate:down")[0] for text in texts]
    steps = [step.removeprefix(" transaction:false") for step in steps]
    result = await created_objects(server, f"{schema}_result", schema, steps)
    if left := list(unequal(result, after)):
        sys.exit(
            f"{schema}: the difference is too complex: {', '.join(map(str, left))}.\n{REMOVE_HINT}"
        )
    first = int(fixed[-1].name.partition("_")[0]) + 1
    suffixes = [
        INDEX_SUFFIX if text.startswith(INDEX_HEAD) else DIFFERENCE_SUFFIX for text in texts
    ]
    return {
        f"{first + number}{suffix}": text
        for number, (suffix, text) in enumerate(zip(suffixes, texts, strict=True))
    }


REMOVE_HINT = (
    "Add the new beside the old, and remove the old one release later, with --remove. Or write a migration by hand "
    "(docs/upgrade.md).\n"
)
INDEX_HEAD = "-- migrate:up transaction:false"


def difference_text(schema: str, up: Difference, down: Difference) -> str:
    version = minor_version(__version__)
    works = (
        f"comment on table {schema}.schema_migrations is 'Works with Usher {version} and newer.';\n"
    )
    body = "\n\n".join(up.statements)
    undo = "\n\n".join(down.statements)
    checks = "set local check_function_bodies = off;\n"
    return (
        f"-- migrate:up\n\n{HEAD}\n\n{works}\n{checks}\n{body}\n\n{close_to_public(schema)}\n"
        f"-- migrate:down\n\n{checks}\n{undo}\n"
    )


def index_text(statement: str) -> str:
    """A migration of its own, because PostgreSQL builds an index concurrently only outside a transaction."""
    match = INDEX_TABLE.search(statement.replace(" CONCURRENTLY ", " "))
    if match is None:
        raise ValueError(f"{statement} creates no index")
    schema = match["table"].partition(".")[0]
    drop = f"drop index concurrently if exists {schema}.{match['index']};"
    return f"{INDEX_HEAD}\n\n{HEAD}\n\n{statement}\n\n-- migrate:down transaction:false\n\n{drop}\n"


async def created_objects(
    server: str, name: str, schema: str, steps: list[str]
) -> dict[SchemaObject, str]:
    """Return the objects of a schema that these scripts create in a new database."""
    async with await psycopg.AsyncConnection.connect(server, autocommit=True) as conn:
        await conn.execute(f"drop database if exists {name}".encode())
        await conn.execute(f"create database {name}".encode())
        major = conn.info.server_version // 10000
    dsn = make_conninfo(server, dbname=name)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        await conn.execute(f"create schema if not exists {schema}".encode())
        await conn.execute(f"create table {schema}.schema_migrations (version text)".encode())
        for needed in NEEDED_SCHEMAS.get(schema, ()):
            await conn.execute(up_script(needed).encode())
        for step in steps:
            await conn.execute(step.replace(" CONCURRENTLY ", " ").encode())
    names = [f"--schema={part}" for part in with_view_schemas(schema)]
    command = [client_program("pg_dump", major, ""), "--schema-only", *PORTABLE_OPTIONS, *names]
    return schema_objects(await run_client([str(word) for word in command], dsn))


async def write_differences(server: str, *, remove: bool) -> None:
    for schema in SCHEMAS:
        directory, keep = (
            SCHEMA_DIRECTORY / schema,
            {path.name for path in fixed_migrations(schema)},
        )
        files = await expected_files(schema, server, remove=remove)
        for path in directory.glob("[0-9]*.sql"):
            if path.name not in keep and path.name not in files:
                path.unlink()
        for name, text in files.items():
            path = directory / name
            if not path.exists() or path.read_text("utf-8") != text:
                path.write_text(text, "utf-8")
                print(f"wrote {schema}/{name}")


def wait_stopped(data: Path) -> None:
    """Wait until the server has left its directory, which it does a moment after its last lease."""
    deadline = time.monotonic() + STOP_SECONDS
    while data.exists() and is_locked(data / SUPERVISOR_LOCK) and time.monotonic() < deadline:
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--remove", action="store_true", help="also remove what no file defines")
    parser.add_argument("--release", action="store_true", help="list all migrations as released")
    options = parser.parse_args()
    if options.release:
        release_all()
        return
    if not released():
        for schema in SCHEMAS:
            write(SCHEMA_DIRECTORY / schema, migration(schema))
        return
    for schema in SCHEMAS:
        fixed_migrations(schema)  # exits if a released one was changed
    with TemporaryDirectory(prefix="usher-migrations-") as name:
        data = Path(name) / "data"
        Path(name).chmod(0o711)  # as root, PostgreSQL runs as another user
        try:
            with lease_server(data) as lease:
                asyncio.run(write_differences(lease.dsn, remove=options.remove))
        finally:
            wait_stopped(data)


if __name__ == "__main__":
    main()
