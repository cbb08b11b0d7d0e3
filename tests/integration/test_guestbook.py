"""The statements of the guestbook are the decision table: proven against the pure rules on random states."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.models.door import (
    DoorPage,
    HostClock,
    clock_after,
    closed,
    judge,
    page_after,
    sibling_after,
)
from usher.db.pool import Connection, connect
from usher.door import guestbook, hosts
from usher.door.rules import ADMITTING, Knock, Reason

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
MONTH = timedelta(days=30)
HOSTS = ("a.example.com", "b.example.com")
PATHS = ("/", "/1", "/2", "/3")
TIMES = st.sampled_from([-30, -3, -1, 0, 1, 3, 30]).map(lambda hours: NOW + timedelta(hours=hours))
CADENCES = st.sampled_from([None, timedelta(days=1), timedelta(days=7)])
STATES = st.sampled_from(["idle", "pending", "crawling", "crawled", "error"])
DEPTHS = st.sampled_from([0, 1, 5])
PAGES = st.builds(DoorPage, STATES, TIMES, st.sampled_from([0, 1]), CADENCES, DEPTHS)
URLS = st.lists(st.tuples(st.sampled_from(HOSTS), st.sampled_from(PATHS)), unique=True, max_size=8)
WORLDS = st.dictionaries(
    st.tuples(st.sampled_from(HOSTS), st.sampled_from(PATHS)), PAGES, max_size=8
)
HOUR = timedelta(hours=1)
CRAWLS = st.sampled_from(
    [(None, None), (NOW - 9 * HOUR, NOW - 3 * HOUR), (NOW - 9 * HOUR, NOW - HOUR)]
)
CLOCKS = st.builds(
    lambda next_fetch, cadence, started, crawl: (
        HostClock(next_fetch, cadence or MONTH, started, *crawl),
        cadence,
    ),
    TIMES,
    CADENCES,
    st.sampled_from([None, NOW - timedelta(hours=2)]),
    CRAWLS,
)
KNOCKS = st.builds(
    Knock,
    st.sampled_from(["single", "full"]),
    st.booleans(),
    st.sampled_from([None, "", *HOSTS]),
    st.sampled_from([timedelta(0), 2 * HOUR]),
)
QUIET = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@dataclass
class World:
    """Hosts and pages as the rules see them."""

    clocks: dict[str, HostClock]
    pages: dict[tuple[str, str], DoorPage]
    depth: int = 0

    def knock(self, host: str, path: str, knock: Knock) -> Reason:
        """One URL at the door, by the pure rules alone."""
        clock, page = self.clocks[host], self.pages.get((host, path))
        reason = judge(knock, page, clock, NOW)
        after = page_after(knock, page, reason, clock, NOW, depth=self.depth)
        if after is not None:
            self.pages[host, path] = after
        if reason in {Reason.FULL_PASS, Reason.HOST_DUE}:
            for key, other in self.pages.items():
                if key[0] == host and key[1] != path:
                    self.pages[key] = sibling_after(other, reason, clock, NOW)
        self.clocks[host] = clock_after(clock, reason, NOW)
        return reason


async def build(
    conn: Connection, world: World, own: dict[str, timedelta | None]
) -> dict[str, hosts.Host]:
    """The same world in the database."""
    found = await hosts.register(conn, names=HOSTS, now=NOW)
    for name, clock in world.clocks.items():
        await conn.execute(
            "update work.hosts set next_fetch = %s, crawl_started = %s, cadence = %s, last_crawl_started = %s, "
            "last_crawl_ended = %s where name = %s",
            [
                clock.next_fetch,
                clock.crawl_started,
                own[name],
                clock.last_crawl_started,
                clock.last_crawl_ended,
                name,
            ],
        )
    for (name, path), page in world.pages.items():
        await conn.execute(
            "insert into work.guestbook "
            "(domain64, path, state, next_fetch, priority, cadence, depth, admitted_at, etag) "
            "values (%s, %s, %s, %s, %s, %s, %s, %s, 'learned')",
            [
                found[name].domain64,
                path,
                page.state,
                page.next_fetch,
                page.priority,
                page.cadence,
                page.depth,
                NOW - MONTH,
            ],
        )
    return found


async def look(conn: Connection) -> World:
    rows = await conn.execute(
        "select h.name, g.path, g.state, g.next_fetch, g.priority, g.cadence, g.depth "
        "from work.guestbook g join work.hosts h using (domain64)"
    )
    pages = {(name, path): DoorPage(*rest) for name, path, *rest in await rows.fetchall()}
    rows = await conn.execute(
        "select next_fetch, coalesce(cadence, interval '30 days'), crawl_started, last_crawl_started, "
        "last_crawl_ended, name from work.hosts"
    )
    return World({row[-1]: HostClock(*row) for row in await rows.fetchall()}, pages)


def pack(found: dict[str, hosts.Host], urls: list[tuple[str, str]]) -> guestbook.PackedUrls:
    batch = guestbook.PackedUrls()
    for name, path in urls:
        batch.add(found[name].domain64, 1, path, 1)
    return batch


@pytest.mark.seed("003.21")
@pytest.mark.seed("004.2", "004.3", "004.4", "004.5", "004.25", "004.26", "004.27")
@pytest.mark.seed("004.28", "004.29", "004.30", "004.31")
@QUIET
@given(
    clocks=st.tuples(CLOCKS, CLOCKS), pages=WORLDS, knock=KNOCKS, urls=URLS, depth=DEPTHS,
)  # fmt: skip
async def test_the_statements_are_the_table(
    conn: Connection,
    clocks: tuple[tuple[HostClock, timedelta | None], ...],
    pages: dict[tuple[str, str], DoorPage],
    knock: Knock,
    urls: list[tuple[str, str]],
    depth: int,
) -> None:
    world = World(
        {name: replace(clock, name=name) for name, (clock, _) in zip(HOSTS, clocks, strict=True)},
        dict(pages),
        depth,
    )
    own = {name: cadence for name, (_, cadence) in zip(HOSTS, clocks, strict=True)}
    async with conn.transaction(force_rollback=True):
        found = await build(conn, world, own)
        judgements, brought = await guestbook.knock(
            conn, pack(found, urls), knock=knock, settings_revision=1, now=NOW, depth=depth
        )
        reasons = [world.knock(name, path, knock) for name, path in urls]
        assert [judgement.reason for judgement in judgements] == reasons
        after = await look(conn)
        assert after.pages == world.pages
        assert after.clocks == world.clocks
        waited = sum(page.state == "pending" for page in pages.values())
        admitted = sum(reason in ADMITTING for reason in reasons)
        if not (knock.kind == "full" and knock.hall_pass):
            waits = sum(page.state == "pending" for page in after.pages.values())
            assert waits == waited + admitted + brought


async def test_nothing_a_fetch_learned_is_wiped(conn: Connection) -> None:
    found = await hosts.register(conn, names=HOSTS, now=NOW)
    number = found[HOSTS[0]].domain64
    learned = (2, 1234, "abc", "etag", 200, NOW - MONTH, NOW - MONTH)
    await conn.execute(
        "insert into work.guestbook (domain64, path, state, next_fetch, content_type, content_length, content_sha1, "
        "etag, status, last_fetched, last_modified) values (%s, '/', 'crawled', %s, %s, %s, %s, %s, %s, %s, %s)",
        [number, NOW - MONTH, *learned],
    )
    for knock in (
        Knock(),
        Knock("single", hall_pass=True),
        Knock("full"),
        Knock("full", hall_pass=True),
    ):
        await conn.execute(
            "update work.guestbook set state = 'crawled', next_fetch = %s", [NOW - MONTH]
        )
        [judgement], _ = await guestbook.knock(
            conn, pack(found, [(HOSTS[0], "/")]), knock=knock, settings_revision=1, now=NOW
        )
        assert judgement.reason in ADMITTING
        rows = await conn.execute(
            "select content_type, content_length, content_sha1, etag, status, last_fetched, last_modified "
            "from work.guestbook"
        )
        assert await rows.fetchone() == learned


@pytest.mark.parametrize("change", ["work.hosts", "work.settings"])
async def test_what_was_judged_by_old_rules_is_not_judged(conn: Connection, change: str) -> None:
    found = await hosts.register(conn, names=HOSTS, now=NOW)
    await conn.execute(f"update {change} set revision = revision + 1".encode())
    for knock in (Knock(), Knock("full", hall_pass=True)):
        [judgement], _ = await guestbook.knock(
            conn, pack(found, [(HOSTS[0], "/")]), knock=knock, settings_revision=1, now=NOW
        )
        assert judgement.reason is None
    rows = await conn.execute("select count(*) from work.guestbook")
    assert await rows.fetchone() == (0,)


@pytest.mark.seed("000.23")
@pytest.mark.parametrize(
    "statement", ["delete from work.guestbook", "truncate work.guestbook", "delete from work.hosts"]
)
async def test_no_row_is_ever_deleted(conn: Connection, statement: str) -> None:
    with pytest.raises(psycopg.errors.RestrictViolation):
        await conn.execute(statement.encode())


@pytest.mark.seed("003.2", "004.7")
async def test_a_host_keeps_its_number_and_a_page_needs_a_host(conn: Connection) -> None:
    await hosts.register(conn, names=HOSTS, now=NOW)
    with pytest.raises(psycopg.errors.RestrictViolation):
        async with conn.transaction():
            await conn.execute("update work.hosts set name = name || 'x'")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        await conn.execute(
            "insert into work.guestbook (domain64, path, next_fetch) values (1, '/', now())"
        )


def test_a_closed_crawl_is_due_a_cadence_after_its_start() -> None:
    clock = HostClock(NOW - timedelta(days=1), MONTH, NOW)
    after = closed(clock, NOW + HOUR)
    assert after == HostClock(NOW + MONTH, MONTH, None, NOW, NOW + HOUR)
    assert closed(after, NOW + 2 * HOUR) == after


async def many_pages(conn: Connection, state: str) -> None:
    await conn.execute("insert into work.domain (tld, number, name) values (1, 1, 'many')")
    await conn.execute(
        "insert into work.hosts (domain64, name, next_fetch) "
        "select work.domain64_encode(1, 1, i), 'h' || i || '.many.com', now() from generate_series(1, 3000) i"
    )
    await conn.execute(
        "insert into work.guestbook (domain64, path, state, next_fetch, admitted_at, text64) "
        "select domain64, '/' || i, %s, now(), now(), 10 * id + i from work.hosts, generate_series(1, 10) i",
        [state],
    )


async def pages_read(conn: Connection, path: str) -> int:
    """How many pages of the database it takes to settle this page of five hosts."""
    await conn.execute(
        "update work.guestbook set state = 'crawling' "
        "where path = %s and domain64 in (select domain64 from work.hosts order by id limit 5)",
        [path],
    )
    rows = await conn.execute(
        "explain (analyze, buffers, format json) select * from work.settle("
        "array(select domain64 from work.hosts order by id limit 5), array_fill(%s::text, '{5}'), null, "
        "array_fill('success'::text, '{5}'), '{200,200,200,200,200}', '{2,2,2,2,2}', '{1,1,1,1,1}', null, null, "
        "null, '{1,2,3,4,5}', '{f,f,f,f,f}', null, null, now())",
        [path],
    )
    [[[plan]]] = await rows.fetchall()
    assert plan["Plan"]["Actual Rows"] == 5
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


@pytest.mark.parametrize("state", ["pending", "crawling", "crawled"])
async def test_settling_reads_little_whatever_the_guestbook_holds(
    database: str, state: str
) -> None:
    """In a database of its own: of what other tests rolled back there would be something to read, too."""
    async with await connect(database) as conn:
        await many_pages(conn, state)
        assert min([await pages_read(conn, path) for path in ("/1", "/2", "/3", "/4")]) < 300
