"""Pages of feeds and items over HTTP; texts of feeds stay text."""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from support.db.fixtures import Server, clone
from support.feeds.stored_feeds import HOSTILE, add, busy, fill, rss
from support.mgmt.mgmt_process import Mgmt, Reply, mgmt
from usher.api.browser_sessions import accepts_html
from usher.db.pool import Connection
from usher.feeds.items import search
from usher.feeds.pages import queries, sparkline
from usher.feeds.pages.messages import ItemsQuery
from usher.feeds.pages.wording import distance, file, host, is_link, line, paragraphs, size, text_of

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)
POLICY = {
    "default-src 'none'",
    "style-src 'self'",
    "img-src 'self'",
    "script-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
}
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
FILL = """
    insert into feeds.feed (url, first_date, mod_date) select 'u' || n, now(), now() from generate_series(1, 400) n;
    insert into feeds.feed_item (
        feed_id, key, hash, permalink, link, title, title_type, summary, summary_type, content, content_type,
        pub_date, mod_date, fetch_date, copyright, language, image
    )
    select f.id, md5(f.id || ' ' || n)::uuid, md5('')::uuid, false, 'l', 't', '', '', '', '', '',
        now() - n * interval '1 day', now(), now(), '', '', ''
    from feeds.feed f, generate_series(1, 100) n;
    analyze feeds.feed, feeds.feed_item;
"""


@pytest.fixture(scope="module")
async def stored(migrated: Server) -> AsyncIterator[tuple[str, dict[str, int]]]:
    async for dsn in clone(migrated, f" template {migrated.template} strategy file_copy"):
        yield dsn, await fill(dsn)


