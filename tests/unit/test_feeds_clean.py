"""Sanitized HTML, main texts and learned templates, in bounded time."""

import re
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from usher.errors import BadInput
from usher.feeds.items.clean import clean, plain_text
from usher.feeds.items.page_template import MAX_PLACES, PageTemplate, learn, read, to_json
from usher.feeds.items.sanitize import MAX_DEPTH, MAX_HTML_CHARS, safe_url

NOW = datetime(2026, 11, 16, tzinfo=UTC)
BASE = "https://e.org/a/b.html"
SENTENCE = "The usher shows every guest to a seat in a row, and then the curtain goes up. "
ALLOWED = re.compile(
    r"a|abbr|b|blockquote|br|caption|cite|code|dd|del|dfn|div|dl|dt|em|figcaption|figure|h[1-6]|hr|i|img|ins|kbd|li|mark|"
    r"ol|p|pre|q|s|samp|small|span|strong|sub|sup|table|tbody|td|tfoot|th|thead|time|tr|u|ul|var"
)
NAMES = {
    "href",
    "title",
    "alt",
    "src",
    "cite",
    "datetime",
    "width",
    "height",
    "start",
    "lang",
    "dir",
    "rel",
}
NAMES |= {"colspan", "rowspan"}

VECTORS = [
    "<script>alert(1)</script>",
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<img src=x onerror=alert(1)>",
    "<img src='x' oNeRrOr = 'alert(1)' >",
    "<img/src=x/onerror=alert(1)>",
    "<img src=x:x onerror\x0c=alert(1)>",
    "<body onload=alert(1)>x",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><a xlink:href='javascript:alert(1)'><text>x</text></a></svg>",
    "<svg><animate xlink:href=#x attributeName=href values=javascript:alert(1) /><a id=x>x</a>",
    "<svg><style><img src=x onerror=alert(1)></style></svg>",
    "<math><mi xlink:href='javascript:alert(1)'>x</mi></math>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)></style></mglyph></table></mtext></math>",
    "<form><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "<a href='javascript:alert(1)'>x</a>",
    "<a href=' \x01javascript:alert(1)'>x</a>",
    "<a href='java\nscript:alert(1)'>x</a>",
    "<a href='java&#x09;script&colon;alert(1)'>x</a>",
    "<a href='JaVaScRiPt:alert(1)'>x</a>",
    "<a href='&#106;avascript:alert(1)'>x</a>",
    "<a href='vbscript:msgbox(1)'>x</a>",
    "<a href='data:text/html,<script>alert(1)</script>'>x</a>",
    "<a href='blob:https://e.org/1'>x</a>",
    "<a href='filesystem:https://e.org/1'>x</a>",
    "<a href='file:///etc/passwd'>x</a>",
    "<img src='data:image/svg+xml,<svg onload=alert(1)>'>",
    "<img src=javascript:alert(1)>",
    "<img srcset='javascript:alert(1) 1x'>",
    "<iframe src=javascript:alert(1)></iframe>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<object data=javascript:alert(1)></object>",
    "<embed src=javascript:alert(1)>",
    "<base href='https://evil.example/'><a href=x>x</a>",
    "<meta http-equiv=refresh content='0;url=javascript:alert(1)'>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<style>@import '//evil.example/x.css'; body{background:url(javascript:alert(1))}</style>",
    "<p style='background:url(javascript:alert(1));behavior:url(x)'>x</p>",
    "<form action=javascript:alert(1)><input type=submit autofocus onfocus=alert(1)></form>",
    "<button formaction=javascript:alert(1)>x</button>",
    "<details open ontoggle=alert(1)><summary>x</summary>y</details>",
    "<video><source onerror=alert(1)></video><audio src=x onerror=alert(1)>",
    "<marquee onstart=alert(1)>x</marquee>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'></noscript>",
    "<textarea><img title='</textarea><img src=x onerror=alert(1)>'></textarea>",
    "<title><a title='</title><img src=x onerror=alert(1)>'></title>",
    "<xmp><p title='</xmp><img src=x onerror=alert(1)>'></xmp>",
    "<template><script>alert(1)</script></template>",
    "<plaintext><script>alert(1)</script>",
    "<!--><img src=x onerror=alert(1)>-->",
    "<!--[if IE]><script>alert(1)</script><![endif]-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?xml-stylesheet href='javascript:alert(1)'?>",
    "<p title='\"><script>alert(1)</script>'>x</p>",
    "<img alt='\"><script>alert(1)</script>' src=x>",
    "<a title='`onmouseover=alert(1)' href=x>x</a>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "<p>&#60;img src=x onerror=alert(1)&#62;</p>",
    "<x:script xmlns:x='http://www.w3.org/1999/xhtml'>alert(1)</x:script>",
    "<isindex type=image src=1 onerror=alert(1)>",
    "<table background=javascript:alert(1)><tr><td background=javascript:alert(1)>x</table>",
    "<a href='https://e.org/\"onmouseover=\"alert(1)'>x</a>",
    "<img src='https://e.org/\" onerror=alert(1) x=\"'>",
    "<a href=\"https://e.org/\" ping='javascript:alert(1)' target=_self download>x</a>",
    "<div id=x name=x class=y contenteditable tabindex=1 accesskey=x>clobber</div>",
]  # fmt: skip


