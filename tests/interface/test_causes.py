"""A full disk, a database that is down and a wrong clock: status, doctor and the screen of a crawl say the same."""

from pathlib import Path

import pytest

from interface.test_clock_skew import LIBRARY, clock
from support.db.fixtures import wait_stopped
from support.index.chunk_files import small_disk
from support.processes.crawls import EMBEDDED
from support.processes.free_port import free_port
from support.processes.pseudo_terminal import TerminalRun, at_terminal
from support.processes.terminal import PORTS
from support.site.hostile import links, page
from support.site.website import Website
from usher.errors import Unreachable
from usher.local.ports import Ports, StoredPorts
from usher.observe.causes import system_causes
from usher.settings import Settings


def both(environment: dict[str, str]) -> tuple[TerminalRun, TerminalRun]:
    return at_terminal("status", environment=environment), at_terminal(
        "doctor", environment=environment
    )


def assert_both_say(environment: dict[str, str], words: str, next_step: str) -> None:
    for run in both(environment):
        assert f"{words}\n" in run.text, run.text
        assert f"→ {next_step}\n" in run.text, run.text


@EMBEDDED
def test_a_nearly_full_disk(database: str, tmp_path: Path) -> None:
    with small_disk(tmp_path, "100m"):
        environment = {"DATABASE_URL": database, "USHER_DATA": str(tmp_path)}
        words = f"The disk is nearly full: 105 MB are free at {tmp_path}."
        step = (
            f"Free some space there, or move {tmp_path} to a larger disk and name it with --data."
        )
        assert_both_say(environment, words, step)


def test_a_full_disk_that_stops_the_embedded_database(data: Path) -> None:
    with small_disk(data.parent, "20m"):
        environment = {"USHER_DATA": str(data)}
        status, doctor = both(environment)
        for run in (status, doctor):
            assert "The disk is full: " in run.text, run.text
            assert "The database cannot be used.\n" in run.text, run.text
            assert "→ Free some space there, or move " in run.text
        assert (status.code, doctor.code) == (1, 3)
        for words in (("crawl", "https://example.com/"), ("add", "https://example.com/")):
            run = at_terminal(*words, environment=environment)
            assert "usher: The disk is full: " in run.text, run.text
            assert "The database cannot be used.\n" in run.text, run.text
            assert "→ Free some space there, or move " in run.text
            assert "initdb" not in run.text


def test_a_disk_that_fills_up_before_the_embedded_database_starts(data: Path) -> None:
    with small_disk(data.parent, "300m"):
        environment = {"USHER_DATA": str(data)}
        assert at_terminal("hosts", "list", environment=environment).code == 0
        wait_stopped(data)
        with (data / "filler").open("wb") as filler, pytest.raises(OSError, match="No space"):
            while True:
                filler.write(bytes(1_000_000))
                filler.flush()
        for words in (("crawl", "https://example.com/"), ("add", "https://example.com/")):
            run = at_terminal(*words, environment=environment)
            assert f"usher: The disk is full: 0 MB are free at {data}." in run.text, run.text
            assert "→ Free some space there, or move " in run.text
            assert "FATAL" not in run.text
            assert run.code == 1


def test_a_database_that_is_down(tmp_path: Path) -> None:
    environment = {
        "DATABASE_URL": "postgresql://127.0.0.1:1/db",
        "USHER_CONNECT_TIMEOUT": "0",
        "USHER_DATA": str(tmp_path),
    }
    step = "Start the server, or correct its address: `usher settings` shows it."
    status, doctor = both(environment)
    for run in (status, doctor):
        assert "The database at postgresql://127.0.0.1:1/db cannot be used: " in run.text
        assert f"→ {step}\n" in run.text
    assert (status.code, doctor.code) == (5, 3)
    crawl = at_terminal("crawl", "https://example.com/", environment=environment)
    assert "usher: The database at postgresql://127.0.0.1:1/db cannot be used: " in crawl.text
    assert f"→ {step}\n" in crawl.text
    assert crawl.code == 5


@pytest.mark.soak
@EMBEDDED
@pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed: scripts/packages")
def test_a_wrong_clock(database: str, tmp_path: Path) -> None:
    environment = {"DATABASE_URL": database, "USHER_DATA": str(tmp_path), **clock("+1h")}
    status, doctor = both(environment)
    for run in (status, doctor):
        assert "The clock of this machine is 3600.0 s ahead of the database's.\n" in run.text
        assert "→ Run NTP there: timedatectl set-ntp true\n" in run.text
    StoredPorts(Ports(**{role: free_port() for role in PORTS})).write(tmp_path)
    with Website({"/": page("Start", links("/a")), "/a": page("Page")}) as web:
        words = ("crawl", "--delay", "2", web.url("/"))
        crawl = at_terminal(*words, environment=environment, seconds=120)
    assert crawl.code == 0, crawl.text
    screen = " ".join(crawl.text.split())
    assert "The clock of this machine is 3600.0 s ahead of the database's. → Run NTP" in screen


def test_causes_are_listed_with_the_worst_first(tmp_path: Path) -> None:
    """As the screen of a crawl needs them."""
    error = Unreachable("The database at x cannot be used.", hint="Start it.")
    settings = Settings(data=tmp_path, database_url="postgresql://x/y")
    listed = list(system_causes(settings, error=error, clock_skew_seconds=-7.0))
    assert [cause.kind for cause in listed if cause.kind != "disk"] == ["database", "clock_skew"]
    assert (listed[0].words, listed[0].next_step) == (error.message, error.hint)
    assert "7.0 s behind the database's" in listed[-1].words
