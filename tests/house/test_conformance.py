"""docs/conformance.md is current, and every statement of the seed documents is covered or explained."""

import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TREE = Path(__file__).parents[2]
SCRIPT = TREE / "scripts" / "conformance.py"
STATEMENT = """
[[statement]]
id = "001.1"
section = "S"
text = "T"
"""
TEST = """
import pytest

@pytest.mark.seed({ids})
async def test_it() -> None: ...
"""


def test_the_page_is_current_and_complete() -> None:
    printed = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    assert (printed.stderr, printed.returncode) == ("", 0)
    assert (TREE / "docs" / "conformance.md").read_text() == printed.stdout, (
        "run `make conformance`"
    )


@pytest.fixture
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize(
    ("ids", "problem", "uncovered"),
    [
        ('"001.1"', "", []),
        ('"001.1", "001.9"', "covers 001.9, which is not in statements.toml", []),
        ("", "names no statement", ["001.1"]),
    ],
)
def test_markers_are_checked(
    script: dict[str, Any], tmp_path: Path, ids: str, problem: str, uncovered: list[str]
) -> None:
    (tmp_path / "statements.toml").write_text(STATEMENT)
    (tmp_path / "test_x.py").write_text(TEST.format(ids=ids))
    statements = script["read"](tmp_path / "statements.toml")
    problems = script["cover"](statements, tmp_path)
    assert [problem in text for text in problems] == [True] * bool(problem)
    assert script["uncovered"](statements) == uncovered


def test_a_statement_has_one_number(script: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "statements.toml").write_text(STATEMENT * 2)
    read: Callable[[Path], object] = script["read"]
    with pytest.raises(ValueError, match=r"001\.1 is there twice"):
        read(tmp_path / "statements.toml")
