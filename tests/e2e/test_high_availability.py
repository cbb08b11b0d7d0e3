"""The commands of docs/high-availability.md are complete; `make ha` runs them and kills the primary."""

from ha.guide import blocks, missing_lines


def test_the_page_has_commands_for_every_machine() -> None:
    named = {name for block in blocks() for name in block.machines}
    assert named == {"pg1", "pg2", "etcd3", "control1", "control2", "lb"}
    assert sum(bool(block.shown) for block in blocks()) >= 3
    assert sum(block.kind == "faster" for block in blocks()) == 1


def test_output_differs_only_in_spaces_and_dots() -> None:
    shown = "+--+\n| a   | 1 |\n"
    assert missing_lines("+-----+\n| a | … |\n", shown) == []
    assert missing_lines("| b | … |\n", shown) == ["| b | … |"]
