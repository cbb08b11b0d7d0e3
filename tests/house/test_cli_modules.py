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


def used_actions(path: Path) -> list[str]:
    """The modules that a command module uses, as in `actions.hosts.find_hosts`."""
    nodes = [
        node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)
    ]
    return [
        node.attr
        for node in nodes
        if isinstance(node.value, ast.Name) and node.value.id == "actions"
    ]


@pytest.mark.parametrize("name", ACTIONS)
def test_an_actions_module_has_a_command_module_of_its_first_word(name: str) -> None:
    assert name.partition("_")[0] in COMMANDS


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_module_uses_only_its_own_actions(name: str) -> None:
    modules = used_actions(CLI / "commands" / f"{name}.py")
    assert [module.partition("_")[0] for module in modules] == [name] * len(modules)


def test_the_stub_of_the_actions_names_every_module() -> None:
    stub = ast.parse((CLI / "actions" / "__init__.pyi").read_text())
    names = [
        alias.name for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assert names == ACTIONS


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
