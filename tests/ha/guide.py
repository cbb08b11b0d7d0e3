"""The commands of docs/high-availability.md: a comment before each block says what to do with it.

`<!-- ha: run pg1 pg2 -->` names the machines that run it. `<!-- ha: set -->` sets variables for all later blocks; a
line that ends with "# on NAME" is for that machine. `<!-- ha: see -->` is the output of the block before it; "…" stands
for anything. `<!-- ha: faster pg1 -->` is optional: the bounded run adds it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "high-availability.md"
BLOCK = re.compile(r"<!-- ha: (set|run|see|faster)((?: \w+)*) -->\n```\w*\n(.*?)```", re.DOTALL)
OWN_LINE = re.compile(r"#\s+on (\w+)$")


@dataclass(frozen=True, slots=True)
class Block:
    """One block to run or to set; `shown` is what its last machine must then print."""

    kind: str
    machines: Sequence[str]
    text: str
    shown: str = ""

    def for_machine(self, name: str) -> str:
        """Return the lines that a machine runs: without those of other machines."""
        lines = []
        for line in self.text.splitlines():
            found = OWN_LINE.search(line)
            if found is None or found[1] == name:
                lines.append(line)
        return "\n".join(lines) + "\n"


def blocks(page: Path = PAGE) -> list[Block]:
    """Return the blocks of the page in their order."""
    result: list[Block] = []
    for kind, names, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "see":
            result[-1] = replace(result[-1], shown=text)
        else:
            result.append(Block(kind, names.split(), text))
    return result


def missing_lines(documented: str, output: str) -> list[str]:
    """Return the documented lines that the output lacks; the widths of columns may differ."""
    shown = [spaced(line) for line in output.splitlines()]
    return [
        line
        for line in documented.splitlines()
        if line and not any(re.fullmatch(pattern(line), candidate) for candidate in shown)
    ]


def pattern(line: str) -> str:
    return re.escape(spaced(line)).replace("…", ".*")


def spaced(line: str) -> str:
    return " ".join(re.sub(r"-+", "-", line).split())
