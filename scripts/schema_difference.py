"""The difference of two schemas as statements, from what pg_dump prints for each.

After a migration the code of the last release continues for a while, so the difference may only add. What it would
change or remove is returned as a problem, and the developer decides (docs/upgrade.md).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

HEADER: Final = re.compile(
    r"^--\n-- Name: (?P<name>.*); Type: (?P<type>.*); Schema: (?P<schema>.*); Owner: .*\n--\n",
    re.MULTILINE,
)
NOISE: Final = re.compile(r"^(?:--.*|SET .*;|SELECT pg_catalog\.set_config.*|\\.*)\n", re.MULTILINE)
TABLE_BODY: Final = re.compile(
    r"(?P<head>CREATE TABLE \S+ \()\n(?P<body>.*)\n\)(?P<tail>.*);", re.DOTALL
)
INDEX_TABLE: Final = re.compile(r" INDEX (?P<index>\S+) ON (?:ONLY )?(?P<table>\S+) ")
OWN_TABLE: Final = "schema_migrations"  # dbmate's
REPLACEABLE: Final = frozenset({"FUNCTION", "PROCEDURE", "VIEW", "TRIGGER"})
DROPS: Final = frozenset({"FUNCTION", "PROCEDURE", "VIEW", "TABLE", "INDEX", "DOMAIN", "SEQUENCE"})
ON_TABLES: Final = frozenset({"CONSTRAINT", "CHECK CONSTRAINT", "FK CONSTRAINT"})


class SchemaObject(NamedTuple):
    """The key of an object: its type, schema and name, a function's with its arguments."""

    type: str
    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.type.lower()} {self.schema}.{self.name}"


@dataclass(slots=True)
class Difference:
    """Statements of one transaction, indexes on large tables, each to be built alone, and what must not be changed."""

    statements: list[str] = field(default_factory=list)
    indexes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def schema_objects(dump: str) -> dict[SchemaObject, str]:
    """The objects of a dump with the statements that create them, in the order of the dump."""
    matches = list(HEADER.finditer(dump))
    ends = [*(match.start() for match in matches[1:]), len(dump)]
    objects = {}
    for match, end in zip(matches, ends, strict=True):
        key = SchemaObject(match["type"], match["schema"], match["name"])
        text = NOISE.sub("", dump[match.end() : end]).strip()
        if text and OWN_TABLE not in key.name and key.type != "SCHEMA":
            objects[key] = text
    return objects


def difference(
    old: Mapping[SchemaObject, str], new: Mapping[SchemaObject, str], *, remove: bool = False
) -> Difference:
    """What makes the new schema of the old one; it removes objects and columns only with `remove`."""
    result = Difference()
    for key in reversed(old):
        if key not in new:
            drop(key, old[key], result, remove=remove)
    for key, text in new.items():
        if key not in old:
            add(key, text, old, result)
        elif old[key] != text:
            change(key, old[key], text, result, remove=remove)
    return result


def add(key: SchemaObject, text: str, old: Mapping[SchemaObject, str], result: Difference) -> None:
    index = INDEX_TABLE.search(text) if key.type == "INDEX" else None
    table = index["table"].rpartition(".")[2] if index else key.name.split()[0]
    is_on_old_table = SchemaObject("TABLE", key.schema, table) in old
    if index and is_on_old_table and not text.startswith("CREATE UNIQUE"):
        # Building an index locks its table against writes, unless it is built concurrently, outside a transaction.
        result.indexes.append(text.replace("CREATE INDEX ", "CREATE INDEX CONCURRENTLY ", 1))
    elif is_on_old_table and (index or key.type in ON_TABLES):
        result.problems.append(f"{key} is new on a table that exists: old code may violate it")
    else:
        result.statements.append(text)


def change(key: SchemaObject, before: str, text: str, result: Difference, *, remove: bool) -> None:
    if key.type in REPLACEABLE:
        result.statements.append(text.replace("CREATE ", "CREATE OR REPLACE ", 1))
    elif key.type == "COMMENT":
        result.statements.append(text)
    elif key.type == "TABLE":
        change_table(key, before, text, result, remove=remove)
    else:
        result.problems.append(f"{key} changes")


def change_table(
    key: SchemaObject, before: str, text: str, result: Difference, *, remove: bool
) -> None:
    table, old, new = f"{key.schema}.{key.name}", table_lines(before), table_lines(text)
    added = [line for line in new if line not in old]
    columns = [line for line in added if not line.startswith("CONSTRAINT ")]
    names = {line.split()[0] for line in columns}
    old_names = {line.split()[0] for line in old if not line.startswith("CONSTRAINT ")}
    for line in added:
        is_column = line in columns
        has_value = " DEFAULT " in line or " NOT NULL" not in line
        is_about_new = any(re.search(rf"\b{re.escape(name)}\b", line) for name in names)
        if is_column and line.split()[0] in old_names:
            result.problems.append(f"{table}: column {line.split()[0]} changes")
        elif is_column and not has_value:
            result.problems.append(
                f"{table}: {line}: old code inserts rows without it, so it needs a default"
            )
        elif not is_column and not is_about_new:
            result.problems.append(f"{table}: {line}: old code may violate it")
        else:
            result.statements.append(
                f"ALTER TABLE {table} ADD {'COLUMN ' if is_column else ''}{line};"
            )
    for line in old:
        name = line.split()[1] if line.startswith("CONSTRAINT ") else line.split()[0]
        if line in new or name in {new_line.split()[0] for new_line in columns}:
            continue
        kind = "CONSTRAINT" if line.startswith("CONSTRAINT ") else "COLUMN"
        if remove:
            result.statements.append(f"ALTER TABLE {table} DROP {kind} IF EXISTS {name};")
        else:
            result.problems.append(f"{table}: {kind.lower()} {name} is removed")


def table_lines(text: str) -> list[str]:
    """The columns and constraints of a table."""
    match = TABLE_BODY.fullmatch(text)
    if not match:
        return [text]  # such as a partition
    return [line.strip().removesuffix(",") for line in match["body"].splitlines()]


def drop(key: SchemaObject, text: str, result: Difference, *, remove: bool) -> None:
    if key.type == "COMMENT" or " ADD GENERATED " in text or " OWNED BY " in text:
        return  # it goes with its object
    if not remove:
        result.problems.append(f"{key} is removed")
        return
    table, _, name = key.name.partition(" ")
    if key.type in DROPS:
        result.statements.append(f"DROP {key.type} IF EXISTS {key.schema}.{key.name};")
    elif key.type == "TRIGGER":
        result.statements.append(f"DROP TRIGGER IF EXISTS {name} ON {key.schema}.{table};")
    elif key.type in ON_TABLES:
        result.statements.append(
            f"ALTER TABLE {key.schema}.{table} DROP CONSTRAINT IF EXISTS {name};"
        )
    else:
        result.problems.append(f"{key} is removed: write that by hand")


def comparable(objects: Mapping[SchemaObject, str]) -> dict[SchemaObject, str]:
    """The objects with the columns of tables sorted: a migration adds columns at the end."""
    return {
        key: "\n".join(sorted(table_lines(text))) if key.type == "TABLE" else text
        for key, text in objects.items()
    }


def unequal(
    one: Mapping[SchemaObject, str], other: Mapping[SchemaObject, str]
) -> Iterator[SchemaObject]:
    """The objects that differ."""
    left, right = comparable(one), comparable(other)
    return (key for key in {**left, **right} if left.get(key) != right.get(key))
