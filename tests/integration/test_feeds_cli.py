"""`usher feeds` and `usher items` as a person uses them: a site's feed found, polled, listed, exported."""

from support.processes.cli_fixtures import Desk
from support.processes.commands import usher
from support.site.website import Response, Website

RSS = b"""<rss version='2.0'><channel><title>News</title><link>https://news.example/</link>
<item><guid>https://news.example/1</guid><title>One</title><category>Cats</category></item>
<item><guid>https://news.example/2</guid><title>Two</title></item></channel></rss>"""
PAGE = (
    b"<html><head><link rel='alternate' type='application/rss+xml' href='/feed.xml'></head></html>"
)
OPML = b"""<?xml version="1.0"?><opml version="2.0"><head><title>Mine</title></head><body>
<outline text="News"><outline type="rss" text="A" xmlUrl="https://a.example/feed" htmlUrl="https://a.example/"/>
<outline type="rss" text="B" xmlUrl="https://b.example/feed"/></outline>
<outline type="rss" text="Bad" xmlUrl="javascript:alert(1)"/></body></opml>"""


def test_a_site_is_subscribed_to_polled_and_read(desk: Desk, site: Website) -> None:
    url = site.add("/feed.xml", Response(RSS, content_type="application/rss+xml"))
    added = desk.usher("feeds", "add", site.add("/", Response(PAGE)), "--tag", "news")
    assert added.code == 0, added.err
    number = added.out.strip()
    told = desk.usher("feeds", "poll", number, "--json").json
    assert (told[0]["kind"], len(told[0]["new"]), told[0]["knocked"]) == ("fresh", 2, 2)
    [feed] = desk.usher("feeds", "list", "--tag", "news", "--json").json
    assert (feed["url"], feed["title"], feed["errors"]) == (url, "News", 0)
    shown = desk.usher("feeds", "show", url)
    assert "News" in shown.out
    assert "It had new items." in shown.out
    assert [
        one["title"] for one in desk.usher("items", "list", "--tag", "cats", "--json").json
    ] == ["One"]
    assert len(desk.usher("items", "list", "--feed", number, "--since", "1d", "--json").json) == 2


def test_a_typed_private_host_is_permitted_with_its_known_scheme(desk: Desk, site: Website) -> None:
    url = site.add("/feed.xml", Response(RSS, content_type="application/rss+xml"))
    environment = {"DATABASE_URL": desk.environment["DATABASE_URL"]}
    assert usher("add", site.add("/", Response(PAGE)), environment=environment).code == 0
    added = usher("feeds", "add", url.removeprefix("http://"), environment=environment)
    assert added.code == 0, added.err
    assert url in added.err


def test_a_guessed_feed_is_named_as_such(desk: Desk, site: Website) -> None:
    url = site.add("/feed.xml", Response(RSS, content_type="application/rss+xml"))
    page = site.add("/", Response(b"<html>nothing</html>"))
    added = desk.usher("feeds", "add", page)
    assert added.code == 0, added.err
    assert f"{page} names no feed. A common address has one: {url}\n" in added.err


def test_disable_and_enable_change_the_task(desk: Desk, site: Website) -> None:
    site.add("/feed.xml", Response(status=410))
    number = desk.usher("feeds", "add", "--no-check", site.url("/feed.xml")).out.strip()
    gone = desk.usher("feeds", "poll", number)
    assert gone.code == 1
    assert "the feed is gone" in gone.err
    assert desk.usher("tasks", "show", f"feed-{number}", "--json").json["state"] == "disabled"
    assert desk.usher("feeds", "enable", number).code == 0
    assert desk.usher("tasks", "show", f"feed-{number}", "--json").json["state"] == "enabled"
    desk.usher("feeds", "disable", number, "--reason", "enough")
    [feed] = desk.usher("feeds", "list", "--state", "disabled", "--json").json
    assert feed["reason"] == "enough"


def test_opml_both_ways(desk: Desk) -> None:
    (desk.directory / "in.opml").write_bytes(OPML)
    first = desk.usher("feeds", "import", "in.opml", "--json").json
    assert (first["feeds"], first["new"], len(first["problems"])) == (2, 2, 1)
    assert desk.usher("feeds", "import", "in.opml", "--json").json["new"] == 0
    out = desk.usher("feeds", "export").out
    assert 'text="News"' in out
    assert out.count("xmlUrl=") == 2
    assert len(desk.usher("tasks", "list", "--type", "fetch", "--json").json) == 2


def test_a_page_without_a_feed_is_reported(desk: Desk, site: Website) -> None:
    none = desk.usher("feeds", "add", site.add("/", Response(b"<html>nothing</html>")))
    assert (none.code, "links to none" in none.err) == (3, True)
    assert desk.usher("feeds", "add", "mailto:me").code == 2
    assert desk.usher("feeds", "show", "999999").code == 3


def test_an_existing_feed_keeps_its_settings_and_gets_the_tags(desk: Desk, site: Website) -> None:
    url = site.add("/feed.xml", Response(RSS, content_type="application/rss+xml"))
    number = desk.usher("feeds", "add", url, "--every", "3h", "--no-knock", "--tag", "a").out
    before = desk.usher("feeds", "show", number.strip(), "--json").json
    wishes = ("--every", "1h", "--knock", "--partial", "--clean", "--tag", "b")
    again = desk.usher("feeds", "add", url, *wishes)
    assert (again.code, again.out) == (0, number)
    assert "keeps its settings" in again.err
    after = desk.usher("feeds", "show", number.strip(), "--json").json
    assert after == {**before, "tags": ["a", "b"]}
    tasks = desk.usher("tasks", "list", "--json").json
    assert [one["name"] for one in tasks if one["name"].startswith("clean-")] == []


def test_an_existing_feed_is_not_requested(desk: Desk, site: Website) -> None:
    """Its server may be down, and may say that it is gone."""
    url = site.add("/feed.xml", Response(status=410))
    number = desk.usher("feeds", "add", "--no-check", url).out
    desk.usher("feeds", "poll", number.strip())
    asked = len(site.served)
    again = desk.usher("feeds", "add", url, "--tag", "old")
    assert (again.code, again.out, len(site.served)) == (0, number, asked)
    assert "gone" in again.err
    assert f"usher feeds enable {number.strip()}" in again.err
    [feed] = desk.usher("feeds", "list", "--tag", "old", "--json").json
    assert feed["state"] == "gone"


def test_new_and_old_feeds_in_one_call(desk: Desk, site: Website) -> None:
    one = site.add("/1.xml", Response(RSS, content_type="application/rss+xml"))
    two = site.add("/2.xml", Response(RSS, content_type="application/rss+xml"))
    first = desk.usher("feeds", "add", one).out
    both = desk.usher("feeds", "add", two, one, two, "--partial")
    assert both.out.splitlines() == [str(int(first) + 1), first.strip()], "each once, as given"
    shown = desk.usher("feeds", "show", two, "--json").json
    assert shown["cleaning"]["partial"], "a new one gets what was asked for"
    assert not desk.usher("feeds", "show", one, "--json").json["cleaning"]["partial"]


def test_feeds_are_numbered_in_the_order_in_which_they_are_given(desk: Desk) -> None:
    urls = [f"https://{name}.example/feed" for name in "zyxa"]
    numbers = desk.usher("feeds", "add", "--no-check", *urls).out.split()
    assert numbers == sorted(numbers, key=int)
    assert [one["url"] for one in desk.usher("feeds", "list", "--json").json] == urls
