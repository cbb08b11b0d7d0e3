"""The contents of all tables of feeds, without row numbers and times, so that two runs can be compared."""

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.rows import dict_row

# When something was seen, how often it was asked for, and numbers of other schemas.
SIGHT = {
    "": {"mod_date", "fetch_date", "first_date", "added_at", "task_id"},
    "enclosure": {"pub_date"},
    "feed_item_page": {"next_at", "fetched_at"},
}
OUT = {"schema_migrations", "feed_poll"}
TABLES = "select tablename from pg_tables where schemaname = 'feeds' order by 1"
KEYS = """
    select c.conrelid::regclass::text as "from", a.attname as "column", c.confrelid::regclass::text as "to"
    from pg_constraint c
    join pg_attribute a on a.attrelid = c.conrelid and a.attnum = c.conkey[1]
    where c.contype = 'f' and cardinality(c.conkey) = 1 and c.connamespace = 'feeds'::regnamespace
"""


class Tables:
    """What the tables of one database say."""

    def __init__(self, dsn: str) -> None:
        with psycopg.connect(dsn, row_factory=dict_row) as conn:
            names = [row["tablename"] for row in conn.execute(TABLES)]
            self.rows: dict[str, list[dict[str, Any]]] = {
                name: conn.execute(f"select * from feeds.{name}".encode()).fetchall()
                for name in names
                if name not in OUT
            }
            self.keys = {
                (key["from"].removeprefix("feeds."), key["column"]): key["to"].removeprefix(
                    "feeds."
                )
                for key in conn.execute(KEYS)
            }
        self.by_id = {
            name: {row["id"]: row for row in rows if "id" in row}
            for name, rows in self.rows.items()
        }

    def said(self) -> dict[str, list[str]]:
        """Each table as sorted lines."""
        return {
            name: sorted(repr(self.canonical(name, row)) for row in rows)
            for name, rows in self.rows.items()
        }

    def canonical(self, table: str, row: Mapping[str, Any]) -> dict[str, Any]:
        hidden = {"id"} | SIGHT[""] | SIGHT.get(table, set())
        return {
            column: self.behind(table, column, value)
            for column, value in sorted(row.items())
            if column not in hidden
        }

    def behind(self, table: str, column: str, value: object) -> object:
        """What a number stands for."""
        there = self.keys.get((table, column))
        if there is None or value is None or there not in self.by_id:
            return value
        found = self.by_id[there].get(value)
        return value if found is None or there == table else self.canonical(there, found)
