"""Creates databases, and creates and checks the roles in all of them."""

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from usher.db.areas import AreaDatabases
from usher.db.pool import complete_dsn, connect
from usher.errors import NotAllowed, Unreachable
from usher.schema import roles


async def create_database(dsn: str) -> bool:
    """Create the database of a DSN, through the database `postgres`; return False if it exists."""
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
            f"This user may not create the database {name!r}.",
            hint=f"As a superuser: createdb {name}",
        ) from error
    return True


async def create_roles(areas: AreaDatabases, *, passwords: bool = False) -> dict[str, str]:
    """Create roles and grants in every database; return new passwords by role, if requested."""
    set_passwords: dict[str, str] = {}
    for dsn in areas.databases():
        async with await connect(dsn) as conn:
            await roles.create(conn)
            for role in roles.ROLES if passwords else ():
                password = set_passwords.get(role)
                set_passwords[role] = await roles.set_password(conn, role, password)
    return set_passwords


async def check_roles(areas: AreaDatabases) -> list[roles.RoleDifferences]:
    differences = []
    for dsn in areas.databases():
        async with await connect(dsn) as conn:
            differences.append(await roles.check(conn))
    return differences
