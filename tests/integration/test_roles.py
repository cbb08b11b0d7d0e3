"""Least privilege, seen by logging in as each role."""

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from support.db.fixtures import all_in
from usher.db.areas import SCHEMAS, AreaDatabases
from usher.db.pool import Connection, Database, connect
from usher.errors import NotAllowed
from usher.schema import databases, migrate, roles
from usher.schema.state import applied_versions

DENIED = psycopg.errors.InsufficientPrivilege
MAY_SEE = {
    "work": {"usher_door", "usher_mgmt", "usher_reader"},
    "control": {"usher_manager", "usher_scheduler", "usher_worker", "usher_reader"},
    "feeds": {"usher_feeds", "usher_reader"},
    "multimatch": {"usher_feeds", "usher_reader"},
}


async def as_role(database: str, role: str) -> Connection:
    return await connect(make_conninfo(database, user=role))


@pytest.mark.seed("002.6")
@pytest.mark.parametrize("role", roles.ROLES)
async def test_each_role_logs_in_and_sees_only_its_schemas(database: str, role: str) -> None:
    async with await as_role(database, role) as conn:
        for schema in SCHEMAS:
            if role in MAY_SEE[schema]:
                assert await applied_versions(conn, schema)
            else:
                with pytest.raises(DENIED):
                    await applied_versions(conn, schema)


@pytest.mark.parametrize("role", roles.ROLES)
async def test_no_role_may_change_the_schema_or_its_history(database: str, role: str) -> None:
    async with await as_role(database, role) as conn:
        for schema in SCHEMAS:
            for statement in (
                f"create table {schema}.mine ()",
                f"drop table {schema}.schema_migrations",
                f"insert into {schema}.schema_migrations values ('1')",
                f"delete from {schema}.schema_migrations",
            ):
                with pytest.raises(DENIED):
                    await conn.execute(statement.encode())
        with pytest.raises(DENIED):
            await conn.execute("create role more")


@pytest.mark.parametrize(
    "statement",
    [
        "delete from work.hosts",
        "update work.hosts set domain64 = 1",
        "update work.hosts set name = ''",
        "update work.domain set number = 1",
        "delete from work.domain",
        "update work.tld set code = 9",
        "truncate work.hosts",
    ],
)
async def test_numbers_once_given_are_nobodys_to_change(database: str, statement: str) -> None:
    for role in roles.ROLES:
        async with await as_role(database, role) as conn:
            with pytest.raises(DENIED):
                await conn.execute(statement.encode())


async def test_a_reader_reads_and_nothing_else(database: str) -> None:
    async with await as_role(database, "usher_reader") as conn:
        await conn.execute("select * from work.hosts")
        with pytest.raises(DENIED):
            await conn.execute("insert into work.tld values (99, 'zz')")
        with pytest.raises(DENIED):
            await conn.execute("update work.hosts set next_fetch = now()")


async def test_a_process_takes_its_role_over_any_dsn(database: str) -> None:
    async with Database(database, role="usher_reader") as db:
        async with db.transaction() as conn:
            found = await conn.execute("select current_user")
            assert await found.fetchone() == ("usher_reader",)
        with pytest.raises(NotAllowed, match="hosts"):
            async with db.transaction() as conn:
                await conn.execute("delete from work.hosts")


@pytest.mark.seed("002.10")
async def test_check_finds_what_is_missing_and_what_is_too_much(database: str) -> None:
    async with await connect(database) as conn:
        assert (await roles.check(conn)).good
        await conn.execute("grant update on work.hosts to usher_reader")
        await conn.execute("revoke insert on work.tld from usher_door")
        finding = await roles.check(conn)
        assert [str(one) for one in finding.extra] == ["usher_reader update on relation work.hosts"]
        assert [str(one) for one in finding.missing] == ["usher_door insert on relation work.tld"]
        await roles.grant(conn)
        assert (await roles.check(conn)).good


async def test_migrating_grants_again(empty_database: str) -> None:
    await migrate.migrate(all_in(empty_database))
    async with await connect(empty_database) as conn:
        assert await roles.exist(conn) == (await roles.check(conn)).good


async def test_passwords_work_once_given(places: AreaDatabases, database: str) -> None:
    given = await databases.create_roles(places, passwords=True)
    assert set(given) == set(roles.ROLES)
    assert len(set(given.values())) == len(roles.ROLES)
    for role, password in given.items():
        await (await connect(make_conninfo(database, user=role, password=password))).close()
    async with await connect(database) as conn:
        # Roles belong to the whole server: the tests after this one know the password that all had.
        for role in roles.ROLES:
            await roles.set_password(conn, role, str(conninfo_to_dict(database)["password"]))
        found = await conn.execute(
            "select count(*) from pg_authid where rolpassword like 'SCRAM-SHA-256$%'"
        )
        (hashed,) = await found.fetchone() or (0,)
        assert hashed >= len(roles.ROLES)


async def test_a_schema_that_is_behind_keeps_its_grants_and_stops_nobody(
    places: AreaDatabases, database: str
) -> None:
    await migrate.rollback(places, "work")
    async with await connect(database) as conn:
        await roles.grant(conn)
        assert (await roles.check(conn)).good
    await migrate.migrate(places)
    async with await as_role(database, "usher_reader") as conn:
        await conn.execute("select * from work.hosts")


async def open_to_public(conn: Connection) -> list[str]:
    """The functions of our schemas that every login of the server may execute."""
    held = await roles.privileges(conn)
    return sorted(one.name for one in held if one.kind == "function" and one.role == "public")


async def test_plain_steps_leave_no_function_open_to_public(empty_database: str) -> None:
    """As dbmate runs them: without roles and grants. A step that creates functions revokes PUBLIC itself."""
    async with await connect(empty_database) as conn:
        for schema in SCHEMAS:
            await migrate.apply_pending(conn, schema)
        assert await open_to_public(conn) == []


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_undone_steps_leave_no_function_open_to_public(
    places: AreaDatabases, database: str, schema: str
) -> None:
    async with await connect(database) as conn:
        while await applied_versions(conn, schema):
            await migrate.rollback(places, schema)
            assert await open_to_public(conn) == []


@pytest.mark.parametrize("role", sorted(set(roles.ROLES) - {"usher_mgmt"}))
async def test_only_mgmt_claims_pages(database: str, role: str) -> None:
    claim = """
        select * from work.claim_links(
            '{1}', '{1}', '{1}', '{1}', null, array[interval '0'], array[interval '100 years'], '{f}', now()
        )
    """
    async with await as_role(database, role) as conn:
        with pytest.raises(DENIED):
            await conn.execute(claim.encode())
    async with await as_role(database, "usher_mgmt") as conn:
        await conn.execute(claim.encode())


async def test_check_finds_what_public_may_do(database: str) -> None:
    async with await connect(database) as conn:
        await conn.execute("grant execute on all functions in schema multimatch to public")
        await conn.execute("create function work.fresh() returns void language sql as ''")
        await conn.execute("grant select on control.settings to public")
        extra = {str(one) for one in (await roles.check(conn)).extra}
        assert extra >= {
            "public execute on function multimatch.name_all()",
            "public execute on function work.fresh()",
            "public select on relation control.settings",
        }
        await roles.grant(conn)
        assert (await roles.check(conn)).good