def check(html: str) -> None:
    """Whatever a browser makes of it is on the short list, with addresses of the web only."""
    tree = LexborHTMLParser(f"<!doctype html><body>{html}</body>")
    for node in tree.css("body *"):
        assert ALLOWED.fullmatch(node.tag or ""), html
        for name, value in node.attributes.items():
            assert name in NAMES, html
            if name in ("href", "src", "cite"):
                assert re.match(r"https?://|mailto:", value or ""), html
    assert not tree.css("head *"), html


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("page", [False, True])
@pytest.mark.parametrize(
    "around", ["{}", f"<h1>Title</h1><p>{SENTENCE * 9}</p>{{}}<p>{SENTENCE * 9}</p>"]
)
def test_sanitized_html_is_harmless(vector: str, page: bool, around: str) -> None:  # noqa: FBT001 - as pytest gives it
    made = clean(around.format(vector), base=BASE, page=page)
    check(made.html)
    check(clean(made.html, base=BASE).html)
    assert SENTENCE.strip() in made.text or around == "{}"


@given(st.text(alphabet="<>/\"'=& abpsvgtyle!-[]:;\n\t\0\x0b\u2028imgorc", max_size=200))
def test_any_sanitized_html_is_harmless(text: str) -> None:
    for page in (False, True):
        check(clean(text, base=BASE, page=page).html)
    plain_text(text)


def test_allowed_markup_stays() -> None:
    html = (
        '<h2 lang="de">Überschrift</h2><p>An <em>usher</em> &amp; a <a href="/x?a=1&amp;b=2#c">link</a>'
        '<img src="i.png" alt="A row" width="40" height="x"></p><ul><li>one</li><li>two</li></ul>'
        '<table><tbody><tr><td colspan="2">1</td><td>2</td></tr></tbody></table><pre>  x\n  y</pre>'
    )
    made = clean(html, base=BASE)
    assert made.html == (
        '<h2 lang="de">Überschrift</h2><p>An <em>usher</em> &amp; a '
        '<a href="https://e.org/x?a=1&amp;b=2#c" rel="nofollow noopener noreferrer">link</a>'
        '<img alt="A row" width="40" src="https://e.org/a/i.png"></p><ul><li>one</li><li>two</li></ul>'
        '<table><tbody><tr><td colspan="2">1</td><td>2</td></tr></tbody></table><pre>  x\n  y</pre>'
    )
    assert made.text.split() == [
        "Überschrift",
        "An",
        "usher",
        "&",
        "a",
        "link",
        "one",
        "two",
        "1",
        "2",
        "x",
        "y",
    ]
    assert clean(made.html, base=BASE) == made


def test_plain_text_is_escaped() -> None:
    made = clean("1 < 2 & <b>\n\nnext", type_="text/plain")
    assert (made.text, made.html) == (
        "1 < 2 & <b>\n\nnext",
        "<p>1 &lt; 2 &amp; &lt;b&gt;</p>\n<p>next</p>",
    )
    assert plain_text("1 < 2", "text/plain") == "1 < 2"
    assert plain_text("<p>a</p><p>b &amp; c</p>") == "a\n\nb & c"


def page_of(article: str, *, menu: str = "", number: int = 1) -> str:
    return (
        f"<html><head><title>T</title><script>var x = {number}</script></head><body>"
        f"<div id=menu><ul><li><a href=/>Home</a></li><li><a href=/about>About us</a></li></ul>{menu}</div>"
        f"<div class='story post-{number}'><h1>Story {number}</h1>{article}"
        f"<div class=share>Tell your friends</div></div><div id=foot><p>All rights reserved</p></div></body></html>"
    )


def test_the_main_part_of_a_page() -> None:
    article = f"<p>{SENTENCE * 5}</p><p><a href=/more>More</a> {SENTENCE * 5}</p>"
    page = f"<html><body><nav><a href=/>Home</a> <a href=/x>Imprint</a></nav><article>{article}</article></body></html>"
    made = clean(page, base=BASE, page=True)
    assert made.how == "main"
    assert "Imprint" not in made.text
    assert made.text.count("usher") == 10
    assert 'href="https://e.org/more"' in made.html


def test_a_short_main_part_falls_back_to_the_whole_page() -> None:
    made = clean("<html><body><nav>Only <b>this</b></nav></body></html>", page=True)
    assert (made.how, made.text) == ("whole", "Only this")
    assert clean("", page=True).text == ""


