"""The settings of a type of job: its table over that of the defaults over the defaults, every value checked."""

import dataclasses
import tomllib
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usher import durations
from usher.errors import BadSetting
from usher.queue.policy import OPTIONS, Policy, read_policies
from usher.settings import load, setting_names

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def one(**table: object) -> Policy:
    return read_policies({"fetch": table}).of("fetch")


def test_without_tables_every_type_has_the_defaults() -> None:
    assert read_policies({}).of("anything") == Policy()
    assert Policy().max_processes == 5
    assert Policy().kill_after == 15 * MINUTE
    assert Policy().reschedule_after == HOUR
    assert Policy().max_attempts == 4


def test_a_type_goes_over_the_defaults() -> None:
    tables = tomllib.loads("""
        [defaults]
        kill_after = "1h30m"
        memory = "512M"
        cpu = "10m"
        preload = ["feedparser"]

        [fetch]
        kill_after = 90
        memory = 0
        run = "exec"
    """)
    read = read_policies(tables)
    preload = ("feedparser",)
    assert read.of("other") == Policy(
        kill_after=1.5 * HOUR, memory=512 << 20, cpu=600, preload=preload
    )
    assert read.of("fetch") == dataclasses.replace(
        read.of("other"), kill_after=90 * SECOND, memory=None, run="exec"
    )
    assert read.of("defaults") == read.defaults == read.of("other")


@pytest.mark.parametrize(
    ("value", "span"),
    [
        ("15m", 15 * MINUTE),
        ("1h30m", 90 * MINUTE),
        (" 2d ", 2 * DAY),
        ("1w", 7 * DAY),
        ("1M", 30 * DAY),
        ("PT5M", 5 * MINUTE),
        (90, 90 * SECOND),
        ("90", 90 * SECOND),
        (0.5, SECOND / 2),
    ],
)
def test_times(value: object, span: timedelta) -> None:
    assert one(kill_after=value).kill_after == span


@pytest.mark.parametrize(
    ("value", "size"),
    [(2**20, 2**20), ("2097152", 2 << 20), ("512M", 512 << 20), ("2g", 2 << 30), ("1TiB", 1 << 40), ("1024K", 1 << 20)],
)  # fmt: skip
def test_sizes(value: object, size: int) -> None:
    assert one(memory=value).memory == size


def test_limits_can_be_lifted_and_seconds_are_whole() -> None:
    assert one(memory="0", cpu="0s") == Policy()
    assert one(cpu=1.2).cpu == 2


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"max_processes": -1}, "at least 0"),
        ({"max_processes": 1.5}, "a whole number"),
        ({"max_processes": True}, "no yes or no"),
        ({"poll_interval": 0}, "at least 0.1s"),
        ({"poll_interval": "2d"}, "at most 1d"),
        ({"kill_after": "soon"}, "such as 90s, 15m"),
        ({"kill_after": "-5m"}, "such as 90s, 15m"),
        ({"kill_after": -5}, "at least 0.1s"),
        ({"kill_after": 1e300}, "such as 90s, 15m"),
        ({"kill_after": float("nan")}, "such as 90s, 15m"),
        ({"kill_after": "999999999w"}, "at most 3650d"),
        ({"kill_after": [1]}, "such as 90s, 15m"),
        ({"kill_after": date(2026, 1, 1)}, "such as 90s, 15m"),
        ({"kill_after": True}, "no yes or no"),
        ({"max_attempts": 0}, "at least 1"),
        ({"max_attempts": 32_768}, "at most 32,767"),
        ({"auto_reschedule": "maybe"}, "true or false"),
        ({"backoff": 0.5}, "at least 1"),
        ({"jitter": 2}, "at most 1"),
        ({"jitter": "much"}, "a number"),
        ({"memory": "1K"}, "at least 1,048,576"),
        ({"memory": "lots"}, "such as 64K"),
        ({"memory": -1}, "such as 64K"),
        ({"cpu": -3}, "at least 1"),
        ({"output": "1T"}, "at most 268,435,456"),
        ({"directory": 3}, "expected text"),
        ({"run": "shell"}, "auto, exec, fork"),
        ({"run": ["exec"]}, "auto, exec, fork"),
        ({"preload": "os"}, "a list of modules"),
        ({"preload": ["os; import sys"]}, "not the name of a module"),
        ({"preload": [1]}, "1 cannot be in a list of modules"),
    ],
)
def test_values_that_cannot_be_used(table: dict[str, Any], words: str) -> None:
    with pytest.raises(BadSetting, match=words) as caught:
        one(**table)
    assert f"{next(iter(table))} in [worker.fetch] cannot be" in caught.value.message


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadSetting, match=r"kill_aftr in \[worker\.fetch\]") as caught:
        one(kill_aftr="1m")
    assert caught.value.hint == "Did you mean kill_after?"
    with pytest.raises(BadSetting) as caught:
        one(**{"max-processes": 3})
    assert caught.value.hint == "Did you mean max_processes?"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "-x", "é", "x" * 65, "x\n"])
