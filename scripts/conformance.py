"""Prints docs/conformance.md: every statement of the seed documents with the tests that cover it.

Run `make conformance` after a change of a `seed` marker or of tests/conformance/statements.toml. The exit code is 1 if
a marker names an unknown statement, or if a statement is neither covered nor explained.
"""

import ast
import sys
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STATEMENTS = ROOT / "tests" / "conformance" / "statements.toml"
TITLES = {
    "000": "MGMT's database",
    "001": "MGMT's endpoints",
    "002": "Ssscrape's schemas",
    "003": "The work database",
    "004": "The doorkeeper",
}
HEADER = """# Conformance with the seed documents

Usher fulfils five documents, the seeds. This page lists each of their statements in short words, and the tests that
fail if Usher violates it. Where a statement cannot be tested, or where its meaning differs here, the page gives the
reason.

`make conformance` writes this page from `tests/conformance/statements.toml` and the markers `@pytest.mark.seed(…)` of
the tests. A test of the project fails when the page is out of date, when a marker names an unknown statement, and when
a statement has neither a test nor an explanation.
"""


@dataclass(frozen=True)
class Statement:
    """One statement of a seed; `explained` is empty if its tests say everything."""

    id: str
    section: str
    text: str
    explained: str = ""
    tests: list[str] = field(default_factory=list)

    @property
    def seed(self) -> str:
        return self.id.partition(".")[0]


def main() -> int:
    statements = read(STATEMENTS)
    problems = cover(statements, ROOT / "tests")
    print(HEADER + summary(statements.values()))
    for seed, group in groupby(statements.values(), key=lambda statement: statement.seed):
        print(
            f"\n## Seed {seed}: {TITLES[seed]}\n\n| no. | section | statement | covered by |\n|---|---|---|---|"
        )
        for statement in group:
            print(row(statement))
    problems += [f"{number} is neither covered nor explained" for number in uncovered(statements)]
    for problem in problems:
        print(f"conformance: {problem}.", file=sys.stderr)
    return 1 if problems else 0


def read(file: Path) -> dict[str, Statement]:
    """Read the statements by their ids; ValueError if an id is there twice."""
    statements: dict[str, Statement] = {}
    for values in tomllib.loads(file.read_text(encoding="utf-8"))["statement"]:
        statement = Statement(**values)
        if statement.id in statements:
            raise ValueError(f"{statement.id} is there twice")
        statements[statement.id] = statement
    return statements


def cover(statements: dict[str, Statement], tests: Path) -> list[str]:
    """Add to each statement the tests that are marked with it; return what is wrong with the markers."""
    problems = []
    for file in sorted(tests.rglob("test_*.py")):
        for test, numbers in markers(file):
            name = f"{file.relative_to(tests.parent).as_posix()}::{test}"
            if not numbers or not test.startswith("test_"):
                problems.append(f"the marker of {name} names no statement, or marks no test")
                continue
            for number in numbers:
                if number in statements:
                    statements[number].tests.append(name)
                else:
                    problems.append(f"{name} covers {number}, which is not in {STATEMENTS.name}")
    return problems


def markers(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each test of a file that has the marker `seed`, and the ids that the marker names."""
    text = file.read_text(encoding="utf-8")
    if ".seed(" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                match decorator:
                    case ast.Call(func=ast.Attribute(attr="seed"), args=args):
                        yield node.name, [ast.literal_eval(arg) for arg in args]


def uncovered(statements: dict[str, Statement]) -> list[str]:
    """Return the ids of the statements that need a test or an explanation."""
    return [key for key, value in statements.items() if not value.tests and not value.explained]


def summary(statements: Collection[Statement]) -> str:
    """State how many statements are covered and how many are only explained."""
    covered = sum(bool(statement.tests) for statement in statements)
    explained = len(statements) - covered
    return f"\n{len(statements)} statements: {covered} covered by tests, {explained} explained without."


def row(statement: Statement) -> str:
    cells = [f"`{test}`" for test in statement.tests] + [statement.explained] * bool(
        statement.explained
    )
    return f"| {statement.id} | {statement.section} | {statement.text} | {'<br>'.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
