"""Escaped text has no control characters, and escaped JSON keeps its meaning."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.feeds import opml
from usher.feeds.opml import Subscription
from usher.terminal import UNSAFE_CHARACTERS, escape_controls

UNSAFE = st.sampled_from("\0\x07\x1b\x7f\x9b\u202e\u2066\u200b\u2028\ufeff\U000e0041")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | UNSAFE)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words\n\tand lines", "plain words\n\tand lines"),
        ("naïve façade 東京 می‌خواهم 👩‍🚀 \u00a0", "naïve façade 東京 می‌خواهم 👩‍🚀 \u00a0"),
        ("\x1b[31mred\x1b[0m", r"\u001b[31mred\u001b[0m"),
        ("\x9b2J\x7f", r"\u009b2J\u007f"),
        ("two\r\nlines\rover", "two\nlines\\u000dover"),
        ("a\u202eb\u2066c\u200bd\u2028e\ufefff", r"a\u202eb\u2066c\u200bd\u2028e\ufefff"),
        ("\U000e0041", r"\udb40\udc41"),
        ("half \udcff", r"half \udcff"),
    ],
)
def test_what_is_escaped(text: str, shown: str) -> None:
    assert escape_controls(text) == shown


@given(TEXTS)
def test_json_stays_json(text: str) -> None:
    printed = escape_controls(json.dumps({text: [text]}, ensure_ascii=False, indent=2))
    assert json.loads(printed) == {text: [text]}
    assert not UNSAFE_CHARACTERS.search(printed)


def test_an_export_keeps_what_it_escapes() -> None:
    title = "bidi \u202e and \x9b"
    written = opml.write([Subscription("https://a.org/feed", title)])
    assert not UNSAFE_CHARACTERS.search(written.decode())
    assert [one.title for one in opml.read(written).subscriptions] == [title]
