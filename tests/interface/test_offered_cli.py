"""`usher feeds offered`: feeds of crawled pages that have no subscription."""

from support.mgmt.admitted_pages import NOW, url
from support.processes.commands import usher
from usher.db.pool import connect
from usher.mgmt.offered_feeds import add_offers


async def test_offered_feeds_are_listed_until_they_are_subscribed(database: str) -> None:
    at = {"DATABASE_URL": database}
    nothing = usher("feeds", "offered", environment=at)
    assert (nothing.code, nothing.out) == (0, "")
    assert "No crawled page links to a feed" in nothing.err
    usher("hosts", "add", "a.com", "b.com", environment=at)
    async with await connect(database) as conn:
        for host in ("a.com", "b.com"):
            feeds = [url(f"https://{host}/{name}.xml") for name in ("one", "two")]
            await add_offers(conn, host, feeds, now=NOW)
    every = usher("feeds", "offered", environment=at)
    assert len(every.out.splitlines()) == 4
    taken = usher("feeds", "add", "--no-check", "https://a.com/one.xml", environment=at)
    assert taken.code == 0, taken.err
    left = usher("feeds", "offered", "--host", "https://a.com/x", environment=at)
    assert left.out == "https://a.com/two.xml\n"
    [one] = usher("feeds", "offered", "--limit", "1", "--json", environment=at).json
    assert (one["host"], one["url"]) == ("a.com", "https://a.com/two.xml")
