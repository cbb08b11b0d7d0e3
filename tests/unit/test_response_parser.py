"""The parser gives the same response for any split of its bytes, and enforces the limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.site.crooked_http import CHUNKED, GOOD, with_header
from support.site.hostile import CHUNK
from usher.crawl.http.response import FetchFailure, FetchResponse
from usher.crawl.http.response_parser import MAX_HEADERS, ResponseParser
from usher.urls import Scheme, Url

URL = Url(Scheme.HTTP, "example.org", "/")
WHOLE = [
    GOOD,
    with_header(b"X-Long: one\r\n two\r\nX-More: more"),
    b"HTTP/1.1 103 Early\r\nLink: </x>\r\n\r\n" + GOOD,
    CHUNKED + CHUNK + b"4;x=y\r\nabcd\r\n0\r\nX-End: 1\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n",
]


def hear(
    *parts: bytes, head: int = 1000, body: int = 100_000
) -> tuple[FetchResponse, str, ResponseParser]:
    answer, hearing, kind = FetchResponse(URL), ResponseParser(head, body), ""
    hearing.begin(answer)
    try:
        for part in parts:
            hearing.feed(part)
    except FetchFailure as trouble:
        kind = trouble.kind
    hearing.finish()
    return answer, kind, hearing


@given(st.sampled_from(WHOLE), st.lists(st.integers(1, 400), max_size=12))
def test_a_response_is_the_same_in_any_parts(whole: bytes, sizes: list[int]) -> None:
    parts, rest = [], whole
    for size in sizes:
        parts.append(rest[:size])
        rest = rest[size:]
    answer, kind, hearing = hear(*parts, rest)
    expected, _, _ = hear(whole)
    assert (kind, hearing.done, hearing.reusable) == ("", True, True)
    assert (answer.status, answer.headers, answer.raw) == (
        expected.status,
        expected.headers,
        expected.raw,
    )


@given(st.lists(st.binary(max_size=50), max_size=8))
def test_noise_is_not_a_response(parts: list[bytes]) -> None:
    answer, kind, hearing = hear(*parts)
    assert kind in ("", "protocol")
    assert not hearing.done
    assert answer.status is None


@given(st.sampled_from(WHOLE), st.data())
def test_a_damaged_response_does_not_raise(whole: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, min(len(whole), 300)))
    noise = data.draw(st.binary(min_size=1, max_size=4))
    answer, kind, _ = hear(whole[:at] + noise + whole[at + len(noise) :])
    assert kind in ("", "protocol", "head", "body")
    assert answer.status is None or 200 <= answer.status <= 999


@pytest.mark.parametrize("size", [500, 999, 1000, 1001, 5000])
def test_the_size_of_a_head_is_limited(size: int) -> None:
    plain = sum(len(name) + len(value) + 4 for name, value in hear(GOOD)[0].headers)
    line = b"X: " + b"y" * (size - plain - len("X: \r\n"))
    answer, kind, _ = hear(with_header(line))
    assert kind == ("" if size <= 1000 else "head")
    assert (answer.status, answer.raw) == ((200, b"good") if size <= 1000 else (None, b""))


def test_the_number_of_headers_is_limited() -> None:
    for extra, kind in ((MAX_HEADERS - 2, ""), (MAX_HEADERS - 1, "head")):
        assert hear(with_header(b"\r\n".join([b"a:"] * extra)), head=65_536)[1] == kind


def test_the_size_of_a_body_is_limited() -> None:
    assert hear(GOOD, body=4)[1] == ""
    answer, kind, _ = hear(GOOD, body=3)
    assert (answer.raw, kind) == (b"goo", "body")
    answer, kind, _ = hear(CHUNKED + b"3\r\nabc\r\n", b"3\r\ndef\r\n", body=5)
    assert (answer.raw, kind) == (b"abcde", "body")


@pytest.mark.parametrize("more", [GOOD, b"x", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_data_after_a_response_makes_the_connection_unusable(more: bytes) -> None:
    answer, kind, hearing = hear(GOOD + more)
    assert (answer.raw, kind, hearing.done, hearing.reusable) == (b"good", "", True, False)


def test_responses_in_sequence() -> None:
    hearing = ResponseParser(1000, 1000)
    for word in (b"good", b"fine"):
        answer = FetchResponse(URL)
        hearing.begin(answer)
        hearing.feed(GOOD.replace(b"good", word))
        hearing.finish()
        assert (answer.raw, hearing.reusable) == (word, True)
