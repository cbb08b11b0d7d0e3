"""A database of the size of a busy installation, for tests of the plans of the console: the one of bench/console.py."""

import re
from pathlib import Path
from typing import Final

import psycopg

from usher.db.statements import split_statements

SCRIPT: Final = Path(__file__).parents[3] / "bench" / "console.sql"


def fill_large(database: str, *, pages: int, jobs: int) -> None:
    """Pages of 1,000 hosts in all states, jobs in the queue and in the log, 20 components with chunks, and events."""
    numbers = {"pages": pages, "jobs": jobs, "chunks": pages // 50}
    stack = dict(split_statements(SCRIPT.read_text()))["stack"]
    script = re.sub(r"(?<!:):([a-z_]+)\b", lambda name: str(numbers[name[1]]), stack)
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(script.encode())
        conn.execute("analyze")
