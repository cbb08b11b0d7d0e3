"""docs/licences.md is what scripts/licences.py prints, and every licence is accepted."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
SCRIPT = TREE / "scripts" / "licences.py"


def test_the_page_is_up_to_date() -> None:
    printed = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    assert (printed.stderr, printed.returncode) == ("", 0)
    assert (TREE / "docs" / "licences.md").read_text() == printed.stdout, "run `make licences`"


@pytest.mark.parametrize(
    ("expression", "accepted"),
    [
        ("MIT", True),
        ("MIT OR AGPL-3.0-only", True),
        ("MIT AND AGPL-3.0-only", False),
        ("GPL-3.0-only", False),
        ("unknown", False),
    ],
)
def test_which_licences_are_accepted(expression: str, *, accepted: bool) -> None:
    assert runpy.run_path(str(SCRIPT))["is_accepted"](expression) is accepted
