"""What every command shares: the settings in force, how to speak, how to run async work."""

import json
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import click

from usher.cli.output import echo, style
from usher.settings import Loaded, Settings, load
from usher.terminal import escaped

T = TypeVar("T")
FIELD_WIDTH = 10  # of names before what is told
GC_THRESHOLD = 20_000  # objects before Python looks for rings among them; its own 700 cost a search 4 % of its time


@dataclass
class App:
    """The root command's options; settings are read when a command first asks for them."""

    config: Path | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    quiet: bool = False

    @cached_property
    def loaded(self) -> Loaded:
        from usher.telemetry import set_up_logging

        loaded = load(os.environ, config=self.config, overrides=self.overrides)
        # A command that ends speaks for itself; only what runs on logs how it fares, unless told.
        told = loaded.origins["log_level"] != "default"
        level = loaded.settings.log_level if told else "warning"
        set_up_logging(level=level, form=loaded.settings.log_format)
        return loaded

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    def say(self, words: str) -> None:
        """Talk, for a person: stderr, and not when told to be quiet."""
        if not self.quiet:
            echo(words, err=True)


def run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(work)


def run_service(app: App, work: Coroutine[Any, Any, None]) -> None:
    """An actor until it ends, with its log on, in the faster event loop where that is installed."""
    import asyncio
    import gc

    from usher.telemetry import set_up_logging

    loops: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ImportError):  # not on every platform
        import uvloop

        loops = uvloop.new_event_loop
    set_up_logging(level=app.settings.log_level, form=app.settings.log_format)
    gc.set_threshold(GC_THRESHOLD)
    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(work)


def show_json(value: object) -> None:
    echo(json.dumps(value, indent=2, default=str, ensure_ascii=False))


def show_field(name: str, *lines: str) -> None:
    """Lines about something that has a name, which stands before the first."""
    for number, line in enumerate(lines):
        echo(f"{name if number == 0 else '':<{FIELD_WIDTH}}{line}")


def show_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as they must be; the last one runs on."""
    table = [list(map(str, row)) for row in (headings, *rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(headings))]
    for number, row in enumerate(table):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        line = "  ".join(cells).rstrip()
        echo(style(line, bold=True) if number == 0 else line)


def confirm(question: str, *, yes: bool) -> None:
    """Ask a person before something is lost; without a terminal only --yes goes on."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Add --yes to go on without a terminal.")
    click.confirm(escaped(question), abort=True, err=True)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
pass_app = click.make_pass_decorator(App, ensure=True)
