"""Help pages: commands in groups, each with its whole first sentence."""

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import click


class HelpGroup(click.Group):
    """A group whose help shows the whole first sentence of every command, where click cuts it off."""

    sections: ClassVar[
        Mapping[str, Sequence[str]]
    ] = {}  # of the help page; without any there is one

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = self.sections or {"Commands": self.list_commands(ctx)}
        for title, names in sections.items():
            if rows := list(self._rows(ctx, names)):
                with formatter.section(title):
                    formatter.write_dl(rows)

    def _rows(self, ctx: click.Context, names: Iterable[str]) -> Iterable[tuple[str, str]]:
        for name in names:
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                yield name, first_sentence(command.help or "")


def first_sentence(text: str) -> str:
    paragraph = inspect.cleandoc(text).partition("\n\n")[0]
    joined = " ".join(paragraph.replace("\b", "").split())
    return re.split(r"(?<=[.?!]) ", joined)[0].removesuffix(".")
