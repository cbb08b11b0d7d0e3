"""The only way to the terminal: every command prints with `echo`, which escapes all text that is not our own style.

Ruff refuses `click.echo` and `click.style` elsewhere, so no command can forget it.
"""

import secrets
from typing import Final

import click

from usher.terminal import escape_controls

# Marks our own sequences in a text until it is printed. The number is random, so no page can write the mark.
_MARK: Final = f"\x1b{secrets.token_hex(8)}"
CLEAR_SCREEN: Final = f"{_MARK}H{_MARK}J"  # cursor to the first line, then clear to the end


def echo(text: str | int = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text, escaped; styles and `CLEAR_SCREEN` stay."""
    first, *rest = str(text).split(_MARK)
    shown = [escape_controls(first), *(f"\x1b[{escape_controls(part)}" for part in rest)]
    click.echo("".join(shown), err=err, nl=nl)


def style(text: str, *, fg: str | None = None, bold: bool = False, dim: bool = False) -> str:
    """A text that `echo` prints in this style; without a terminal `echo` prints the text alone."""
    styled = click.style(escape_controls(text), fg=fg, bold=bold or None, dim=dim or None)
    return styled.replace("\x1b[", _MARK)
