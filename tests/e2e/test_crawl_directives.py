"""What sites tell crawlers: sitemaps, robots directives, redirects, copies, documents."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.processes.crawls import EMBEDDED, Crawls, crawls
from support.site.hostile import (
    GZIP,
    PDF,
    PLAIN,
    Pages,
    at_home,
    links,
    page,
    pdf,
    redirect,
    sitemap_index,
)
from support.site.website import Response, Website

pytestmark = EMBEDDED
PAGE = """
select g.state, g.status, coalesce(g.reason, ''), g.noindex, g.indexed_in is not null, g.text64, o.path
from work.guestbook g left join work.guestbook o on o.id = g.same_as
where g.path = %s
"""


def dated(**pages: str) -> str:
    """A sitemap with a date for each page."""
    lines = (
        f"<url><loc>{{origin}}/{name}</loc><lastmod>{date}</lastmod></url>"
        for name, date in pages.items()
    )
    return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{"".join(lines)}</urlset>'


@contextmanager
def crawled(
    database: str, directory: Path, pages: Pages, *roots: str
) -> Iterator[tuple[Crawls, Website]]:
    """A site, crawled from these roots; the crawler goes on."""
    with Website(pages) as web, crawls(database, directory) as house:
        house.add(*map(web.url, roots))
        house.crawler()
        house.wait()
        yield house, web


def found(house: Crawls, path: str) -> Any:  # noqa: ANN401 - a row
    [row] = house.ask(PAGE, path)
    return row


def test_sitemaps_name_pages_and_changes(database: str, tmp_path: Path) -> None:
    names = ("one", "two", "three", "packed")
    pages: Pages = {
        "/robots.txt": at_home("Sitemap: {origin}/index.xml\n", "text/plain"),
        "/": page("Root"),
        "/index.xml": at_home(sitemap_index("/plain.xml", "/more.xml.gz")),
        "/plain.xml": at_home(dated(one="2024-05-01", two="2024-05-01", three="2024-05-01")),
        "/more.xml.gz": at_home(dated(packed="2024-05-01"), GZIP),
        **{f"/{name}": page(name) for name in names},
    }
    with crawled(database, tmp_path, pages, "/") as (house, web):
        assert {found(house, f"/{name}")[:2] for name in names} == {("crawled", 200)}
        listed = "select path, found_in, pages, sitemaps, problem from work.sitemap order by path"
        index = web.url("/index.xml")
        assert house.ask(listed) == [
            ("/index.xml", "robots.txt", 0, 2, ""),
            ("/more.xml.gz", index, 1, 0, ""),
            ("/plain.xml", index, 3, 0, ""),
        ]

        # As if a week had gone by, of which its site says only what has changed.
        week_ago = "now() - interval '7 days'"
        house.run(f"update work.guestbook set last_fetched = {week_ago}, admitted_at = {week_ago}")
        [(yesterday,)] = house.ask("select (now() - interval '1 day')::date::text")
        web.add("/plain.xml", at_home(dated(one="2024-05-01", two=yesterday, three="2024-05-01")))
        before = len(web.log)
        house.add(web.url("/plain.xml"), words=["--pass"])
        house.wait()
        assert [ask.path for ask in web.log[before:]] == ["/plain.xml", "/two"]


def test_directives_are_obeyed(database: str, tmp_path: Path) -> None:
    unseen: Pages = {f"/unseen/{i}": page(f"Unseen {i}") for i in (1, 2, 3)}
    pages = {**PLAIN, **unseen, "/robots.txt": at_home("", "text/plain")}
    with crawled(database, tmp_path, pages, "/") as (house, web):
        assert web.asked("/unseen/*") == []
        for path in ("/noindex", "/noindex-header"):
            assert found(house, path)[:5] == (
                "crawled",
                200,
                "forbids indexing (noindex)",
                True,
                False,
            )
        canonical = f"its canonical page is {web.url('/about')}"
        for path in ("/canonical", "/refresh"):
            assert found(house, path)[:5] == ("crawled", 200, canonical, True, False)
        for path in ("/nofollow", "/nofollow-link", "/nofollow-header", "/about"):
            assert found(house, path)[:5] == ("crawled", 200, "", False, True)


def test_targets_of_redirects_are_pages(database: str, tmp_path: Path) -> None:
    pages: Pages = {
        "/old": redirect("/older", 301),
        "/older": redirect("/new", 308),
        "/new": page("New", links("/for-now")),
        "/for-now": redirect("/new", 302),
    }
    with crawled(database, tmp_path, pages, "/old") as (house, web):
        for path, status, how, to in (
            ("/old", 301, "permanent redirect to", "/older"),
            ("/older", 308, "permanent redirect to", "/new"),
            ("/for-now", 302, "temporary redirect to", "/new"),
        ):
            reason = f"HTTP {status}, {how} {web.url(to)}"
            assert found(house, path)[:5] == ("crawled", status, reason, False, False)
        assert found(house, "/new")[:5] == ("crawled", 200, "", False, True)
        assert len(web.asked("/new")) == 1
        assert house.ask(
            "select path, depth from work.guestbook where path in ('/new', '/for-now')"
        )

        # A page that was found and moves away is not found any more.
        web.add("/new", redirect("/newer", 301))
        web.add("/newer", page("Newer"))
        house.add(web.url("/new"), words=["--full", "--pass"])
        house.wait()
        assert found(house, "/new")[1:5] == (
            301,
            f"HTTP 301, permanent redirect to {web.url('/newer')}",
            False,
            False,
        )
        assert found(house, "/newer")[4]


def test_copies_are_detected_by_their_text(database: str, tmp_path: Path) -> None:
    same = "<p>The very same words, wherever they are.</p>"
    pages: Pages = {
        "/": page("Root", links("/original", "/other")),
        "/original": page("Words", f"{same}{links('/copy')}"),
        "/copy": page(
            "Words", f"<div>{same}</div><!-- laid out otherwise --><p><a href='/copy'>/copy</a></p>"
        ),
        "/other": page("Words", "<p>Other words.</p>"),
    }
    with crawled(database, tmp_path, pages, "/") as (house, _):
        original, copy = found(house, "/original"), found(house, "/copy")
        assert original[5] == copy[5] != found(house, "/other")[5]
        assert (original[6], copy[6]) == (None, "/original")
        assert found(house, "/other")[6] is None


def test_a_pdf_is_read(database: str, tmp_path: Path) -> None:
    pages: Pages = {
        "/": page("Root", links("/paper.pdf", "/again.pdf")),
        "/paper.pdf": Response(pdf("Words on paper"), content_type=PDF),
        "/again.pdf": Response(pdf("Words on paper") + b"\n% printed again", content_type=PDF),
    }
    with crawled(database, tmp_path, pages, "/") as (house, _):
        paper, again = found(house, "/paper.pdf"), found(house, "/again.pdf")
        assert paper[:5] == again[:5] == ("crawled", 200, "", False, True)
        assert paper[5] is not None
        assert again[5:] == (paper[5], "/paper.pdf")


def test_feeds_of_pages_are_reported(database: str, tmp_path: Path) -> None:
    offer = '<link rel="alternate" type="application/{}+xml" href="{}">'
    offers = offer.format("rss", "/feed.xml") + offer.format("atom", "https://else.example/atom")
    pages: Pages = {
        "/": Response(f"<title>Root</title>{offers}{links('/a')}".encode()),
        "/a": Response(f"<title>A</title>{offers}{links('/feed.xml')}".encode()),
        "/feed.xml": Response(b"<rss version='2.0'><channel><title>F</title></channel></rss>"),
    }
    with crawled(database, tmp_path, pages, "/") as (house, web):
        listed = """select o.url, h.name, o.found_at = o.seen_at
            from work.feed_offer o join work.hosts h using (domain64) order by 1"""
        host = web.url("/").split("/")[2].split(":")[0]
        [own, other] = house.ask(listed)
        assert own[0] == web.url("/feed.xml")
        assert own[1].split(":")[0] == host
        assert other[::2] == ("https://else.example/atom", True)
        assert found(house, "/feed.xml")[:2] == ("crawled", 200)  # as a link, too
