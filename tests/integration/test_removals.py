"""Removals in the database: the door, reports, the sweep, compaction, and what each role may do."""

import random
from collections.abc import AsyncIterator
from datetime import timedelta

import psycopg
import pytest

from integration.test_versions import House
from support.mgmt.admitted_pages import NONE, NOW, admit, pages
from usher.db.pool import Connection, Database, connect
from usher.door import removals
from usher.door.doorkeeper import Doorkeeper
from usher.door.rules import Knock, Reason
from usher.mgmt import chunks, compaction, page_keys, page_versions, removal_sweep
from usher.mgmt.chunks import PageClaim
from usher.removal_rules import RemovalIndex, parse_target

LATER = NOW + timedelta(hours=1)


async def remove(conn: Connection, text: str, reason: str = "notice") -> int | None:
    target = await removals.resolve(conn, parse_target(text))
    return await removals.add_removal(conn, target, reason=reason, author="anna", now=NOW)


async def undo(conn: Connection, text: str) -> int | None:
    return await removals.undo_removal(conn, parse_target(text), author="bert", now=NOW)


async def guestbook(conn: Connection) -> dict[str, tuple[str, bool, bool]]:
    """The state of each page, whether its text is in the index, and whether it is removed."""
    rows = await conn.execute(
        "select path, state, indexed_in is not null, removed from work.guestbook"
    )
    return {
        path: (state, indexed, removed) for path, state, indexed, removed in await rows.fetchall()
    }


@pytest.fixture
async def house(database: str) -> AsyncIterator[House]:
    """Ten pages of a.com, crawled, built and loaded in both rows."""
    await admit(database, *pages("a.com", 10))
    async with await connect(database) as conn:
        house = House(conn)
        await house.begin()
        chunk = await house.crawl(n=10)
        await house.load(0, chunk)
        await house.load(1, chunk)
        yield house


async def test_the_sweep_takes_pages_out_and_tells_every_server(house: House) -> None:
    conn = house.conn
    assert await remove(conn, "a.com/1") is not None
    assert await remove(conn, "http://a.com/1/") is not None  # a prefix is another target
    assert await remove(conn, "https://a.com/1") is None
    assert await removal_sweep.sweep(conn, now=NOW) == 2  # the same page twice
    found = await guestbook(conn)
    assert found["/1"] == ("crawled", False, True)
    assert found["/2"] == ("crawled", True, False)
    for server in (0, 1):
        assert [url for _, url in await house.to_retire(server)] == ["https://a.com/1"]
    copies = await page_versions.to_retire(conn, house.servers[0], n=10)
    assert [copy.removed for copy in copies] == [True]
    rows = await conn.execute(
        "select kind, after, reason from work.event where kind = 'removed' order by id"
    )
    assert (await rows.fetchall())[0] == ("removed", "a.com/1", "anna: notice")
    assert await removal_sweep.sweep(conn, now=NOW) == 0


async def test_the_sweep_forgets_the_texts_of_links_to_and_on_a_removed_page(house: House) -> None:
    conn = house.conn
    rows = await conn.execute("select path, id from work.guestbook")
    ids: dict[str, int] = dict(await rows.fetchall())
    for page, text, linking in (("/1", "secret", "/2"), ("/2", "other", "/1"), ("/2", "x", "/3")):
        await conn.execute(
            "insert into work.anchor values (%s, %s, array[%s::bigint], '{}', %s)",
            [ids[page], NOW, ids[linking], text],
        )
    assert await remove(conn, "a.com/1") is not None
    await removal_sweep.sweep(conn, now=NOW)
    rows = await conn.execute("select page_id, text from work.anchor")
    assert await rows.fetchall() == [(ids["/2"], "x")]


async def test_half_of_a_host_goes_at_once_because_the_operator_said_so(house: House) -> None:
    conn = house.conn
    await remove(conn, "a.com")
    assert await removal_sweep.last_swept(conn) == 0
    assert await removal_sweep.sweep(conn, now=NOW) == 10
    assert await removal_sweep.last_swept(conn) > 0
    assert len(await house.to_retire(0)) == 10
    assert await page_versions.judge(conn, n=100, now=NOW) == {}  # nothing is held back


async def test_a_report_that_comes_after_the_removal_brings_nothing_back(house: House) -> None:
    """The page is being crawled when it is removed; the watchdog sweeps before and after the report."""
    conn = house.conn
    await conn.execute(
        "update work.guestbook set state = 'pending', admitted_at = now() where path = '/3'"
    )
    await conn.execute("update work.hosts set claim_at = '-infinity'")
    pack = await chunks.claim_links(conn, house.crawler, PageClaim(1, wait=NONE), now=NOW)
    assert pack
    await remove(conn, "a.com/3")
    await removal_sweep.sweep(conn, now=NOW)
    await house.report(pack, "success", 200)
    assert (await guestbook(conn))["/3"] == ("crawled", False, True)
    [keys] = await page_keys.page_keys(conn, [pack.chunk_id])
    assert keys.keys == []
    assert keys.textless_keys == ["a.com/3"]


