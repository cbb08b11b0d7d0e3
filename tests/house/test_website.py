"""The test web site (tests/support/site) behaves as the other tests expect."""

import gc
import gzip
import http.client
import io
import json
import re
import socket
import sys
import threading
import time
import zipfile
import zlib
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from email.message import Message
from email.utils import parsedate_to_datetime
from html import unescape
from pathlib import Path
from urllib.parse import urljoin
from xml.parsers import expat

import pytest

from support.site.hostile import EVERYTHING, PLAIN, ROBOTS, crowd, gzip_bomb, page, said, zip_bomb
from support.site.website import Request, Response, Website, Wire, render

MAX_BYTES, MAX_SECONDS = 2 << 20, 0.4
Reply = tuple[int, Message, bytes]


@pytest.fixture
def site() -> Iterator[Website]:
    with Website(EVERYTHING, max_bytes=MAX_BYTES, max_seconds=MAX_SECONDS) as site:
        yield site


def ask(site: Website, path: str, method: str = "GET", body: str = "", **headers: str) -> Reply:
    """Send a request with http.client; `If_None_Match=…` becomes that header."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(http.client.HTTPConnection(site.host, site.port, timeout=5)) as connection:
        connection.request(method, path, body or None, named)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def dial(site: Website, words: str = "") -> socket.socket:
    link = socket.create_connection((site.host, site.port), timeout=5)
    link.sendall(words.encode())
    return link


def overhear(site: Website, path: str, method: str = "GET") -> bytes:
    """Return every byte until the site closes the connection, and RESET if it resets it."""
    heard = bytearray()
    with dial(site, f"{method} {path} HTTP/1.1\r\nHost: x:80\r\nConnection: close\r\n\r\n") as link:
        try:
            while data := link.recv(1 << 16):
                heard += data
        except ConnectionResetError:
            heard += b"RESET"
    return bytes(heard)


def follow(site: Website, path: str, most: int = 50) -> list[str]:
    """Follow redirects inside the site and return the paths, including the last one."""
    passed = [path]
    while len(passed) <= most:
        status, headers, _ = ask(site, passed[-1])
        if not 300 <= status < 400:
            break
        passed.append(urljoin(passed[-1], headers["Location"]))
    return passed


def hrefs(body: bytes) -> list[str]:
    return [unescape(to) for to in re.findall(r'<a href="(.*?)"', body.decode("latin-1"))]


def test_a_page_is_served_and_logged(site: Website) -> None:
    before = time.monotonic()
    status, headers, body = ask(site, "/about?x=1", User_Agent="tester")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b"<title>About</title>" in body
    [seen] = site.asked("/about")
    assert (seen.method, seen.path) == ("GET", "/about?x=1")
    assert (seen.route, seen.query) == ("/about", "x=1")
    assert seen.headers["user-agent"] == "tester"
    assert before <= seen.at <= time.monotonic()
    assert site.asked("/about?x=1") == site.asked("/ab*") == [seen]
    assert not site.asked("/about?x=2")
    assert ask(site, "/nothing-here")[0] == 404


def test_head_is_get_without_the_body(site: Website) -> None:
    full, bare = ask(site, "/about"), ask(site, "/about", "HEAD")
    assert (bare[0], bare[2]) == (200, b"")
    assert bare[1]["Content-Length"] == str(len(full[2]))
    assert overhear(site, "/about", "HEAD").endswith(b"\r\n\r\n")
    for path in ("/endless", "/huge", "/big-header"):
        assert overhear(site, path, "HEAD").endswith(b"\r\n\r\n")


def test_connections_are_kept_until_one_side_is_done(site: Website) -> None:
    with closing(http.client.HTTPConnection(site.host, site.port, timeout=5)) as connection:
        for path in ("/", "/about", "/nothing-here", "/empty"):
            connection.request("GET", path)
            connection.getresponse().read()
    assert len({seen.connection for seen in site.log}) == 1
    ask(site, "/")
    assert len({seen.connection for seen in site.log}) == 2
    with dial(site, "GET / HTTP/1.0\r\n\r\n") as link, link.makefile("rb") as heard:
        assert b"Connection: close" in heard.read()
    with dial(site, "nonsense\r\n\r\n") as link, link.makefile("rb") as heard:
        assert heard.read().startswith(b"HTTP/1.1 400 ")
    with dial(site) as link:  # says nothing: hung up on
        assert link.recv(1) == b""


def test_what_is_known_is_not_sent_again(site: Website) -> None:
    site.add("/news", page("News"))
    _, old, _ = ask(site, "/news")
    for headers in (
        {"If_None_Match": old["ETag"]},
        {"If_None_Match": f'"other", W/{old["ETag"]}'},
        {"If_Modified_Since": old["Last-Modified"]},
        {"If_None_Match": old["ETag"], "If_Modified_Since": "Thu, 01 Jan 1970 00:00:00 GMT"},
    ):
        status, _, body = ask(site, "/news", **headers)
        assert (status, body) == (304, b"")
    for headers in (
        {"If_None_Match": '"other"', "If_Modified_Since": old["Last-Modified"]},
        {"If_Modified_Since": "Thu, 01 Jan 1970 00:00:00 GMT"},
        {"If_Modified_Since": "the day before"},
    ):
        assert ask(site, "/news", **headers)[0] == 200
    assert [served.status for served in site.served] == [200, 304, 304, 304, 304, 200, 200, 200]


def test_a_change_is_seen_by_tag_and_by_date(site: Website) -> None:
    site.add("/news", page("News"))
    _, old, _ = ask(site, "/news")
    site.add("/news", page("News"))
    assert ask(site, "/news")[1]["Last-Modified"] == old["Last-Modified"]
    site.add("/news", page("Other news"))
    assert ask(site, "/news", If_None_Match=old["ETag"])[0] == 200
    status, new, _ = ask(site, "/news", If_Modified_Since=old["Last-Modified"])
    assert status == 200
    dates = [parsedate_to_datetime(seen["Last-Modified"]) for seen in (old, new)]
    assert dates[0] < dates[1] < parsedate_to_datetime(new["Date"])


def test_a_callable_answers_any_method_and_others_only_reading(site: Website) -> None:
    def echo(request: Request) -> Response:
        return Response(request.method.encode() + b" " + request.body, content_type="text/plain")

    site.add("/echo/*", echo)
    assert ask(site, "/echo/x/y", "POST", body="a=1")[2] == b"POST a=1"
    status, headers, _ = ask(site, "/about", "POST", body="a=1")
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_a_failing_page_fails_the_test() -> None:
    def wrong(_: Request) -> Response:
        raise LookupError("wrong page")

    async def torn() -> AsyncGenerator[bytes, None]:
        yield b"HTTP/1.1 "
        raise KeyError("wrong wire")

    with pytest.RaisesGroup(LookupError, KeyError), Website({"/torn": Wire(torn)}) as site:
        site.add("/wrong", wrong)
        assert ask(site, "/wrong")[0] == 500
        assert overhear(site, "/torn") == b"HTTP/1.1 "


def test_a_directory_is_served_as_it_is(site: Website, tmp_path: Path) -> None:
    (tmp_path / "sub dir").mkdir()
    (tmp_path / "sub dir" / "index.html").write_text("<p>old")
    (tmp_path / "a.css").write_text("p {}")
    assert site.add_tree(tmp_path, "/doc/") == ["/doc/a.css", "/doc/sub%20dir/index.html"]
    assert ask(site, "/doc/a.css")[1]["Content-Type"] == "text/css"
    _, headers, body = ask(site, "/doc/sub%20dir/")
    assert (headers["Content-Type"], body) == ("text/html", b"<p>old")
    assert ask(site, "/doc/sub%20dir/", If_None_Match=headers["ETag"])[0] == 304
    (tmp_path / "sub dir" / "index.html").write_text("<p>new")
    assert ask(site, "/doc/sub%20dir/index.html", If_None_Match=headers["ETag"])[2] == b"<p>new"
    (tmp_path / "a.css").unlink()
    assert ask(site, "/doc/a.css")[0] == 404


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives all of 127/8 to loopback")
def test_several_hosts_at_once() -> None:
    with Website({"/": page("One")}) as one, Website(host="127.0.0.2", port=one.port) as two:
        two.add("/", page("Two"))
        assert two.url("/x", host="localhost") == f"http://localhost:{one.port}/x"
        assert (b"One" in ask(one, "/")[2], b"Two" in ask(two, "/")[2]) == (True, True)


def test_stopping_leaves_nothing_behind() -> None:
    threads = set(threading.enumerate())
    site = Website(EVERYTHING)
    site.start()
    request = "GET {} HTTP/1.1\r\nHost: x\r\n\r\n"
    paths = ("/stalled", "/stalled-body", "/drip", "/endless", "/huge")  # none is ever read
    clients = [dial(site, request.format(path)) for path in paths]
    clients += [dial(site), dial(site, "GET /half"), *(dial(site) for _ in range(100))]
    began = time.monotonic()
    site.stop()
    site.stop()
    assert time.monotonic() - began < 5
    assert set(threading.enumerate()) == threads
    with pytest.raises(ConnectionRefusedError):
        dial(site)
    for client in clients:
        client.close()
    gc.collect()  # a socket left open would warn here, and a warning is an error
    with site:
        assert ask(site, "/about")[0] == 200


def test_nothing_goes_on_for_ever(site: Website) -> None:
    _ = gzip_bomb(), zip_bomb(), crowd()  # built before the time is measured
    site.add_all({f"/robots/{name}": answer for name, answer in ROBOTS.items()})
    below = {path.replace("*", "2024/01") for path in site._pages}

    def lasts(path: str) -> float:
        began = time.monotonic()
        overhear(site, path)
        return time.monotonic() - began

    with ThreadPoolExecutor(16) as pool:
        assert max(pool.map(lasts, sorted(below))) < 5
    assert {seen.route for seen in site.log} == below
    assert max(got.sent for got in site.served if got.status is None) <= MAX_BYTES


def test_a_client_led_on_for_ever_is_hung_up_on() -> None:
    with pytest.RaisesGroup(RuntimeError), Website(PLAIN, max_requests=3) as site:
        assert [len(overhear(site, "/")) > 0 for _ in range(5)] == [True] * 3 + [False] * 2


# What the ready behaviours promise, as bytes on the wire.
TRAITS = {
    "/nofollow": b'content="nofollow"',
    "/nofollow-link": b'rel="nofollow ugc"',
    "/nofollow-header": b"X-Robots-Tag: nofollow\r\n",
    "/noindex": b'content="noindex"',
    "/noindex-header": b"X-Robots-Tag: noindex\r\n",
    "/canonical": b'rel="canonical" href="/about"',
    "/refresh": b"0; url=/about",
    "/announces": b'(rel="alternate".*){3}',
    "/xss": b"<title>&lt;script&gt;alert",
    "/paper.pdf": b"\r\n\r\n%PDF-1.4\n.*%%EOF\n$",
    "/charset/utf-8": b"charset=utf-8\r\n.*Caf\xc3\xa9",
    "/charset/latin-1-by-header": b"charset=ISO-8859-1\r\n.*Caf\xe9",
    "/charset/latin-1-by-meta": b'text/html\r\n.*Caf\xe9.*<meta charset="iso-8859-1">',
    "/charset/by-bom": b"text/html\r\n.*\r\n\r\n\xff\xfe<",
    "/charset/undeclared": b"text/html\r\n.*Caf\xc3\xa9",
    "/charset/lying-header": b"charset=utf-8\r\n.*Caf\xe9",
    "/charset/lying-meta": b'text/html\r\n.*Caf\xc3\xa9.*<meta charset="iso-8859-1">',
    "/charset/unknown": b"charset=x-klingon\r\n",
    "/redirect/other-host": b"302 Found\r\n.*Location: http://localhost:80/about\r\n",
    "/redirect/private": b"Location: http://10.0.0.1/\r\n",
    "/status/429": b" 429 Too Many Requests\r\n.*Retry-After: 2\r\n",
    "/status/503": b" 503 Service Unavailable\r\n.*Retry-After: 2\r\n",
    "/status/503-until": b"Retry-After: .* GMT\r\n",
    "/type/binary-as-html": b"Content-Type: text/html.*\x89PNG",
    "/type/html-as-pdf": b"Content-Type: application/pdf.*<title>",
    "/type/missing": b"^((?!Content-Type).)*$",
    "/huge": b"Content-Length: 10737418240\r\n",
    "/endless": b"^((?!Content-Length).)*$",
    "/too-short": b"Content-Length: 3\r\n\r\n<p>long</p>$",
    "/big-header": b"X-Big: b{1048576}\r\n",
    "/drip": b"Content-Length: 1000000\r\n\r\na{3,50}$",
    "/drip-head": b"X-Drip: a{3,50}$",
    "/slow": b"^$",
    "/stalled": b"^$",
    "/stalled-body": b"\r\n\r\n<html>$",
    "/feed/html": b"Content-Type: text/html",
    "/feed/moved": b" 301 .*Location: /feed/rss\r\n",
    "/feed/no-etag": b"^((?!ETag|Last-Modified).)*$",
    "/feed/xxe": b'SYSTEM "file:///etc/passwd"',
    "/reset": b"Content-Length: 1000\r\n\r\n<p>halfRESET$",
    "/reset-at-once": b"^RESET$",
    "/closed": b"^$",
    "/garbage": b"^\x00\x01",
    "/bad-chunk": b"zz\r\noops$",
    "/cut-chunk": b"chunked\r\n\r\nfde8\r\n.{494}$",
    "/too-long": b"Content-Length: 1000\r\n\r\n<p>short</p>$",
    "/gzip/page": b"Content-Encoding: gzip\r\n",
}


def test_traits_seen_on_the_wire(site: Website) -> None:
    with ThreadPoolExecutor(8) as pool:
        heard = dict(zip(TRAITS, pool.map(lambda path: overhear(site, path), TRAITS), strict=True))
    for path, pattern in TRAITS.items():
        assert re.search(pattern, heard[path], re.DOTALL), path


def test_the_index_leads_to_every_plain_page(site: Website) -> None:
    found = hrefs(ask(site, "/")[2])
    assert set(found) == set(PLAIN) - {"/", "/robots.txt"}
    assert {ask(site, path)[0] for path in found} == {200}


def test_robots(site: Website) -> None:
    def robots(name: str) -> Reply:
        site.add("/robots.txt", ROBOTS[name])
        return ask(site, "/robots.txt")

    assert f"Sitemap: {site.url('/sitemap.xml')}" in robots("rules")[2].decode()
    assert b"Crawl-delay: 0.5" in robots("delay")[2]
    assert [robots(name)[0] for name in ("missing", "broken", "busy")] == [404, 500, 503]
    assert robots("huge")[2].index(b"Disallow: /\n") > 500 << 10


def tags(text: bytes) -> list[str]:
    seen: list[str] = []
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda name, _: seen.append(name)
    parser.Parse(text, True)  # noqa: FBT003 - expat takes no keywords
    return seen


def test_sitemaps_and_feeds_are_what_they_say(site: Website) -> None:
    assert tags(ask(site, "/sitemap.xml")[2]).count("loc") == 3
    assert site.url("/only-in-sitemap").encode() in ask(site, "/sitemap.xml")[2]
    assert tags(ask(site, "/sitemap-index.xml")[2])[:2] == ["sitemapindex", "sitemap"]
    assert tags(gzip.decompress(ask(site, "/sitemap.xml.gz")[2]))[:2] == ["urlset", "url"]
    firsts = {"rss": "rss", "atom": "feed", "rdf": "rdf:RDF", "etag": "rss", "no-guid": "rss"}
    for name, first in firsts.items():
        assert tags(ask(site, f"/feed/{name}")[2])[0] == first
    _, headers, _ = ask(site, "/feed/etag")
    assert ask(site, "/feed/etag", If_None_Match=headers["ETag"])[0] == 304
    assert ask(site, "/feed/etag", If_Modified_Since=headers["Last-Modified"])[0] == 304
    assert tags(ask(site, "/opml")[2]).count("outline") == 3
    assert json.loads(ask(site, "/feed/json")[2])["items"][0]["url"] == site.url("/about")
    for path in ("/feed/malformed", "/feed/lying-charset", "/feed/empty", "/sitemap-cut.xml"):
        with pytest.raises(expat.ExpatError):
            tags(ask(site, path)[2])
    laughs = ask(site, "/feed/laughs")[2]
    assert (laughs.count(b"<!ENTITY"), laughs.count(b"&l8;")) == (10, 10)


def test_statuses_and_redirects(site: Website) -> None:
    for path in EVERYTHING:
        if code := re.fullmatch(r"/(status|redirect)/(\d+)", path):
            assert ask(site, path)[0] == int(code[2])
    assert follow(site, "/redirect/relative")[-1] == "/about"
    assert len(follow(site, "/redirect/chain/30")) == 31
    assert set(follow(site, "/redirect/loop")) == {"/redirect/loop", "/redirect/pool"}
    assert set(follow(site, "/redirect/self")) == {"/redirect/self"}
    assert len(set(follow(site, "/redirect/endless/x"))) == 51


def test_time_and_size(site: Website) -> None:
    site.max_seconds = 5
    site.add("/late", said(0.2, render(page("Late"))))
    began = time.monotonic()
    assert b"Late" in ask(site, "/late")[2]
    assert time.monotonic() - began >= 0.2
    for path in ("/huge", "/endless", "/endless-unframed", "/endless-head", "/endless-continue"):
        assert len(overhear(site, path)) == MAX_BYTES
    assert overhear(site, "/many-headers").count(b"\r\nX-") == 10_000
    assert len(set(hrefs(ask(site, "/links-100k")[2]))) == 100_000
    site.max_bytes = 64 << 20
    assert 50e6 < len(overhear(site, "/feed/50-mb")) < 64e6


def test_codings_and_bombs(site: Website) -> None:
    pages = {path: ask(site, path)[2] for path in EVERYTHING if re.match("/(gzip|deflate)/", path)}
    assert b"Squeezed" in gzip.decompress(pages["/gzip/page"])
    assert b"Squeezed" in zlib.decompress(pages["/deflate/page"])
    assert b"Squeezed" in zlib.decompress(pages["/deflate/raw"], -15)
    for name, error in (("broken", zlib.error), ("cut", EOFError), ("not", gzip.BadGzipFile)):
        with pytest.raises(error):
            gzip.decompress(pages[f"/gzip/{name}"])
    bomb, double = pages["/gzip/bomb"], pages["/gzip/bomb-twice"]
    assert len(double) < 1000 < len(bomb) < 150_000
    with gzip.open(io.BytesIO(bomb)) as file:
        assert sum(len(data) for data in iter(lambda: file.read(1 << 20), b"")) == 128 << 20
    assert gzip.decompress(double) == bomb
    with zipfile.ZipFile(io.BytesIO(ask(site, "/type/zip-bomb")[2])) as pack:
        assert pack.getinfo("zeros").file_size == 128 << 20


@pytest.mark.parametrize("path", ["/calendar/2024/11", "/session/a", "/query", "/deep/"])
def test_traps_always_have_a_new_url(site: Website, path: str) -> None:
    seen = [path]
    for _ in range(30):
        status, _, body = ask(site, seen[-1])
        assert status == 200
        new = [urljoin(seen[-1], to) for to in hrefs(body)]
        seen.append(next(to for to in new if to not in seen))
    assert len(set(seen)) == 31
