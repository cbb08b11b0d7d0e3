"""Behaviours of web sites, good and hostile: each set maps paths to behaviours.

Use with `Website(PLAIN | TRAPS)`, `Website(EVERYTHING)`, or one by one with `site.add(path, …)`.
The site limits endless responses; large responses are built at the first request.
"""

import asyncio
import base64
import gzip
import hashlib
import html
import io
import zipfile
import zlib
from collections.abc import AsyncGenerator, Callable
from email.utils import formatdate
from functools import cache, partial
from time import time

from support.site.website import HTML, Behaviour, End, Request, Response, Wire, head, render

Pages = dict[str, Behaviour]
XML, TEXT, GZIP, PDF = "application/xml", "text/plain", "application/gzip", "application/pdf"
ENDLESS_S = 3600.0
MEGABYTE = bytes(1 << 20)
BLOCK = b"<p>and then there were more words, and after them still more</p>\n" * 1000
CHUNK = b"%x\r\n%b\r\n" % (len(BLOCK), BLOCK)
# 128 MiB of zeros as brotli 1.2 packs them; the standard library cannot.
BROTLI_BOMB = (
    b"%m4pB03-n7u|RU~|M>s^2Y>`X92S7?{U87T{{WBxh{FQVz5nC?{~rJn0C89Vy7zzl|NjF(0w4|xK==NS|NnmgNC3oP0q"
    b"EZU@&Er1011FNECAj6KmPy!0U!YohXtT}|HuFTKL8{E;;;a8@BjG!{|A5sKpYl;?)@MC|Nj7x0Eoi^(7pfT|NkEV5&&^"
    b"n0J`^o{Qv(0Kms5R3qbe&kN^LF07wADVFBpg|MCC-4*&^(I4l6&`#=8w{{bKY5Qhbzd;d2"
)


def links(*targets: str) -> str:
    return "\n".join(f'<p><a href="{html.escape(to)}">{html.escape(to)}</a></p>' for to in targets)


def page(title: str, body: str = "", extra: str = "", **headers: str) -> Response:
    """Answer with a small page; `X_Robots_Tag="none"` becomes that header."""
    text = (
        f'<!doctype html>\n<html lang="en"><head><title>{title}</title>{extra}</head><body>'
        f"<h1>{title}</h1><main><p>This is the page called {title}.</p>{body}</main></body></html>"
    )
    return Response(text.encode(), headers=_named(headers))


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def at_home(text: str, kind: str = XML, **headers: str) -> Callable[[Request], Response]:
    """Answer with a text in which `{origin}` is where the client found us."""
    pack, named = (partial(gzip.compress, mtime=0) if kind == GZIP else bytes), _named(headers)
    fill = partial(text.replace, "{origin}")
    return lambda ask: Response(pack(fill(ask.origin).encode()), 200, named, kind)


def redirect(to: str, code: int = 302) -> Response:
    return Response(b"", code, {"Location": to}, None)


def status(code: int, **headers: str) -> Response:
    return Response(page(f"Status {code}").body, code, _named(headers))


def ok(kind: str = HTML, **headers: str) -> bytes:
    """Write the head of a good answer; what else it claims is up to the caller."""
    return head(200, {"Content-Type": kind, **_named(headers)})


def said(*parts: bytes | float, end: End = "close") -> Wire:
    """Say these bytes; a number is a pause of so many seconds."""

    async def chunks() -> AsyncGenerator[bytes, None]:
        for part in parts:
            if isinstance(part, bytes):
                yield part
            else:
                await asyncio.sleep(part)

    return Wire(chunks, end)


def forever(start: bytes, again: bytes, pause: float = 0.0) -> Wire:
    """Say one thing, and then another until the site has had enough."""

    async def chunks() -> AsyncGenerator[bytes, None]:
        yield start
        while True:
            await asyncio.sleep(pause)
            yield again

    return Wire(chunks)


def charset(codec: str, header: str, declared: str = "") -> Response:
    text = page("Café", "<p>Größe, façade, naïve.</p>", declared).body.decode()
    return Response(text.encode(codec), content_type="text/html" + header)


def coded(coding: str, body: bytes) -> Response:
    return Response(body, headers={"Content-Encoding": coding})


