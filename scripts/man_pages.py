"""Writes the man pages into build/man/man1: usher.1 and one page for each command or group, from the commands' help."""

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from usher import __version__
from usher.cli.help import first_sentence
from usher.cli.main import COMMAND_SECTIONS, root
from usher.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "man" / "man1"
EXIT_CODE = re.compile(r"^\| (\d+) \| (.+) \|$", re.MULTILINE)
VERBATIM_MARK = "\b"  # click's mark of a paragraph that is not wrapped
FILES = {
    "usher.toml": "settings of the present directory; else those of the user, then /etc/usher/usher.toml",
    "/var/lib/usher": "the data directory if root runs Usher; usher settings shows that of other users",
}


def write_pages(folder: Path) -> list[Path]:
    """Write every page; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    context = click.Context(root, info_name="usher", **root.context_settings)
    pages = {"usher": root_page(context)}
    for command in visible(root, context):
        below = click.Context(command, parent=context, info_name=command.name)
        pages[page_name(below)] = command_page(command, below)
    files = []
    for name, lines in pages.items():
        files.append(folder / f"{name}.1")
        files[-1].write_text("\n".join(lines) + "\n", "utf-8")
    return files


def visible(group: click.Group, context: click.Context) -> Iterator[click.Command]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and not command.hidden:
            yield command


def page_name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


# -- pages


def root_page(context: click.Context) -> Iterator[str]:
    yield from heading("usher", first_sentence(root.help or ""))
    yield from synopsis(root, context)
    yield ".SH DESCRIPTION"
    yield from description(root)
    yield ".SH OPTIONS"
    yield from options(root, context)
    for title, names in COMMAND_SECTIONS.items():
        commands = [command for command in visible(root, context) if command.name in names]
        yield f'.SH "{title.upper()}"'
        for command in commands:
            below = click.Context(command, parent=context, info_name=command.name)
            yield from term(
                f"{bold(page_name(below))}(1)", first_sentence(command.help or "") + "."
            )
    yield ".SH ENVIRONMENT"
    for field in dataclasses.fields(Settings):
        if help_text := field.metadata.get("help"):
            yield from term(bold(variable(field.name)), help_text)
    yield ".SH FILES"
    for name, text in FILES.items():
        yield from term(italic(name), text)
    yield from exit_status()


def command_page(command: click.Command, context: click.Context) -> Iterator[str]:
    yield from heading(page_name(context), first_sentence(command.help or ""))
    yield from synopsis(command, context)
    yield ".SH DESCRIPTION"
    yield from description(command)
    if command.get_params(context):
        yield ".SH OPTIONS"
        yield from options(command, context)
    if isinstance(command, click.Group):
        yield ".SH COMMANDS"
        for each in visible(command, context):
            below = click.Context(each, parent=context, info_name=each.name)
            yield from subcommand(each, below)
    yield from exit_status()
    yield ".SH SEE ALSO"
    yield f".BR {text('usher')} (1)"


def subcommand(command: click.Command, context: click.Context) -> Iterator[str]:
    """The section of a command of a group, and of the commands below it."""
    yield f'.SS "{text(context.command_path)}"'
    yield usage(command, context)
    yield ".PP"
    yield from description(command)
    yield from options(command, context)
    if isinstance(command, click.Group):
        for each in visible(command, context):
            yield from subcommand(each, click.Context(each, parent=context, info_name=each.name))


# -- sections


def heading(name: str, summary: str) -> Iterator[str]:
    # Without a date, so that the same source makes the same page.
    yield f'.TH {text(name.upper())} 1 "" "Usher {__version__}" "Usher"'
    yield ".SH NAME"
    yield f"{text(name)} \\- {text(summary)}"


def synopsis(command: click.Command, context: click.Context) -> Iterator[str]:
    yield ".SH SYNOPSIS"
    yield usage(command, context)


def usage(command: click.Command, context: click.Context) -> str:
    pieces = " ".join(map(italic, command.collect_usage_pieces(context)))
    return f"{bold(context.command_path)} {pieces}".strip()


def description(command: click.Command) -> Iterator[str]:
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    for number, paragraph in enumerate(paragraphs):
        if number:
            yield ".PP"
        if paragraph.startswith(VERBATIM_MARK):
            yield from [".nf", *map(line, paragraph.split("\n")[1:]), ".fi"]
        else:
            yield line(" ".join(paragraph.split()))


def options(command: click.Command, context: click.Context) -> Iterator[str]:
    for param in command.get_params(context):
        if (record := param.get_help_record(context)) and record[0].startswith("-"):
            yield from term(bold(record[0]), record[1])


def exit_status() -> Iterator[str]:
    """The table of docs/cli.md."""
    table = (ROOT / "docs" / "cli.md").read_text("utf-8").partition("## Exit codes")[2]
    yield ".SH EXIT STATUS"
    for code, meaning in EXIT_CODE.findall(table.partition("\n## ")[0]):
        yield from term(bold(code), meaning)


# -- roff


def term(name: str, meaning: str) -> Iterator[str]:
    yield from (".TP", name, line(meaning))


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return "DATABASE_URL" if name == "database_url" else f"USHER_{name.upper()}"


def line(words: str) -> str:
    """A line of text: a dot or a quote at its beginning is no request."""
    escaped = text(words)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def text(words: str) -> str:
    escaped = words.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return (
        escaped.replace("`", "\\(ga")
        .replace("^", "\\(ha")
        .replace("~", "\\(ti")
        .replace('"', "\\(dq")
    )


def bold(words: str) -> str:
    return f"\\fB{text(words)}\\fR"


def italic(words: str) -> str:
    return f"\\fI{text(words)}\\fR"


if __name__ == "__main__":
    written = write_pages(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
    print(f"{len(written)} man pages in {written[0].parent}")
