"""The search page, its JSON twin and its API over HTTP, and `usher search`."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from support.index.rows import Rows, library, running_front_end
from support.processes.commands import Ran, usher
from usher import __version__
from usher.db.embedded.locks import exclusive_lock
from usher.http.client.pool import HttpPool, HttpResponse
from usher.local.ports import Ports, StoredPorts
from usher.query.language import parse_query
from usher.search.result_view import (
    crumbs,
    filters,
    is_link,
    narrowed,
    page_number,
    paginate,
    search_path,
)
from usher.search.result_view import wanted_address as wanted
from usher.wording import counted

POLICY = {
    "default-src 'none'",
    "style-src 'self'",
    "img-src 'self'",
    "script-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
}


class Front:
    """A front-end, and its rows."""

    def __init__(self, address: str, rows: Rows) -> None:
        self.address, self.rows = address, rows
        self.lines = HttpPool("127.0.0.1", int(address.rpartition(":")[2]), timeout=20)

    async def raw(self, path: str) -> HttpResponse:
        return await self.lines.ask("GET", path, b"", {"Host": "127.0.0.1"})

    async def page(self, text: str, **more: object) -> str:
        told = await self.raw(f"/search?{urlencode({'q': text, **more})}")
        assert told.status == 200
        return told.body.decode()

    async def data(self, text: str, path: str = "/search.json", **more: object) -> Any:  # noqa: ANN401 - JSON
        name = "q" if path == "/search.json" else "query"
        told = await self.raw(f"{path}?{urlencode({name: text, **more})}")
        assert told.status == 200, told.body
        return json.loads(told.body)

    async def run(self, *words: str) -> Ran:
        """`usher search`, at this front-end."""
        return await asyncio.to_thread(usher, "search", "--front", self.address, *words)


@pytest.fixture(scope="module")
async def front(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Front]:
    folder = tmp_path_factory.mktemp("front")
    async with Rows(folder) as rows:
        await rows.rows(1, 2, library())
        async with running_front_end(rows, folder) as address:
            one = Front(address, rows)
            yield one
            one.lines.close()


async def test_the_page_shows_results(front: Front) -> None:
    told = await front.raw("/search?q=velvet+theatre")
    body = told.body.decode()
    assert set(told.headers["content-security-policy"].split("; ")) == POLICY
    assert told.headers["x-content-type-options"] == "nosniff"
    assert told.headers["referrer-policy"] == "no-referrer"
    assert "240 results" in body
    assert body.count('<p class="snippet"') == 10
    assert "<mark>theatre</mark>" in body
    assert "<mark>Theatre</mark> guide" in body
    assert re.search(r'<span class="host">\w+\.example\.(org|net)</span>', body)
    assert "More from" in body
    assert search_path("velvet theatre site:news.example.net") in body.replace("&amp;", "&")
    assert 'value="velvet theatre"' in body


async def test_paging_ends_with_the_last_page(front: Front) -> None:
    assert "page 24 of 24" in (last := await front.page("theatre", page=24))
    assert 'rel="next"' not in last
    assert 'aria-current="page"' in last
    for page in (25, 101, 999_999, 10**30):
        beyond = await front.page("theatre", page=page)
        assert "There is no page" in beyond
        assert "240 results" in beyond
    for odd in ("0", "-3", "x", "", "٣"):
        assert "240 results<" in await front.page("theatre", page=odd)


async def test_facts_of_a_result(front: Front) -> None:
    assert '<time datetime="2024-03-09">9 March 2024</time>' in await front.page("report year")
    german = await front.page("haus lang:de")
    assert "in German" in german
    assert f'href="{search_path("haus")}"' in german
    assert "and 1 near-copy" in await front.page("two of a kind")
    assert ">page.html</a>" in await front.page("nameless")
    assert "Ignored in your search" in await front.page('report "')
    far = await front.page("title:far")
    assert far.count('class="crumb"') == 5


async def test_hostile_titles_and_addresses_are_harmless(front: Front) -> None:
    body = await front.page("hostile")
    assert "4 results" in body
    assert "<script>alert" not in body
    assert "onerror=alert(2)&gt;" in body
    assert not re.search(r'href="(javascript|data):', body)
    assert "not a web address: javascript:alert" in body
    assert "\u202e" not in body
    for text in (
        '"><script>alert(1)</script>',
        "' onfocus=alert(1) x='",
        "{{ 7*191 }}",
        "</title><script>",
    ):
        assert "<script>alert" not in (body := await front.page(text))
        assert "1337" not in body
        assert "onfocus=alert(1) x='\"" not in body


async def test_the_api_names_its_parameter(front: Front) -> None:
    wrong = await front.raw("/api/search?q=velvet+seats")
    assert wrong.status == 422
    hint = json.loads(wrong.body)["hint"]
    assert hint == "Did you mean query instead of q? /api/search?query=velvet+seats"


async def test_the_page_without_results(front: Front) -> None:
    body = await front.page("https://example.org/a'b?c=d&e=$(x)")
    assert "You searched for an address. The operator of this site can add it." in body
    assert "guestbook" not in body
    body = await front.page("velvt nonsense")
    assert "No page in the index has any of these words" in body
    assert "You searched for an address" not in body
    assert "usher explain" not in body


async def test_pages_with_some_of_the_words_follow(front: Front) -> None:
    body = await front.page("theatre nonsense")
    assert "No page has all important words" in body
    assert body.count("These pages have some of the words") == 1
    assert 'rel="next"' in body
    body = await front.page("report year theatre")
    assert body.count("These pages have some of the words") == 1
    told = await front.data("theatre nonsense")
    assert (told["total"], told["pages"], len(told["results"])) == (0, 2, 10)
    assert all(one["weak"] for one in told["results"])


async def test_a_spelling_is_corrected(front: Front) -> None:
    body = await front.page("velvat seats")
    assert "Showing results for <strong>velvet seats</strong>" in body
    typed = search_path("velvat seats", verbatim=True)
    assert typed.replace("&", "&amp;") in body
    body = await front.page("velvat seats", verbatim=1)
    assert f'Did you mean <a href="{search_path("velvet seats")}">' in body
    told = await front.data("velvat")
    assert (told["query"], told["typed"], told["suggestion"]) == ("velvet", "velvat", None)
    told = await front.data("velvat", verbatim=1)
    assert (told["query"], told["typed"], told["suggestion"]) == ("velvat", None, "velvet")
    ran = await front.run("velvat", "--limit", "1")
    assert "Showing results for: velvet" in ran.err
    ran = await front.run("velvat", "--verbatim")
    assert (ran.code, "Did you mean: velvet" in ran.err) == (3, True)


async def test_scores_are_explained(front: Front) -> None:
    told = await front.data("velvet theatre", explain=1)
    for one in told["results"]:
        parts = sum(reason["score"] for reason in one["reasons"])
        assert parts == pytest.approx(one["score"], rel=0.01)
    assert {reason["words"] for reason in one["reasons"]} >= {"velvet", "theatre"}
    assert (await front.data("velvet theatre"))["results"][0]["reasons"] is None
    ran = await front.run("velvet", "--explain", "--limit", "1")
    assert re.search(r"score \d+\.\d\d = velvet \(any form\) \d", ran.out)


@pytest.mark.parametrize(
    "query",
    [
        "q=" + "x" * 10_000,
        "q=" + "word+" * 2_000,
        "q=%00%01%1b%5b31m",
        "q=%ff%fe%80",
        "q=OR+-+%22+site%3A",
        "q=%22%22%22",
        "q=%ed%a0%80",
        "q=a&q=b&page=1&page=2",
        "q=" + quote("\u202e\u2066 \ufeff"),
        "%",
        "q",
        "page=5",
    ],
)
async def test_unusual_queries_get_a_page(front: Front, query: str) -> None:
    for path in ("/search", "/", "/search.json"):
        told = await front.raw(f"{path}?{query}")
        assert told.status == 200
        assert len(told.body) < 100_000


async def test_results_as_json(front: Front) -> None:
    told = await front.data("velvet theatre", page=2)
    assert (told["total"], told["page"], told["pages"], len(told["results"])) == (240, 2, 24, 10)
    assert (told["partial"], told["missing"], told["at_least"]) == (False, 0, False)
    assert sum(one["results"] for one in told["hosts"]) == 240
    one = told["results"][0]
    assert one["snippet"] == "".join(piece["text"] for piece in one["snippet_pieces"])
    assert {"text": "theatre", "marked": True} in one["snippet_pieces"]
    assert (await front.data(""))["total"] == 0


async def test_the_search_gov_api(front: Front) -> None:
    told = await front.data("theatre", "/api/search", affiliate="me", limit=5, offset=10)
    assert told["query"] == "theatre"
    assert (told["web"]["total"], told["web"]["next_offset"]) == (240, 15)
    assert len(told["web"]["results"]) == 5
    assert "\ue000Theatre\ue001 guide" in told["web"]["results"][0]["title"]
    plain = await front.data("report year", "/api/search", enable_highlighting="false")
    [one] = plain["web"]["results"]
    assert one == {
        "title": "Report",
        "url": "https://a.org/dated",
        "snippet": "A report of the year.",
        "publication_date": "2024-03-09",
        "thumbnail_url": None,
        "sections": [],
    }
    assert plain["web"]["next_offset"] is None
    for bad in ("limit=0", "limit=51", "limit=x", "offset=1000", "offset=-1"):
        told = await front.raw(f"/api/search?query=theatre&{bad}")
        assert told.status == 422


async def test_robots_opensearch_and_static_files(front: Front) -> None:
    home = (await front.raw("/")).body.decode()
    assert "autofocus" in home
    for path in re.findall(r'(?:href|src)="(/static/[^"]+)"', home):
        told = await front.raw(path)
        assert told.status == 200
        assert "immutable" in told.headers["cache-control"]
        assert re.search(r"\.[0-9a-f]{16}\.", path)
    described = (await front.raw("/opensearch.xml")).body.decode()
    assert 'template="http://127.0.0.1/search?q={searchTerms}&amp;page={startPage?}"' in described
    assert "Disallow: /search" in (await front.raw("/robots.txt")).body.decode()
    for probe in ("/healthz", "/get_health_status", "/metrics", "/version"):
        assert (await front.raw(probe)).status == 200
    for nothing in ("/static/usher.css", "/static/..%2fpages.py", "/nothing"):
        assert (await front.raw(nothing)).status == 404


async def test_a_front_end_registers_and_reports_queries(front: Front) -> None:
    await front.page("told to mgmt")
    await front.page("told to mgmt", page=2)
    for _ in range(100):
        if terms := [one["term"] for one in front.rows.maps.told if "mgmt" in one["term"]]:
            break
        await asyncio.sleep(0.05)
    online = {"state": "online", "type": "front-end", "version": __version__}
    assert (terms, front.rows.maps.states[0]) == (["told to mgmt"], online)


async def test_search_in_a_terminal(front: Front) -> None:
    found, data, hostile, nothing = await asyncio.gather(
        front.run("--limit", "12", "velvet", "theatre"),
        front.run("--json", "--limit", "2", "site:a.org", "hostile"),
        front.run("hostile"),
        front.run("--", "nowhere", "-theatre"),
    )
    assert found.code == 0
    assert found.out.count("Theatre guide") == 12
    assert "240 results" in found.err
    assert "\x1b" not in found.out
    assert len(data.json["results"]) == 2
    assert not {"\u202e", "\x07"} & set(hostile.out)
    assert (nothing.code, nothing.out) == (3, "")
    assert "usher explain" in nothing.err


async def test_search_without_a_front_end(front: Front) -> None:
    away = "http://127.0.0.1:9"
    found, *gone = await asyncio.gather(
        asyncio.to_thread(usher, "search", "--mgmt", front.rows.address, "--json", "report year"),
        asyncio.to_thread(usher, "search", "--front", away, "x"),
        asyncio.to_thread(usher, "search", "--mgmt", away, "x"),
    )
    assert (found.code, found.json["total"]) == (0, 1)
    assert [one.code for one in gone] == [5, 5]


async def test_a_data_directory_answers_only_for_itself(front: Front, tmp_path: Path) -> None:
    data, port = tmp_path / "data", int(front.address.rpartition(":")[2])
    (data / "demo").mkdir(parents=True)
    for directory in (data, data / "demo"):
        StoredPorts(Ports(front=port)).write(directory)
    gone = await asyncio.to_thread(usher, *(asked := ("--data", data, "search", "theatre")))
    assert (gone.code, gone.out) == (5, "")
    own = "To search a front-end that runs on its own: --front http://127.0.0.1:8400"
    assert f" runs in {data}. {own}\n  → usher --data {data} up\n" in gone.err
    with exclusive_lock(data / "run.lock"):
        assert (await asyncio.to_thread(usher, *asked)).code == 0
    with exclusive_lock(data / "demo" / "run.lock"):
        assert (await asyncio.to_thread(usher, *asked)).code == 5
        environment = {"USHER_DATA": str(data)}
        demo = await asyncio.to_thread(usher, "search", "theatre", environment=environment)
    assert (demo.code, "Theatre guide" in demo.out) == (0, True)
    assert f"The demo answers. Its data directory is {data / 'demo'}." in demo.err


async def test_a_terminal_separates_weak_matches_as_the_page_does(front: Front) -> None:
    data, terminal = await asyncio.gather(
        front.run("--json", "report theatre"), front.run("report theatre")
    )
    strong = [result for result in data.json["results"] if not result["weak"]]
    assert 0 < len(strong) < len(data.json["results"])
    above, heading, below = terminal.out.partition("These pages have some of the words:\n")
    assert heading
    assert below.startswith(f"\n{len(strong) + 1:>3}. ")
    assert above.rstrip().count("\n\n") == len(strong) - 1
    assert f"{counted(len(strong), 'result')} with all important words in" in terminal.err


async def test_partial_results_in_a_terminal(tmp_path: Path) -> None:
    async with Rows(tmp_path) as rows:
        await rows.rows(1, 2, library())
        async with running_front_end(rows, tmp_path) as address:
            front = Front(address, rows)
            await rows.servers[0].leave()
            body = await front.page("theatre")
            assert "Part of the index did not answer" in body
            assert "At least" in body
            data = await front.data("theatre")
            assert data["partial"]
            assert 0.3 < data["missing"] < 0.7
            assert (await front.data("theatre", "/api/search"))["partial"]
            said = await front.run("theatre")
            assert (said.code, "Part of the index" in said.err) == (0, True)
            await rows.servers[1].leave()
            gone = await front.raw("/search?q=theatre")
            assert gone.status == 503
            assert "The index did not answer" in gone.body.decode()
            assert (await front.raw("/search.json?q=theatre")).status == 503
            assert (await front.run("theatre")).code == 5
            assert (await front.raw("/")).status == 200
            front.lines.close()


def test_only_web_addresses_are_links() -> None:
    assert is_link("https://a.org/x")
    for bad in (
        "javascript:alert(1)",
        "JaVaScRiPt:x",
        "data:x",
        "//a.org",
        "https:",
        "http://[",
        "http://a b/",
        "",
    ):
        assert not is_link(bad)
    assert not is_link("https://a.org/\x00\x1f")
    assert crumbs("https://a.org/a%2Fb/%E2%80%AEc/") == ["a/b", "\ufffdc"]
    assert crumbs("http://[") == []


def test_filters_can_be_removed() -> None:
    query = parse_query("cat site:a.org lang:de after:2024 before:2025-06 -site:b.org -lang:fr")
    words = [one.words for one in filters(query)]
    assert words == [
        "from a.org", "not from b.org", "in German", "not in French", "from 1 January 2024 on", "before 1 June 2025",
    ]  # fmt: skip
    assert filters(query)[0].without == "cat lang:de after:2024 before:2025-06 -site:b.org -lang:fr"
    assert narrowed(query, "c.org").endswith("-lang:fr site:c.org")
    assert wanted(parse_query("example.org/a")) == "https://example.org/a"
    assert wanted(parse_query("open source")) == wanted(parse_query("javascript:alert(1)")) == ""


def test_pagination() -> None:
    assert paginate(0, 1).last == 1
    assert (paginate(96, 5).last, paginate(96, 5).near) == (10, [2, 3, 4, 5, 6, 7, 8])
    assert (paginate(5_000, 100).last, paginate(5_000, 100).capped) == (100, True)
    assert [page_number(text) for text in ("2", "0", "x", "9" * 5_000)] == [2, 1, 1, 10**9]
