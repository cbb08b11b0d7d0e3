"""Each command loads what it needs by itself, whatever others have loaded: what it imports late can come first."""

import ast
import subprocess
import sys
from pathlib import Path

import usher

CLI = Path(usher.__file__).parent / "cli"
# What others wrote is loaded once; what is ours by each anew.
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


def late(path: Path) -> set[str]:
    """The modules of ours that the functions of a file import."""
    functions = [
        one
        for one in ast.walk(ast.parse(path.read_text()))
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    found = {
        one.module
        for function in functions
        for one in ast.walk(function)
        if isinstance(one, ast.ImportFrom) and one.module
    }
    return {name for name in found if name.partition(".")[0] == "usher"}


def test_what_commands_import_late_can_be_loaded_first() -> None:
    names = sorted(set().union(*map(late, CLI.rglob("*.py"))))
    assert len(names) > 20
    done = subprocess.run(
        [sys.executable, "-c", LOADS, *names], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