def test_a_table_must_name_a_type(name: str) -> None:
    with pytest.raises(BadSetting, match="names no type of job"):
        read_policies({name: {}})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(OPTIONS)), VALUES)
def test_any_value_is_read_or_a_bad_setting(name: str, value: object) -> None:
    try:
        policy = one(**{name: value})
    except BadSetting as error:
        message = error.message
        assert len(message) < 300
        return
    assert isinstance(policy, Policy)


def test_every_option_is_a_field_in_its_bounds_and_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    assert list(OPTIONS) == [field.name for field in dataclasses.fields(Policy)]
    for name, option in OPTIONS.items():
        default = getattr(Policy(), name)
        assert default is None or option.minimum is None or option.minimum <= default
        assert default is None or option.maximum is None or default <= option.maximum
        assert f"| `{name}` |" in text


@pytest.mark.parametrize(
    ("program", "forks"),
    [("usher.feeds.worker:run", True), ("mod:Class.method", True), ("feedworker.py", False), ("/bin/true", False),
     ("./a:b", False), ("a:", False), (":b", False), ("a:b c", False), ("", False)],
)  # fmt: skip
def test_functions_fork_and_programs_are_executed(program: str, *, forks: bool) -> None:
    assert Policy().forks(program) == forks
    assert Policy(run="fork").forks(program)
    assert not Policy(run="exec").forks(program)


def test_the_file_keeps_worker_tables_beside_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "usher.toml"
    file.write_text('pool_size = 3\n[worker.fetch]\nkill_after = "5m"\n[worker.defaults]\n')
    loaded = load({}, config=file)
    assert loaded.settings.pool_size == 3
    assert loaded.workers == {"fetch": {"kill_after": "5m"}, "defaults": {}}
    assert read_policies(loaded.workers).of("fetch").kill_after == 5 * MINUTE
    assert [shown.name for shown in loaded.rows()] == setting_names()
    assert load({}).workers == {}


@pytest.mark.parametrize(
    "text", ["worker = 3", "worker = []", "[[worker]]\nx = 1", "[worker]\nmax_processes = 3"]
)
def test_workers_are_tables(tmp_path: Path, text: str) -> None:
    file = tmp_path / "usher.toml"
    file.write_text(text)
    with pytest.raises(BadSetting, match="must be tables") as caught:
        load({}, config=file)
    assert "[worker.defaults]" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("2M", 60 * DAY),
        ("1M1w1d1h1m1s", 38 * DAY + HOUR + MINUTE + SECOND),
        ("5m", 5 * MINUTE),
        ("pt5m", 5 * MINUTE),
        ("0s", timedelta()),
        ("999999999w", timedelta.max),
        ("1h 5M", None),
        ("P2M", None),
        ("1\u017f", None),
        ("5", None),
        ("", None),
    ],
)
def test_spans(text: str, span: timedelta | None) -> None:
    assert durations.parse(text) == span


@given(st.integers(0, 10**12).map(lambda seconds: timedelta(seconds=seconds)))
def test_a_span_is_read_as_it_is_shown(span: timedelta) -> None:
    assert durations.parse(durations.show(span)) == span


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"defaults": {"run": "async"}}, "would run every job inside the manager"),
        ({"fetch": {"run": "async", "user": "daemon"}}, "user has no effect"),
        ({"fetch": {"run": "async", "memory": "1G"}}, "memory has no effect"),
        ({"defaults": {"cpu": "1m"}, "fetch": {"run": "async"}}, "cpu has no effect"),
    ],
)
def test_what_jobs_inside_the_manager_cannot_have(
    tables: dict[str, dict[str, Any]], words: str
) -> None:
    with pytest.raises(BadSetting, match=words) as error:
        read_policies(tables)
    assert error.value.hint


def test_a_type_inside_the_manager_can_remove_a_default() -> None:
    own: dict[str, Any] = {"run": "async", "memory": 0}
    tables = {"defaults": {"memory": "1G"}, "fetch": own}
    assert read_policies(tables).of("fetch").in_manager