async def test_a_report_before_the_sweep_brings_nothing_back(house: House) -> None:
    conn = house.conn
    await conn.execute(
        "update work.guestbook set state = 'pending', admitted_at = now() where path = '/3'"
    )
    await conn.execute("update work.hosts set claim_at = '-infinity'")
    pack = await chunks.claim_links(conn, house.crawler, PageClaim(1, wait=NONE), now=NOW)
    assert pack
    await remove(conn, "a.com/3")
    await house.report(pack, "success", 200)
    assert (await guestbook(conn))["/3"] == ("crawled", False, True)
    assert len(await house.to_retire(0)) == 1


async def test_a_server_that_loads_the_old_chunk_later_is_told_again(house: House) -> None:
    conn = house.conn
    await remove(conn, "a.com/1")
    await removal_sweep.sweep(conn, now=NOW)
    copies = await page_versions.to_retire(conn, house.servers[0], n=10)
    await page_versions.retired(
        conn, house.servers[0], [(copy.chunk_id, copy.page_id) for copy in copies]
    )
    assert await house.to_retire(0) == []
    [keys] = await page_keys.page_keys(conn, [copies[0].chunk_id])
    assert "a.com/1" not in keys.keys
    assert "a.com/1" in keys.textless_keys  # a server drops it without a report
    await page_versions.loaded(conn, [copies[0].chunk_id])
    assert len(await house.to_retire(0)) == 1


async def test_held_back_and_older_copies_go_too(house: House) -> None:
    conn = house.conn
    await house.crawl("gone", 410, n=10)
    await page_versions.judge(conn, n=100, now=NOW)
    await conn.execute("update work.stale_copy set held = true, ready = false")
    await conn.execute("delete from work.retirement")
    await remove(conn, "a.com/4")
    await removal_sweep.sweep(conn, now=NOW)
    assert [url for _, url in await house.to_retire(1)] == ["https://a.com/4"]


async def test_a_dense_chunk_with_removed_text_is_written_again_at_once(house: House) -> None:
    conn = house.conn
    await conn.execute("update work.chunk set propagated_at = now()")
    assert not await compaction.compact(conn, now=NOW)
    await remove(conn, "a.com/1")
    await removal_sweep.sweep(conn, now=NOW)
    done = await compaction.compact(conn, now=LATER)
    [merge] = done.begun
    assert (len(merge.sources), merge.pages) == (1, 9)


async def test_the_door_refuses_removed_pages_in_every_process(database: str) -> None:
    async with Database(database) as db:
        door, other = Doorkeeper(db), Doorkeeper(db)
        given = ["https://a.com/private/x", "http://a.com/private", "https://a.com/open"]
        await door.knock(given, now=NOW)
        await other.knock(given, now=NOW)
        async with db.transaction() as conn:
            await remove(conn, "https://a.com/private/", "contract ended")
            await remove(conn, "*.b.com")
        for doorkeeper in (door, other):
            for knock in (
                Knock(),
                Knock("full"),
                Knock(hall_pass=True),
                Knock("full", hall_pass=True),
            ):
                answers = (await doorkeeper.knock(given, knock=knock, now=NOW)).answers
                assert [answer.reason for answer in answers[:2]] == [Reason.REMOVED] * 2
                assert answers[0].detail == "contract ended (since 2026-11-16)"
                assert answers[2].reason is not Reason.REMOVED
            [unknown] = (await doorkeeper.knock(["https://new.b.com/x"], now=NOW)).answers
            assert unknown.reason is Reason.REMOVED  # a host that is registered by this knock
        async with db.transaction() as conn:
            await undo(conn, "http://a.com/private/*")
        [answer] = (await other.knock(given[:1], now=NOW)).answers
        assert answer.reason is not Reason.REMOVED


async def test_a_full_knock_brings_no_removed_page(house: House, database: str) -> None:
    conn = house.conn
    await remove(conn, "a.com/1")
    await removal_sweep.sweep(conn, now=NOW)
    async with Database(database) as db:
        batch = await Doorkeeper(db).knock(
            ["https://a.com/2"], knock=Knock("full", hall_pass=True), now=LATER
        )
    assert batch.brought == 8
    assert (await guestbook(conn))["/1"][0] == "crawled"


async def test_waiting_pages_leave_the_queue_and_the_crawl_ends(database: str) -> None:
    await admit(database, *pages("a.com", 3))
    async with await connect(database) as conn:
        await remove(conn, "a.com")
        assert await removal_sweep.sweep(conn, now=NOW) == 3
        assert {state for state, _, _ in (await guestbook(conn)).values()} == {"idle"}
        rows = await conn.execute("select crawl_started from work.hosts")
        assert await rows.fetchall() == [(None,)]


async def test_undo_queues_the_pages_that_no_other_removal_covers(house: House) -> None:
    conn = house.conn
    await remove(conn, "a.com")
    await remove(conn, "a.com/1")
    await removal_sweep.sweep(conn, now=NOW)
    assert await undo(conn, "https://a.com/") is not None
    assert await undo(conn, "https://a.com/") is None
    assert await removal_sweep.sweep(conn, now=NOW) == 9
    found = await guestbook(conn)
    assert found.pop("/1") == ("crawled", False, True)
    assert set(found.values()) == {("pending", False, False)}
    listed = await removals.list_removals(conn, undone=True)
    assert [(one.target, one.undone_by) for one in listed] == [("a.com/1", None), ("a.com", "bert")]
    assert [one.target for one in await removals.list_removals(conn)] == ["a.com/1"]


