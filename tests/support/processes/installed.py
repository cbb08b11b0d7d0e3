"""Another version of Usher, built as a wheel and installed into an environment of its own, without a network."""

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

TREE = Path(__file__).parents[3]
BUILD_CODE = "import sys; from flit_core import buildapi; print(buildapi.build_wheel(sys.argv[1]))"
WHEEL_SOURCES = ("src", "scripts", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")


def has_commit(commit: str) -> bool:
    """Whether git knows the commit; a shallow clone may not."""
    command = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
    done = subprocess.run(command, cwd=TREE, check=False, stderr=subprocess.DEVNULL)
    return done.returncode == 0


def copy_commit(commit: str, target: Path) -> None:
    """Write the files of a commit."""
    command = ["git", "archive", "--format=tar", commit]
    archive = subprocess.run(command, cwd=TREE, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(target, filter="data")


def copy_tree(target: Path) -> None:
    """Write the present files that a wheel needs."""
    target.mkdir(parents=True)
    for name in WHEEL_SOURCES:
        source = TREE / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target / name)


def set_version(tree: Path, version: str) -> None:
    file = tree / "src" / "usher" / "__init__.py"
    pattern, line = r'^__version__ = ".*"$', f'__version__ = "{version}"'
    file.write_text(re.sub(pattern, line, file.read_text(), flags=re.MULTILINE))


def install_wheel(tree: Path, directory: Path) -> Path:
    """Build the wheel of a tree, install it with the packages of this environment, and return its `usher`."""
    wheels, environment = directory / "wheels", directory / "environment"
    wheels.mkdir(parents=True)
    command = [sys.executable, "-c", BUILD_CODE, str(wheels)]
    subprocess.run(command, cwd=tree, check=True, stdout=subprocess.DEVNULL)
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    [packages] = environment.glob("lib/python3*/site-packages")
    (packages / "packages.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    [wheel] = wheels.glob("*.whl")
    subprocess.run([*pip, "--no-index", "--no-compile", str(wheel)], check=True, env=os.environ)
    shutil.rmtree(wheels)
    return environment / "bin" / "usher"
