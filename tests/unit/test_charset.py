"""Bytes are decoded by their content, even if they declare another charset."""

import base64
import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.corpora import needs_corpora, read_cases
from usher.crawl.page.charset import codec_name, decode, prescan

GERMAN = "Fünf Flüsse fließen über große Böden, und die Mäuse hören es täglich früher. "
RUSSIAN = "Сегодня хорошая погода, и мы пойдём гулять в большой парк возле реки. "
JAPANESE = "今日は天気がいいので、公園へ散歩に行きましょう。日本語の文章です。"
KOREAN = "오늘은 날씨가 좋아서 공원에 산책하러 갑니다. 한국어 문장입니다. "
CHINESE = "今天天气很好。我们去公园散步吧。这是一个中文句子。"


@pytest.mark.parametrize(
    ("text", "encoding", "label"),
    [
        (GERMAN, "utf-8", "utf-8"),
        (GERMAN, "utf-8", "UTF8"),
        (GERMAN, "cp1252", "iso-8859-1"),
        (GERMAN + "€ ™ Œ", "cp1252", "latin1"),
        (RUSSIAN, "cp1251", "windows-1251"),
        (RUSSIAN, "koi8-r", " KOI8-R "),
        (RUSSIAN, "mac-cyrillic", "x-mac-cyrillic"),
        (JAPANESE, "cp932", "Shift_JIS"),
        (JAPANESE + "①", "cp932", "x-sjis"),
        (JAPANESE, "euc_jp", "euc-jp"),
        (JAPANESE, "iso2022_jp", "iso-2022-jp"),
        (KOREAN + "똠", "cp949", "ks_c_5601-1987"),
        (CHINESE, "gb18030", "gb2312"),
        (CHINESE[:2], "big5hkscs", "big5"),
        (GERMAN, "utf-16-le", "utf-16"),
        (GERMAN, "utf-16-be", "utf-16be"),
    ],
)
def test_as_declared_by_the_header(text: str, encoding: str, label: str) -> None:
    assert decode(text.encode(encoding), label) == text


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ],
)
def test_a_byte_order_mark_beats_every_declaration(mark: bytes, encoding: str) -> None:
    assert decode(mark + GERMAN.encode(encoding), "windows-1251") == GERMAN


@pytest.mark.parametrize(
    "head",
    [
        '<meta charset="windows-1251">',
        "<META charset = windows-1251 >",
        "<meta http-equiv='Content-Type' content='text/html; charset=cp1251'>",
        '<?xml version="1.0" encoding="windows-1251"?>',
    ],
)
def test_as_declared_by_the_page(head: str) -> None:
    assert decode((head + RUSSIAN).encode("cp1251")) == head + RUSSIAN


@pytest.mark.parametrize(
    ("head", "codec"),
    [
        (b"<!doctype html><title>x</title><meta charset=koi8-r>", "koi8-r"),
        (b"<!-- <meta charset=koi8-r> --><meta charset='iso-8859-5'>", "iso8859-5"),
        (b"<!--><meta charset=koi8-r>", "koi8-r"),
        (b"<p title='<meta charset=koi8-r>'><meta charset=iso-8859-5>", "iso8859-5"),
        (b"<meta charset=nonsense><meta charset=koi8-r>", "koi8-r"),
        (b"<meta name=x charset = 'koi8-r' />", "koi8-r"),
        (b"<meta content='text/html; charset=koi8-r' http-equiv=content-type>", "koi8-r"),
        (b"<meta http-equiv=content-type content='x; charset=\"koi8-r\"'>", "koi8-r"),
        (b"<meta http-equiv=refresh content='0; charset=koi8-r'>", ""),
        (b"<meta content='text/html; charset=koi8-r'>", ""),
        (b"<metacharset=koi8-r>", ""),
        (b"<meta charset=koi8-r", ""),
        (b"<meta charset='koi8-r>", ""),
        (b"<meta charset=koi8-r'>", ""),
        (b"<meta charset=UTF-16LE>", "utf-8"),
        (b"<meta charset=x-user-defined>", "cp1252"),
        (b"<style>" + b"p{}" * 2_000 + b"</style><meta charset=koi8-r>", "koi8-r"),
        (b"", ""),
        (b"<", ""),
    ],
)
def test_declarations_of_a_page(head: bytes, codec: str) -> None:
    assert prescan(head) == codec


@needs_corpora
def test_the_cases_of_html5lib() -> None:
    wrong = []
    for case in read_cases("html/html5lib_encoding_cases.json"):
        body = base64.b64decode(case["bytes_b64"])
        has_mark = body.startswith(codecs.BOM_UTF8)
        codec = "utf-8" if has_mark else prescan(body) or codec_name("windows-1252")
        if codec != codec_name(case["encoding"]):
            wrong.append((body[:100], codec))
    assert wrong == []


def test_the_header_beats_the_page() -> None:
    page = '<meta charset="windows-1252">' + RUSSIAN
    assert decode(page.encode("cp1251"), "windows-1251") == page


def test_a_page_that_says_utf16_in_ascii_is_utf8() -> None:
    page = '<meta charset="utf-16">' + GERMAN
    assert decode(page.encode()) == page


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (RUSSIAN * 5, "cp1251"),
        (JAPANESE * 5, "cp932"),
        (JAPANESE * 5, "euc_jp"),
        (JAPANESE, "iso2022_jp"),
    ],
)
def test_detection_without_a_declaration(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)) == text


@pytest.mark.parametrize(
    "label", ["iso-8859-1", "windows-1251", "us-ascii", "nonsense", "rot13", "zip", "", "utf-7"]
)
def test_utf8_is_detected(label: str) -> None:
    assert decode((GERMAN + CHINESE).encode(), label) == GERMAN + CHINESE


def test_a_few_bad_bytes_cost_no_more_than_themselves() -> None:
    assert (
        decode((GERMAN + "\x00").encode() + b"\xff\xfe" + GERMAN.encode(), "utf-8").count("\ufffd")
        == 2
    )


def test_a_false_declaration_of_utf8_is_detected() -> None:
    assert decode((RUSSIAN * 5).encode("cp1251"), "utf-8") == RUSSIAN * 5


def test_codec_names() -> None:
    assert [
        codec_name(label) for label in ("rot13", "zip", "utf-7", "\0", "", "utf-8\0", "é" * 99)
    ] == [""] * 7


LABELS = [
    "utf-8",
    "utf-16",
    "shift_jis",
    "gb2312",
    "big5",
    "iso-2022-jp",
    "euc-kr",
    "windows-1252",
    "x",
]


@given(st.binary(max_size=300), st.sampled_from(LABELS) | st.text(max_size=20))
def test_nothing_raises_and_all_can_be_written_again(body: bytes, label: str) -> None:
    decode(body, label).encode()


@given(st.text(max_size=200).filter(lambda text: not text.startswith("\ufeff")))
def test_utf8_comes_back_whole(text: str) -> None:
    assert "\x1b" in text or decode(text.encode(), "utf-8") == text
