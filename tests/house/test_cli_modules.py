"""Commands and actions have the same names, and commands contain no implementation."""

import ast
import re
from pathlib import Path

import pytest

import usher.cli

CLI = Path(usher.cli.__file__).parent
COMMANDS = {path.stem for path in (CLI / "commands").glob("[a-z]*.py")}
ACTIONS = sorted(path.stem for path in (CLI / "actions").glob("[a-z]*.py"))
SQL = re.compile(r"\b(select .+ from|insert into|update .+ set|delete from)\b", re.IGNORECASE)


def imports(path: Path) -> list[ast.ImportFrom]:
    tree = ast.parse(path.read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]


@pytest.mark.parametrize("name", ACTIONS)
def test_an_actions_module_has_a_command_module_of_its_first_word(name: str) -> None:
    assert name.partition("_")[0] in COMMANDS


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_module_uses_only_its_own_actions(name: str) -> None:
    for node in imports(CLI / "commands" / f"{name}.py"):
        if node.module == "usher.cli.actions":
            modules = [alias.name for alias in node.names]
        elif node.module and node.module.startswith("usher.cli.actions."):
            modules = [node.module.rpartition(".")[2]]
        else:
            continue
        assert [module.partition("_")[0] for module in modules] == [name] * len(modules)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_module_has_no_sql_and_opens_no_database_when_it_is_imported(name: str) -> None:
    path = CLI / "commands" / f"{name}.py"
    tree = ast.parse(path.read_text())
    docstrings = {
        ast.get_docstring(node, clean=False)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.FunctionDef))
    }
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    assert not [
        text
        for text in texts
        if isinstance(text, str) and text not in docstrings and SQL.search(text)
    ]
    top = [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert not [module for module in top if module.startswith(("usher.db", "usher.cli.actions"))]
