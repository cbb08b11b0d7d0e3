"""Dumps schemas to files with pg_dump.

A dump is a directory with one archive for each schema and a manifest; all schemas of a database are from one snapshot.
Because each schema has its own file, a dump of one database can be restored into three.
"""

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from usher import __version__
from usher.db.areas import AreaDatabases, with_view_schemas
from usher.db.embedded import binaries
from usher.db.pool import Connection, connect, split_password
from usher.errors import BadInput, NoServer, UsherError
from usher.schema.state import schema_state

MANIFEST = "manifest.json"
# Called with the schemas of a database and a connection that sees the snapshot, before pg_dump reads it.
OnSnapshot = Callable[[list[str], Connection], Awaitable[None]]
PORTABLE_OPTIONS = ("--no-owner", "--no-acl")  # a restore grants from the files


@dataclass(frozen=True, slots=True)
class DumpedSchema:
    schema: str
    file: str
    bytes: int


async def dump(
    areas: AreaDatabases,
    target: Path,
    schemas: tuple[str, ...],
    *,
    pg_bin: str = "",
    on_snapshot: OnSnapshot | None = None,
) -> list[DumpedSchema]:
    """Write a dump; a failure, also one of `on_snapshot`, leaves no directory."""
    if target.exists():
        raise BadInput(f"{target} exists already.", hint="Name a new directory.")
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        partial.mkdir(mode=0o700, parents=True)
        versions: dict[str, str] = {}
        for dsn, here in areas.databases(schemas).items():
            versions |= await dump_database(dsn, here, partial, pg_bin, on_snapshot)
        about = {"usher": __version__, "made": datetime.now(UTC).isoformat(), "schemas": versions}
        (partial / MANIFEST).write_text(json.dumps(about, indent=2) + "\n")
        partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    files = {schema: target / f"{schema}.dump" for schema in schemas}
    return [DumpedSchema(name, file.name, file.stat().st_size) for name, file in files.items()]


async def dump_database(
    dsn: str, schemas: list[str], target: Path, pg_bin: str, on_snapshot: OnSnapshot | None = None
) -> dict[str, str]:
    """Dump each schema from one snapshot; return the version of each."""
    versions = {}
    async with await connect(dsn) as conn, conn.transaction():
        await conn.execute("set transaction isolation level repeatable read, read only")
        # The transaction is idle while pg_dump uses its snapshot.
        await conn.execute("set local idle_in_transaction_session_timeout = 0")
        cursor = await conn.execute("select pg_export_snapshot()")
        (snapshot,) = await cursor.fetchone() or ("",)
        tool = client_program("pg_dump", conn.info.server_version // 10000, pg_bin)
        if on_snapshot:
            await on_snapshot(schemas, conn)
        for schema in schemas:
            now = await schema_state(conn, schema)
            if not now.applied:
                raise BadInput(f"There is no schema {schema!r} to dump.", hint="`usher db status`")
            versions[schema] = now.applied[-1]
            what = [*schema_options(schema), "--file", str(target / f"{schema}.dump")]
            await run_client(
                [tool, "--format=custom", f"--snapshot={snapshot}", *PORTABLE_OPTIONS, *what], dsn
            )
    return versions


def schema_options(schema: str) -> list[str]:
    return [f"--schema={name}" for name in with_view_schemas(schema)]


def read_manifest(source: Path) -> dict[str, str]:
    try:
        versions: dict[str, str] = json.loads((source / MANIFEST).read_text())["schemas"]
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(
            f"{source} is not a dump of Usher: it has no readable {MANIFEST}."
        ) from error
    return versions


def client_program(name: str, major: int, pg_bin: str) -> str:
    """Return the program of the server's major version, or else of the next newer one."""
    by_version = {
        tools.major: tools
        for tools in reversed(list(installed_binaries(name, pg_bin)))
        if tools.major >= major
    }
    if not by_version:
        raise NoServer(
            f"No {name} for PostgreSQL {major} was found.",
            hint=f"Install the client programs of version {major} or newer, or name them with USHER_PG_BIN.",
        )
    return by_version[min(by_version)] / name


def installed_binaries(name: str, pg_bin: str) -> Iterator[binaries.Binaries]:
    configured = [Path(pg_bin)] if pg_bin else []
    for directory in [*configured, *binaries.candidate_directories()]:
        if (directory / name).exists() and (directory / "postgres").exists():
            yield binaries.inspect_directory(directory)


async def run_client(command: list[str], dsn: str) -> str:
    """Run a client program of PostgreSQL on this database; return its output."""
    address, secret = split_password(dsn)
    process = await asyncio.create_subprocess_exec(
        *command,
        f"--dbname={address}",
        env={**os.environ, **secret},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    if process.returncode:
        raise UsherError(f"{Path(command[0]).name} failed: {err.decode(errors='replace').strip()}")
    return out.decode()


async def schema_ddl(areas: AreaDatabases, schemas: tuple[str, ...], *, pg_bin: str = "") -> str:
    """Return the DDL of the schemas; equal schemas have the same text."""
    parts = []
    for schema in schemas:
        async with await connect(areas.dsn(schema)) as conn:
            tool = client_program("pg_dump", conn.info.server_version // 10000, pg_bin)
        what = ["--schema-only", *PORTABLE_OPTIONS, *schema_options(schema)]
        parts.append(normalized_ddl(await run_client([tool, *what], areas.dsn(schema))))
    return "\n".join(parts)


def normalized_ddl(text: str) -> str:
    """Return the text of pg_dump without what differs from run to run: comments, settings, commands of psql."""
    noise = ("--", "SET ", "SELECT pg_catalog.set_config", "\\")
    lines = [line for line in text.splitlines() if not line.startswith(noise)]
    paragraphs = "\n".join(lines).split("\n\n")
    return "\n\n".join(part.strip("\n") for part in paragraphs if part.strip()) + "\n"
