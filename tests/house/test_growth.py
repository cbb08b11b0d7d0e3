"""docs/growth.md names every table and every module that writes files, with its bound."""

import ast
import re
from pathlib import Path

import usher

PACKAGE = Path(usher.__file__).parent
PAGE = PACKAGE.parents[1] / "docs" / "growth.md"
WRITERS = {"open_file", "write_file", "write_text", "write_bytes"}
WRITE_FLAGS = {"O_WRONLY", "O_RDWR", "O_APPEND", "O_CREAT"}
NOT_FILES = {"queue/runners/job_supervisor"}  # it sets the priority of its own process in /proc


def rows(heading: str) -> list[list[str]]:
    """Return the cells of each row of the table below a heading."""
    part = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def names(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


def writes_files(path: Path) -> bool:
    """Return whether a module calls a function that creates or writes a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        words = {getattr(part, "attr", "") for value in node.args for part in ast.walk(value)}
        if "devnull" in words:
            continue
        modes = {value.value for value in node.args if isinstance(value, ast.Constant)}
        if name in WRITERS or (
            name == "open" and (words & WRITE_FLAGS or modes & {"w", "wb", "a", "ab"})
        ):
            return True
    return False


def test_every_table_has_a_bound() -> None:
    schema = (PACKAGE / "schema" / "schema.sql").read_text(encoding="utf-8")
    tables = set(re.findall(r"^CREATE (?:UNLOGGED )?TABLE (\S+)", schema, re.MULTILINE))
    listed = [name for table, *_ in rows("Tables") for name in names(table)]
    assert len(tables) > 50
    assert sorted(listed) == sorted(tables), "add the table and its bound to docs/growth.md"
    assert all(bound for *_, bound in rows("Tables"))


def test_every_writer_of_files_has_a_bound() -> None:
    modules = {
        path.relative_to(PACKAGE).with_suffix("").as_posix()
        for path in PACKAGE.rglob("*.py")
        if writes_files(path)
    }
    listed = {name for _, writers, _ in rows("Files") for name in names(writers)}
    assert modules - NOT_FILES == listed, "add the file and its bound to docs/growth.md"
    assert all(bound for *_, bound in rows("Files"))
