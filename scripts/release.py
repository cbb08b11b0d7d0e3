"""Builds a release into a folder: wheel, sdist, changelog, lock, SBOM and checksums; then installs and tries it.

It builds from a copy of the files that git has, so the checkout does not change. --commit then writes version and
changelog into the checkout, commits and tags them.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION_FILE = "src/usher/__init__.py"
CHANGELOG = "CHANGELOG.md"
UNRELEASED = "## [Unreleased]\n"
LOCK = "requirements.lock"
RECORDS = ("src/usher/schema/released", "tests/house/message_fields.json")
DEMO_SECONDS = 300.0
MAN_FOLDER = "data/share/man/man1"
EXTERNAL_DATA = '\n[tool.flit.external-data]\ndirectory = "data"\n'
# Runs in the folder with the sources, which flit takes as the project.
BUILD_CODE = """
import sys
from flit_core import buildapi
for kind in sys.argv[2:]:
    print(getattr(buildapi, f"build_{kind}")(sys.argv[1]))
"""


def main() -> None:
    options = read_options()
    folder = options.to or ROOT / "dist" / options.version
    if not options.draft and git("status", "--porcelain"):
        sys.exit(
            "release: the checkout has changes that are not committed. Commit them, or use --draft."
        )
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"release: {folder} is not empty. Remove it, or name another with --to.")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="usher-release-") as name:
        Path(name).chmod(0o711)  # as root, PostgreSQL runs as another user
        source, environment = Path(name) / "source", Path(name) / "environment"
        copy_files(source)
        set_version(source, options.version)
        notes = date_changelog(source, options.version)
        add_man_pages(source)
        wheel, sdist = build(source, folder, "wheel", "sdist")
        (folder / "RELEASE_NOTES.md").write_text(notes)
        for kept in (CHANGELOG, LOCK):
            shutil.copyfile(source / kept, folder / kept)
        check_sdist(sdist, wheel, Path(name))
        install(environment, wheel, folder / LOCK)
        write_sbom(environment, folder / f"usherd-{options.version}.cdx.json")
        try_demo(environment, options.version, Path(name))
        write_checksums(folder)
        if options.commit:
            commit(source, options.version)
    print(folder)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/release", description=__doc__)
    parser.add_argument("version", type=version_number, help="as in 1.2.3 or 1.2.3rc1")
    parser.add_argument(
        "--to", type=lambda text: Path(text).resolve(), metavar="DIR", help="default: dist/VERSION"
    )
    parser.add_argument(
        "--draft", action="store_true", help="accept changes that are not committed"
    )
    parser.add_argument(
        "--commit", action="store_true", help="commit version and changelog, and tag them"
    )
    return parser.parse_args()


def version_number(text: str) -> str:
    if not re.fullmatch(r"\d+\.\d+\.\d+(?:rc\d+)?", text):
        raise argparse.ArgumentTypeError(f"{text} is no version such as 1.2.3 or 1.2.3rc1")
    return text


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def copy_files(target: Path) -> None:
    for name in git("ls-files", "-z").split("\0")[:-1]:
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def set_version(source: Path, version: str) -> None:
    file = source / VERSION_FILE
    text, count = re.subn(
        r'^__version__ = ".*"$', f'__version__ = "{version}"', file.read_text(), flags=re.MULTILINE
    )
    if count != 1:
        sys.exit(f"release: {VERSION_FILE} has no line __version__.")
    file.write_text(text)


def date_changelog(source: Path, version: str) -> str:
    """Give the section [Unreleased] the version and the date, begin an empty one, and return the section's text."""
    file = source / CHANGELOG
    before, heading, rest = file.read_text().partition(UNRELEASED)
    section, older_heading, older = rest.partition("\n## [")
    section = section.replace("Nothing has been released.\n", "").strip()
    if not heading or not section:
        sys.exit(f"release: {CHANGELOG} has no entries under [Unreleased].")
    title = f"## [{version}] - {datetime.now(UTC):%Y-%m-%d}\n"
    file.write_text(
        f"{before}{UNRELEASED}\n{title}\n{section}\n{older_heading}{older}".rstrip() + "\n"
    )
    return f"{title}\n{section}\n"


