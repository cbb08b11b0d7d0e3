"""The operator's permission for a private host is for its feeds, and for no feed that another host leads to."""

import pytest

from support.feeds.polling import ROLES, PollingSetup, item, rss
from support.site.website import Response, Website
from usher.crawl.http.fetch import Fetcher
from usher.db.pool import Database
from usher.door import private_access
from usher.errors import NotFound, Unreachable
from usher.feeds.poll.find_feed import find_feed
from usher.feeds.store.databases import FeedDatabases
from usher.private_hosts import HostPermission
from usher.urls import Url, parse


def at(site: Website, name: str, path: str = "/feed") -> Url:
    url = parse(site.url(path, host=name))
    assert isinstance(url, Url)
    return url


@pytest.mark.attack(
    7,
    "a feed of one permitted host redirects and moves to another permitted host, and its page offers a feed there",
    "the other host is asked for nothing; its own feed is polled",
)
async def test_a_permission_is_for_feeds_of_the_host_itself(database: str) -> None:
    with Website(host="127.0.5.1") as own, Website(host="127.0.5.2") as other:
        addresses = {"own.test": own.host, "other.test": other.host}
        there = at(other, "other.test")
        other.add("/*", rss(item("secret")))
        own.add("/moved", Response(status=301, headers={"Location": str(there)}))
        own.add("/back", Response(status=302, headers={"Location": "/feed"}))
        more = f"<itunes:new-feed-url>{there}</itunes:new-feed-url>"
        own.add("/feed", rss(item("a"), more=more))
        offer = f'<link rel="alternate" type="application/rss+xml" href="{there}">'
        own.add("/", Response(offer.encode()))
        async with (
            Database(database, role=ROLES[0]) as db,
            Database(database, role="usher_door") as door,
            Fetcher("t", lookup=lambda name: [addresses[name]]) as fetcher,
        ):
            setup = PollingSetup(FeedDatabases(db, None, ROLES, database, 5), fetcher)
            permission = setup.databases.host_permission
            with pytest.raises(Unreachable, match="was not requested"):
                await find_feed(fetcher, there, permission)
            async with door.transaction() as conn:
                for site, name in ((own, "own.test"), (other, "other.test")):
                    granted = HostPermission(name, site.port, (site.host,))
                    await private_access.grant(conn, at(site, name), granted)
            polls = [
                await setup.poll(await setup.add(str(at(own, "own.test", path))))
                for path in ("/feed", "/back", "/moved")
            ]
            assert [poll.kind for poll in polls] == ["fresh", "fresh", "failed"]
            own.add("/feed", Response(status=404))
            with pytest.raises(NotFound):
                await find_feed(fetcher, at(own, "own.test", "/"), permission)
            assert other.log == []
            located = await find_feed(fetcher, there, permission)
            assert located.subscription.url == str(there)
            assert (await setup.poll(await setup.add(str(there)))).kind == "fresh"
