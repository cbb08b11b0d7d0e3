"""The checks of `usher doctor`: versions, disk, databases, schemas, roles, clock and security.

An embedded server is started and migrated, as by any command that needs the database. A server that the operator runs
is only read.
"""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg

from usher import __version__
from usher.db.areas import AreaDatabases, configured_dsns, open_areas
from usher.db.clock import DatabaseClock
from usher.db.embedded import binaries
from usher.db.pool import Connection, connect
from usher.errors import UsherError
from usher.mgmt.running_versions import running_versions
from usher.object_store.store import CHECK_PATIENCE_SECONDS, open_store
from usher.observe.causes import (
    GIGABYTE,
    THIS_MACHINE,
    clock_cause,
    database_cause,
    disk_cause,
    disk_step,
    free_bytes,
)
from usher.schema import migrate, roles
from usher.schema.state import schema_state
from usher.security_checks import Check, security_checks
from usher.settings import LoadedSettings, Settings, mask_password
from usher.versions import version_counts, version_problems

LOW_DISK_BYTES = 5 * GIGABYTE


def failed_check(name: str, error: UsherError) -> Check:
    return Check(name, "bad", error.message, error.hint)


def database_failure(error: UsherError, settings: Settings) -> Check:
    cause = database_cause(error, settings)
    return Check("database", "bad", cause.words, cause.next_step)


async def run_checks(loaded: LoadedSettings) -> list[Check]:
    settings, checks = loaded.settings, [version_check()]
    if not all(configured_dsns(settings).values()):
        checks.append(postgres_check(settings))
    if not all(configured_dsns(settings).values()) or disk_cause(settings.data):
        checks.append(disk_check(settings.data))
    try:
        with open_areas(settings) as areas:
            checks += [check async for check in database_checks(areas, settings)]
    except UsherError as error:
        checks.append(database_failure(error, settings))
    if settings.chunk_store:
        checks.append(await store_check(settings))
    return [*checks, *security_checks(loaded, os.environ)]


async def store_check(settings: Settings) -> Check:
    """Write, read and delete an object in the object store."""
    try:
        store = open_store(settings.chunk_store, settings, patience=CHECK_PATIENCE_SECONDS)
        await store.check()
    except UsherError as error:
        return failed_check("store", error)
    return Check("store", "good", f"{store.address} can be written, read and listed")


def version_check() -> Check:
    driver = f"psycopg {psycopg.__version__}, libpq {psycopg.pq.version() // 10000}"
    return Check(
        "versions", "good", f"usher {__version__}, python {sys.version.split()[0]}, {driver}"
    )


def postgres_check(settings: Settings) -> Check:
    try:
        programs = binaries.find_binaries(settings.pg_bin)
    except UsherError as error:
        return failed_check("postgres", error)
    return Check("postgres", "good", f"{programs.version} to embed, from {programs.directory}")


def disk_check(data: Path) -> Check:
    """Free space on the disk of the data directory."""
    directory = data.absolute()
    while not directory.exists():
        directory = directory.parent
    free = free_bytes(data)
    detail = f"{data}, {free / GIGABYTE:.1f} GB free"
    if not os.access(directory, os.W_OK):
        return Check(
            "data", "bad", f"{data} is not writable.", "Choose another directory with --data."
        )
    if cause := disk_cause(data):
        return Check("data", "bad", cause.words, cause.next_step)
    if free < LOW_DISK_BYTES:
        return Check("data", "warning", detail, disk_step(data))
    return Check("data", "good", detail)


