"""The man pages of scripts/man_pages.py: one for each command, with all of its options, and without warnings."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from usher.cli.main import root

TREE = Path(__file__).parents[2]
FORMATTERS = {
    "groff": ["groff", "-man", "-Tutf8", "-ww", "-k", "-z"],
    "man": ["man", "--warnings=w", "-l", "-Tutf8"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man")
    command = [sys.executable, str(TREE / "scripts" / "man_pages.py"), str(folder)]
    subprocess.run(command, check=True, cwd=folder)
    return folder


def commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Every command that the help lists, with its whole name."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if not command.hidden:
            below = click.Context(command, parent=context, info_name=name)
            yield below.command_path, command
            if isinstance(command, click.Group):
                yield from commands(command, below)


COMMANDS = dict(commands(root, click.Context(root, info_name="usher", **root.context_settings)))


def shown(page: Path) -> str:
    """The page as a reader sees it, on one line."""
    done = subprocess.run(
        ["groff", "-man", "-Tascii", "-P-cbou", "-k", "-rLL=300n", str(page)],
        check=True,
        capture_output=True,
        text=True,
    )
    return " ".join(done.stdout.split())


def test_every_command_has_a_page(folder: Path) -> None:
    names = {path.replace(" ", "-") for path in COMMANDS if path.count(" ") == 1}
    assert {page.name for page in folder.iterdir()} == {f"{name}.1" for name in names | {"usher"}}


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_pages_show_every_command_and_option(folder: Path) -> None:
    pages = {page.stem: shown(page) for page in folder.iterdir()}
    for path, command in COMMANDS.items():
        page = pages["-".join(path.split()[:2])]
        assert f" {path} " in page
        for param in command.params:
            for option in param.opts if isinstance(param, click.Option) else ():
                assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", page), (path, option)
    assert " 6 the schema" in pages["usher"]
    assert " USHER_DATA " in pages["usher"]
    assert " DATABASE_URL " in pages["usher"]


@pytest.mark.parametrize("program", FORMATTERS)
def test_formatters_have_no_warnings(folder: Path, program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    command = [*FORMATTERS[program], *map(str, sorted(folder.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
