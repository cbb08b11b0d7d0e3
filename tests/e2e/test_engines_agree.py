"""Both engines find the same pages: overlap of hits and nDCG, as bench/engines.py measures them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.corpora import needs_corpora

pytestmark = [pytest.mark.soak, needs_corpora]
TREE = Path(__file__).parents[2]
MIN_OVERLAP = 0.85
MAX_DIFFERENCE = 0.05
BENCH_SECONDS = 1_200  # under 50 s on two idle cores


@pytest.mark.usefixtures("opensearch_installation")
def test_both_engines_find_the_same_pages() -> None:
    bench = subprocess.run(
        [sys.executable, str(TREE / "bench" / "engines.py"), "--quick"],
        capture_output=True,
        text=True,
        check=False,
        timeout=BENCH_SECONDS,
    )
    assert bench.returncode == 0, bench.stderr[-3000:]
    measures = {measure["name"]: measure for measure in json.loads(bench.stdout)["measures"]}
    assert measures["overlap@10 with Tantivy"]["usher"] >= MIN_OVERLAP
    compared = [measure for name, measure in measures.items() if name.startswith("nDCG@10")]
    assert compared
    for measure in compared:
        tantivy = measure["peers"]["tantivy"]
        assert measure["usher"] == pytest.approx(tantivy, rel=MAX_DIFFERENCE)
