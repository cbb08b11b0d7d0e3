"""An interactive psql on one of Usher's databases, with the login and the search path that its schema needs."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from usher.db.embedded import binaries
from usher.db.pool import split_password
from usher.errors import NoServer


def find_psql(directories: Iterable[Path], search_path: str | None = None) -> str:
    """Return the path of psql: the first in these directories, else in `search_path` or PATH."""
    for directory in directories:
        if os.access(directory / "psql", os.X_OK):
            return str(directory / "psql")
    if path := shutil.which("psql", path=search_path):
        return path
    raise NoServer(
        "No psql was found.",
        hint="Install the PostgreSQL client programs, or name their directory with USHER_PG_BIN.",
    )


def run_psql(
    dsn: str, arguments: Sequence[str], *, schema: str, role: str = "", pg_bin: str = ""
) -> int:
    """Run psql until it ends and return its exit code; Ctrl-C interrupts psql only."""
    options = str(conninfo_to_dict(dsn).get("options") or "")
    session = [options, f"-c search_path={schema},public", f"-c role={role}" if role else ""]
    address, secret = split_password(make_conninfo(dsn, options=" ".join(filter(None, session))))
    directories = [*([Path(pg_bin)] if pg_bin else []), *binaries.candidate_directories()]
    command = [find_psql(directories), f"--dbname={address}", *arguments]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return subprocess.run(command, env={**os.environ, **secret}, check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)
