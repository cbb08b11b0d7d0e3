"""A real Prometheus that scrapes real processes with the rules of deploy/, whose durations are shortened to seconds."""

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.processes.free_port import free_port
from support.processes.killable import eventually

DEPLOY = Path(__file__).parents[3] / "deploy"
PROGRAM = Path("/usr/bin/prometheus")
WAIT_SECONDS = 90
RANGE = "6s"
needs_prometheus = pytest.mark.skipif(
    not PROGRAM.exists(), reason="Prometheus is not installed: scripts/packages"
)


def short_rules() -> str:
    """The rules with seconds instead of minutes; everything else stays."""
    text = (DEPLOY / "prometheus" / "usher.rules.yml").read_text()
    text = re.sub(r"for: \d+m", "for: 1s", text)
    text = re.sub(r"\[\d+m\]", f"[{RANGE}]", text)
    return re.sub(r"(usher_queue_oldest_seconds\)) > 900", r"\1 > 1", text)


@dataclass(frozen=True, slots=True)
class Prometheus:
    port: int

    def ask(self, path: str, **query: str) -> Any:  # noqa: ANN401 - JSON
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=20) as response:
            return json.load(response)["data"]

    def is_ready(self) -> bool:
        try:
            return bool(self.ask("status/buildinfo"))
        except OSError:
            return False

    def firing(self) -> set[str]:
        alerts = self.ask("alerts")["alerts"]
        return {item["labels"]["alertname"] for item in alerts if item["state"] == "firing"}

    def values(self, query: str) -> list[float]:
        result = self.ask("query", query=query.replace("$__rate_interval", RANGE))["result"]
        return [float(item["value"][1]) for item in result]

    def wait_for(self, names: set[str]) -> None:
        """Wait until exactly these alerts fire."""
        assert eventually(lambda: self.firing() == names, WAIT_SECONDS), (self.firing(), names)


@contextmanager
def prometheus(directory: Path, targets: Mapping[str, int]) -> Iterator[Prometheus]:
    """Run Prometheus with the rules of deploy/; `targets` are the ports by role."""
    directory.mkdir()
    (directory / "usher.rules.yml").write_text(short_rules())
    scraped = [
        {"labels": {"role": role}, "targets": [f"127.0.0.1:{port}"]}
        for role, port in targets.items()
    ]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["usher.rules.yml"],
        "scrape_configs": [{"job_name": "usher", "static_configs": scraped}],
    }
    (directory / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    port = free_port()
    command = [
        str(PROGRAM),
        f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        server = Prometheus(port)
        assert eventually(server.is_ready, WAIT_SECONDS), (directory / "log").read_text()
        yield server
    finally:
        process.kill()
        process.wait()
