"""Every module that a command imports inside a function can be the first module that is imported: no import cycles."""

import ast
import subprocess
import sys
from pathlib import Path

import usher

CLI = Path(usher.__file__).parent / "cli"
# Third-party packages are imported once; each of our modules in a new fork.
LOADS = """
import os, sys, traceback
from importlib import import_module
import asyncio, click, msgspec, prometheus_client, psycopg, psycopg_pool, starlette.applications, uvicorn
for name in sys.argv[1:]:
    if not os.fork():
        try:
            import_module(name)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.wait()
    if status:
        sys.exit(f"{name} cannot be loaded first.")
"""


def imported_in_functions(path: Path) -> set[str]:
    """Return the modules of Usher that the functions of a file import."""
    functions = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    modules = {
        node.module
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and node.module
    }
    return {name for name in modules if name.partition(".")[0] == "usher"}


def test_modules_that_commands_import_can_be_loaded_first() -> None:
    names = sorted(set().union(*map(imported_in_functions, CLI.rglob("*.py"))))
    assert len(names) > 20
    done = subprocess.run(
        [sys.executable, "-c", LOADS, *names], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
