"""The end of a chunk: the results of its pages, its unreported pages, and its hosts, in one call."""

import pytest

from support.mgmt.admitted_pages import (
    LEASE,
    NONE,
    NOW,
    SOON,
    admit,
    component,
    delay,
    pages,
    states,
    url,
)
from usher.db.pool import Connection, connect
from usher.door.guestbook import FetchReport, FetchResult
from usher.mgmt import chunk_pages, chunks
from usher.mgmt.chunks import ClaimedChunk, PageClaim


async def outcomes(
    conn: Connection, pack: ClaimedChunk, *results: FetchResult
) -> list[FetchReport]:
    """What became of the first pages of a chunk."""
    found = [await chunk_pages.find_page(conn, url(page.url)) for page in pack.pages]
    return [
        FetchReport(page.domain64, page.path, result, pack.chunk_id, 200)
        for page, result in zip(found, results, strict=False)
        if page
    ]


@pytest.mark.parametrize(
    ("back", "told_before", "left"),
    [
        (False, False, "crawled"),
        (False, True, "crawled"),
        (True, False, "pending"),
        (None, False, "crawled"),
        (None, True, "pending"),
    ],
)
async def test_a_chunk_ends_with_what_became_of_its_pages(
    database: str,
    back: bool | None,  # noqa: FBT001
    told_before: bool,  # noqa: FBT001
    left: str,
) -> None:
    await admit(database, *pages("a.com", 5))
    async with await connect(database) as conn:
        await delay(conn, 0)
        me, other = await component(conn, "c"), await component(conn, "d")
        pack = await chunks.claim_links(conn, me, PageClaim(lease=LEASE), now=NOW + SOON)
        assert pack
        first, second, third = await outcomes(conn, pack, "success", "failure", "success")
        if told_before:
            await chunks.report(conn, [first], now=NOW + SOON)
        for crawler, when in ((other, NOW + SOON), (me, NOW + SOON + LEASE)):
            lost = await chunks.finish_crawl(
                conn, crawler, pack.chunk_id, sha256=None, size=None, now=when, reports=[third]
            )
            assert lost is None
            assert (await states(conn))["crawling"] == 5 - told_before
        done = await chunks.finish_crawl(
            conn,
            me,
            pack.chunk_id,
            sha256="f" * 64,
            size=9,
            now=NOW + 2 * SOON,
            reports=[second] if back is None else [second, third],
            back=back,
        )
        told = 1 if back is None else 2
        assert done == (told, 5 - told - told_before)
        whole = {"error": 1, left: done.unreported}
        whole["crawled"] = whole.get("crawled", 0) + 4 - done.unreported
        assert await states(conn) == {state: n for state, n in whole.items() if n}
        chunk = await chunks.show(conn, pack.chunk_id)
        assert chunk
        assert (chunk.state, chunk.sha256, chunk.bytes) == ("crawled", "f" * 64, 9)


async def test_the_end_of_a_chunk_ends_its_crawl_and_frees_its_host(database: str) -> None:
    await admit(database, *pages("a.com", 2))
    async with await connect(database) as conn:
        await delay(conn, 1)
        me = await component(conn, "c")
        pack = await chunks.claim_links(conn, me, PageClaim(2, wait=NONE, hold=True), now=NOW)
        assert pack
        told = await outcomes(conn, pack, "success", "gone")
        await chunks.finish_crawl(
            conn, me, pack.chunk_id, sha256=None, size=None, now=NOW + SOON, reports=told
        )
        rows = await conn.execute("select crawl_started, held_by, ready_at from work.hosts")
        assert await rows.fetchall() == [(None, None, NOW + 2 * SOON)]
