"""Named SQL statements from the `.sql` file beside a store, run to typed rows.

A file is a list of `-- name: claim` lines, each followed by comments that say its purpose and one statement with
`%(name)s` parameters. The store's function has the same name as the statement it runs.
"""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import AsyncRowFactory, RowMaker, TupleRow, tuple_row

from usher.telemetry import DB_SECONDS

T = TypeVar("T")
UNQUOTED_TYPES = {int, bool}
HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


class Statement:
    """One named statement; parameters by keyword."""

    def __init__(self, store: str, name: str, text: str) -> None:
        self.name = name
        self.text = text
        # Without what only we read: the driver looks at a text of more than 4 kB anew at every call (0.2 ms).
        lines = (line.strip() for line in text.splitlines())
        self.query = "\n".join(line for line in lines if not line.startswith("--")).encode()
        self._seconds = DB_SECONDS.labels(f"{store}.{name}")

    async def rows(self, conn: AsyncConnection[TupleRow], of: type[T], **given: Any) -> list[T]:  # noqa: ANN401
        """Every row as a value of the given class, column by column."""
        async with conn.cursor(row_factory=row_factory_of(of), binary=True) as cursor:
            await self._execute(cursor, given)
            return await cursor.fetchall()

    async def row(self, conn: AsyncConnection[TupleRow], of: type[T], **given: Any) -> T | None:  # noqa: ANN401
        """The one row, or None: nobody was in the state this statement expects."""
        found = await self.rows(conn, of, **given)
        if len(found) > 1:
            raise LookupError(f"{self.name} is to give one row at most and gave {len(found)}")
        return found[0] if found else None

    async def tuples(self, conn: AsyncConnection[TupleRow], **given: Any) -> list[TupleRow]:  # noqa: ANN401
        async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
            await self._execute(cursor, given)
            return await cursor.fetchall()

    async def run(self, conn: AsyncConnection[TupleRow], **given: Any) -> int:  # noqa: ANN401
        """Only the number of rows it touched."""
        async with conn.cursor() as cursor:
            await self._execute(cursor, given)
            return cursor.rowcount

    async def _execute(self, cursor: AsyncCursor[Any], given: dict[str, Any]) -> None:
        start = time.perf_counter()
        await cursor.execute(self.query, given or None)
        self._seconds.observe(time.perf_counter() - start)


def row_factory_of(of: type[T]) -> AsyncRowFactory[T]:
    """Rows as values of a class, filled in the order of the columns: half the time of giving each by its name."""

    def factory(cursor: AsyncCursor[Any]) -> RowMaker[T]:
        names = [column.name for column in cursor.description or ()]
        if names == field_names(of):
            return lambda values: of(*values)
        return lambda values: of(**dict(zip(names, values, strict=True)))

    return factory


def field_names(of: type[Any]) -> list[str]:
    """The fields of a dataclass or a named tuple."""
    named: Sequence[str] | None = getattr(of, "_fields", None)
    return list(named) if named else [field.name for field in fields(of)]


class Statements:
    """The statements of one file as attributes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._by_name = {
            name: Statement(file.stem, name, text)
            for name, text in split_statements(file.read_text("utf-8"))
        }

    def __getattr__(self, name: str) -> Statement:
        try:
            return self._by_name[name]
        except KeyError:
            raise AttributeError(f"{self.file.name} has no statement named {name!r}") from None

    def __iter__(self) -> Iterator[Statement]:
        return iter(self._by_name.values())


def split_statements(text: str) -> Iterator[tuple[str, str]]:
    """Name and text of each statement, in order; a name given twice is an error."""
    _, *parts = HEADING.split(text)
    names = parts[0::2]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"named twice: {', '.join(sorted(twice))}")
    return zip(names, (part.strip().removesuffix(";") for part in parts[1::2]), strict=True)


def array(values: Iterable[object]) -> str | None:
    """An array as PostgreSQL reads it, written ten times as fast as the driver does; null if nothing is in it."""
    given = list(values)
    if given.count(None) == len(given):
        return None
    kinds = set(map(type, given))
    if kinds == {str}:
        texts = '","'.join(given)  # type: ignore[arg-type]
        if "\\" not in texts and texts.count('"') == 2 * len(given) - 2:
            return f'{{"{texts}"}}'
    if kinds <= UNQUOTED_TYPES:
        return "{" + ",".join(map(str, given)) + "}"
    return "{" + ",".join([array_element(value) for value in given]) + "}"


def array_element(value: object) -> str:
    """One element: numbers and UUIDs are plain, text is quoted."""
    if value is None:
        return "NULL"
    if not isinstance(value, str):
        return str(value)
    if value.isalnum():  # and no word that means null
        return value if value.lower() != "null" else f'"{value}"'
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def load_statements(module: str) -> Statements:
    """The statements in the `.sql` file next to a module, called with its `__file__`."""
    return Statements(Path(module).with_suffix(".sql"))