def pdf(*texts: str) -> bytes:
    """Write a small valid PDF, one page for each text."""
    kids = range(4, 4 + 2 * len(texts), 2)
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Count {len(kids)}/Kids[{' '.join(f'{k} 0 R' for k in kids)}]>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for k, text in zip(kids, texts, strict=True):
        means = "/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R>>>>"
        show = f"BT /F1 18 Tf 72 720 Td ({text}) Tj ET"
        objects.append(f"<</Type/Page/Parent 2 0 R{means}/Contents {k + 1} 0 R>>")
        objects.append(f"<</Length {len(show)}>>\nstream\n{show}\nendstream")
    out, table, size = "%PDF-1.4\n", "0000000000 65535 f \n", len(objects) + 1
    for number, text in enumerate(objects, 1):
        table += f"{len(out):010} 00000 n \n"
        out += f"{number} 0 obj\n{text}\nendobj\n"
    trailer = f"trailer\n<</Size {size}/Root 1 0 R>>\nstartxref\n{len(out)}\n%%EOF\n"
    return f"{out}xref\n0 {size}\n{table}{trailer}".encode("ascii")


def sitemap(*paths: str, before: str = "") -> str:
    dated = "<lastmod>2024-05-01</lastmod>"
    lines = "".join(f"<url><loc>{{origin}}{path}</loc>{dated}</url>" for path in paths)
    return f'{before}<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{lines}</urlset>'


def sitemap_index(*paths: str) -> str:
    return sitemap(*paths).replace("urlset", "sitemapindex").replace("url>", "sitemap>")


def rss(title: str, *paths: str, before: str = "") -> str:
    """Write an RSS 2.0 feed for `at_home`, with an item for each path."""
    items = "".join(
        f"<item><title>Item {path}</title><link>{{origin}}{path}</link><guid>tag:{path}</guid>"
        f"<description>About {path}</description>"
        "<pubDate>Wed, 01 May 2024 10:00:00 GMT</pubDate></item>"
        for path in paths
    )
    about = f"<title>{title}</title><link>{{origin}}/</link><description>News</description>"
    return f'{before}<rss version="2.0"><channel>{about}{items}</channel></rss>'


@cache
def gzip_bomb(megabytes: int = 128) -> bytes:
    """Write a valid gzip file of zeros; a full flush makes every megabyte the same few bytes."""
    squeeze, check = zlib.compressobj(9, zlib.DEFLATED, -15), 0
    block = squeeze.compress(MEGABYTE) + squeeze.flush(zlib.Z_FULL_FLUSH)
    for _ in range(megabytes):
        check = zlib.crc32(MEGABYTE, check)
    tail = check.to_bytes(4, "little") + (megabytes << 20).to_bytes(4, "little")
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * megabytes + b"\x03\0" + tail


@cache
def zip_bomb() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as pack:
        pack.writestr("zeros", bytes(128 << 20))
    return out.getvalue()


