"""Feeds that pages offer are kept once each, up to a bound for each host."""

from datetime import timedelta

from support.mgmt.admitted_pages import NOW, admit, url
from usher.db.pool import connect
from usher.mgmt.offered_feeds import MAX_FEEDS_PER_HOST, OfferedFeed, add_offers, list_offers

FEED, OTHER = url("https://a.com/feed.xml"), url("https://else.example/atom")


async def test_each_is_kept_once_and_seen_again(database: str) -> None:
    await admit(database, "https://a.com/")
    async with await connect(database) as conn:
        both = [FEED, OTHER, FEED]
        assert sorted(await add_offers(conn, "a.com", both, now=NOW)) == [str(FEED), str(OTHER)]
        soon, later = NOW + timedelta(hours=1), NOW + timedelta(days=2)
        assert await add_offers(conn, "a.com", [FEED], now=soon) == []
        known = [OfferedFeed("a.com", str(one), NOW, NOW) for one in (FEED, OTHER)]
        assert await list_offers(conn) == known
        assert await add_offers(conn, "a.com", [FEED], now=later) == []
        assert await list_offers(conn, n=1) == [OfferedFeed("a.com", str(FEED), NOW, later)]
        assert await list_offers(conn, after=str(FEED)) == known[1:]
        assert await list_offers(conn, host="b.com") == []


async def test_a_host_has_room_for_so_many_and_an_unknown_one_for_none(database: str) -> None:
    await admit(database, "https://a.com/", "https://b.com/")
    many = [url(f"https://a.com/{number}.xml") for number in range(MAX_FEEDS_PER_HOST + 5)]
    async with await connect(database) as conn:
        assert len(await add_offers(conn, "a.com", many[:10], now=NOW)) == 10
        assert len(await add_offers(conn, "a.com", many, now=NOW)) == MAX_FEEDS_PER_HOST - 10
        assert await add_offers(conn, "a.com", many, now=NOW) == []
        assert len(await add_offers(conn, "b.com", many, now=NOW)) == 5
        assert await add_offers(conn, "unknown.com", [OTHER], now=NOW) == []
