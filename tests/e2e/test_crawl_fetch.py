"""`usher fetch`: one page through the crawler's own code."""

import pytest

from support.processes.commands import Ran, usher
from support.site.hostile import EVERYTHING, ROBOTS, at_home
from support.site.website import Response, Website

ALLOWED = {"USHER_ALLOW_PRIVATE": "127.0.0.1", "USHER_FETCH_SECONDS": "3"}


@pytest.fixture
def web() -> Website:
    return Website(EVERYTHING)


def fetch(web: Website, path: str, *words: str) -> Ran:
    with web:
        return usher("fetch", *words, web.url(path), environment=ALLOWED)


def test_it_shows_status_rule_links_and_text(web: Website) -> None:
    done = fetch(web, "/about")
    assert done.code == 0, done.err
    shown = {line[:12].strip(): line[12:] for line in done.out.splitlines()}
    assert (shown["url"], shown["status"], shown["result"]) == (web.url("/about"), "200", "success")
    assert (shown["robots"], shown["type"]) == ("no rule matches", "text/html")
    assert (shown["title"], shown["link"]) == ("About", web.url("/"))
    assert "This is the page called About." in done.out
    assert [ask.path for ask in web.log] == ["/robots.txt", "/about"]


def test_many_links_and_long_texts_are_shortened_unless_asked_for(web: Website) -> None:
    few = fetch(web, "/")
    assert few.out.count("\nlink ") == 20
    assert "more (--links shows all)" in few.out
    assert fetch(web, "/", "--links").out.count("\nlink ") > 20
    assert "…" in fetch(web, "/one-word").out
    assert "word" * 250_000 in fetch(web, "/one-word", "--text").out


def test_json_has_everything(web: Website) -> None:
    done = fetch(web, "/charset/lying-header", "--json")
    assert done.code == 0
    seen = done.json
    assert (seen["status"], seen["findable"], seen["ip"]) == (200, True, "127.0.0.1")
    assert "Größe, façade, naïve." in seen["documents"][0]["text"]
    assert ["Content-Type", "text/html; charset=utf-8"] in seen["headers"]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/private/page", "robots.txt: Disallow: /private/ (group *)"),
        ("/private/page", "result      blocked"),
        ("/noindex", "forbids indexing (noindex)"),
        ("/status/404", "HTTP 404"),
        ("/stalled", "the response was incomplete after 3 s"),
        ("/redirect/301", "moved to"),
        (
            "/sitemap.xml",
            "result      empty\nwhy         its content type has no text that Usher reads",
        ),
        ("/type/html-as-pdf", "result      empty\nwhy         it is not a readable PDF"),
    ],
)
def test_a_page_that_is_not_searchable_has_a_reason_and_exit_code_3(
    web: Website, path: str, why: str
) -> None:
    done = fetch(web, path)
    assert (done.code, done.err) == (3, "")
    assert why in done.out


def test_a_private_host_may_be_fetched_because_it_is_named_and_no_other(web: Website) -> None:
    with web, Website() as other:
        assert usher("fetch", web.url("/about")).code == 0
        web.add("/robots.txt", Response(status=302, headers={"Location": other.url("/robots.txt")}))
        done = usher("fetch", web.url("/about"))
        assert done.code == 3
        assert "must not lead to the private host" in done.out
        assert other.log == []


def test_an_unavailable_robots_txt_forbids_the_page(web: Website) -> None:
    web.add("/robots.txt", ROBOTS["broken"])
    done = fetch(web, "/about")
    assert done.code == 3
    assert "Could not read robots.txt (HTTP 500); the host is skipped" in done.out


def test_the_crawl_delay_applies_between_robots_txt_and_page(web: Website) -> None:
    web.add("/robots.txt", at_home("User-agent: usher\nCrawl-delay: 1\n", "text/plain"))
    assert fetch(web, "/about").code == 0
    first, second = (ask.at for ask in web.log)
    assert second - first >= 1


def test_an_invalid_url_is_a_usage_error() -> None:
    done = usher("fetch", "javascript:alert(1)")
    assert done.code == 2
    assert "cannot be fetched" in done.err
