"""`usher pages` after a real crawl: lists by state, result, reason and age, errors by kind, and one page."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.processes.commands import Ran, run
from support.processes.crawls import EMBEDDED, Crawls, crawls
from support.processes.free_port import free_port
from support.processes.pseudo_terminal import at_terminal
from support.site.hostile import Pages, at_home, links, page, redirect
from support.site.website import Response, Website

pytestmark = EMBEDDED
SITE: Pages = {
    "/robots.txt": at_home("User-agent: *\nDisallow: /secret\n", "text/plain"),
    "/": page("Start", links("/same", "/none", "/old", "/away", "/secret", "/broken", "/also-broken")),
    "/same": page("Start", links("/same", "/none", "/old", "/away", "/secret", "/broken", "/also-broken")),
    "/none": page("Hidden", X_Robots_Tag="noindex"),
    "/old": Response(b"no", 404),
    "/away": redirect("/", 301),
    "/secret": page("Secret"),
    "/broken": Response(b"oh", 500),
    "/also-broken": Response(b"oh", 500),
}  # fmt: skip
RESULTS = {
    "/": "indexed",
    "/same": "duplicate",
    "/none": "noindex",
    "/old": "gone",
    "/away": "moved",
    "/secret": "blocked",
    "/broken": "error",
    "/also-broken": "error",
}


@contextmanager
def crawled(database: str, directory: Path) -> Iterator[tuple[Crawls, Website]]:
    with Website(SITE) as web, crawls(database, directory) as house:
        house.add(web.url("/"), f"http://127.0.0.1:{free_port()}/")
        house.crawler()
        house.wait()
        yield house, web


def asked(house: Crawls, *words: str) -> Ran:
    return run(["pages", *words], house.processes.environment)


def paths(web: Website, ran: Ran) -> list[str]:
    assert ran.code == 0, ran.err
    return [one["url"].removeprefix(web.url("")) for one in ran.json]


def test_pages_are_listed_by_what_happened_to_them(database: str, tmp_path: Path) -> None:
    with crawled(database, tmp_path) as (house, web):
        host = f"127.0.0.1:{web.port}"
        mine = asked(house, "list", "--host", host, "--json")
        assert {one["url"].removeprefix(web.url("")): one["result"] for one in mine.json} == RESULTS
        for path, result in RESULTS.items():
            for option in ("--result", "--state"):
                listed = paths(web, asked(house, "list", "--host", host, option, result, "--json"))
                assert path in listed
                assert {RESULTS[one] for one in listed} == {result}
        assert paths(web, asked(house, "list", "--host", host, "--reason", "http 500", "--json")) == [
            "/also-broken", "/broken",
        ]  # fmt: skip
        assert len(asked(house, "list", "--state", "error", "--json").json) == 3
        assert len(asked(house, "list", "--reason", "refused", "--json").json) == 1
        assert asked(house, "list", "--older", "1h", "--json").json == []
        assert len(asked(house, "list", "--newer", "1h", "--json").json) == 9
        house.run(
            "update work.guestbook set last_fetched = now() - interval '8 days' where path = '/old'"
        )
        assert paths(web, asked(house, "list", "--older", "7d", "--json")) == ["/old"]
        counts = asked(house, "list", "--host", host, "--summary", "--json").json
        assert {(one["state"], one["result"]): one["number"] for one in counts}[
            "error", "error"
        ] == 2
        assert sum(one["number"] for one in counts) == 8
        assert not any(one["more"] for one in counts)
        assert_pages_follow(house, web, host)
        alone, listed = (asked(house, *words).out.splitlines() for words in ((), ("list",)))
        # The width of a column follows the age of the pages, which grows.
        assert (alone[0].split(), len(alone)) == (listed[0].split(), 10)
        assert [line.split()[-1] for line in alone] == [line.split()[-1] for line in listed]
        assert "Commands:" in asked(house, "--help").out


def assert_pages_follow(house: Crawls, web: Website, host: str) -> None:
    """Pages of a list, one after the other, are all of them, each once."""
    listed: list[Any] = []
    words = ["list", "--host", host, "--limit", "3"]
    while True:
        ran = asked(house, *words, "--json")
        part = ran.json
        listed += part
        if len(part) < 3:
            assert "--after" not in ran.err
            break
        assert f"→ more may follow: --after {part[-1]['url']}" in ran.err
        words[5:] = ["--after", part[-1]["url"]]
    assert sorted(one["url"].removeprefix(web.url("")) for one in listed) == sorted(RESULTS)


def test_a_person_sees_errors_by_kind_and_one_page(database: str, tmp_path: Path) -> None:
    with crawled(database, tmp_path) as (house, web):
        environment = house.processes.environment
        errors = at_terminal("pages", "errors", environment=environment)
        assert errors.code == 0
        lines = [line.split() for line in errors.text.splitlines()]
        assert lines[0] == ["KIND", "PAGES", "HOSTS", "DUE", "AGAIN", "EXAMPLE"]
        assert lines[1][:5] == ["HTTP", "500", "2", "1", "in"]
        assert lines[1][-1] in (web.url("/broken"), web.url("/also-broken"))
        assert lines[2][:4] == ["connection", "refused", "1", "1"]
        assert "usher pages list --state error --reason KIND" in errors.text
        assert "robots.txt blocks 1 URL.\n  → usher pages list --result blocked\n" in errors.text
        own = at_terminal("pages", "errors", "--host", web.url("/"), environment=environment)
        assert "refused" not in own.text
        shown = at_terminal("pages", "show", web.url("/secret"), environment=environment)
        for words in (
            f"page        {web.url('/secret')}", "state       crawled", "last fetch  never",
            "result      blocked: the robots.txt of its host does not allow it",
            "reason      robots.txt: ", "next visit  In 30 days", "searchable  no: Its host forbids it",
            f"→ usher add --pass {web.url('/secret')}",
        ):  # fmt: skip
            assert words in shown.text, shown.text
        broken = at_terminal("pages", "show", web.url("/broken"), environment=environment).text
        assert "HTTP        status 500" in broken
        assert "next visit  With the nightly recrawl after " in broken
        missing = at_terminal("pages", "show", web.url("/never"), environment=environment)
        assert missing.code == 3
        assert re.search(rf"→ usher add (--pass )?{re.escape(web.url('/never'))}", missing.text)
        table = at_terminal("pages", "list", "--state", "blocked", environment=environment).text
        assert table.splitlines()[1].split()[:3] == ["crawled", "blocked", "-"]
        unknown = at_terminal("pages", "list", "--host", "other.example", environment=environment)
        assert unknown.code == 3
        assert "No host is registered as 'other.example'" in unknown.text
