"""Shared by all commands: the settings, output as fields, tables and JSON, and running async functions."""

import json
import os
import re
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import click

from usher.cli.output import echo, style
from usher.settings import LoadedSettings, Settings, load
from usher.terminal import escape_controls
from usher.wording import record_json

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
Service = Callable[["asyncio.Event"], Coroutine[Any, Any, None]]
Command = Callable[..., Any]
COMMAND_NAME = re.compile(r"(?<![\w./-])usher (?=[a-z])")  # before the name of a command
FIELD_WIDTH = 12  # characters of the longest field name and a space
# New objects between two collections; Python's 700 cost a search 4 % of its time.
GC_THRESHOLD = 20_000


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

    def settings_for(self, mgmt: str | None, **changes: Any) -> Settings:  # noqa: ANN401 - of any field
        """The settings, with another address of MGMT if one is given, and with these changes."""
        if mgmt:
            changes["mgmt_url"] = mgmt
        return replace(self.settings, **changes) if changes else self.settings

    def say(self, message: str) -> None:
        """Print a message to stderr unless --quiet is set."""
        if not self.quiet:
            echo(self.hint(message), err=True)

    def hint(self, text: str) -> str:
        """The text with commands as this user types them: ./usher in a checkout, and --data if it was given."""
        data, program = self.overrides.get("data"), os.environ.get("USHER_COMMAND", "usher")
        option = "" if data is None else f"--data {quote(str(data))} "
        return COMMAND_NAME.sub(lambda _: f"{quote(program)} {option}", text)


def run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(work)


def run_service(app: App, work: Coroutine[Any, Any, None], *, own_log: Path | None = None) -> None:
    """Run a service until it ends, with logging and with uvloop where it is installed.

    With `own_log`, everything that the process writes to stderr goes to that file.
    """
    import asyncio
    import gc

    loops: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ImportError):  # uvloop does not support every platform
        import uvloop

        loops = uvloop.new_event_loop
    start_log(app.settings, own_log)
    gc.set_threshold(GC_THRESHOLD)
    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(with_signs_of_life(work))


def start_log(settings: Settings, own_log: Path | None) -> None:
    """Log to the file of this process, to the file of the settings, or to stderr."""
    from usher.log_file import STANDARD_ERROR, LogFile, LogLimits
    from usher.telemetry import set_up_logging

    limits, stream = LogLimits(settings.log_bytes, settings.log_files), None
    if own_log:
        stream = LogFile(own_log, limits, handle=STANDARD_ERROR)
    elif settings.log_file:
        stream = LogFile(Path(settings.log_file).expanduser(), limits)
    set_up_logging(level=settings.log_level, form=settings.log_format, stream=stream)


async def with_signs_of_life(work: Coroutine[Any, Any, None]) -> None:
    from usher.background import background_tasks
    from usher.systemd import send_signs_of_life
    from usher.telemetry import Log

    async with background_tasks(Log("systemd"), send_signs_of_life()):
        await work


def announce(message: str) -> None:
    """Print that a service is ready, and report it to systemd."""
    from usher.systemd import notify

    echo(message)
    notify("READY=1")


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


def show_list(
    app: App,
    records: Sequence[T],
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    as_json: bool,
    to_json: Callable[[T], object] = record_json,
    limit: int = 0,
    after: str = "",
) -> None:
    """Print records as JSON or as a table, and after a full page the option that shows the next one.

    `after` names the field that the option takes from the last record.
    """
    if as_json:
        show_json([to_json(record) for record in records])
        return
    if not records:
        app.say("The list is empty.")
        return
    show_table(headings, rows)
    if records and after and len(records) >= limit:
        app.say(f"  → more may follow: --after {attrgetter(after)(records[-1])}")


def confirm(question: str, *, yes: bool) -> None:
    """Ask before data is lost; without a terminal --yes is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Add --yes to confirm without a terminal.")
    click.confirm(escape_controls(question), abort=True, err=True)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
mgmt_option = click.option("--mgmt", metavar="URL", help="Address of MGMT (also USHER_MGMT_URL).")
host_option = click.option(
    "--host", default="", metavar="HOST:PORT", help="Address for other machines, if not --bind."
)
pass_app = click.make_pass_decorator(App, ensure=True)
existing_file = click.Path(path_type=Path, exists=True, dir_okay=False)
MAX_ID = 2**63 - 1


class WholeNumber(click.IntRange):
    """A whole number in a range, which help and errors describe in words."""

    name = "whole number"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:  # noqa: ARG002
        return option_metavar(param)

    def _describe_range(self) -> str:
        return range_text(self.min, self.max)


class Number(click.FloatRange):
    """A number in a range, as `WholeNumber`."""

    name = "number"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:  # noqa: ARG002
        return option_metavar(param)

    def _describe_range(self) -> str:
        return range_text(self.min, self.max)


def option_metavar(param: click.Parameter) -> str | None:
    return "N" if isinstance(param, click.Option) else None


def range_text(low: float | None, high: float | None) -> str:
    if high is None or high >= MAX_ID:
        return f"{low or 0:,} or more"
    return f"{low or 0:,} to {high:,}"


def range_option(
    name: str, default: float, low: float, high: float | None, text: str, unit: str = ""
) -> Command:
    """An option for a number from `low` to `high`, whole if its default is; the help shows the default."""
    kind: Any = WholeNumber if isinstance(default, int) else Number
    return click.option(
        name,
        default=default,
        type=kind(low, high),
        show_default=True,
        metavar=unit or "N",
        help=text,
    )


def after_id_option(noun: str) -> Command:
    """The option that starts a list after the record with this number."""
    limits, text = WholeNumber(0, MAX_ID), f"Start after this {noun}."
    return click.option("--after", default=0, type=limits, metavar="ID", help=text)


limit_option = range_option("--limit", 100, 1, 100_000, "Rows to show.")


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
