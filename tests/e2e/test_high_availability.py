"""The cluster of docs/high-availability.md survives the loss of the primary's machine; `make ha` does more of it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.isolation import obstacle
from ha.guide import blocks, missing_lines
from ha.kills import missing_packages

TESTS = Path(__file__).parents[1]
KILLS = os.environ.get("HA_KILLS", "machine")
RUN_SECONDS = 600
RESULT = re.compile(
    r"^kill -9 of everything on the primary +(pg\d) +(pg\d) +(?:[\d.]+ +){4}-$", re.MULTILINE
)


def reason() -> str:
    missing = missing_packages()
    return obstacle() or (
        f"{', '.join(missing)} not installed: scripts/packages" if missing else ""
    )


@pytest.mark.soak
def test_the_primary_dies_in_the_documented_cluster() -> None:
    if why := reason():
        pytest.skip(why)
    done = subprocess.run(
        [sys.executable, "-m", "ha", "--kills", KILLS, "--bounded"],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS,
    )
    print(done.stdout)  # noqa: T201 - the table
    assert done.returncode == 0, done.stdout + done.stderr
    [(killed, primary)] = RESULT.findall(done.stdout)
    assert (killed, primary) == ("pg1", "pg2")


def test_the_page_has_commands_for_every_machine() -> None:
    named = {name for block in blocks() for name in block.machines}
    assert named == {"pg1", "pg2", "etcd3", "control1", "control2", "lb"}
    assert sum(bool(block.shown) for block in blocks()) >= 3


def test_output_differs_only_in_spaces_and_dots() -> None:
    shown = "+--+\n| a   | 1 |\n"
    assert missing_lines("+-----+\n| a | … |\n", shown) == []
    assert missing_lines("| b | … |\n", shown) == ["| b | … |"]
