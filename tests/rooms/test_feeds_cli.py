"""`usher feeds` and `usher items` as a person uses them: a site's feed found, polled, listed, exported."""

from fix_desk import Desk
from website import Response, Website

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
    assert "It brought something new." in shown.out
    assert [
        one["title"] for one in desk.usher("items", "list", "--tag", "cats", "--json").json
    ] == ["One"]
    assert len(desk.usher("items", "list", "--feed", number, "--since", "1d", "--json").json) == 2


def test_off_and_on_again_with_its_task(desk: Desk, site: Website) -> None:
    site.add("/feed.xml", Response(status=410))
    number = desk.usher("feeds", "add", "--no-check", site.url("/feed.xml")).out.strip()
    gone = desk.usher("feeds", "poll", number)
    assert gone.code == 1
    assert "gone for good" in gone.err
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


def test_what_is_no_feed_is_told(desk: Desk, site: Website) -> None:
    none = desk.usher("feeds", "add", site.add("/", Response(b"<html>nothing</html>")))
    assert (none.code, "offers none" in none.err) == (3, True)
    assert desk.usher("feeds", "add", "mailto:me").code == 2
    assert desk.usher("feeds", "show", "999999").code == 3
