"""Print to the terminal: `echo` escapes all text except our own styles.

Ruff forbids `click.echo` and `click.style` elsewhere, so that no command prints unescaped text.
"""

import secrets
from datetime import UTC, datetime
from typing import Final

import click

from usher.terminal import escape_controls

# Marks our own escape sequences until the text is printed. The number is random, so a web page cannot forge it.
_MARK: Final = f"\x1b{secrets.token_hex(8)}"
CLEAR_SCREEN: Final = f"{_MARK}H{_MARK}J"  # cursor to the first line, then clear to the end


def echo(text: str | int = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text, escaped; styles and `CLEAR_SCREEN` take effect."""
    first, *rest = str(text).split(_MARK)
    parts = [escape_controls(first), *(f"\x1b[{escape_controls(part)}" for part in rest)]
    click.echo("".join(parts), err=err, nl=nl)


def style(text: str, *, fg: str | None = None, bold: bool = False, dim: bool = False) -> str:
    """A text that `echo` prints in this style on a terminal, and plain elsewhere."""
    styled = click.style(escape_controls(text), fg=fg, bold=bold or None, dim=dim or None)
    return styled.replace("\x1b[", _MARK)


def display_time() -> datetime:
    """The time of this machine, for ages on the screen only; stored times come from the database's clock."""
    return datetime.now(UTC)
