"""The alert rules are valid and tested, and each has a section in the runbook."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
RULES = TREE / "deploy" / "prometheus" / "usher.rules.yml"
TESTS = RULES.with_name("usher.rules.test.yml")
ALERTS = re.findall(r"- alert: (\w+)", RULES.read_text("utf-8"))
PARTS = ("**Symptom.**", "**Meaning.**", "**Action.**")


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_a_section_in_the_runbook(alert: str) -> None:
    runbook = (TREE / "docs" / "runbook.md").read_text("utf-8")
    [section] = re.findall(rf"^## {alert}\n(.*?)(?=^## |\Z)", runbook, re.DOTALL | re.MULTILINE)
    assert all(part in section for part in PARTS)
    rule = RULES.read_text("utf-8").split(f"alert: {alert}\n")[1].split("- alert:")[0]
    assert f"runbook: docs/runbook.md#{alert.lower()}\n" in rule
    monitoring = (TREE / "docs" / "monitoring.md").read_text("utf-8")
    assert f"| [{alert}](runbook.md#{alert.lower()}) |" in monitoring
    assert f"alertname: {alert}\n" in TESTS.read_text("utf-8")


def test_the_runbook_has_no_other_sections() -> None:
    runbook = (TREE / "docs" / "runbook.md").read_text("utf-8")
    assert re.findall(r"^## (\w+)$", runbook, re.MULTILINE) == ALERTS


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="Prometheus is not installed: scripts/packages"
)
def test_promtool_accepts_the_rules_and_their_tests() -> None:
    for words in (["check", "config", "prometheus.yml"], ["test", "rules", TESTS.name]):
        done = subprocess.run(
            ["promtool", *words], cwd=RULES.parent, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
