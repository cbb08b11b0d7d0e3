"""Fixtures for every test: a real PostgreSQL, a real web site, a real browser, and a way to run commands."""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

ONE_SERVER_MODULES = frozenset(
    {
        "test_async_runner",
        "test_backup",  # test_backup_restore and test_dump use both
        "test_crawler_renewal",
        "test_feeds_batch_poller",
        "test_feeds_cli",
        "test_feeds_followups",
        "test_feeds_pages",
        "test_feeds_poll",
        "test_feeds_websub",
        "test_manager",
        "test_nightly",
        "test_python_page",
        "test_scheduler",
        "test_schema_difference",  # a script of developers; test_migrate runs migrations on both
        "test_watchdog_calls",
        "test_workers",
    }
)
BYTECODE = None
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    # Hundreds of processes start: they share compiled files. Workers of xdist inherit the variable.
    BYTECODE = TemporaryDirectory(prefix="usher-bytecode-")
    os.environ["PYTHONPYCACHEPREFIX"] = BYTECODE.name
pytest_plugins = [
    "support.site.browser_fixtures",
    "support.db.fixtures",
    "support.db.installation",
    "support.index.engines",
    "support.opensearch.fixtures",
    "support.processes.cli_fixtures",
    "support.processes.long_first",
    "support.s3.fixtures",
    "support.site.fixtures",
]
# No deadline: the duration of an example depends on the load of the machine.
settings.register_profile("usher", deadline=None)
settings.load_profile("usher")


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """Restore the umask after a test that ran a role in this process."""
    mask = os.umask(0o022)
    yield
    os.umask(mask)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name parameters of bytes by their argument: compressed bytes differ between processes of xdist."""
    return argname if isinstance(val, bytes) else None


def is_for_one_server(path: Path) -> bool:
    return "security" in path.parts or path.stem in ONE_SERVER_MODULES


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Pass the marker of an attack test to the process that prints the table, also from a worker of xdist.

    Tests of HTTP, files, processes and pages run on the embedded server only, to save time. `tests/house/test_rules.py`
    prepares each statement on both.
    """
    items[:] = [
        item
        for item in items
        if not (item.get_closest_marker("debian") and is_for_one_server(item.path))
    ]
    for item in items:
        if marker := item.get_closest_marker("attack"):
            finding, attempt, result = marker.args
            item.user_properties.append(("attack", f"{finding}\t{attempt}\t{result}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table "attack → result", one line for each attack test that ran."""
    rows = set[tuple[int, str]]()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.getreports(outcome):
            for name, value in getattr(report, "user_properties", ()):
                if name == "attack":
                    finding, attempt, result = str(value).split("\t")
                    shown = result if outcome == "passed" else f"NOT SHOWN TO FAIL: {outcome}"
                    rows.add((int(finding), f"{finding:>2}  {attempt} → {shown}"))
    if rows:
        terminalreporter.section("attack → result")
        for _, line in sorted(rows):
            terminalreporter.line(line)
