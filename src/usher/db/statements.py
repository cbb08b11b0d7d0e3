"""Named SQL statements from the `.sql` file beside a module, with typed rows.

A file contains statements with `%(name)s` parameters, each after a line `-- name: claim` and a comment that says its
purpose. The Python function has the same name as the statement that it runs.
"""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client import Summary
from psycopg import AsyncConnection, AsyncCursor, OperationalError
from psycopg.errors import FeatureNotSupported
from psycopg.rows import AsyncRowFactory, RowMaker, TupleRow, tuple_row

from usher.telemetry import DB_SECONDS

T = TypeVar("T")
UNQUOTED_TYPES = {int, bool}
# PostgreSQL's function that says "cached plan must not change result type", in whatever language.
REPLAN_FUNCTION = "RevalidateCachedQuery"
HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


class Statement:
    """One named statement; parameters by keyword."""

    def __init__(self, store: str, name: str, text: str) -> None:
        self.name = name
        self.text = text
        # Without comments: the driver parses a text of more than 4 kB again at every call (0.2 ms).
        lines = (line.strip() for line in text.splitlines())
        self.query = "\n".join(line for line in lines if not line.startswith("--")).encode()
        self._label = f"{store}.{name}"

    @cached_property
    def _seconds(self) -> Summary:
        """The statement's series, which begins with its first run: a process runs few of the statements it loads."""
        return DB_SECONDS.labels(self._label)

    async def rows(self, conn: AsyncConnection[TupleRow], of: type[T], **given: Any) -> list[T]:  # noqa: ANN401
        """Return every row as a value of the given class, column by column."""
        async with conn.cursor(row_factory=row_factory_of(of), binary=True) as cursor:
            await self._execute(cursor, given)
            return await cursor.fetchall()

    async def row(self, conn: AsyncConnection[TupleRow], of: type[T], **given: Any) -> T | None:  # noqa: ANN401
        """Return the only row, or None if there is none."""
        rows = await self.rows(conn, of, **given)
        if len(rows) > 1:
            raise LookupError(f"{self.name} must return one row at most and returned {len(rows)}")
        return rows[0] if rows else None

    async def only(self, conn: AsyncConnection[TupleRow], of: type[T], **given: Any) -> T:  # noqa: ANN401
        """Return the only row, which exists."""
        [row] = await self.rows(conn, of, **given)
        return row

    async def tuples(self, conn: AsyncConnection[TupleRow], **given: Any) -> list[TupleRow]:  # noqa: ANN401
        async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
            await self._execute(cursor, given)
            return await cursor.fetchall()

    async def column(self, conn: AsyncConnection[TupleRow], **given: Any) -> list[Any]:  # noqa: ANN401
        """Return the first column of every row."""
        return [row[0] for row in await self.tuples(conn, **given)]

    async def value(self, conn: AsyncConnection[TupleRow], **given: Any) -> Any:  # noqa: ANN401
        """Return the first column of the only row, which exists."""
        [row] = await self.tuples(conn, **given)
        return row[0]

    async def run(self, conn: AsyncConnection[TupleRow], **given: Any) -> int:  # noqa: ANN401
        """Return the number of changed rows."""
        async with conn.cursor() as cursor:
            await self._execute(cursor, given)
            return cursor.rowcount

    async def _execute(self, cursor: AsyncCursor[Any], given: dict[str, Any]) -> None:
        start = time.perf_counter()
        try:
            await cursor.execute(self.query, given or None)
        except FeatureNotSupported as error:
            if error.diag.source_function != REPLAN_FUNCTION:
                raise
            # A restore has replaced the tables, and with them the types of columns. A new connection plans anew.
            await cursor.connection.close()
            raise OperationalError(f"The tables were replaced: {error}") from error
        self._seconds.observe(time.perf_counter() - start)


def row_factory_of(of: type[T]) -> AsyncRowFactory[T]:
    """Return a factory that fills a class in the order of the columns, which takes half the time of keywords."""

    def factory(cursor: AsyncCursor[Any]) -> RowMaker[T]:
        names = [column.name for column in cursor.description or ()]
        if names == field_names(of):
            return lambda values: of(*values)
        return lambda values: of(**dict(zip(names, values, strict=True)))

    return factory


def field_names(of: type[Any]) -> list[str]:
    """Return the fields of a named tuple, a message or a dataclass."""
    named: Sequence[str] | None = getattr(of, "_fields", getattr(of, "__struct_fields__", None))
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
    """Yield the name and text of each statement; ValueError if a name occurs twice."""
    _, *parts = HEADING.split(text)
    names = parts[0::2]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"named twice: {', '.join(sorted(twice))}")
    return zip(names, (part.strip().removesuffix(";") for part in parts[1::2]), strict=True)


def columns(rows: Iterable[object], *names: str) -> dict[str, list[Any]]:
    """Return a list of the values of each attribute, for a statement that unnests them."""
    items = list(rows)
    return {name: [getattr(item, name) for item in items] for name in names}


def array(values: Iterable[object]) -> str | None:
    """Return an array literal, ten times as fast as the driver; None if all values are None."""
    items = list(values)
    if items.count(None) == len(items):
        return None
    kinds = set(map(type, items))
    if kinds == {str}:
        texts = '","'.join(items)  # type: ignore[arg-type]
        if "\\" not in texts and texts.count('"') == 2 * len(items) - 2:
            return f'{{"{texts}"}}'
    if kinds <= UNQUOTED_TYPES:
        return "{" + ",".join(map(str, items)) + "}"
    return "{" + ",".join([array_element(value) for value in items]) + "}"


def array_element(value: object) -> str:
    """Return one element of an array literal; text is quoted."""
    if value is None:
        return "NULL"
    if not isinstance(value, str):
        return str(value)
    if value.isalnum():  # an unquoted null would be NULL
        return value if value.lower() != "null" else f'"{value}"'
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def load_statements(module: str) -> Statements:
    """Return the statements in the `.sql` file next to a module; the argument is its `__file__`."""
    return Statements(Path(module).with_suffix(".sql"))
