"""A guestbook in partitions is the same guestbook: its pages, definition, guards and privileges."""

from collections.abc import Sequence

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from support.db.partitioned import fill, other, pages, rows, tables
from support.processes.commands import usher
from support.processes.pseudo_terminal import at_terminal
from usher.db.areas import AreaDatabases
from usher.db.pool import connect
from usher.errors import BadInput, Conflict
from usher.schema import dump, partitions, roles

WORK = ("work",)


async def test_a_guestbook_is_partitioned_again_and_made_one_table(
    places: AreaDatabases, database: str
) -> None:
    async with await connect(other(database)) as conn:
        await fill(conn)
        before = await pages(conn)
    definition = await dump.schema_ddl(places, WORK)
    for number in (4, 7, 2):
        done = await partitions.partition(places, number)
        assert done.partitions == number
        async with await connect(other(database)) as conn:
            assert await partitions.present_bounds(conn) == done.bounds
            assert await pages(conn) == before
            assert len(await tables(conn)) == number + 1
            counts = await rows(conn, "select count(*) from work.guestbook group by tableoid")
            assert len(counts) == number
            assert (await roles.check(conn)).good
            [link] = await rows(conn, "select count(*) from mgmt.link")
            assert link == (len(before),)
    await partitions.partition(places, 1)
    async with await connect(other(database)) as conn:
        assert await partitions.present_bounds(conn) is None
        assert await pages(conn) == before
        assert (await roles.check(conn)).good
    assert await dump.schema_ddl(places, WORK) == definition


async def test_ids_continue_and_every_number_has_a_partition(
    places: AreaDatabases, database: str
) -> None:
    async with await connect(other(database)) as conn:
        await fill(conn)
        [(last,)] = await rows(conn, "select max(id) from work.guestbook")
        await partitions.partition(places, 3)
        added = await rows(
            conn,
            "insert into work.guestbook (domain64, path, next_fetch) "
            "select domain64, '/new', now() from work.hosts order by domain64 returning id",
        )
        assert [id_ for (id_,) in added] == list(range(last + 1, last + 41))
        low, high = -(2**63), 2**63 - 1
        await conn.execute("alter table work.guestbook disable trigger user")
        await conn.execute(
            "insert into work.guestbook (domain64, path, next_fetch) values (%s, '/', now()), (%s, '/', now())",
            [low, high],
        )


GUARDED = ("guestbook", "guestbook_p01", "guestbook_p03")


@pytest.mark.parametrize("table", GUARDED)
@pytest.mark.parametrize("how", ["delete from", "truncate"])
async def test_no_partition_loses_a_page(
    places: AreaDatabases, database: str, table: str, how: str
) -> None:
    async with await connect(other(database)) as conn:
        await fill(conn)
        await partitions.partition(places, 3)
        with pytest.raises(psycopg.errors.RestrictViolation, match="never deleted"):
            await conn.execute(f"{how} work.{table}".encode())
        with pytest.raises(psycopg.errors.ForeignKeyViolation, match="has no host"):
            await conn.execute(
                "insert into work.guestbook (domain64, path, next_fetch) values (7, '/', now())"
            )


async def test_a_partition_gives_no_role_more_access(places: AreaDatabases, database: str) -> None:
    async with await connect(other(database)) as conn:
        await fill(conn)
    await partitions.partition(places, 3)
    for role in roles.ROLES:
        async with await connect(make_conninfo(database, user=role)) as conn:
            for statement in (
                "select from work.guestbook_p01", "update work.guestbook_p01 set depth = 1",
                "insert into work.guestbook_p01 (domain64) values (1)", "delete from work.guestbook",
                "alter table work.guestbook detach partition work.guestbook_p01",
            ):  # fmt: skip
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    await conn.execute(statement.encode())
    async with await connect(make_conninfo(database, user="usher_reader")) as conn:
        assert await rows(conn, "select count(*) from work.guestbook") == [(400,)]


async def test_privileges_of_others_stay(places: AreaDatabases, database: str) -> None:
    async with await connect(other(database)) as conn:
        await fill(conn)
        await conn.execute("create role part_auditor")
        try:
            await conn.execute(
                "grant select on work.guestbook, mgmt.link to part_auditor with grant option"
            )
            await partitions.partition(places, 3)
            asked = "select has_table_privilege('part_auditor', %s, 'select with grant option')"
            for table, may in (
                ("work.guestbook", True),
                ("mgmt.link", True),
                ("work.guestbook_p01", False),
            ):
                assert await rows(conn, asked, [table]) == [(may,)]
        finally:
            await conn.execute("drop owned by part_auditor")
            await conn.execute("drop role part_auditor")


async def test_few_hosts_cannot_be_divided(places: AreaDatabases) -> None:
    with pytest.raises(BadInput, match="too few hosts"):
        await partitions.plan(places, 4)


async def test_a_giant_host_makes_fewer_partitions(places: AreaDatabases, database: str) -> None:
    async with await connect(other(database)) as conn:
        await fill(conn)
        await conn.execute(
            "insert into work.guestbook (domain64, path, next_fetch) "
            "select (select domain64 from work.hosts where id = 20), '/giant/' || n, now() "
            "from generate_series(1, 2000) n"
        )
    done = await partitions.partition(places, 8)
    assert 2 <= done.partitions < 8