@pytest.fixture(scope="module")
async def feed_server(
    stored: tuple[str, dict[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Mgmt]:
    with mgmt(stored[0], tmp_path_factory.mktemp("mgmt") / "log") as running:
        yield running


@pytest.fixture
def feeds(stored: tuple[str, dict[str, int]]) -> dict[str, int]:
    return stored[1]


def page(feed_server: Mgmt, path: str, status: int = 200) -> str:
    told = feed_server.ask("GET", path, headers={"Accept": BROWSER})
    assert told.status == status, (told.body, feed_server.log.read_text()[-2000:])
    assert told.headers["content-type"] == "text/html; charset=utf-8"
    assert set(told.headers["content-security-policy"].split("; ")) == POLICY
    assert told.headers["x-content-type-options"] == "nosniff"
    return told.body.decode()


def data(feed_server: Mgmt, path: str) -> Any:  # noqa: ANN401 - JSON
    told = feed_server.get(path)
    assert told.status == 200, told.body
    return told.json


def test_the_landing_page_lists_what_mgmt_serves(feed_server: Mgmt) -> None:
    told = feed_server.get("/")
    assert (told.status, told.headers["content-type"]) == (200, "application/json")
    assert (told.headers["vary"], told.json["name"]) == ("Accept, Cookie", "usher")
    for place in told.json["places"]:
        assert feed_server.get(place["path"]).status == 200, place
    console = feed_server.ask("GET", "/", headers={"Accept": BROWSER})
    assert b"<h1>Overview</h1>" in console.body
    policy = set(console.headers["content-security-policy"].split("; "))
    assert policy == {*POLICY, "connect-src 'self'"}  # its pages update themselves
    assert feed_server.ask("HEAD", "/").status == 200
    assert feed_server.ask("POST", "/", b"{}").status == 405


@pytest.mark.parametrize(
    ("accept", "page"),
    [
        (BROWSER, True),
        ("application/xhtml+xml", True),
        ("application/json, TEXT/HTML;q=0.5", True),
        ("text/html;q=0, application/json", False),
        ("text/html ; level=1; q=0.000", False),
        ("", False),
        ("*/*", False),
        ("application/json", False),
        (",;q=,text/htmlx" * 1_000, False),
    ],
)
def test_browsers_get_html(accept: str, *, page: bool) -> None:
    assert accepts_html(accept) == page


def test_the_list_of_feeds(feed_server: Mgmt, feeds: dict[str, int]) -> None:
    body = page(feed_server, "/feeds")
    assert body.count('<svg class="spark') == 5
    assert "HTTP 503 Service Unavailable." in body
    assert "failed 3 times" in body
    assert (
        "30 items in the last 14 days; by day: 0, 2, 1, 3, 5, 2, 0, 0, 1, 4, 2, 6, 3, 1" in body
        or ("31 items in the last 14 days" in body)
    )
    assert data(feed_server, "/feeds.json")["counts"] == {
        "all": 5,
        "failing": 1,
        "disabled": 1,
        "gone": 0,
    }
    for query, found in {
        "show=failing": ["failing"],
        "show=disabled": ["disabled"],
        "show=gone": [],
        "tag=news": ["busy", "failing"],
        "contains=KEEPERS": ["busy"],
        "contains=quiet.example&show=failing": ["failing"],
        f"tag={quote(HOSTILE[0])}": ["hostile"],
        f"after={feeds['disabled']}": ["hostile"],
        f"after={2**63 - 1}": [],
    }.items():
        told = data(feed_server, f"/feeds.json?{query}")
        assert [one["id"] for one in told["feeds"]] == [feeds[name] for name in found]
        for name in found:
            assert f'href="/feeds/{feeds[name]}"' in page(feed_server, f"/feeds?{query}")


def test_one_feed(feed_server: Mgmt, feeds: dict[str, int]) -> None:
    body = page(feed_server, f"/feeds/{feeds['busy']}")
    for words in (
        "News from lighthouses, buoys",
        "© The Keepers",
        "It publishes about every 2h.",
        "coast/lights",
        f'href="/items.atom?feed={feeds["busy"]}"',
    ):
        assert words in body
    told = data(feed_server, f"/feeds/{feeds['busy']}.json")
    assert (told["feed"]["condition"], told["about"]["language"]) == ("good", "en-gb")
    assert sum(told["feed"]["days"]) == told["feed"]["items"] == 31
    assert len(told["latest"]) == 15
    assert body.count("<rect") == 14
    failing = page(feed_server, f"/feeds/{feeds['failing']}")
    assert "Its last poll failed." in failing
    assert "Too loud." in page(feed_server, f"/feeds/{feeds['disabled']}")


def test_one_item(feed_server: Mgmt, feeds: dict[str, int]) -> None:
    [item] = data(feed_server, "/items.json?limit=1&words=recorded")["items"]
    body, told = (
        page(feed_server, f"/items/{item['id']}"),
        data(feed_server, f"/items/{item['id']}.json"),
    )
    assert told["text"].count("\n\n") >= 9 or told["text"].count("\n") >= 9
    assert "<p>The harbour board has switched off" in body
    assert "Ida Lewis" in body
    assert 'href="https://lights.example.org/horn.mp3" rel="noreferrer">horn.mp3' in body
    assert "4.81 MB" in body
    assert [one["name"] for one in told["authors"]] == ["Ida Lewis"]
    assert told["media"][0]["bytes"] == 4_812_345
    assert told["item"]["tags"][:2] == ["news", "coast/lights"]
    assert told["item"]["feed"] == feeds["busy"]


def test_items_are_searched_and_paged(feed_server: Mgmt, feeds: dict[str, int]) -> None:
    ids, after, pages = [], "", 0
    while pages < 20:
        told = data(feed_server, f"/items.json?limit=7&after={after}")
        ids += [one["id"] for one in told["items"]]
        pages, after = pages + 1, told["after"]
        if after is None:
            break
    assert len(ids) == len(set(ids)) == 39
    assert pages == 6
    assert 'rel="next"' in page(feed_server, "/items?limit=7")
    assert 'rel="next"' not in page(feed_server, "/items?limit=200")
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    for query, number in {
        "words=harbour": 7,
        f"feed={feeds['quiet']}": 1,
        "tag=sound": 1,
        "tag=news&words=recorded": 1,
        "words=zebra": 0,
        f"since={today}&feed={feeds['quiet']}": 0,
        f"until=2000-01-01&feed={feeds['busy']}": 0,
    }.items():
        told = data(feed_server, f"/items.json?{query}")
        assert len(told["items"]) == number, query
    assert "No item matches" in page(feed_server, "/items?words=zebra")


def test_hostile_texts_are_harmless(feed_server: Mgmt, feeds: dict[str, int]) -> None:
    found = data(feed_server, f"/items.json?feed={feeds['hostile']}")["items"]
    assert len(found) == len(HOSTILE) + 1
    paths = ["/feeds", f"/feeds/{feeds['hostile']}", "/items", f"/items?feed={feeds['hostile']}"]
    paths += [f"/items/{one['id']}" for one in found]
    paths += [f"/items?{name}={quote(text)}" for text in HOSTILE for name in ("words", "tag")]
    paths += [f"/feeds?{name}={quote(text)}" for text in HOSTILE for name in ("contains", "tag")]
    for path in paths:
        body = page(feed_server, path)
        assert "<script>alert" not in body
        assert "<img" not in body
        assert not re.search(r'(?:href|src)="(?:javascript|data):', body)
        assert not re.search(r"<[^>]* onmouseover='alert", body)
        assert "\u202e" not in body
    [script] = [one for one in found if one["title"] == "A link"]
    assert 'href="javascript' not in page(feed_server, f"/items/{script['id']}")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/feeds/999", 404),
        ("/feeds/0", 404),
        ("/feeds/x", 404),
        (f"/feeds/{2**64}", 404),
        ("/feeds/%D9%A3", 404),
        ("/items/999999", 404),
        ("/items/-1", 404),
        ("/items?feed=x", 422),
        ("/items?since=yesterday", 422),
        ("/items?until=9999-12-31", 422),
        ("/items?after=1", 422),
        ("/items?after=~", 422),
    ],
)
def test_errors_are_pages_and_problem_documents(feed_server: Mgmt, path: str, status: int) -> None:
    body = page(feed_server, path, status)
    assert "<h1>" in body
    name, mark, query = path.partition("?")
    assert feed_server.get(f"{name}.json{mark}{query}").problem[0] == status


