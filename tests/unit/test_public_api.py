"""`import usher` offers the public API and imports its parts on first use."""

import subprocess
import sys

import pytest

import usher

PARTS = {
    "Client": "usher.http.client.mgmt_client",
    "jobs": "usher.jobs",
    "worker": "usher.worker",
}
CHECK = """
import sys, usher
part, module = sys.argv[1:]
assert part in dir(usher) and module not in sys.modules, sys.modules
value = getattr(usher, part)
assert module in sys.modules
assert value is (sys.modules[module] if part != "Client" else sys.modules[module].Client)
"""


def test_import_loads_no_other_module_of_usher() -> None:
    code = "import sys, usher; print(*[name for name in sys.modules if name.startswith('usher.')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "\n"


@pytest.mark.parametrize(("part", "module"), PARTS.items())
def test_a_part_is_imported_on_first_use(part: str, module: str) -> None:
    subprocess.run([sys.executable, "-c", CHECK, part, module], check=True)


def test_all_names_exist() -> None:
    assert all(getattr(usher, name) for name in usher.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'usher' has no attribute 'door_bell'"):
        usher.door_bell  # type: ignore[attr-defined]  # noqa: B018
