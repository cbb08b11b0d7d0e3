"""The table "attack → result" names every finding of the security review, and only attacks that were tried."""

import ast
from pathlib import Path

HERE = Path(__file__).parent
FINDINGS = set(range(1, 13))


def attacks() -> list[tuple[int, str]]:
    """The finding and the words of every `attack` marker in this package."""
    found = []
    for file in sorted(HERE.glob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="attack"),
                    args=[ast.Constant(int(finding)), ast.Constant(str(attempt)), ast.Constant()],
                ):
                    found.append((finding, attempt))
    return found


def test_every_finding_has_attacks_and_none_is_listed_twice() -> None:
    listed = attacks()
    assert len(listed) == len(set(listed))
    assert {finding for finding, _ in listed} == FINDINGS
