"""The database roles of Usher's processes and their privileges.

The files grants.sql define the privileges: granting first revokes everything, and checking compares the database with
what the files would grant.
"""

import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import psycopg
from psycopg import sql

from usher.db.areas import SCHEMAS, with_view_schemas
from usher.db.pool import Connection, connect
from usher.db.statements import load_statements
from usher.errors import MigrationFailed, NotAllowed
from usher.schema.state import schema_state
from usher.telemetry import Log

SCHEMA_DIRECTORY = Path(__file__).parent
store = load_statements(__file__)
log = Log("schema")
WORKER = "usher_worker"
ROLES = (
    "usher_door",
    "usher_mgmt",
    "usher_manager",
    "usher_scheduler",
    WORKER,
    "usher_feeds",
    "usher_reader",
)
MISSING_OBJECT_ERRORS = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedObject,
)
SET_OPTION_VERSION = 160000  # since this version, membership alone does not include SET ROLE
GRANT_LOCK = 0x7573_6865_7202  # "usher", 2: one process at a time rewrites grants


@dataclass(frozen=True, slots=True, order=True)
class Privilege:
    """One privilege of one role."""

    kind: str
    name: str
    role: str
    privilege: str

    def __str__(self) -> str:
        return f"{self.role} {self.privilege.lower()} on {self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class RoleDifferences:
    """How the roles of one database differ from the files; all three are empty if they do not."""

    absent: tuple[str, ...]
    missing: tuple[Privilege, ...]
    extra: tuple[Privilege, ...]

    @property
    def good(self) -> bool:
        return not (self.absent or self.missing or self.extra)


async def missing_roles(conn: Connection) -> tuple[str, ...]:
    present = set(await store.present_roles.column(conn, roles=list(ROLES)))
    return tuple(role for role in ROLES if role not in present)


async def exist(conn: Connection) -> bool:
    return not await missing_roles(conn)


async def may_set_role(conn: Connection, role: str) -> bool:
    """Whether the role exists and this user may set it; found out by trying."""
    try:
        async with conn.transaction(force_rollback=True):
            await conn.execute(sql.SQL("set local role {}").format(sql.Identifier(role)))
    except (psycopg.errors.InvalidParameterValue, psycopg.errors.InsufficientPrivilege):
        return False
    return True


async def usable_role(dsn: str, role: str, *, patience: float = 0) -> str:
    """Return the role if this user may set it; else the empty text, with a warning in the log."""
    async with await connect(dsn, patience=patience) as conn:
        if await may_set_role(conn, role):
            return role
    log.warning("role_not_taken", role=role)
    return ""


async def create(conn: Connection) -> None:
    """Create the roles on this server and grant exactly what the files define."""
    try:
        await store.create_roles.run(conn)
        await allow_set_role(conn)
        await grant(conn)
        if "control" in await current_schemas(conn):
            await set_password(conn, WORKER)
    except psycopg.errors.InsufficientPrivilege as error:
        raise NotAllowed(
            f"This database user may not create roles: {error.diag.message_primary}.",
            hint="Run `usher db roles create` once with a DATABASE_URL of a user with CREATEROLE.",
        ) from error


async def allow_set_role(conn: Connection) -> None:
    """Let this user set our roles: creating a role does not include that, unless the user is a superuser."""
    option = sql.SQL(
        " with set true, inherit false" if conn.info.server_version >= SET_OPTION_VERSION else ""
    )
    for role in await roles_not_settable(conn):
        with suppress(
            psycopg.errors.InsufficientPrivilege
        ):  # Another user created it; `usher doctor` reports it.
            async with conn.transaction():
                statement = sql.SQL("grant {} to current_user{}")
                await conn.execute(statement.format(sql.Identifier(role), option))


async def roles_not_settable(conn: Connection) -> list[str]:
    """Return the roles that this user may not set; none for a user that is one of them."""
    if conn.info.user in ROLES:
        return []
    return [role for role in ROLES if not await may_set_role(conn, role)]


async def grant(conn: Connection) -> None:
    """Revoke all privileges of our roles and grant those of the files, in one transaction."""
    async with conn.transaction():
        await store.lock_grants.tuples(conn, lock=GRANT_LOCK)
        for schema in await current_schemas(conn):
            await grant_schema(conn, schema)


async def close_to_public(conn: Connection, schemas: Iterable[str]) -> None:
    """Revoke execute on all functions of these schemas from PUBLIC, that is from every login of the server."""
    for schema in await store.present_schemas.column(
        conn, schemas=list(with_view_schemas(*schemas))
    ):
        revoke = sql.SQL("revoke execute on all functions in schema {} from public")
        await conn.execute(revoke.format(sql.Identifier(schema)))


async def current_schemas(conn: Connection) -> list[str]:
    """Return our schemas in this database that are up to date; the grants of others may name missing objects."""
    states = [await schema_state(conn, schema) for schema in SCHEMAS]
    return [state.schema for state in states if state.current]


async def grant_schema(conn: Connection, schema: str) -> None:
    try:
        for statement in grant_statements(schema):
            await conn.execute(statement)
    except MISSING_OBJECT_ERRORS as error:
        raise MigrationFailed(
            f"Schema {schema} lacks objects of its migrations: {str(error).strip()}",
            hint="An unreleased version created it, or it was changed by hand: dump, drop and create it again.",
        ) from error


def grant_statements(schema: str) -> list[sql.SQL | sql.Composed]:
    """Return the statements that revoke all privileges in a schema and grant those of its file."""
    names = sql.SQL(", ").join(map(sql.Identifier, ROLES))
    kinds = ("schema", "all tables in schema", "all sequences in schema", "all functions in schema")
    # PUBLIC, that is every login of the server, may execute new functions.
    revoke = sql.SQL("revoke all on {} {} from public, {}")
    revokes = [
        revoke.format(sql.SQL(objects), sql.Identifier(name), names)
        for objects, name in product(kinds, with_view_schemas(schema))
    ]
    return [*revokes, sql.SQL((SCHEMA_DIRECTORY / schema / "grants.sql").read_text("utf-8"))]


async def check(conn: Connection) -> RoleDifferences:
    """Compare the database with the files: apply the grants in a transaction, compare, and roll back."""
    if missing := await missing_roles(conn):
        return RoleDifferences(missing, (), ())
    actual = await privileges(conn)
    async with conn.transaction(force_rollback=True):
        await grant(conn)
        expected = await privileges(conn)
    return RoleDifferences((), tuple(sorted(expected - actual)), tuple(sorted(actual - expected)))


async def privileges(conn: Connection) -> set[Privilege]:
    rows = await store.privileges.rows(
        conn, Privilege, schemas=list(with_view_schemas(*SCHEMAS)), roles=list(ROLES)
    )
    return set(rows)


async def worker_password(conn: Connection) -> str:
    """Return the password of usher_worker that all managers of this database share."""
    return str(await store.worker_password.value(conn))


async def set_password(conn: Connection, role: str, password: str | None = None) -> str:
    """Set and return the password of one role; the server stores only the SCRAM hash.

    The default is a new one; for usher_worker the one that managers read, if the control area is in this database.
    """
    if role == WORKER and "control" in await current_schemas(conn):
        password = await worker_password(conn)
    password = password or secrets.token_urlsafe(24)
    hashed = conn.pgconn.encrypt_password(
        password.encode(), role.encode(), b"scram-sha-256"
    ).decode()
    alter = sql.SQL("alter role {} password {}")
    await conn.execute(alter.format(sql.Identifier(role), hashed))
    return password
