"""Sitemaps of every form are parsed, and damaged ones as far as possible."""

import gzip
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from usher.crawl.sitemap import (
    MAX_BYTES,
    MAX_ENTRIES,
    MAX_URL_LENGTH,
    ParsedSitemap,
    SitemapEntry,
    is_sitemap,
    parse_date,
    parse_sitemap,
)

URL = "https://example.com/maps/sitemap.xml"
NS = "http://www.sitemaps.org/schemas/sitemap/0.9"
A, B = "https://example.com/a", "https://example.com/b"
DAY = datetime(2024, 5, 17, tzinfo=UTC)


def parsed(body: str | bytes) -> ParsedSitemap:
    return parse_sitemap(body if isinstance(body, bytes) else body.encode(), URL)


def urlset(*entries: str, attributes: str = f'xmlns="{NS}"', prefix: str = "") -> str:
    inside = "\n".join(f"<{prefix}url>{entry}</{prefix}url>" for entry in entries)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{prefix}urlset {attributes}>{inside}</{prefix}urlset>\n'


def loc(text: str, lastmod: str = "") -> str:
    return f"<loc>{text}</loc>" + (f"<lastmod>{lastmod}</lastmod>" if lastmod else "")


def urls(body: str | bytes) -> list[str]:
    found = parsed(body)
    assert found.problem == ""
    assert found.sitemaps == ()
    return [entry.url for entry in found.pages]


def test_pages_come_with_their_dates() -> None:
    body = urlset(loc(A, "2024-05-17"), loc(B), f"<lastmod>2024-05-17</lastmod>\n {loc(A)}")
    assert parsed(body) == ParsedSitemap(
        pages=(SitemapEntry(A, DAY), SitemapEntry(B), SitemapEntry(A, DAY))
    )


def test_an_index_names_other_sitemaps() -> None:
    inside = f"<sitemap>{loc(A, '2024-05-17')}</sitemap><sitemap>{loc(B)}</sitemap>"
    body = f"<sitemapindex xmlns='{NS}'>{inside}</sitemapindex>"
    assert parsed(body) == ParsedSitemap(sitemaps=(SitemapEntry(A, DAY), SitemapEntry(B)))


SHAPES = {
    "no namespace": urlset(loc(A), loc(B), attributes=""),
    "wrong namespace": urlset(loc(A), loc(B), attributes='xmlns="http://www.google.com/schemas/sitemap/0.84"'),
    "prefix": urlset("<s:loc>" + A + "</s:loc>", f"<s:loc>{B}</s:loc>", attributes=f'xmlns:s="{NS}"', prefix="s:"),
    "upper case": urlset(loc(A), loc(B)).replace("loc>", "LOC>").replace("url>", "URL>"),
    "spaces": urlset(loc(f"\n  {A}\t"), f"\n <loc\n>{B} </loc >\n"),
    "attributes": urlset(f'<loc xml:lang="en">{A}</loc>', loc(B)),
    "cdata": urlset(loc(f"<![CDATA[{A}]]>"), loc(f" <![CDATA[ {B} ]]> ")),
    "half cdata": urlset(loc(A), loc("https://<![CDATA[example.com]]>/b")),
    "comments": urlset(loc(A) + "<!-- <loc>https://example.com/x</loc> -->", f"<!-- -- -->{loc(B)}"),
    "other text": urlset(f"<x><![CDATA[<loc>https://example.com/x</loc>]]></x>{loc(A)}", loc(B)),
    "other namespaces": urlset(
        f"{loc(A)}<image:image><image:loc>https://example.com/i.jpg</image:loc></image:image>",
        f"<video:video><video:content_loc>https://e.com/v</video:content_loc></video:video>{loc(B)}"
        "<news:news><news:publication_date>2024-05-17</news:publication_date></news:news>"
        '<xhtml:link rel="alternate" hreflang="de" href="https://example.com/de"/>',
    ),
    "doctype": urlset(loc(A), loc(B)).replace("<urlset", '<!DOCTYPE urlset SYSTEM "x.dtd"><urlset'),
    "stylesheet": urlset(loc(A), loc(B)).replace("<urlset", '<?xml-stylesheet href="a.xsl"?><!-- <rss> --><urlset'),
    "not closed": f"<urlset><url>{loc(A)}<url>{loc(B)}</urlset>",
    "no url": f"<urlset>{loc(A)}{loc(B)}</urlset>",
    "noise before": f"Warning: x() in <b>y.php</b> on line 3\n{urlset(loc(A), loc(B))}",
    "noise after": urlset(loc(A), loc(B)) + "<!-- made in 0.1 s -->",
    "relative": urlset(loc("/a"), loc("//example.com/b")),
    "relative to the file": urlset(loc("../a"), loc("../../b#x")),
    "list": f"{A}\n\n  {B}  \n",
    "list with CR": f"\ufeff{A}\r{B}\r\n",
}  # fmt: skip


