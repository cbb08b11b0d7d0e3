"""Log lines: readable on a terminal, else one JSON object per line."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher.telemetry import Log, metrics_text, quoted, set_up_logging


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger("usher")
    before = (root.handlers[:], root.level, root.propagate)
    yield
    root.handlers[:], root.propagate = before[0], before[2]
    root.setLevel(before[1])


def lines(form: str, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    set_up_logging(level=level, form=form, stream=stream)
    return stream


def test_json_lines() -> None:
    stream = lines("auto")  # no terminal
    Log("door").info("admitted", url="https://example.com/", n=3)
    line = json.loads(stream.getvalue())
    assert line["room"] == "door"
    assert (line["event"], line["level"], line["url"], line["n"]) == (
        "admitted",
        "info",
        "https://example.com/",
        3,
    )


def test_text_lines() -> None:
    stream = lines("text")
    Log("door").warning("refused", reason="too long", n=3)
    assert stream.getvalue().endswith('warning refused reason="too long" n=3\n')


def test_lower_levels_are_not_logged() -> None:
    stream = lines("text", level="warning")
    Log("door").info("admitted")
    assert stream.getvalue() == ""


def test_an_exception_comes_with_its_traceback() -> None:
    stream = lines("json")
    try:
        raise ValueError("x")  # noqa: TRY301
    except ValueError:
        logging.getLogger("usher.door").exception("failed")
    assert "ValueError: x" in json.loads(stream.getvalue())["traceback"]


@given(st.text())
def test_a_value_never_breaks_its_line(text: str) -> None:
    word = quoted(text)
    assert "\n" not in word
    assert word
    if word.startswith('"'):
        assert json.loads(word) == text
    else:
        assert word == text


def test_metrics_are_exposed() -> None:
    assert b"# TYPE usher_db_seconds summary" in metrics_text()
    assert b"usher_crawl_links_total 0.0" in metrics_text()
    assert b"_created" not in metrics_text()
