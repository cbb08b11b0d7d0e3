"""Writes the dbmate migration of each schema from the files in its tables/ and functions/; `make migrations` runs it.

The file `order` of a schema lists these files in the order of the migration. Nothing has been released yet, so each
schema has one migration. If it changes, the new one replaces it under the next version: Usher then refuses the database
of an older checkout, instead of failing later at a table that is not there.
"""

from pathlib import Path

from usher.db.areas import SCHEMA_DIRECTORY, SCHEMAS, with_view_schemas

FIRST_VERSION = 20261118000100
SUFFIX = "_schema.sql"
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


def migration(schema: str) -> str:
    """Return the migration for the files of a schema."""
    directory = SCHEMA_DIRECTORY / schema
    first, *views = with_view_schemas(schema)
    create = [f"create schema if not exists {name};\n" for name in (first, *views)]
    files = [f"-- {part}\n\n{(directory / part).read_text('utf-8')}" for part in parts(schema)]
    # By default PUBLIC, every login of the server, may execute new functions.
    revoke = f"revoke execute on all functions in schema {schema} from public;\n"
    drop = [f"drop schema if exists {name} cascade;\n" for name in views]
    up = ["-- migrate:up\n", f"{HEAD}\n", *create, *files, revoke]
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


def main() -> None:
    for schema in SCHEMAS:
        write(SCHEMA_DIRECTORY / schema, migration(schema))


if __name__ == "__main__":
    main()
