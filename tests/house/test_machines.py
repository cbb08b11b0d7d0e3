"""Every row of "When something dies" in docs/machines.md names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
PAGE = (TREE / "docs" / "machines.md").read_text(encoding="utf-8")
SECTION = PAGE.split("\n## When something dies\n")[1].split("\n## ")[0]
ROWS = [line for line in SECTION.splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_each_row_names_its_tests(row: str) -> None:
    named = re.findall(r"`(tests/\S+\.py)::(\w+)`", row.split("|")[3])
    assert named, "name the tests of this row"
    for file, name in named:
        tree = ast.parse((TREE / file).read_text(encoding="utf-8"))
        functions = ast.FunctionDef | ast.AsyncFunctionDef
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, functions)}


def test_there_are_rows() -> None:
    assert len(ROWS) > 10
