"""What is kept of a job's output is bounded, readable, and says what is missing."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.queue.runners.output import Output


def kept(limit: int, *pieces: bytes) -> str:
    output = Output(limit)
    for piece in pieces:
        output.add(piece)
    return output.text()


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ((), ""),
        ((b"hello\n", b"world"), "hello\nworld"),
        ((b"caf\xc3", b"\xa9"), "café"),  # a character that came in two pieces
        ((b"\xf0\x9f", b"\x98\x80!"), "😀!"),
        ((b"a\x00b\x00",), "ab"),
        ((b"caf\xe9 \xff\xfe",), "caf\ufffd \ufffd\ufffd"),
        ((b"\xed\xa0\x80",), "\ufffd\ufffd\ufffd"),  # a surrogate is no character
        ((b"half \xe2\x82",), "half \ufffd"),
    ],
)
def test_output_becomes_text(pieces: tuple[bytes, ...], text: str) -> None:
    assert kept(1000, *pieces) == text


def test_what_fits_is_kept_whole() -> None:
    assert kept(10, b"0123456789") == "0123456789"
    assert kept(10, b"01234567", b"89") == "0123456789"


def test_what_does_not_fit_is_cut_in_the_middle_and_counted() -> None:
    assert kept(10, b"0123456789" * 20_000) == "01234\n… 199,990 bytes left out …\n56789"
    assert kept(10, *[b"0123456789"] * 20_000) == "01234\n… 199,990 bytes left out …\n56789"
    assert kept(4, b"abcde") == "ab\n… 1 bytes left out …\nde"


@pytest.mark.parametrize("limit", [0, -1])
def test_nothing_may_be_kept(limit: int) -> None:
    assert kept(limit) == ""
    assert kept(limit, b"abc") == "\n… 3 bytes left out …\n"


def test_a_cut_is_never_inside_a_character() -> None:
    said = "€".encode() * 100
    assert kept(20, said) == "€€€\n… 282 bytes left out …\n€€€"


def test_a_running_job_shows_only_characters_that_are_whole() -> None:
    output = Output(100)
    output.add(b"caf\xc3")
    assert output.text(whole=False) == "caf"
    output.add(b"\xa9")
    assert output.text(whole=False) == "café"


def test_memory_is_bounded() -> None:
    output = Output(1000)
    for _ in range(1000):
        output.add(b"x" * 65_536)
        assert len(output._head) + len(output._tail) <= 2000


@given(st.lists(st.binary(max_size=40)), st.integers(0, 60))
def test_any_bytes_become_text_that_postgresql_takes(pieces: list[bytes], limit: int) -> None:
    text = kept(limit, *pieces)
    assert "\0" not in text
    text.encode()  # no surrogates
    if sum(map(len, pieces)) <= limit:
        assert text == b"".join(pieces).decode(errors="replace").replace("\0", "")


@given(
    st.text(st.characters(exclude_characters="\0\ufffd…", exclude_categories=["Cs"])),
    st.integers(0, 40),
)
def test_text_is_cut_between_characters_and_every_byte_is_counted(said: str, limit: int) -> None:
    raw = said.encode()
    text = kept(limit, *(raw[start : start + 3] for start in range(0, len(raw), 3)))
    if len(raw) <= limit:
        assert text == said
        return
    match = re.fullmatch(r"(.*)\n… ([\d,]+) bytes left out …\n(.*)", text, re.DOTALL)
    assert match
    head, count, tail = match.groups()
    assert "\ufffd" not in text
    assert said.startswith(head)
    assert said.endswith(tail)
    assert len(head.encode()) + int(count.replace(",", "")) + len(tail.encode()) == len(raw)