@pytest.mark.parametrize(
    "query",
    ["words=%00", "words=%ff%fe", "tag=%00", "words=" + "x" * 8000, "words=%22%22+-+or", "tag=%27"],
)
def test_odd_queries_have_answers(feed_server: Mgmt, query: str) -> None:
    assert isinstance(data(feed_server, f"/items.json?{query}")["items"], list)
    page(feed_server, f"/items?{query}")
    page(feed_server, "/feeds?" + query.replace("words=", "contains="))
    assert feed_server.get(f"/items.atom?{query}").status == 200


def conditional(feed_server: Mgmt, path: str, **headers: str) -> Reply:
    return feed_server.ask(
        "GET", path, headers={key.replace("_", "-"): v for key, v in headers.items()}
    )


def test_unchanged_pages_return_304(feed_server: Mgmt, feeds: dict[str, int]) -> None:
    for path in (
        "/feeds.json",
        f"/feeds/{feeds['busy']}.json",
        "/items.json",
        f"/items/{feeds['item']}.json",
    ):
        first = feed_server.get(path)
        tag = first.headers["etag"]
        again = conditional(feed_server, path, If_None_Match=f'"x", W/{tag}')
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
        assert conditional(feed_server, path, If_None_Match='"x"').status == 200
    head = feed_server.ask("HEAD", f"/items/{feeds['item']}")
    assert (head.status, head.body) == (200, b"")


def test_static_files_are_immutable(feed_server: Mgmt) -> None:
    body = page(feed_server, "/feeds")
    names = re.findall(r'"(/static/[^"]+)"', body)
    assert len(names) == 4
    for name in names:
        assert "immutable" in feed_server.get(name).headers["cache-control"]
    for name in ("/static/../pages.py", "/static/%2e%2e%2fpages.py", "/static/feeds.css"):
        assert feed_server.get(name).status == 404