@pytest.mark.parametrize("body", SHAPES.values(), ids=SHAPES)
def test_every_shape_is_read(body: str) -> None:
    assert urls(body) == [A, B]


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("packed", [False, True])
def test_every_encoding_is_read(codec: str, *, packed: bool) -> None:
    body = urlset(loc(A), loc("https://example.com/\u00fc")).encode(codec)
    assert urls(gzip.compress(body) if packed else body) == [A, "https://example.com/\u00fc"]


def test_latin_1_is_read() -> None:
    assert urls(urlset(loc("https://example.com/\u00fc")).encode("latin-1")) == [
        "https://example.com/\u00fc"
    ]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("?a=1&amp;b=2", "?a=1&b=2"),
        ("?a=1&b=2", "?a=1&b=2"),
        ("?a&amp;copy=1&copy=2", "?a&copy=1&copy=2"),
        ("&#63;&#x3D;&lt;&gt;&quot;&apos;", "?=<>\"'"),
        ("&amp;amp;", "&amp;"),
        ("&#xD800;&#1114112;&#9999999;&nbsp;&;", "&#xD800;&#1114112;&#9999999;&nbsp;&;"),
        ("<![CDATA[?a&amp;b]]>&amp;c", "?a&amp;b&c"),
    ],
)
def test_only_the_entities_of_xml_are_expanded(written: str, meant: str) -> None:
    assert urls(urlset(loc(A + written))) == [A + meant]


def test_a_list_has_no_entities() -> None:
    assert urls(f"{A}?x&amp;y\n{B}") == [f"{A}?x&amp;y", B]


RSS = f"""<?xml version="1.0"?><rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel>
<link>https://example.com/</link><atom:link href="{URL}" rel="self"/><pubDate>Fri, 01 Jan 2021 00:00:00 GMT</pubDate>
<item><title>One</title><link>{A}</link><pubDate>Fri, 17 May 2024 02:00:00 +0200</pubDate></item>
<item><description><![CDATA[<link>https://example.com/x</link>]]></description><link><![CDATA[{B}]]></link></item>
</channel></rss>"""
ATOM = f"""<feed xmlns="http://www.w3.org/2005/Atom"><link href="https://example.com/"/><updated>2020-01-01</updated>
<entry><link rel="edit" href="https://example.com/x"/><link rel='alternate' type="text/html" href='{A}'/>
<updated>2024-05-17T00:00:00Z</updated><published>2023-05-17T00:00:00Z</published></entry>
<entry><link href="{B}" rel="alternate"/><link/></entry></feed>"""
RDF = f"""<rdf:RDF xmlns="http://purl.org/rss/1.0/"><channel><link>https://example.com/</link></channel>
<item rdf:about="{A}"><link>{A}</link><dc:date>2024-05-17</dc:date></item><item><link>{B}</link></item></rdf:RDF>"""


@pytest.mark.parametrize("body", [RSS, ATOM, RDF], ids=["rss", "atom", "rdf"])
def test_feeds_are_read_as_sitemaps(body: str) -> None:
    assert parsed(body) == ParsedSitemap(pages=(SitemapEntry(A, DAY), SitemapEntry(B)))


def test_prefixed_atom_is_read() -> None:
    body = ATOM.replace("<", "<a:").replace("<a:/", "</a:")
    assert [entry.url for entry in parsed(body).pages] == [A, B]


