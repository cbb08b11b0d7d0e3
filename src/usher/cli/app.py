"""Shared by all commands: the settings, output as fields, tables and JSON, and running async functions."""

import json
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from usher.cli.output import echo, style
from usher.settings import LoadedSettings, Settings, load
from usher.terminal import escape_controls

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
Service = Callable[["asyncio.Event"], Coroutine[Any, Any, None]]
Command = Callable[..., Any]
FIELD_WIDTH = 12  # characters of the longest field name and a space
GC_THRESHOLD = (
    20_000  # new objects between two collections; Python's 700 cost a search 4 % of its time
)


@dataclass
class App:
    """The options of the root command; the settings are loaded on first use."""

    config: Path | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    quiet: bool = False

    @cached_property
    def loaded(self) -> LoadedSettings:
        from usher.telemetry import set_up_logging

        loaded = load(os.environ, config=self.config, overrides=self.overrides)
        # A command reports its result itself. Only a service logs by default.
        chosen = loaded.origins["log_level"] != "default"
        level = loaded.settings.log_level if chosen else "warning"
        set_up_logging(level=level, form=loaded.settings.log_format)
        return loaded

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    def settings_for(self, mgmt: str | None) -> Settings:
        """The settings, with another address of MGMT if one is given."""
        return replace(self.settings, mgmt_url=mgmt) if mgmt else self.settings

    def say(self, message: str) -> None:
        """Print a message to stderr unless --quiet is set."""
        if not self.quiet:
            echo(message, err=True)


def run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(work)


def run_service(app: App, work: Coroutine[Any, Any, None]) -> None:
    """Run a service until it ends, with logging and with uvloop where it is installed."""
    import asyncio
    import gc

    from usher.telemetry import set_up_logging

    loops: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ImportError):  # uvloop does not support every platform
        import uvloop

        loops = uvloop.new_event_loop
    set_up_logging(level=app.settings.log_level, form=app.settings.log_format)
    gc.set_threshold(GC_THRESHOLD)
    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(work)


def run_until_stopped(app: App, service: Service) -> None:
    """Run a service until a signal stops it; a second signal cancels it."""
    import asyncio

    from usher.shutdown import stop_events

    async def work() -> None:
        with stop_events() as (stop, now):
            task = asyncio.create_task(service(stop))
            cancelled = asyncio.create_task(now.wait())
            await asyncio.wait([task, cancelled], return_when=asyncio.FIRST_COMPLETED)
            cancelled.cancel()
            if not task.done():
                task.cancel()
            await asyncio.gather(task, return_exceptions=now.is_set())

    run_service(app, work())


def show_json(value: object) -> None:
    echo(json.dumps(value, indent=2, default=str, ensure_ascii=False))


def show_field(name: str, *lines: str) -> None:
    """Print lines under a name, which stands before the first."""
    for number, line in enumerate(lines):
        echo(f"{name if number == 0 else '':<{FIELD_WIDTH}}{line}")


def show_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    for line in table_lines(headings, rows):
        echo(line)


def table_lines(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Aligned columns; the last one is not padded."""
    table = [list(map(str, row)) for row in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for number, row in enumerate(table):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        line = "  ".join(cells).rstrip()
        yield style(line, bold=True) if number == 0 else line


def show_more(app: App, rows: Sequence[object], limit: int, after: object) -> None:
    """Name the option for the next page if this page is full."""
    if rows and len(rows) >= limit:
        app.say(f"  → more may follow: --after {after}")


def confirm(question: str, *, yes: bool) -> None:
    """Ask before data is lost; without a terminal --yes is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Add --yes to confirm without a terminal.")
    click.confirm(escape_controls(question), abort=True, err=True)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
limit_option = click.option(
    "--limit", default=100, show_default=True, type=click.IntRange(1, 100_000), help="Rows to show."
)
mgmt_option = click.option("--mgmt", metavar="URL", help="Address of MGMT (also USHER_MGMT_URL).")
host_option = click.option(
    "--host", default="", metavar="HOST:PORT", help="Address for other machines, if not --bind."
)
pass_app = click.make_pass_decorator(App, ensure=True)


def bind_option(default: str, text: str) -> Command:
    return click.option(
        "--bind", default=default, show_default=True, metavar="HOST:PORT", help=text
    )


def with_options(*options: Command) -> Command:
    """Add several options to a command, in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