def add_man_pages(source: Path) -> None:
    """Write the man pages of the release into its sources; a wheel installs them into `share/man`."""
    script = source / "scripts" / "man_pages.py"
    command = [sys.executable, "-B", str(script), str(source / MAN_FOLDER)]
    environment = {**os.environ, "PYTHONPATH": str(source / "src")}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    with (source / "pyproject.toml").open("a") as file:
        file.write(EXTERNAL_DATA)


def build(source: Path, folder: Path, *kinds: str) -> list[Path]:
    """Build with the backend of the lock; the files have the time of the last commit, so a second build is equal."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct").strip()}
    command = [sys.executable, "-c", BUILD_CODE, str(folder), *kinds]
    done = subprocess.run(
        command, cwd=source, env=environment, check=True, capture_output=True, text=True
    )
    return [folder / name for name in done.stdout.split()]


def check_sdist(sdist: Path, wheel: Path, scratch: Path) -> None:
    """Check that the sdist builds exactly this wheel."""
    shutil.unpack_archive(sdist, scratch / "sdist", filter="data")
    (scratch / "wheel").mkdir()
    again = build(next((scratch / "sdist").iterdir()), scratch / "wheel", "wheel")[0]
    if again.read_bytes() != wheel.read_bytes():
        sys.exit(f"release: {sdist.name} builds another wheel than {wheel.name}.")


def install(environment: Path, wheel: Path, lock: Path) -> None:
    venv.create(environment, symlinks=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(environment / "bin" / "python"),
        "install",
        "--quiet",
        "--no-compile",
    ]
    by_hash = ["--require-hashes", "--only-binary", ":all:", "-r", str(lock)]
    subprocess.run([*pip, *by_hash], check=True)
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True)


def write_sbom(environment: Path, file: Path) -> None:
    """Let the fresh environment describe itself."""
    script = Path(__file__).with_name("sbom.py")
    command = [str(environment / "bin" / "python"), "-B", str(script)]
    file.write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def try_demo(environment: Path, version: str, scratch: Path) -> None:
    """Run the demo from an empty directory, and search what it crawled."""
    empty = scratch / "empty"
    empty.mkdir()
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("USHER_", "PYTHON"))
    }
    variables.pop("DATABASE_URL", None)
    usher = [str(environment / "bin" / "usher"), "--data", str(scratch / "data")]

    def output(*words: str) -> str:
        done = subprocess.run(
            [*usher, *words],
            cwd=empty,
            env=variables,
            timeout=DEMO_SECONDS,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(
                f"release: usher {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done.stdout + done.stderr

    if output("version").split() != ["usher", version]:
        sys.exit(f"release: the installed version is not {version}.")
    if f"Usher {version}" not in (environment / "share/man/man1/usher.1").read_text():
        sys.exit(f"release: the man page is not that of {version}.")
    print(output("demo", "--then", "end"), end="")


def write_checksums(folder: Path) -> None:
    """In the format of sha256sum: `sha256sum --check SHA256SUMS` verifies the folder."""
    files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(lines))


def commit(source: Path, version: str) -> None:
    """Commit the version, and what later versions must be compatible with: the migrations and the messages."""
    for name in (VERSION_FILE, CHANGELOG):
        shutil.copyfile(source / name, ROOT / name)
    for script, *words in (("migrations.py", "--release"), ("message_fields.py",)):
        command = [sys.executable, str(ROOT / "scripts" / script), *words]
        subprocess.run(command, check=True)
    git("add", *RECORDS)
    files = (VERSION_FILE, CHANGELOG, *RECORDS)
    git("commit", "--quiet", "-m", f"release: {version}", *files)
    git("tag", "-a", f"v{version}", "-m", f"Usher {version}")


if __name__ == "__main__":
    main()