# What pages are made of.


async def test_days_are_counted_by_one_indexed_statement(conn: Connection) -> None:
    for statement in FILL.split(";\n"):
        if statement.strip():
            await conn.execute(statement.encode())
    found = await conn.execute(
        "select array_agg(id) from feeds.feed where url in ('u1', 'u7', 'u9')"
    )
    [ids] = await found.fetchone() or ((),)
    since = NOW - timedelta(days=14)
    given = {"feeds": ids, "since": since, "until": NOW}
    for hot, more in (
        (sparkline.store.items_per_day, given),
        (queries.store.sizes, {"feeds": ids, "most": 1001}),
    ):
        plan = await conn.execute(b"explain " + hot.query, more)
        lines = "\n".join(line for (line,) in await plan.fetchall())
        assert "Index" in lines
        assert "Seq Scan" not in lines, lines


async def test_days_begin_at_midnight_and_end_today(conn: Connection) -> None:
    counts = [0, 1, 0, 2, 0, 0, 3, 0, 0, 0, 1, 0, 4, 5]
    base = "https://a.example"
    document = rss("A", busy(base, per_day=[9, *counts], now=NOW), base=base)
    id_ = await add(conn, f"{base}/feed", document, now=NOW)
    [(feed,)] = await (
        await conn.execute("select feed_id from feeds.feed_metadata where id = %s", [id_])
    ).fetchall()
    found = await sparkline.items_per_day(conn, [feed, 0], now=NOW)
    assert found == {feed: counts, 0: [0] * 14}
    assert await sparkline.items_per_day(conn, [], now=NOW) == {}
    assert len(await search.find_items(conn, feed=id_)) == 25


def test_bars_and_their_description() -> None:
    bars = sparkline.bars([0, 1, 100], now=NOW)
    assert [one.items for one in bars] == [0, 1, 100]
    assert [one.height for one in bars] == [1.0, 3.0, 28.0]
    assert bars[-1].y == 0
    assert bars[0].day < bars[-1].day
    assert sparkline.describe([0, 0]) == "No items in the last 2 days"
    assert sparkline.describe([1, 0]) == "1 item in the last 2 days; by day: 1, 0"


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        ("<b>a</b> &amp; b", "text/html", "a & b"),
        ("<b>a</b>", "text/plain", "<b>a</b>"),
        ("AT&amp;T", "", "AT&T"),
        ("1 < 2 & 3", "text/html", "1 < 2 & 3"),
        ("<p>a</p><p>b</p>", "text/html", "a\n\nb"),
        ("x<script>alert(1)</script>y", "text/html", "xy"),
        ("\u202ea\x00b\x1b", "text/plain", "ab"),
        ("", "text/html", ""),
    ],
)
def test_plain_text_of_content(said: str, kind: str, text: str) -> None:
    assert "".join(text_of(said, kind).split()) == "".join(text.split())


def test_words() -> None:
    assert line("a\n b", max_chars=10) == "a b"
    assert line("a" * 20, max_chars=10) == "a" * 9 + "…"
    assert paragraphs("a\n\nb\n \n\nc\nd") == ["a", "b", "c\nd"]
    assert (size(1), size(4_812_345), size(10**20)) == ("1 bytes", "4.81 MB", "100,000,000 TB")
    assert distance(NOW + timedelta(hours=5), NOW) == "in 5 hours"
    assert distance(NOW - timedelta(days=5), NOW) == "5 days ago"
    assert host("https://u:p@a.example:8/x") == "a.example:8"
    assert (host("http://[x"), host("")) == ("http://[x", "")
    assert (file("https://a.example/b/c%20d.mp3"), file("https://a.example/")) == (
        "c d.mp3",
        "a.example",
    )
    assert is_link("https://a.example/")
    for bad in ("javascript:x", "data:,", "//a", "https://", "https://a b", "http://[x", "ftp://a"):
        assert not is_link(bad)
    assert ItemsQuery().limit == 30
