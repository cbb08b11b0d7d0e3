"""Everything that is installed is pinned by hash, and `usher doctor` warns of what an attacker could use."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from support.db.fixtures import open_directory
from support.mgmt.mgmt_process import mgmt
from support.processes.commands import usher
from usher.security_checks import open_files
from usher.settings import load, secret_names

TREE = Path(__file__).parents[2]
LOCKS = [f"requirements{name}.lock" for name in ("", "-dev", "-s3", "-uv")]
TOKEN = "a-token-for-this-test-0123456789"


def entries(lock: str) -> dict[str, str]:
    """Each package of a lock file with the text of its entry."""
    text = (TREE / lock).read_text()
    blocks = re.findall(r"^\S.*(?:\n[ \t].*)*", text, re.MULTILINE)
    return {re.split(r"[=<>~ ;]", block)[0]: block for block in blocks}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_is_pinned_by_hash(lock: str) -> None:
    packages = entries(lock)
    assert packages
    for name, block in packages.items():
        assert re.match(rf"{re.escape(name)}==\S+", block), block
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block


@pytest.mark.parametrize("name", ["pip", "setuptools", "flit-core"])
def test_what_installs_the_rest_is_the_pinned_version(name: str) -> None:
    assert entries("requirements.lock")[name].startswith(f"{name}=={version(name)} ")


def test_no_command_of_set_up_installs_without_hashes() -> None:
    lines = [line for path in ("lock", "setup", "setup.py") for line in script_lines(path)]
    installs = [line for line in lines if re.search(r"\bpip\(|pip install", line)]
    assert len(installs) == 5
    unhashed = [line for line in installs if not re.search(r"BY_HASH|--require-hashes", line)]
    assert {line.strip() for line in unhashed} == {
        "def pip(*words: str) -> None:",
        'pip("--no-deps", "--no-build-isolation", "-e", str(ROOT))',
    }


def script_lines(name: str) -> list[str]:
    return (TREE / "scripts" / name).read_text().splitlines()


@pytest.mark.attack(12, "offers another pip under the pinned version", "set-up stops at the hash")
def test_a_pip_with_another_content_is_refused(tmp_path: Path) -> None:
    pinned = entries("requirements.lock")["pip"].split()[0].partition("==")[2]
    for name in ("requirements.lock", "pyproject.toml"):
        shutil.copy(TREE / name, tmp_path)
    shutil.copytree(TREE / "scripts", tmp_path / "scripts")
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    about = f"pip-{pinned}.dist-info"
    with zipfile.ZipFile(wheels / f"pip-{pinned}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("pip/__init__.py", "raise SystemExit('the code of an attacker')")
        wheel.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: pip\nVersion: {pinned}\n"
        )
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    done = subprocess.run(
        [sys.executable, "-I", tmp_path / "scripts" / "setup.py", "requirements.lock"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    python = tmp_path / ".venv" / "bin" / "python"
    assert subprocess.run([python, "-m", "pip", "--version"], check=False).returncode == 0


@pytest.fixture
def home() -> Iterator[Path]:
    """A data directory as Usher creates it."""
    path = open_directory()
    yield path
    shutil.rmtree(path)


def warnings(
    dsn: str, data: Path, name: str, *words: str | Path, **environment: str
) -> list[dict[str, Any]]:
    """The warnings of one name; doctor's exit code stays 0."""
    ran = usher(
        *words, "--data", data, "doctor", "--json", environment={"DATABASE_URL": dsn, **environment}
    )
    assert ran.code == 0, ran.err
    checks = [check for check in ran.json if check["name"] == name]
    assert checks
    assert all(check["hint"] for check in checks if check["level"] == "warning")
    return [check for check in checks if check["level"] != "good"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is warned")
@pytest.mark.attack(
    12, "waits for an operator who runs as root", "doctor warns and says what to do"
)
def test_doctor_warns_of_root(database: str, home: Path) -> None:
    [warning] = warnings(database, home, "user")
    assert "runs as root" in warning["detail"]
    assert "useradd" in warning["hint"]


@pytest.mark.attack(12, "listens to plain HTTP of a public bind", "doctor names the address")
def test_doctor_warns_of_a_public_bind(database: str, home: Path, tmp_path: Path) -> None:
    public = ("--bind", "0.0.0.0:0", "--insecure")
    with (
        mgmt(database, tmp_path / "closed", is_forked=False) as closed,
        mgmt(database, tmp_path / "open", *public, is_forked=False) as opened,
    ):
        details = [warning["detail"] for warning in warnings(database, home, "network")]
    ports = [f":{server.address.rpartition(':')[2].strip('/')}," for server in (closed, opened)]
    assert [any(port in detail for detail in details) for port in ports] == [False, True]


@pytest.mark.parametrize("name", ["mgmt_url", "websub_url"])
def test_doctor_warns_of_plain_http_to_another_machine(
    database: str, home: Path, name: str
) -> None:
    def details(url: str) -> str:
        variable = {f"USHER_{name.upper()}": url}
        return str(warnings(database, home, "network", **variable))

    assert f"{name} is http://192.0.2.7" in details("http://192.0.2.7:8411")
    assert name not in details("https://192.0.2.7")
    assert name not in details("http://127.0.0.1:8411")


@pytest.mark.attack(12, "reads data, logs and tokens left open", "doctor names each with its chmod")
def test_doctor_warns_of_loose_permissions(database: str, home: Path) -> None:
    for directory in (home / "logs", home / "index"):
        directory.mkdir(mode=0o700)
    for file in (home / "local.token", home / "password"):
        file.touch(0o600)
    assert warnings(database, home, "permissions") == []
    for path in (home, home / "logs", home / "index", home / "local.token", home / "password"):
        before = path.stat().st_mode & 0o777
        path.chmod(0o755)
        [warning] = warnings(database, home, "permissions")
        assert f"{path} is accessible" in warning["detail"]
        assert warning["hint"] == f"chmod {before:o} {path}"
        path.chmod(before)


@pytest.mark.parametrize("name", sorted(secret_names()))
def test_doctor_warns_of_every_secret_that_others_can_read(home: Path, name: str) -> None:
    config = home / "usher.toml"
    value = "postgresql://usher:secret@127.0.0.1/x" if name.endswith("_url") else TOKEN
    config.write_text(f'{name} = "{value}"\n')
    config.chmod(0o644)
    settings = load({"USHER_DATA": str(home)}, config=config)
    files = [warning.hint for warning in open_files(settings, {})]
    assert files == [f"chmod 600 {config}"]
    config.chmod(0o600)
    assert list(open_files(settings, {})) == []


def test_doctor_warns_of_a_readable_file_with_secrets(database: str, home: Path) -> None:
    config, token = home / "usher.toml", home / "token"
    config.write_text("pool_size = 3\n")
    token.write_text(TOKEN)
    config.chmod(0o644)
    token.chmod(0o644)
    words = ("--config", config)
    assert warnings(database, home, "permissions", *words) == []
    [warning] = warnings(database, home, "permissions", USHER_TOKEN_FILE=str(token))
    assert warning["hint"] == f"chmod 600 {token}"
    config.write_text(f'token = "{TOKEN}"\n')
    [warning] = warnings(database, home, "permissions", *words)
    assert warning["hint"] == f"chmod 600 {config}"
    config.write_text('search_url = "postgresql://usher:password@127.0.0.1/search"\n')
    ran = usher("--data", home, *words, "doctor", "--json", environment={"DATABASE_URL": database})
    assert f"chmod 600 {config}" in ran.out
    config.chmod(0o600)
    token.chmod(0o600)
    assert warnings(database, home, "permissions", USHER_TOKEN_FILE=str(token)) == []