async def database_checks(areas: AreaDatabases, settings: Settings) -> AsyncIterator[Check]:
    for dsn, schemas in areas.databases().items():
        ours = areas.is_embedded_dsn(dsn)
        try:
            if ours:
                await migrate.ensure(areas)
            async with await connect(dsn, patience=min(settings.connect_timeout, 3)) as conn:
                yield await server_check(conn, dsn, schemas, ours=ours)
                yield await clock_check(conn)
                schema = await schema_check(conn, schemas)
                is_usable = schema.level != "bad"
                yield schema
                yield await role_check(conn)
                if "work" in schemas and is_usable:
                    yield await running_check(conn)
        except UsherError as error:
            yield database_failure(error, settings)
        except psycopg.errors.InsufficientPrivilege as error:
            detail = f"this user may not read everything: {error.diag.message_primary}"
            yield Check("schema", "warning", detail, "Run doctor as the owner of the schemas.")


async def server_check(conn: Connection, dsn: str, schemas: list[str], *, ours: bool) -> Check:
    version = conn.info.server_version
    where = "embedded" if ours else mask_password(dsn)
    detail = f"PostgreSQL {version // 10000}.{version % 10000}, {where}, for {', '.join(schemas)}"
    if version < migrate.MIN_SERVER_VERSION:
        return Check("database", "bad", detail, "Usher needs PostgreSQL 14 or newer.")
    return Check("database", "good", detail)


async def clock_check(conn: Connection) -> Check:
    """Compare this machine's clock with the database's, which decides all times."""
    database = DatabaseClock()
    await database.sync(conn)
    seconds = database.skew.total_seconds()
    if cause := clock_cause(THIS_MACHINE, seconds):
        return Check("clock", "warning", cause.words, cause.next_step)
    return Check("clock", "good", f"within {max(abs(seconds), 0.001):.3f} s of the database's")


async def schema_check(conn: Connection, schemas: list[str]) -> Check:
    states = [await schema_state(conn, name) for name in schemas]
    if older := [version.schema for version in states if version.of_older_checkout]:
        detail = f"created by a checkout from before the first release: {', '.join(older)}"
        return Check("schema", "bad", detail, "usher db status")
    if refused := [version.schema for version in states if version.refused]:
        return Check(
            "schema", "bad", f"newer than this Usher: {', '.join(refused)}", "Upgrade Usher."
        )
    if behind := [version.schema for version in states if version.pending]:
        return Check("schema", "bad", f"behind: {', '.join(behind)}", "usher db migrate")
    if newer := [version.schema for version in states if version.unknown]:
        detail = f"newer than this Usher, which works with it: {', '.join(newer)}"
        return Check("schema", "warning", detail, "Upgrade this Usher next.")
    count = max(state.partitions for state in states)
    form = f"; the guestbook has {count} partitions" if count else ""
    return Check("schema", "good", f"up to date: {', '.join(schemas)}{form}")


async def running_check(conn: Connection) -> Check:
    """Whether the versions that run now may run together."""
    running = await running_versions(conn)
    if problems := list(version_problems(running)):
        return Check(
            "running", "warning", " ".join(problems), "docs/upgrade.md has the order of an upgrade."
        )
    return Check("running", "good", version_counts(running) or "no component")


async def role_check(conn: Connection) -> Check:
    try:
        finding = await roles.check(conn)
    except psycopg.errors.InsufficientPrivilege:
        return Check("roles", "warning", "this user may not read the grants")
    if finding.good and (closed := await roles.roles_not_settable(conn)):
        return Check(
            "roles",
            "warning",
            f"user {conn.info.user} may not take on {', '.join(closed)}, so processes run with all its rights",
            f"`usher db roles create` as a user with CREATEROLE, or: grant {', '.join(closed)} to {conn.info.user}",
        )
    if finding.good:
        return Check("roles", "good", f"{len(roles.ROLES)} roles with their grants")
    if finding.absent:
        return Check(
            "roles", "warning", f"missing: {', '.join(finding.absent)}", "usher db roles create"
        )
    wrong = [*finding.missing, *finding.extra]
    return Check(
        "roles",
        "warning",
        f"{len(wrong)} grants differ, first: {wrong[0]}",
        "usher db roles create",
    )