def test_an_empty_feed_is_no_problem() -> None:
    feed = "<rss><channel><link>https://example.com/</link></channel></rss>"
    assert parsed(feed) == ParsedSitemap()
    assert parsed(urlset()) == ParsedSitemap()


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "mailto:a@example.com",
        "javascript:0",
        "https://example.com/" + "x" * MAX_URL_LENGTH,
        "//",
    ],
)
def test_invalid_urls_are_skipped_and_counted(text: str) -> None:
    found = parsed(urlset(loc(A), loc(text), loc(B)))
    assert found == ParsedSitemap(pages=(SitemapEntry(A), SitemapEntry(B)), skipped=1)


def test_the_longest_url_is_kept() -> None:
    longest = "https://example.com/".ljust(MAX_URL_LENGTH, "x")
    assert urls(urlset(loc(longest))) == [longest]


def test_relative_urls_need_a_base() -> None:
    found = parse_sitemap(urlset(loc(A), loc("/b")).encode(), "nonsense:")
    assert (found.pages, found.skipped) == ((SitemapEntry(A),), 1)


def test_the_number_of_entries_is_limited() -> None:
    last = loc(f"{A}/last", "2024-05-17")
    whole = urlset(*[loc(A)] * (MAX_ENTRIES - 1), last)
    assert parsed(whole).problem == ""
    found = parsed(whole.replace("</urlset>", f"<url>{loc(B)}</url></urlset>"))
    assert found.problem == "Only the first 50,000 entries were read."
    assert len(found.pages) == MAX_ENTRIES
    assert found.pages[-1] == SitemapEntry(f"{A}/last", DAY)


@pytest.mark.parametrize("end", range(1, 28))
def test_a_truncated_file_yields_complete_urls_only(end: int) -> None:
    found = parsed(urlset(loc(A), loc(B)).encode()[: -len("</loc></url></urlset>\n") - end])
    assert found == ParsedSitemap(
        pages=(SitemapEntry(A),), problem="The file is truncated; entries may be missing."
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \n",
        b"\0\1\2",
        b"<!doctype html><html><p>https://example.com/",
        b"<svg/>",
        b"{}",
        b"<",
        b"<!--",
        b"not\nfound",
    ],
)
def test_other_files_are_reported_as_a_problem(body: bytes) -> None:
    found = parsed(body)
    assert found.pages == ()
    assert found.problem == "This is not a sitemap, a feed or a list of URLs."


def test_a_list_with_other_lines_yields_its_urls_and_a_problem() -> None:
    found = parsed(f"# Links\n{A}\nhello\n")
    assert (found.pages, found.skipped) == ((SitemapEntry(A),), 2)
    assert found.problem.startswith("This is not a sitemap,")


def test_a_missing_root_is_noticed() -> None:
    found = parsed(f"<url>{loc(A)}</url>")
    assert found.pages == (SitemapEntry(A),)
    assert found.problem == "The file is truncated; entries may be missing."


def test_entities_that_a_file_declares_are_not_expanded() -> None:
    lol = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    body = urlset(loc(f"{A}?&l9;"), loc(f"{B}?&file;")).replace(
        "<urlset",
        f'<!DOCTYPE x [<!ENTITY l0 "{loc(A)}">{lol}<!ENTITY file SYSTEM "file:///etc/passwd">]><urlset',
    )
    assert urls(body) == [f"{A}?&l9;", f"{B}?&file;"]


def test_compressed_files_may_be_nested_and_have_parts() -> None:
    body = urlset(loc(A), loc(B)).encode()
    assert urls(gzip.compress(gzip.compress(body))) == [A, B]
    assert urls(gzip.compress(body[:70]) + gzip.compress(body[70:]) + b"\0\0") == [A, B]


def test_damaged_compression_yields_the_entries_before() -> None:
    packed = gzip.compress("".join(f"{A}/{n * 7919 % 10007}\n" for n in range(20_000)).encode())
    for body in (packed[:-20_000], packed[:-20_000] + b"\xff" * 100_000):
        found = parsed(body)
        assert found.problem in {
            "The compressed file is truncated.",
            "The compressed file is damaged.",
        }
        assert 1_000 < len(found.pages) < 20_000
    assert parsed(b"\x1f\x8b").problem == "The compressed file is truncated."
    assert parsed(b"\x1f\x8b garbage").problem == "The compressed file is damaged."