@pytest.mark.parametrize(
    "html",
    [
        pytest.param("<div>" * 100_000 + "deep", id="deep"),
        pytest.param("<b><p>" * 20_000 + "deep", id="reopened"),
        pytest.param("<table><tr><td>" * 30_000, id="tables"),
        pytest.param("".join(f"<i x={n}>" for n in range(60_000)), id="formatting"),
        pytest.param("<a " + " ".join(f"a{n}=1" for n in range(200_000)) + ">x", id="attributes"),
        pytest.param("<p>hello &amp; world</p>" * 450_000, id="ten megabytes"),
        pytest.param("&" * 2_000_000, id="ampersands"),
        pytest.param("<" * 2_000_000, id="angles"),
        pytest.param("<!--" * 500_000, id="comments"),
        pytest.param("<svg><p>" * 50_000, id="svg"),
        pytest.param("<select><option>" * 50_000, id="options"),
    ],
)
def test_hostile_pages_are_cleaned_in_bounded_time(html: str) -> None:
    """In a second or so, each; a page that takes minutes would never end at all."""
    made = clean(html, page=True)
    assert len(made.html) < 1.1 * MAX_HTML_CHARS
    depth = most = 0
    for tag in re.findall(r"<(/?)(\w+)[^>]*>", made.html):
        depth += -1 if tag[0] else tag[1] not in ("br", "hr", "img")
        most = max(most, depth)
    assert (depth, most <= MAX_DEPTH) == (0, True)


def test_hostile_texts_are_read_in_bounded_time() -> None:
    for html in (
        "<b><p>" * 20_000,
        "<div>" * 100_000,
        "&" * 1_000_000,
        "<p>x &amp; y</p>" * 100_000,
    ):
        plain_text(html)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("x", "https://e.org/a/x"),
        ("//o.org/y", "https://o.org/y"),
        ("mailto:me@e.org", "mailto:me@e.org"),
        ("ftp://e.org/", ""),
        ("http://[", ""),
        ("x" * 5_000, ""),
    ],
)
def test_safe_urls(text: str, url: str) -> None:
    assert safe_url(text, BASE, mail=True) == url
    assert not safe_url("mailto:me@e.org", BASE)
    assert not safe_url("relative", "")


# -- what pages of one feed have in common


def stories(n: int) -> list[str]:
    return [page_of(f"<p>{number} {SENTENCE * 3}</p>", number=number) for number in range(n)]


def test_the_template_of_pages_is_learned_and_removed() -> None:
    model = learn(stories(6), 2, NOW)
    assert model is not None
    made = clean(page_of("<p>Something <b>new</b></p>", number=99), page=True, model=model)
    assert made.how == "model"
    assert made.text.split() == ["Story", "99", "Something", "new"]
    check(made.html)
    assert read(msgspec.json.decode(to_json(model))) == model


def test_the_threshold_is_used_46() -> None:
    """The ancestor stored one for each feed, and used 0.1 whatever it said."""
    pages = [
        page_of(
            f"<p>{number} own</p>", menu=f"<b>{'same' if number % 2 else number}</b>", number=number
        )
        for number in range(8)
    ]
    model = learn(pages, 2, NOW)
    assert model is not None
    [share] = {share for place, share in model.places.items() if place.endswith("/b")}
    assert share == 0.2  # one text of five
    assert "same" not in clean(pages[1], page=True, model=model, threshold=0.1).text
    assert "same" in clean(pages[1], page=True, model=model, threshold=0.3).text


def test_too_few_pages_give_no_template() -> None:
    assert learn(stories(2), 2, NOW) is None
    assert learn([], 1, NOW) is None
    assert learn(["<p>one</p>", "<p>two</p>", "<p>three</p>"], 1, NOW) is None


def test_a_template_of_other_pages_removes_nothing() -> None:
    model = learn(stories(6), 2, NOW)
    other = f"<html><body><main><p>{SENTENCE * 20}</p></main></body></html>"
    assert clean(other, page=True, model=model).how != "model"


@pytest.mark.parametrize(
    "value",
    [
        None,
        "__import__('os').system('true')",
        [],
        {},
        {"version": 2, "learned_at": NOW.isoformat(), "pages": 3, "places": {}},
        {"version": 1, "learned_at": "yesterday", "pages": 3, "places": {}},
        {"version": 1, "learned_at": NOW.isoformat(), "pages": 10**9, "places": {}},
        {"version": 1, "learned_at": NOW.isoformat(), "pages": 3, "places": {"a": 0}},
        {"version": 1, "learned_at": NOW.isoformat(), "pages": 3, "places": {"a": 1e9}},
        {"version": 1, "learned_at": NOW.isoformat(), "pages": 3, "places": {"a": "x"}},
        {"version": 1, "learned_at": NOW.isoformat(), "pages": 3, "places": {"a" * 501: 0.5}},
        {
            "version": 1,
            "learned_at": NOW.isoformat(),
            "pages": 3,
            "places": {str(n): 0.5 for n in range(MAX_PLACES + 1)},
        },
        {"version": 1, "learned_at": NOW.isoformat(), "pages": 3, "places": {}, "code": "x"},
    ],
)
def test_an_invalid_template_is_refused_with_a_reason(value: object) -> None:
    with pytest.raises(BadInput, match="is not valid"):
        read(value)


def test_a_hostile_template_removes_only_what_it_names() -> None:
    model = PageTemplate(1, NOW, 3, {"/body": 1.0, "/body/p": 1.0})
    made = clean(f"<html><body><p>{SENTENCE * 9}</p></body></html>", page=True, model=model)
    assert made.text.count("usher") == 9
