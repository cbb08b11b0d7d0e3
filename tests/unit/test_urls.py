"""Any text becomes one canonical URL or one reason, and a canonical URL stays the same."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from usher.urls import MAX_HOST, MAX_PATH, MAX_TEXT, TRACKING, Scheme, Url, UrlRefusal, parse

PAGE = Url(Scheme.HTTPS, "a.gov", "/d/page?x=1")
FILE = Url(Scheme.SFTP, "h:80", "/d/file")

CANONICAL = {
    # already canonical
    "https://example.com/": "https://example.com/",
    "https://example.com/a//b/;p=1?q=2": "https://example.com/a//b/;p=1?q=2",
    # scheme, host, port
    "HTTPS://Example.COM": "https://example.com/",
    "http://example.com:80/x": "http://example.com/x",
    "https://example.com:443/x": "https://example.com/x",
    "https://example.com:80/x": "https://example.com:80/x",
    "https://example.com:08080/x": "https://example.com:8080/x",
    "https://example.com:/x": "https://example.com/x",
    "https://example.com./x": "https://example.com/x",
    "https://example.com.:8080/x": "https://example.com:8080/x",
    "https://@example.com/": "https://example.com/",
    "https://bücher.de/ü?ü": "https://xn--bcher-kva.de/%C3%BC?%C3%BC",
    "https://例え。jp/": "https://xn--r8jz45g.jp/",
    "https://stuff_1.com/": "https://stuff_1.com/",
    # addresses
    "http://0x7f.1/": "http://127.0.0.1/",
    "http://2130706433/": "http://127.0.0.1/",
    "http://127.0.0.1./": "http://127.0.0.1/",
    "http://\uff11\uff12\uff17.0.0.1/": "http://127.0.0.1/",
    "http://[::1]:80/": "http://[::1]/",
    "http://[0:0::1]:8080/": "http://[::1]:8080/",
    "http://[::ffff:1.2.3.4]/": "http://[::ffff:102:304]/",
    # bare names
    "stuff_1.com": "https://stuff_1.com/",
    "  Example.com/x \n": "https://example.com/x",
    "exam\nple.com/\tx": "https://example.com/x",
    "example.com?q": "https://example.com/?q",
    "example.com:8080/x": "https://example.com:8080/x",
    "stuff_1.com:8080": "https://stuff_1.com:8080/",
    "localhost:8000/x": "https://localhost:8000/x",
    "localhost:443": "https://localhost/",
    "intranet": "https://intranet/",
    "10.0.0.1:80/x": "https://10.0.0.1:80/x",
    "[::1]:8080/x": "https://[::1]:8080/x",
    "//example.com/x": "https://example.com/x",
    "example.com/#" + "x" * (MAX_TEXT - 13): "https://example.com/",
    "example.com:80/#" + "x" * (MAX_TEXT - 16): "https://example.com:80/",
    # sftp and ftp
    "ftp://h:21/x": "ftp://h/x",
    "ftp://h:22/x": "ftp://h:22/x",
    "SFTP://H.Example:22": "sftp://h.example/",
    "sftp://h:0022/": "sftp://h/",
    "sftp://h.:22/": "sftp://h/",
    "sftp://h:21/x": "sftp://h:21/x",
    "sftp://h:80/x": "sftp://h:80/x",
    "sftp://h:443/x": "sftp://h:443/x",
    "sftp://[::22]/": "sftp://[::22]/",
    "sftp://0x7f.1/a/../b c?utm_id=1#f": "sftp://127.0.0.1/b%20c",
    "sftp://bücher.de/ü": "sftp://xn--bcher-kva.de/%C3%BC",
    # path and escapes
    "https://a/b/./../c": "https://a/c",
    "https://a/b/%2e%2E/c": "https://a/c",
    "https://a/%7euser%2fx%c3%bc": "https://a/~user%2Fx%C3%BC",
    "https://a/?%7e=%41%2b": "https://a/?~=A%2B",
    "https://a/b c|d\\e": "https://a/b%20c|d/e",
    "https://a/100%": "https://a/100%",
    "https://a/%zz%": "https://a/%zz%",
    "https://a/%%32e": "https://a/%%32e",
    "https://a/%2%65": "https://a/%2%65",
    "https://a/%%2f%41": "https://a/%%2FA",
    "https://a/%252e": "https://a/%252e",
    "https://a/%00": "https://a/%00",
    # fragment and query
    "https://a/b#c?d": "https://a/b",
    "https://a/b?c#d": "https://a/b?c",
    "https://a/?#": "https://a/",
    "https://a/b?": "https://a/b",
    "https://a/?b=2&a=1&b=1&&": "https://a/?b=2&a=1&b=1&&",
    "https://a/?utm_source=x": "https://a/",
    "https://a/?a=1&utm_source=x&b=2": "https://a/?a=1&b=2",
    "https://a/?UTM_Medium&FBclid=1&a": "https://a/?a",
    "https://a/?%75tm_source=x&a": "https://a/?a",
    "https://a/?xutm_a=1&a=utm_b&fbclids=1": "https://a/?xutm_a=1&a=utm_b&fbclids=1",
}

REFUSED = {
    "bad_url": (
        *("", " ", "/x", "?q", "#f", "\\x", ".", "..", "./x", "../x", "::1", "///"),
        *(
            "https:",
            "https://",
            "https:///",
            "sftp:",
            "sftp://",
            "http//a.org",
            "HTTPS//a.org/x",
            "http://[::1",
            "http://[fe80::1%25e]/",
        ),
        *(
            "https://a b/",
            "https://a%00b/",
            "https://a%2Fb/",
            "https://a..b/",
            "https://.a/",
            "a..",
        ),
        *("https://*.gov/", "https://a,b/", 'https://a"b/', "hello world", "what!"),
        *(
            "https://a:99999/",
            "https://a:x/",
            "sftp://a:65536/",
            "localhost:65536",
            "stuff_1.com:x",
        ),
        *("http://256.1.1.1/", "http://1.2.3.4.5/", "a.1"),
        *("https://u@h/", "https://u:p@h/", "https://:p@h/", "sftp://u@h/", "joe@example.com"),
        *("https://a/\ud800", "\ud800", "sftp://\udfff/", "a\0b.com"),
    ),
    "too_long": (
        f"https://{'a' * 64}.gov/",
        f"https://a.{'b' * 64}:80/",
        f"https://{'a.' * 126}gov/",
        f"https://a/{'b' * MAX_PATH}",
        f"https://a/{'ü' * 334}",
        f"a.gov?{'b' * MAX_PATH}",
        "x" * (MAX_TEXT + 1),
        f"mailto:{'x' * MAX_TEXT}",
    ),
    "unsupported_scheme": (
        *(
            "javascript:alert(1)",
            "Java\nScript:1",
            "mailto:a@b.gov",
            "data:,x",
            "file:///etc/passwd",
        ),
        *(
            "tel:911",
            "tel:5551234",
            "sms:12345",
            "ws://a/",
            "blob:https://a/",
            "about:blank",
            "c:\\x",
        ),
        *("foo://[", "example.com:x", "example.com:80x", "isbn:123456", "x" * 8_000 + ":"),
    ),
}

LINKS = {
    ("", PAGE): "https://a.gov/d/page?x=1",
    ("#top", PAGE): "https://a.gov/d/page?x=1",
    ("?y", PAGE): "https://a.gov/d/page?y",
    ("z", PAGE): "https://a.gov/d/z",
    ("../../z", PAGE): "https://a.gov/z",
    ("//b.gov/z", PAGE): "https://b.gov/z",
    ("stuff_1.com", PAGE): "https://a.gov/d/stuff_1.com",
    ("http://b.gov", PAGE): "http://b.gov/",
    ("sftp:z", PAGE): "sftp://z/",
    ("//b.gov:443/z", Url(Scheme.HTTP, "a.gov", "/")): "http://b.gov:443/z",
    ("z", FILE): "sftp://h:80/d/z",
    ("/z", Url(Scheme.SFTP, "h:443", "/d/file")): "sftp://h:443/z",
    ("//o:22/z", FILE): "sftp://o/z",
    ("http://o:80/", FILE): "http://o/",
    ("z", Url(Scheme.FTP, "h", "/d/file")): "ftp://h/d/z",
}


@pytest.mark.parametrize(("text", "canonical"), CANONICAL.items())
def test_every_text_has_one_canonical_form(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical


@pytest.mark.parametrize(
    ("reason", "text"), [(reason, text) for reason, texts in REFUSED.items() for text in texts]
)
def test_an_unsupported_url_is_refused_with_a_reason(reason: str, text: str) -> None:
    answer = parse(text)
    assert isinstance(answer, UrlRefusal)
    assert answer.reason == reason


@pytest.mark.parametrize(("link", "canonical"), LINKS.items())
def test_a_link_is_read_from_its_page(link: tuple[str, Url], canonical: str) -> None:
    assert str(parse(*link)) == canonical


@pytest.mark.parametrize("text", ["mailto:a@b.gov", "localhost:80/x", "//[", "\ud800", "//u@h/"])
@pytest.mark.parametrize("base", [PAGE, FILE])
def test_a_page_does_not_make_a_bad_link_good(text: str, base: Url) -> None:
    assert isinstance(parse(text, base), UrlRefusal)


def test_a_url_falls_into_scheme_host_and_path() -> None:
    assert parse("http://A.gov:8080/b?c#d") == Url(Scheme.HTTP, "a.gov:8080", "/b?c")


def test_schemes_have_the_numbers_of_the_guestbook() -> None:
    assert {scheme.word: int(scheme) for scheme in Scheme} == {
        "https": 1,
        "http": 2,
        "sftp": 3,
        "ftp": 4,
    }


def test_a_refusal_speaks_of_a_password_and_does_not_repeat_it() -> None:
    answer = parse("https://joe:hunter2@a.gov/")
    assert isinstance(answer, UrlRefusal)
    assert "password" in answer.detail
    for text in ("https://joe:hunter2@a.gov/", "https://joe:hunter2@a b/", "joe:hunter2@a.gov"):
        answer = parse(text)
        assert isinstance(answer, UrlRefusal)
        assert "hunter2" not in answer.detail


def test_the_limits_are_exact() -> None:
    host = f"{'a.' * 125}gov"
    assert len(host) == MAX_HOST
    assert parse(f"https://{host}./") == Url(Scheme.HTTPS, host, "/")
    assert isinstance(parse(f"https://a{host}/"), UrlRefusal)
    path = f"/{'b' * (MAX_PATH - 1)}"
    assert parse(f"https://a{path}#{'c' * 5_000}") == Url(Scheme.HTTPS, "a", path)


@pytest.mark.parametrize("name", sorted(TRACKING))
def test_tracking_names_are_lower_case_and_dropped(name: str) -> None:
    assert name == name.lower()
    assert str(parse(f"https://a/?x=1&{name}=2&y=3")) == "https://a/?x=1&y=3"


# Pieces that meet at the edges of the grammar; random characters alone hardly ever make a URL.
EDGES = (
    "https http sftp ftp tel javascript : / // /// \\ ? & = # @ . .. :22 :80 :443 :21 :8080 :65536"
    " %2e %2E %7e %C3 %c3%bc % %% %4 %2%65 %%32e %41 %25 %00 %zz ; + ~ ' \" | ^ ` { } * ! - _ \0 😀"
    " [ ] [::1] [::ffff:1.2.3.4] 0x7f.1 127.0.0.1 1 08 a b.gov www.bbc.co.uk stuff_1.com xn-- xn--a"
    " xn--bcher-kva ü ß ⅷ 。 \uff11 \u00ad \u200d \u202e \u2028 \x7f \x85 \ud800"
    " utm_source=x utm_ fbclid GCLID=1 q=1"
)
LONG = [" ", "\t", "\n", "\r\n", "a" * 64, "b/" * 1_001, "ü" * 400]
PIECES = st.sampled_from(EDGES.split(" ") + LONG)
ANY_TEXT = st.text(st.characters(exclude_categories=()))
GRAMMAR = st.lists(PIECES, max_size=14).map("".join)
WEB = st.tuples(st.sampled_from(["https://", "http://", "sftp://", "ftp://", ""]), GRAMMAR)
TEXTS = ANY_TEXT | GRAMMAR | WEB.map("".join)
BASES = st.none() | st.sampled_from([PAGE, FILE])


@settings(max_examples=800, deadline=None)
@given(TEXTS, BASES)
def test_every_canonical_url_is_ascii_short_and_stable(text: str, base: Url | None) -> None:
    answer = parse(text, base)
    if isinstance(answer, UrlRefusal):
        assert re.fullmatch("[ -~]{10,200}", answer.detail)
        return
    assert re.fullmatch("[!-~]+", str(answer))
    assert answer.host == answer.host.lower()
    assert 0 < len(answer.host) <= MAX_HOST
    assert 0 < len(answer.path) <= MAX_PATH
    assert parse(str(answer)) == answer
    assert parse(str(answer), PAGE) == answer


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text("abcxyz0189=.~+;-", max_size=6), max_size=6), st.data())
def test_tracking_goes_and_the_rest_keeps_its_order(pairs: list[str], data: st.DataObject) -> None:
    spots = data.draw(st.lists(st.integers(0, len(pairs)), max_size=3))
    noisy = list(pairs)
    for spot in sorted(spots, reverse=True):
        noisy.insert(spot, "utm_x=1")
    assert parse(f"https://a/?{'&'.join(noisy)}") == parse(f"https://a/?{'&'.join(pairs)}")


@settings(max_examples=300, deadline=None)
@given(st.text("abcABC019-._~/%:@!$&()*+,;=", max_size=30))
def test_escaping_an_unreserved_character_changes_nothing(path: str) -> None:
    escaped = re.sub(r"(?<!%)(?<!%.)[A-Za-z0-9._~-]", lambda m: f"%{ord(m[0]):02x}", path)
    assert parse(f"https://a/{path}") == parse(f"https://a/{escaped}")
