"""The units of deploy/systemd: valid, hardened, and a stack runs from them under the service user."""

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path
from pwd import getpwuid

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from support.processes.booted_systemd import (
    TREE,
    WAIT_SECONDS,
    BootedSystemd,
    booted_systemd,
    needs_systemd,
)
from support.processes.commands import usher
from support.processes.crawls import EMBEDDED
from support.processes.free_port import free_port
from support.processes.killable import eventually
from support.site.hostile import page
from support.site.website import Website

UNITS = TREE / "deploy" / "systemd"
SERVICES = sorted(path.name for path in UNITS.glob("*.service"))
ROLES = ("mgmt", "watchdog", "scheduler", "manager", "crawler", "builder", "index-server", "front")
MAX_EXPOSURE = 1.5
needs_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed"
)


def analyze(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *words],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{directory}:"},
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )


@needs_analyze
def test_the_units_are_valid(tmp_path: Path) -> None:
    copy = shutil.copytree(UNITS, tmp_path / "units")
    for name in SERVICES:  # the program need not be installed here
        text = (copy / name).read_text()
        (copy / name).write_text(text.replace("/usr/local/bin/usher", "/bin/true"))
    done = analyze(copy, "verify", *SERVICES, "usher.target")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_analyze
def test_the_units_are_hardened_as_the_documentation_states() -> None:
    page_text = (TREE / "docs" / "systemd.md").read_text()
    for name in SERVICES:
        done = analyze(UNITS, "security", "--offline=true", "--no-pager", name)
        [exposure] = re.findall(r"exposure level for \S+: (\S+)", done.stdout)
        assert float(exposure) <= MAX_EXPOSURE
        assert f"| `{name}` | {exposure} |" in page_text


def environment_file(dsn: str) -> str:
    """usher.env with the ports of this test and its database."""
    text = (UNITS / "usher.env").read_text()
    ports = {port: str(free_port()) for port in sorted({*re.findall(r"127\.0\.0\.1:(\d+)", text)})}
    text = re.sub(r"(?<=127\.0\.0\.1:)\d+", lambda match: ports[match[0]], text)
    database = make_conninfo(dsn, host="/run/database")
    mgmt = f"USHER_MGMT_URL=http://127.0.0.1:{ports['8411']}"
    return f'{text}DATABASE_URL="{database}"\n{mgmt}\nUSHER_CHUNK_WAIT=0.1\n'


def results(front: str, query: str) -> int:
    with suppress(OSError):
        url = f"http://{front}/search.json?q={query}"
        with urllib.request.urlopen(url, timeout=20) as response:
            return int(json.load(response)["total"])
    return -1


@EMBEDDED
@needs_systemd
@pytest.mark.soak
def test_a_stack_runs_from_the_units(database: str, tmp_path: Path) -> None:
    variables = environment_file(database)
    socket_directory = Path(str(conninfo_to_dict(database)["host"]))
    site = Website({"/": page("House", "<p>A velvet seat.")})
    with site as web, booted_systemd(tmp_path, variables, socket_directory) as system:
        for role in ROLES:
            system.run("systemctl", "start", "--no-block", f"usher-{role}")
        for role in ROLES:
            active = eventually(lambda role=role: system.is_active(f"usher-{role}"), WAIT_SECONDS)  # type: ignore[misc]
            assert active, (role, system.logs)
        assert usher("add", web.url("/"), environment={"DATABASE_URL": database}).code == 0
        [front] = re.findall(r"FRONT_OPTIONS=--bind (\S+)", variables)
        assert eventually(lambda: results(front, "velvet") == 1, WAIT_SECONDS), system.logs
        assert_least_privilege(system)
        assert_watchdog_restarts(system)
        system.run("systemctl", "stop", "usher.target")
        assert eventually(lambda: states(system) == {"inactive success"}, WAIT_SECONDS), system.logs


def states(system: BootedSystemd) -> set[str]:
    """The states of all roles and the results of their last runs."""
    units = [f"usher-{role}" for role in ROLES]
    return {f"{system.show(unit, 'ActiveState')} {system.show(unit, 'Result')}" for unit in units}


def assert_least_privilege(system: BootedSystemd) -> None:
    for role in ROLES:
        pid = system.show(f"usher-{role}", "MainPID")
        status = dict(
            line.split(":\t", 1)
            for line in system.run("cat", f"/proc/{pid}/status").splitlines()
            if ":\t" in line
        )
        user = system.run("id", "--user", "usher")
        assert status["Uid"].split() == [user] * 4, getpwuid(int(status["Uid"].split()[0]))
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0


def assert_watchdog_restarts(system: BootedSystemd) -> None:
    """A crawler whose event loop does not run is replaced by systemd."""
    pid = system.show("usher-crawler", "MainPID")
    system.run("kill", f"-{signal.SIGSTOP.value}", pid)
    replaced = eventually(
        lambda: (
            system.show("usher-crawler", "NRestarts") == "1" and system.is_active("usher-crawler")
        ),
        WAIT_SECONDS,
    )
    assert replaced, system.logs
    assert system.show("usher-crawler", "MainPID") != pid