def zstd_bomb() -> bytes:
    """Write a zstd frame by hand: 1024 blocks that each say "128 KiB of zero"."""
    block = (131072 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x38" + block * 1023 + b"\x03" + block[1:]


@cache
def crowd() -> Response:
    return page("Crowd", links(*(f"/leaf/{i}" for i in range(100_000))))


def calendar(ask: Request) -> Response:
    """Show a month, with a link to the next one: there always is one."""
    year, month = map(int, ask.route.split("/")[2:4])
    after = f"/calendar/{year + month // 12}/{month % 12 + 1:02}"
    return page(f"{year}-{month:02}", f"<p>No events.</p>{links(after)}")


def session(ask: Request) -> Response:
    """Show one of three pages, with links whose session id is new each time."""
    sid = hashlib.blake2b(ask.path.encode(), digest_size=8).hexdigest()
    name = ask.route.rpartition("/")[2]
    return page(f"Room {name}", links(*(f"/session/{room}?sid={sid}" for room in "abc")))


def facets(ask: Request) -> Response:
    """Show a list, with links that add each filter to those chosen, in the order of choosing."""
    so_far = f"{ask.query}&" if ask.query else ""
    return page("Shop", links(*(f"/query?{so_far}{name}=1" for name in ("color", "size", "sort"))))


ODD_LINKS = links(
    "about?a=1&b=2#part", "../about", "./chain/1", "//localhost/elsewhere", "?page=2", "#top", "",
    "mailto:usher@example.org", "javascript:alert(1)", "tel:+31", "data:text/html,x", " /about ",
    "/with space", "/café", "/a/../about", "HTTP://LOCALHOST:80/Upper", "http://[bad/", "http://",
)  # fmt: skip
ALTERNATES = "".join(
    f'<link rel="alternate" type="application/{kind}" href="/feed/{name}">'
    for name, kind in (("rss", "rss+xml"), ("atom", "atom+xml"), ("json", "feed+json"))
)
PLAIN: Pages = {
    "/about": page("About", links("/")),
    **{f"/chain/{i}": page(f"Chain {i}", links(f"/chain/{i + 1}")) for i in range(1, 9)},
    "/chain/9": page("Chain 9, the last"),
    "/based": page("Based", links("page"), '<base href="/below/">'),
    "/below/page": page("Below"),
    "/nofollow": page("Nofollow", links("/unseen/1"), '<meta name="robots" content="nofollow">'),
    "/nofollow-link": page("Nofollow link", '<a rel="nofollow ugc" href="/unseen/2">no</a>'),
    "/nofollow-header": page("Nofollow header", links("/unseen/3"), X_Robots_Tag="nofollow"),
    "/noindex": page("Noindex", links("/about"), '<meta name="robots" content="noindex">'),
    "/noindex-header": page("Noindex header", links("/about"), X_Robots_Tag="noindex"),
    "/canonical": page("About", links("/"), '<link rel="canonical" href="/about">'),
    "/refresh": page("Refresh", "", '<meta http-equiv="refresh" content="0; url=/about">'),
    "/odd-links": page("Odd links", ODD_LINKS),
    "/announces": page("Announces feeds", "", ALTERNATES),
    "/private/page": page("Private"),
    "/plain.txt": Response(b"Plain words, no markup.\n", content_type=TEXT),
    "/paper.pdf": Response(pdf("First page of the paper", "Second page"), content_type=PDF),
    "/charset/utf-8": charset("utf-8", "; charset=utf-8"),
    "/charset/latin-1-by-header": charset("latin-1", "; charset=ISO-8859-1"),
    "/charset/latin-1-by-meta": charset("latin-1", "", '<meta charset="iso-8859-1">'),
    "/charset/by-bom": charset("utf-16", ""),
    "/charset/undeclared": charset("utf-8", ""),
    "/charset/lying-header": charset("latin-1", "; charset=utf-8"),
    "/charset/lying-meta": charset("utf-8", "", '<meta charset="iso-8859-1">'),
    "/charset/unknown": charset("utf-8", "; charset=x-klingon"),
}
PLAIN["/"] = page("Index", links(*PLAIN))

# Robots by name, for a site has one: `site.add("/robots.txt", ROBOTS["delay"])`.
RULES = "User-agent: *\nDisallow: /private/\nSitemap: {origin}/sitemap.xml\n"
ROBOTS: Pages = {
    "rules": at_home(RULES, TEXT),
    "closed": at_home("User-agent: *\nDisallow: /\n", TEXT),
    "delay": at_home(RULES + "Crawl-delay: 0.5\n", TEXT),
    "missing": status(404),
    "broken": status(500),
    "busy": status(503, Retry_After="2"),
    "html": page("Not the robots you are looking for"),
    "huge": at_home(RULES + "# nothing\n" * 100_000 + "Disallow: /\n", TEXT),
    "endless": forever(ok(TEXT), b"Disallow: /private/\n" * 1000),
    "moved": redirect("/moved-robots.txt", 301),
    "loop": redirect("/robots.txt"),
    "stalled": said(ENDLESS_S),
}
PLAIN["/robots.txt"] = ROBOTS["rules"]

LEVELS = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
LAUGHS = f'<!DOCTYPE l [<!ENTITY l0 "ha">{LEVELS}]>'
SITEMAPS: Pages = {
    "/sitemap.xml": at_home(sitemap("/", "/about", "/only-in-sitemap")),
    "/only-in-sitemap": page("Only in the sitemap"),
    "/sitemap-index.xml": at_home(sitemap_index("/sitemap.xml", "/sitemap.xml.gz")),
    "/sitemap.xml.gz": at_home(sitemap("/about"), GZIP),
    "/sitemap-loop.xml": at_home(sitemap_index("/sitemap-loop.xml")),
    "/sitemap-cut.xml": at_home(sitemap("/about", "/chain/1")[:-40]),
    "/sitemap-laughs.xml": at_home(sitemap("/&l9;", before=LAUGHS)),
    "/sitemap-bomb.xml.gz": lambda _: Response(gzip_bomb(), content_type=GZIP),
}

ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Atom</title><id>urn:usher:atom</id>
<updated>2024-05-01T10:00:00Z</updated><entry><title>One</title><id>urn:usher:1</id>
<link href="{origin}/about"/><updated>2024-05-01T10:00:00Z</updated>
<content type="html">&lt;p&gt;Whole &lt;b&gt;text&lt;/b&gt;&lt;/p&gt;</content></entry></feed>"""
JSON_FEED = """{"version": "https://jsonfeed.org/version/1.1", "title": "JSON", "items":
[{"id": "1", "url": "{origin}/about", "title": "One", "content_text": "Whole text"}]}"""
RDF = """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
xmlns="http://purl.org/rss/1.0/"><channel rdf:about="{origin}/"><title>RDF</title></channel>
<item rdf:about="{origin}/about"><title>One</title><link>{origin}/about</link></item></rdf:RDF>"""
OPML = """<opml version="2.0"><head><title>Mine</title></head><body><outline text="News">
<outline type="rss" text="RSS" xmlUrl="{origin}/feed/rss"/></outline>
<outline type="rss" text="Atom" xmlUrl="{origin}/feed/atom"/></body></opml>"""
XXE = '<!DOCTYPE x [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
CAFE = rss("Café", "/about").replace("{origin}", "http://localhost")
OPENING, TAG, REST = CAFE.encode().partition(b"<item>")
CLOSING = b"</channel></rss>"
ITEMS = (TAG + REST.removesuffix(CLOSING)) * 250
FEEDS: Pages = {
    "/feed/rss": at_home(rss("RSS", "/about", "/chain/1", "/chain/2"), "application/rss+xml"),
    "/feed/atom": at_home(ATOM, "application/atom+xml"),
    "/feed/json": at_home(JSON_FEED, "application/feed+json"),
    "/feed/rdf": at_home(RDF, "application/rdf+xml"),
    "/feed/etag": at_home(rss("Tagged", "/about"), Last_Modified="Wed, 01 May 2024 10:00:00 GMT"),
    "/feed/no-etag": Response(CAFE.encode(), content_type=XML, validators=False),
    "/feed/no-guid": at_home(rss("No guids", "/about", "/chain/1").replace("guid>", "unknown>")),
    "/feed/malformed": at_home(rss("Cut & <b>broken", "/about", "/chain/1")[:-30]),
    "/feed/lying-charset": Response(CAFE.encode("latin-1"), content_type=XML),
    "/feed/laughs": at_home(rss("&l9;", "/about", before=LAUGHS)),
    "/feed/xxe": at_home(rss("&x;", "/about", before=XXE)),
    "/feed/html": page("Where a feed was", links("/about")),
    "/feed/empty": Response(b"", content_type=XML),
    "/feed/50-mb": said(ok(XML), OPENING, *[ITEMS] * 1200, CLOSING),
    "/feed/moved": redirect("/feed/rss", 301),
    "/feed/gone": status(410),
    "/opml": at_home(OPML, "text/x-opml"),
}

REDIRECTS: Pages = {
    **{f"/redirect/{code}": redirect("/about", code) for code in (301, 302, 303, 307, 308)},
    **{f"/redirect/chain/{n}": redirect(f"/redirect/chain/{n - 1}") for n in range(2, 31)},
    "/redirect/chain/1": redirect("/about"),
    "/redirect/loop": redirect("/redirect/pool"),
    "/redirect/pool": redirect("/redirect/loop"),
    "/redirect/self": redirect("/redirect/self"),
    "/redirect/endless/*": lambda ask: redirect(ask.route + "/on"),
    "/redirect/relative": redirect("../about"),
    "/redirect/other-host": lambda ask: redirect(f"http://localhost:{ask.port}/about"),
    "/redirect/private": redirect("http://10.0.0.1/"),
    "/redirect/metadata": redirect("http://169.254.169.254/latest/meta-data/"),
    "/redirect/decimal": redirect("http://2130706433/"),  # 127.0.0.1 in disguise
    "/redirect/file": redirect("file:///etc/passwd"),
    "/redirect/nowhere": Response(b"", 302, {}, None),
    "/redirect/long": redirect("/" + "long" * 8000),
}
SLOW: Pages = {
    "/slow": said(2.0, render(page("Slow"))),
    "/drip": forever(ok(Content_Length="1000000"), b"a", 0.02),
    "/drip-head": forever(b"HTTP/1.1 200 OK\r\nX-Drip: ", b"a", 0.02),
    "/stalled": said(ENDLESS_S),
    "/stalled-body": said(ok(Content_Length="1000") + b"<html>", ENDLESS_S),
}
SIZES: Pages = {
    "/huge": forever(ok(Content_Length=str(10 << 30)), BLOCK),
    "/endless": forever(ok(Transfer_Encoding="chunked"), CHUNK),
    "/endless-unframed": forever(ok(), BLOCK),
    "/endless-head": forever(b"HTTP/1.1 200 OK\r\n", b"X-More: and more\r\n" * 1000),
    "/endless-continue": forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "/too-long": said(ok(Content_Length="1000") + b"<p>short</p>"),
    "/too-short": said(ok(Content_Length="3") + b"<p>long</p>", end="keep"),
    "/no-number": said(ok(Content_Length="many") + b"<p>many</p>"),
    "/big-header": said(ok(X_Big="b" * (1 << 20), Content_Length="2") + b"ok"),
    "/many-headers": said(ok(**{f"X_{i}": "y" for i in range(10_000)}, Content_Length="2") + b"ok"),
    "/empty": Response(),
}
TYPES: Pages = {
    "/type/binary-as-html": Response(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40),
    "/type/html-as-pdf": Response(page("No PDF").body, content_type=PDF),
    "/type/missing": Response(page("Untyped").body, content_type=None),
    "/type/nonsense": Response(page("Odd type").body, content_type=";;/charset="),
    "/type/zip-bomb": lambda _: Response(zip_bomb(), content_type="application/zip"),
}
SQUEEZED = page("Squeezed", "<p>Small on the wire.</p>").body
CODED: Pages = {
    "/gzip/page": coded("gzip", gzip.compress(SQUEEZED)),
    "/gzip/broken": coded("gzip", gzip.compress(SQUEEZED)[:20] + b"\xff" * 50),
    "/gzip/cut": coded("gzip", gzip.compress(SQUEEZED)[:-20]),
    "/gzip/not": coded("gzip", SQUEEZED),
    "/gzip/bomb": lambda _: coded("gzip", gzip_bomb()),
    "/gzip/bomb-twice": lambda _: coded("gzip, gzip", gzip.compress(gzip_bomb(), mtime=0)),
    "/deflate/page": coded("deflate", zlib.compress(SQUEEZED)),
    "/deflate/raw": coded("deflate", zlib.compress(SQUEEZED)[2:-4]),
    "/zstd/bomb": coded("zstd", zstd_bomb()),
    "/br/bomb": coded("br", base64.b85decode(BROTLI_BOMB)),
    "/coding/unknown": coded("rot13", SQUEEZED),
}
BROKEN: Pages = {
    "/reset": said(ok(Content_Length="1000") + b"<p>half", 0.05, end="reset"),
    "/reset-at-once": said(end="reset"),
    "/closed": said(),
    "/garbage": said(bytes(range(256)) * 4),
    "/no-head": said(b"<p>HTTP/0.9, as of old</p>"),
    "/bad-chunk": said(ok(Transfer_Encoding="chunked") + CHUNK + b"zz\r\noops"),
    "/cut-chunk": said(ok(Transfer_Encoding="chunked") + CHUNK[:500]),
}
STATUSES: Pages = {
    **{f"/status/{code}": status(code) for code in (204, 401, 403, 404, 410, 418, 500, 502, 999)},
    "/status/429": status(429, Retry_After="2"),
    "/status/503": status(503, Retry_After="2"),
    "/status/503-until": lambda _: status(503, Retry_After=formatdate(time() + 2, usegmt=True)),
}
TRAPS: Pages = {
    "/calendar/*": calendar,
    "/session/*": session,
    "/query": facets,
    "/deep/*": lambda ask: page("Deep", links("a/", ask.route + "a/")),
    "/soft-404/*": lambda ask: page("Sorry, not found", links(ask.route + "x", ask.route + "y")),
    "/links-100k": lambda _: crowd(),
    "/leaf/*": lambda ask: page(f"Leaf {ask.route}"),
}
XSS = html.escape("<script>alert('usher')</script>")
MARKUP: Pages = {
    "/broken-html": Response(
        b"<title>Broken<p><a href='/about>x<table><div </b><a href=/chain/1>y<!-- <p \0\xff &#0;"
    ),
    "/xss": page(XSS, f'<img alt="{XSS}">{links("javascript:alert(1)")}'),
    "/nested": Response(b"<title>Nested</title>" + b"<div>" * 50_000 + b"deep"),
    "/one-word": Response(b"<title>Long</title><p>" + b"word" * 250_000),
}
HOSTILE: Pages = REDIRECTS | SLOW | SIZES | TYPES | CODED | BROKEN | STATUSES | TRAPS | MARKUP
EVERYTHING: Pages = PLAIN | SITEMAPS | FEEDS | HOSTILE