async def test_it_refuses_while_usher_runs_or_the_table_is_in_use(
    places: AreaDatabases, database: str
) -> None:
    async with await connect(other(database)) as conn:
        await fill(conn)
        before = await tables(conn)
        async with await connect(make_conninfo(database, application_name="usher 0.1.0")):
            with pytest.raises(
                Conflict, match=r"Other Usher processes use the database: usher 0\.1\.0"
            ):
                await partitions.partition(places, 3)
        async with conn.transaction():
            await conn.execute("select from work.guestbook limit 1")
            with pytest.raises(Conflict, match="holds a lock on the guestbook"):
                await partitions.partition(places, 3)
        assert await tables(conn) == before


LOST = {
    "create policy p on work.guestbook": "policy p",
    "create table public.note (page bigint references work.guestbook (id))": "foreign key",
    "grant update (depth) on work.guestbook to usher_reader": "privileges on column depth",
}


@pytest.mark.parametrize("statement", LOST)
async def test_it_refuses_to_lose_what_others_added(
    places: AreaDatabases, database: str, statement: str
) -> None:
    async with await connect(other(database)) as conn:
        await fill(conn)
        await conn.execute(statement.encode())
        with pytest.raises(Conflict, match=LOST[statement]):
            await partitions.partition(places, 3)


async def test_a_view_of_others_on_a_view_stops_it(places: AreaDatabases, database: str) -> None:
    async with await connect(other(database)) as conn:
        await fill(conn)
        await conn.execute("create view public.mine as select * from mgmt.link")
        with pytest.raises(Conflict, match="mine"):
            await partitions.partition(places, 3)
        assert await partitions.present_bounds(conn) is None


def add_pages(database: str, pages_by_host: Sequence[int]) -> None:
    """Add a host for each of these numbers of pages, in the order of domain64."""
    with psycopg.connect(database) as conn:
        conn.execute(
            "insert into work.domain (tld, number, name) select 3, n, 'd' || n from generate_series(1, %s) n",
            [len(pages_by_host)],
        )
        conn.execute(
            "insert into work.hosts (domain64, name, next_fetch) "
            "select work.domain64_encode(3, n, 1), 'd' || n || '.com', now() from generate_series(1, %s) n",
            [len(pages_by_host)],
        )
        conn.execute(
            "insert into work.guestbook (domain64, path, next_fetch) "
            "select work.domain64_encode(3, n::int, 1), '/' || i, now() "
            "from unnest(%s::int[]) with ordinality as h (pages, n), generate_series(1, h.pages) i",
            [list(pages_by_host)],
        )


LARGE = (
    [2, 3, 90, 5, 10],
    4,
    ["~5", "~105"],
    "Only 2 partitions: a host has more pages than a part.",
)
FEW = ([11, 121], 4, ["~11", "~121"], "Only 2 partitions: the guestbook has pages of only 2 hosts.")
EQUAL = ([1] * 300, 3, ["~99", "~100", "~101"], "")


@pytest.mark.parametrize(("pages_by_host", "wanted", "estimates", "note"), [LARGE, FEW, EQUAL])
def test_the_plan_estimates_the_pages_of_each_part(
    database: str, pages_by_host: list[int], wanted: int, estimates: list[str], note: str
) -> None:
    add_pages(database, pages_by_host)
    words = ("db", "partition", "--partitions", str(wanted))
    environment = {"DATABASE_URL": database}
    planned = usher(*words, "--dry-run", environment=environment)
    assert planned.code == 0, planned.err
    assert [line.split()[-1] for line in planned.out.splitlines()[1:]] == estimates
    assert note in planned.err
    assert ("Only" in planned.err) == bool(note)
    done = usher(*words, "--yes", "--json", environment=environment).json
    with psycopg.connect(database) as conn:
        query = "select count(*) from work.guestbook group by tableoid order by min(domain64)"
        counts = [count for (count,) in conn.execute(query)]
    assert (done["part_pages"], estimates) == (counts, [f"~{count}" for count in counts])


def test_the_command_plans_converts_and_shows_the_form(database: str) -> None:
    environment = {"DATABASE_URL": database}
    add_pages(database, [1] * 30)
    planned = usher("db", "partition", "--partitions", "3", "--dry-run", environment=environment)
    assert planned.code == 0, planned.err
    assert [line.split()[0] for line in planned.out.splitlines()] == ["PARTITION", "1", "2", "3"]
    asked = usher("db", "partition", "--partitions", "3", environment=environment)
    assert asked.code == 2
    assert "--yes" in asked.err
    done = usher("db", "partition", "--partitions", "3", "--yes", "--json", environment=environment)
    assert done.code == 0, done.err
    assert done.json["partitions"] == 3
    states = {
        state["schema"]: state
        for state in usher("db", "status", "--json", environment=environment).json
    }
    assert (states["work"]["partitions"], states["control"]["partitions"]) == (3, 0)
    assert "the guestbook has 3 partitions" in usher("doctor", environment=environment).out
    back = ("db", "partition", "--partitions", "1")
    assert "was copied" in usher(*back, "--yes", environment=environment).err
    assert "one table already" in usher(*back, "--yes", environment=environment).err
    again = usher(*back, environment=environment)
    assert (again.code, "one table already" in again.err) == (0, True), again.err


def test_the_command_checks_before_it_asks(database: str) -> None:
    add_pages(database, [1] * 4)
    environment = {"DATABASE_URL": database}
    words = ("db", "partition", "--partitions", "2")
    with psycopg.connect(make_conninfo(database, application_name="usher mgmt")):
        refused = at_terminal(*words, environment=environment)
    assert (refused.code, "Other Usher processes use the database: usher mgmt" in refused.text) == (
        3,
        True,
    )
    assert "Copy the guestbook?" not in refused.text
    asked = usher(*words, environment=environment)
    assert (asked.code, "Copy the guestbook?" in asked.err) == (2, True)
