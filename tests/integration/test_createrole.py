"""Roles that an ordinary user with CREATEROLE makes on a server of its own: it can work under each of them."""

from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from support.db.fixtures import DEBIAN, all_in
from usher.db.embedded.server_lease import lease_server
from usher.db.pool import Database, connect
from usher.observe.doctor import role_check
from usher.schema import databases, migrate, roles

PASSWORD = "not a secret"
NEEDS_DEBIAN = pytest.mark.skipif(
    not DEBIAN.exists(), reason="Debian's PostgreSQL 15 is not installed: scripts/packages"
)


def owned_database(dsn: str) -> str:
    """A database whose owner may make roles and is no superuser."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"create role owner login createrole password '{PASSWORD}'".encode())
        conn.execute("create database owned owner owner")
    return make_conninfo(dsn, user="owner", password=PASSWORD, dbname="owned")


@pytest.mark.parametrize("pg_bin", ["", pytest.param(str(DEBIAN), marks=NEEDS_DEBIAN)])
async def test_the_user_that_made_the_roles_can_take_them_on(data: Path, pg_bin: str) -> None:
    with lease_server(data, pg_bin=pg_bin) as lease:
        dsn = owned_database(lease.dsn)
        await migrate.migrate(all_in(dsn))
        await databases.create_roles(all_in(dsn), passwords=False)
        for role in roles.ROLES:
            assert await roles.usable_role(dsn, role) == role
            async with Database(dsn, role=role) as db, db.connection() as conn:
                user = await conn.execute("select current_user")
                assert await user.fetchone() == (role,)
        async with await connect(dsn) as conn:
            assert (await role_check(conn)).level == "good"
        with psycopg.connect(lease.dsn, autocommit=True) as admin:
            admin.execute("alter role owner nocreaterole")
            admin.execute("revoke usher_mgmt from owner cascade")
        async with await connect(dsn) as conn:
            check = await role_check(conn)
        assert check.level == "warning"
        assert "owner may not take on usher_mgmt" in check.detail
        assert "grant usher_mgmt to owner" in check.hint
