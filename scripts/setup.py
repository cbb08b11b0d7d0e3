"""Creates or repairs .venv with the packages of one lock file and this checkout; safe after a crash."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
# Wheels only: a build would download its own tools without hashes.
BY_HASH = ("--require-hashes", "--only-binary", ":all:")


def main(lock_name: str) -> None:
    lock = ROOT / lock_name
    with (ROOT / ".setup.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not fresh(lock):
            install(lock)


def fresh(lock: Path) -> bool:
    stamp = VENV / lock.name
    return runs(PYTHON) and stamp.exists() and stamp.read_bytes() == lock.read_bytes()


def install(lock: Path) -> None:
    print(f"usher: first start, installing {lock.name} into .venv …", file=sys.stderr)
    if not runs(PYTHON):
        make_venv()
    for stamp in VENV.glob("*.lock"):
        stamp.unlink()
    install_installers(lock)
    pip(*BY_HASH, "-r", str(lock))
    pip("--no-deps", "--no-build-isolation", "-e", str(ROOT))
    # The stamps are written last: a run that is killed before installs again. The dev lock includes the other one.
    names = {lock.name, "requirements.lock"}
    for name in names:
        shutil.copyfile(ROOT / name, VENV / name)


def install_installers(lock: Path) -> None:
    """Replace the pip and setuptools of Python with those of the lock, before they install the rest."""
    entries = re.findall(r"^(?:pip|setuptools)==.*(?:\n[ \t].*)*", lock.read_text(), re.MULTILINE)
    with tempfile.NamedTemporaryFile("w", suffix=".lock") as file:
        file.write("\n".join(entries) + "\n")
        file.flush()
        pip(*BY_HASH, "-r", file.name)


def make_venv() -> None:
    if not has_ensurepip() and os.geteuid() == 0 and shutil.which("apt-get"):
        quietly(["apt-get", "update"])
        quietly(["apt-get", "install", "-y", f"python{sys.version_info.major}-venv"])
    done = subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=False)
    if done.returncode:
        sys.exit(
            "usher: could not make .venv. On Debian or Ubuntu: apt-get install python3-venv; then run this again."
        )


def has_ensurepip() -> bool:
    return (
        subprocess.run(
            [sys.executable, "-c", "import ensurepip"], capture_output=True, check=False
        ).returncode
        == 0
    )


def runs(python: Path) -> bool:
    """Return whether the venv's Python and pip work; its Python may have been removed."""
    if not python.exists():
        return False
    return (
        subprocess.run(
            [python, "-m", "pip", "--version"], capture_output=True, check=False
        ).returncode
        == 0
    )


def pip(*words: str) -> None:
    command = [
        str(PYTHON),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        *words,
    ]
    done = subprocess.run(
        command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(
            f"{done.stderr}usher: pip could not install what is needed (above). Check the network, then run this again."
        )


def quietly(command: list[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(command, env=environment, capture_output=True, check=False)


if __name__ == "__main__":
    main(sys.argv[1])
