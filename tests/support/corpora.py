"""Public test data beside the project; tests that read it are skipped where it is missing."""

import json
from pathlib import Path
from typing import Any

import pytest

CORPORA = Path(__file__).parents[2].parent / "shared" / "corpora"
needs_corpora = pytest.mark.skipif(not CORPORA.is_dir(), reason="../shared/corpora is missing")


def read_cases(name: str) -> list[dict[str, Any]]:
    """Return the cases of a JSON file of the corpora."""
    cases: list[dict[str, Any]] = json.loads((CORPORA / name).read_bytes())
    return cases
