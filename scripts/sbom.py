"""Prints the packages of the environment that runs it as a CycloneDX 1.6 document: versions, licences, dependencies."""

import json
import sys
import uuid
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import licences

PROGRAM = "usherd"


def main() -> None:
    packages = {licences.normal_name(item.metadata["Name"]): item for item in distributions()}
    program = packages.pop(PROGRAM)
    print(json.dumps(document(program, packages), indent=2))


def document(program: Distribution, packages: dict[str, Distribution]) -> dict[str, Any]:
    everything = {PROGRAM: program, **packages}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            "component": component(PROGRAM, program) | {"type": "application"},
        },
        "components": [component(name, packages[name]) for name in sorted(packages)],
        "dependencies": [
            {"ref": reference(name, item), "dependsOn": needed(item, everything)}
            for name, item in sorted(everything.items())
        ],
    }


def component(name: str, item: Distribution) -> dict[str, Any]:
    text = "MIT" if name == PROGRAM else licences.licence(name)
    return {
        "type": "library",
        "bom-ref": reference(name, item),
        "name": name,
        "version": item.version,
        "purl": reference(name, item),
        "licenses": [{"expression": text}],
    }


def reference(name: str, item: Distribution) -> str:
    return f"pkg:pypi/{name}@{item.version}"


def needed(item: Distribution, packages: dict[str, Distribution]) -> list[str]:
    """Return the installed packages that a package names; those for other platforms or extras are not installed."""
    names = {licences.requirement_name(line) for line in item.requires or ()}
    return sorted(reference(name, packages[name]) for name in names & packages.keys())


if __name__ == "__main__":
    main()