async def test_an_undo_before_the_sweep_changes_no_page(house: House) -> None:
    conn = house.conn
    before = await guestbook(conn)
    await remove(conn, "a.com")
    await undo(conn, "a.com")
    assert await removal_sweep.sweep(conn, now=NOW) == 0
    assert await guestbook(conn) == before


async def test_a_large_host_is_swept_in_batches_that_continue(database: str) -> None:
    await admit(database, *pages("a.com", 25), *pages("b.a.com", 25), *pages("c.org", 5))
    async with await connect(database) as conn:
        await remove(conn, "*.a.com")
        swept = []
        while number := await removal_sweep.sweep(conn, now=NOW, max_seconds=0, n=10):
            swept.append(number)
        assert (sum(swept), max(swept)) == (50, 10)
        [removal] = await removals.list_removals(conn)
        assert removal.swept_at == NOW
        assert removal.pages == 50


async def test_the_preview_names_copies_and_other_hosts(house: House, database: str) -> None:
    await admit(database, "https://www.a.com/x")
    conn = house.conn
    await conn.execute("update work.guestbook set indexed_in = 1 where path = '/x'")
    seen = await removals.preview(conn, parse_target("a.com/1"))
    assert (seen.pages, seen.searchable, seen.examples) == (1, 1, ["a.com/1"])
    assert len(seen.same_texts) == removals.MAX_EXAMPLES  # all pages of this crawl have one text
    whole = await removals.preview(conn, parse_target("a.com"))
    assert (whole.pages, whole.searchable) == (10, 10)
    assert whole.other_hosts == ["www.a.com"]
    assert (await removals.preview(conn, parse_target("*.a.com"))).pages == 11
    assert (await removals.preview(conn, parse_target("unknown.example"))).pages == 0


async def test_the_filters_of_the_host_decide_how_a_page_is_stored(database: str) -> None:
    await admit(database, "https://a.com/p?b=2&a=1")
    async with await connect(database) as conn:
        target = await removals.resolve(conn, parse_target("a.com/p?b=2&a=1"))
        assert (await removals.preview(conn, target)).pages == 1


async def test_sql_and_python_agree_which_pages_are_removed(database: str) -> None:
    chooser = random.Random(7)  # noqa: S311
    targets = [
        "a.com",
        "*.b.com",
        "c.com/p/",
        "c.com/q",
        "c.com:8080/p*",
        "*.d.b.com",
        "e.com/x?y=1",
    ]
    async with await connect(database) as conn:
        for _ in range(20):
            await conn.execute(
                "update work.removal set undone_at = now(), undone_by = 'x' where undone_at is null"
            )
            for text in chooser.sample(targets, 3):
                await remove(conn, text)
            index = RemovalIndex(await removals.rules(conn))
            for host in (
                "a.com",
                "www.a.com",
                "b.com",
                "x.d.b.com:81",
                "c.com",
                "c.com:8080",
                "e.com",
                "[::1]:80",
            ):
                for path in ("/", "/p", "/p/", "/p/1", "/q", "/q/", "/q/1", "/x?y=1", "/x?y=12"):
                    rows = await conn.execute("select work.is_removed(%s, %s)", [host, path])
                    assert await rows.fetchone() == (index.covers(host, path),), (host, path)


@pytest.mark.parametrize("role", ["usher_door", "usher_mgmt", "usher_reader"])
async def test_no_role_may_write_or_delete_removals(database: str, role: str) -> None:
    async with await connect(database) as conn:
        await remove(conn, "a.com")
        attempts = [
            "delete from work.removal",
            "update work.removal set reason = 'other'",
            "update work.removal set undone_at = now()",
            """insert into work.removal (target, host, prefix, reason, removed_by, removed_at)
            values ('b', 'b', '/', 'r', 'x', now())""",
        ]
        if role != "usher_door":
            attempts.append("select work.undo_removal('a.com', 'x', 0, 0, now())")
        for attempt in attempts:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                async with conn.transaction():
                    await conn.execute(f"set local role {role}".encode())
                    await conn.execute(attempt.encode())
        with pytest.raises(psycopg.errors.RestrictViolation):
            await conn.execute("delete from work.removal")


async def test_the_version_of_the_rules_changes_with_each_change(database: str) -> None:
    async with await connect(database) as conn:
        versions = [await removals.rules_version(conn)]
        for text in ("a.com", "b.com"):
            await remove(conn, text)
            versions.append(await removals.rules_version(conn))
        for text in ("a.com", "b.com"):
            await undo(conn, text)
            versions.append(await removals.rules_version(conn))
        await remove(conn, "a.com")
        versions.append(await removals.rules_version(conn))
        assert len(set(versions)) == len(versions)
