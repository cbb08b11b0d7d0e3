"""Work on whole databases: making one, and roles over all the places at once."""

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from usher.db.areas import AreaDatabases
from usher.db.pool import complete_dsn, connect
from usher.errors import NotAllowed, Unreachable
from usher.schema import roles


async def create_database(dsn: str) -> bool:
    """Make the database a DSN names, through the server's own `postgres`; False if it is there."""
    name = conninfo_to_dict(complete_dsn(dsn)).get("dbname") or conninfo_to_dict(dsn).get("user")
    try:
        await (await connect(dsn)).close()
    except Unreachable as error:
        if f'database "{name}" does not exist' not in error.message:
            raise
    else:
        return False
    try:
        async with await connect(make_conninfo(dsn, dbname="postgres")) as conn:
            await conn.execute(sql.SQL("create database {}").format(sql.Identifier(str(name))))
    except psycopg.errors.DuplicateDatabase:
        return False
    except psycopg.errors.InsufficientPrivilege as error:
        raise NotAllowed(
            f"This user may not make the database {name!r}.",
            hint=f"As a superuser: createdb {name}",
        ) from error
    return True


async def create_roles(places: AreaDatabases, *, passwords: bool = False) -> dict[str, str]:
    """Roles and grants in every database; new passwords by role, if asked for."""
    given: dict[str, str] = {}
    for dsn in places.databases():
        async with await connect(dsn) as conn:
            await roles.create(conn)
            for role in roles.ROLES if passwords else ():
                given[role] = await roles.set_password(conn, role, given.get(role))
    return given


async def check_roles(places: AreaDatabases) -> list[roles.RoleDifferences]:
    found = []
    for dsn in places.databases():
        async with await connect(dsn) as conn:
            found.append(await roles.check(conn))
    return found
