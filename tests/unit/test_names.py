"""One form for every way to write the host or the type of a component."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.errors import BadInput
from usher.mgmt.component_names import (
    MAX_REASON,
    MAX_STORED_TEXT,
    host_of,
    state_of,
    storable_reason,
    storable_text,
    type_of,
)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("10.0.0.7:5000", "10.0.0.7:5000"),
        ("http://10.0.0.7:5000/", "10.0.0.7:5000"),
        ("HTTP://Crawler-7.Example:5000", "crawler-7.example:5000"),
        (" localhost ", "localhost"),
        ("localhost:80", "localhost"),
        ("localhost:443", "localhost:443"),
        ("::1", "[::1]"),
        ("[::1]:5000", "[::1]:5000"),
        ("FD00:0:0::7", "[fd00::7]"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("[::ffff:10.0.0.7]:5000", "10.0.0.7:5000"),
        ("under_score:1", "under_score:1"),
    ],
)
def test_every_way_to_write_a_host_is_one(text: str, host: str) -> None:
    assert host_of(text) == host
    assert host_of(host) == host


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "/", "http://", "http:///", "https://h:5000/", "ftp://h", "h/path", "h?q", "h#f", "h:99999", "h:x",
        "a@h", "a:b@h:80", "a b", "0.0.0.0:5000", "[::]:5000", "fe80::1%eth0", "h" * 254, "x." * 200, "\0", "\ud800",
        "http:/h", "h\\x", "[::1", "::1]:80",
    ],
)  # fmt: skip
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        host_of(text)


@given(st.text(max_size=400))
def test_any_text_is_a_host_or_refused(text: str) -> None:
    try:
        found = host_of(text)
    except BadInput:
        return
    assert host_of(found) == found
    assert 0 < len(found) <= 255


@pytest.mark.parametrize("text", ["index-server", "Index Server", "INDEX_SERVER", "indexserver"])
def test_types_as_the_documents_write_them(text: str) -> None:
    assert type_of(text) == "index-server"


@pytest.mark.parametrize("text", ["", "server", "index", "\ud800", "x" * 10_000])
def test_no_other_type_or_state(text: str) -> None:
    with pytest.raises(BadInput):
        type_of(text)
    with pytest.raises(BadInput):
        state_of(text)


def test_words_can_be_stored() -> None:
    assert storable_text("a\0b\ud800" + "c" * 1000) == "ab?" + "c" * (MAX_STORED_TEXT - 4)


def test_a_reason_keeps_what_to_do_and_is_cut_at_a_word() -> None:
    problem = (
        f"https://search-1:9200 cannot be used: {'its certificate has an unknown issuer, ' * 5}."
    )
    advice = " Name the file with the authority's certificate: USHER_ENGINE_CA."
    assert storable_reason(problem + advice) == problem + advice
    cut = storable_reason("some words " * 100)
    assert (len(cut) <= MAX_REASON, cut.strip("…").split()[-1]) == (True, "some")
    assert storable_reason("a\0b") == "ab"
    assert len(storable_reason("see https://x.example/" + "y" * 600)) == MAX_REASON