def test_the_number_of_parts_is_limited() -> None:
    found = parsed(gzip.compress(f"{A}\n".encode()) * 1_001)
    assert (len(found.pages), found.problem) == (
        1_000,
        "The compressed file has more than 1,000 parts.",
    )
    assert parsed(b"<urlset>" + b"<!---->" * 500_001 + b"</urlset>").skipped == 1


def test_a_bomb_is_decompressed_up_to_the_limit() -> None:
    packed = gzip.compress(urlset(loc(A)).encode() + bytes(MAX_BYTES), 1)
    for body in (packed, gzip.compress(packed)):
        found = parsed(body)
        assert found.pages == (SitemapEntry(A),)
        assert (
            found.problem == f"The file is larger than {MAX_BYTES:,} bytes; the rest was not read."
        )


@pytest.mark.parametrize(
    "piece",
    [
        b"<", b"<!--", b"<![CDATA[", b"<?", b"<!DOCTYPE [", b"<loc>", b"<loc ", b"<loc><![CDATA[", b"<lastmod>1", b"<a",
        b"</url>", b"<!---->", b"&", b"<url><loc>&#", b"\n", b"]]>", b"<loc>a<", b"<x:", b"<loc></loc>  ",
        gzip.compress(b""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("start", [b"", b"<urlset>", b"<feed><entry>"])
def test_hostile_files_are_read_in_time(start: bytes, piece: bytes) -> None:
    # What is looked at again for each piece would take minutes.
    found = parsed(start + piece * (100_000 // len(piece)))
    assert found.problem or found.skipped
    assert is_sitemap(start + piece * 9_000, "", "/") is (start == b"<urlset>")


MOMENTS = {
    "2024": datetime(2024, 1, 1, tzinfo=UTC),
    "2024-05": datetime(2024, 5, 1, tzinfo=UTC),
    "2024-05-17": DAY,
    " 2024-5-17\n": DAY,
    "2024-05-17T19:20Z": datetime(2024, 5, 17, 19, 20, tzinfo=UTC),
    "2024-05-17T19:20+01:00": datetime(2024, 5, 17, 18, 20, tzinfo=UTC),
    "2024-05-17T19:20:30-02:30": datetime(2024, 5, 17, 21, 50, 30, tzinfo=UTC),
    "2024-05-17T19:20:30.45Z": datetime(2024, 5, 17, 19, 20, 30, 450_000, tzinfo=UTC),
    "2024-05-17T19:20:30.123456789+00:00": datetime(2024, 5, 17, 19, 20, 30, 123_456, tzinfo=UTC),
    "2024-05-17T19:20:30": datetime(2024, 5, 17, 19, 20, 30, tzinfo=UTC),
    "2024-05-17 19:20:30": datetime(2024, 5, 17, 19, 20, 30, tzinfo=UTC),
    "2024-05-17 19:20:30 UTC": datetime(2024, 5, 17, 19, 20, 30, tzinfo=UTC),
    "2024-05-17t19:20:30z": datetime(2024, 5, 17, 19, 20, 30, tzinfo=UTC),
    "2024-05-17T19:20:30+0100": datetime(2024, 5, 17, 18, 20, 30, tzinfo=UTC),
    "Fri, 17 May 2024 19:20:30 GMT": datetime(2024, 5, 17, 19, 20, 30, tzinfo=UTC),
    "Fri, 17 May 2024": DAY,
}
NONSENSE = [
    "", "x", "0", "20", "2024-13", "2024-00", "2024-05-32", "2024-05-17T25:00Z", "0001-01-01T00:00:00", "1969-12-31",
    "9999-12-31T23:59:59-14:00", "1715904000", "\u0662\u0660\u0662\u0664", "2024-05-17T19:20+99:00", "yesterday",
    "Fri, 99 May 2024 00:00:00 GMT", "1 Jan 99999 00:00:00 GMT", "9" * 5_000, "2024-05-17" + " 0" * 5_000, "\ud800",
]  # fmt: skip


@pytest.mark.parametrize(("text", "time"), MOMENTS.items())
def test_dates_are_read(text: str, time: datetime) -> None:
    assert parse_date(text) == time
    assert parsed(urlset(loc(A, text))).pages == (SitemapEntry(A, time),)


@pytest.mark.parametrize("text", NONSENSE)
def test_invalid_dates(text: str) -> None:
    assert parse_date(text) is None


ZONES = st.integers(-840, 840).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(DAY.replace(year=1971, tzinfo=None), timezones=ZONES))
def test_dates_are_read_as_they_are_written(time: datetime) -> None:
    written = time.isoformat()
    assume(time.year < 9999)
    assert parse_date(written) == datetime.fromisoformat(written)


@given(st.text(max_size=40) | st.text("0123456789-:TZ+. ,FriMayGMT", max_size=40))
def test_any_date_is_read(text: str) -> None:
    found = parse_date(text)
    assert found is None or found.tzinfo is UTC


PIECES = st.sampled_from([
    "<urlset>", "</urlset>", "<url>", "</url>", "<loc>", "</loc>", "<lastmod>", "<![CDATA[", "]]>", "<!--", "-->",
    "<?x", "?>", "<!DOCTYPE", "[", "]>", "&", "&amp;", "&#0;", "http://a/", "/b", "2024", "<", ">", "/", "<feed>",
    "<entry>", "<rss>", "<link href='/c'/>", "<item>", "<sitemapindex>", "\0", "\n", " ", "\ufeff", "\u00fc", "a:",
])  # fmt: skip


@given(
    st.binary(max_size=100)
    | st.lists(PIECES, max_size=30).map(lambda pieces: "".join(pieces).encode()),
    st.booleans(),
)
def test_anything_is_read(body: bytes, packed: bool) -> None:  # noqa: FBT001 - as hypothesis gives it
    found = parsed(gzip.compress(body) if packed else body)
    assert not (found.pages and found.sitemaps)
    assert all(entry.url for entry in (*found.pages, *found.sitemaps))
    assert isinstance(is_sitemap(body, "text/plain", "/sitemap.txt"), bool)


LIKE = {
    "urlset": (urlset(loc(A)).encode(), "text/html", "/x"),
    "index": (b"<sitemapindex>", "application/xml", "/x"),
    "prefix": (b"<s:urlset>", "", ""),
    "after a comment": (b"<?xml version='1.0'?><!-- <html> --><urlset>", "", ""),
    "packed": (gzip.compress(urlset(loc(A)).encode()), "application/gzip", "/x.gz"),
    "long and packed": (gzip.compress(urlset(*[loc(A)] * 9_000).encode()), "", ""),
    "utf-16": (urlset(loc(A)).encode("utf-16"), "", ""),
    "list": (A.encode(), "text/plain; charset=utf-8", "/Sitemap-1.txt"),
    "packed list": (gzip.compress(A.encode()), "application/gzip", "/sitemap.txt.gz"),
}
UNLIKE = {
    "html": (b"<!doctype html><html>urlset <urlset>", "application/xml", "/sitemap.xml"),
    "feed": (RSS.encode(), "application/rss+xml", "/sitemap.xml"),
    "svg": (b"<svg><urlset>", "image/svg+xml", "/x"),
    "text": (A.encode(), "text/plain", "/notes.txt"),
    "text in html": (A.encode(), "text/html", "/sitemap.txt"),
    "other text": (b"hello", "text/plain", "/sitemap.txt"),
    "nothing": (b"", "text/plain", "/sitemap.txt"),
    "binary": (b"\x1f\x8b\0\0", "application/gzip", "/sitemap.xml.gz"),
    "comment only": (b"<!-- <urlset>", "", ""),
}


@pytest.mark.parametrize(("body", "media_type", "path"), LIKE.values(), ids=LIKE)
def test_sitemaps_are_recognized_by_their_first_bytes(
    body: bytes, media_type: str, path: str
) -> None:
    assert is_sitemap(body, media_type, path)


@pytest.mark.parametrize(("body", "media_type", "path"), UNLIKE.values(), ids=UNLIKE)
def test_other_files_are_not_taken_for_sitemaps(body: bytes, media_type: str, path: str) -> None:
    assert not is_sitemap(body, media_type, path)
