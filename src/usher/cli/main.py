"""The root command: global options, the module of each command, and exit codes for errors."""

import errno
import importlib
import io
import os
import sys
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import click

from usher import __version__
from usher.cli.app import App
from usher.cli.help import HelpGroup
from usher.cli.output import echo
from usher.errors import UsherError

# Command name → module and attribute in usher.cli.commands, in the sections of the help page; imported when called.
COMMAND_SECTIONS = {
    "Crawl and search": {
        "crawl": "local:crawl",
        "up": "local:up",
        "search": "search:search",
        "demo": "local:demo",
        "add": "add:add",
        "fetch": "crawler:fetch",
    },
    "See what happens": {
        "status": "status:status",
        "console": "console:console",
        "explain": "explain:explain",
        "pages": "pages:pages",
        "doctor": "system:doctor",
        "stats": "stats:stats",
    },
    "Keep data safe": {
        "backup": "backup:backup",
    },
    "Manage sites and feeds": {
        "hosts": "hosts:hosts",
        "remove": "remove:remove",
        "feeds": "feeds:feeds",
        "items": "items:items",
        "settings": "system:settings",
    },
    "Run programs": {
        "jobs": "jobs:jobs",
        "tasks": "tasks:tasks",
        "resources": "resources:resources",
    },
    "Operate several machines": {
        "components": "components:components",
        "chunks": "chunks:chunks",
        "tokens": "tokens:tokens",
        "db": "db:db",
    },
    "Roles, one process each": {
        "mgmt": "services:mgmt",
        "watchdog": "watchdog:watchdog",
        "crawler": "crawler:crawler",
        "builder": "index:builder",
        "index-server": "index:index_server",
        "front": "search:front",
        "scheduler": "services:scheduler",
        "manager": "services:manager",
    },
    "Other": {
        "domain64": "domain64:domain64",
        "bench": "bench:bench",
        "completion": "system:completion",
        "version": "system:version",
        "role-process": "local:role_process",
    },
}
COMMANDS = {
    name: module for section in COMMAND_SECTIONS.values() for name, module in section.items()
}
INTERRUPTED = 130
MAX_HELP_COLUMNS = 100  # on a terminal that is as wide
# Words that people type because other programs have such a command.
UNKNOWN_COMMANDS = {
    "help": "Type `usher --help`, or `usher COMMAND --help`.",
    "stop": "Press Ctrl-C in the terminal where Usher runs, or send TERM to its process.",
    "start": "Type `usher up`.",
}

HELP = """Crawl web sites and search them, on this machine or on many.

\b
Examples:
  usher crawl https://example.com/     crawl a site, then search it
  usher up                             serve the search page and keep the sites fresh
  usher search fog signals             search from the terminal
  usher pages errors                   pages that could not be fetched, by kind
  usher explain https://example.com/   what happened to a page: is it searchable?
  usher status                         what runs, what waits, what is wrong
  usher doctor                         check this installation

Without DATABASE_URL, Usher starts its own PostgreSQL in the data directory.
"""


class LazyGroup(HelpGroup):
    """A group that imports a command only when it is called or listed."""

    sections: ClassVar = {title: list(names) for title, names in COMMAND_SECTIONS.items()}

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute = COMMANDS[name].split(":")
        imported = importlib.import_module(f"usher.cli.commands.{module}")
        command: click.Command = getattr(imported, attribute)
        return command

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - what a command returns
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise misplaced_option(error, self) or error from None
        except UsherError as error:
            if isinstance(ctx.obj, App):
                name_full_disk(ctx.obj, error)
                error.hint = ctx.obj.hint(error.hint)
            raise
        except OSError as error:
            if error.errno == errno.ENOSPC and isinstance(ctx.obj, App):
                raise full_disk_error(ctx.obj, error) from error
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:  # click knows only imported commands
            if advice := UNKNOWN_COMMANDS.get(error.command_name):
                raise click.UsageError(f"{error.message} {advice}", ctx=ctx) from None
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=COMMANDS, ctx=ctx
            ) from None


def misplaced_option(error: click.NoSuchOption, group: click.Group) -> click.UsageError | None:
    """The error for an option of the root command that was given after the command; None for any other option."""
    for option in group.params:
        if error.option_name in option.opts and error.ctx is not None:
            name = error.option_name
            given = (
                name
                if getattr(option, "is_flag", False)
                else f"{name} {option.make_metavar(error.ctx)}"
            )
            command = error.ctx.command_path.removeprefix("usher ")
            words = f"{name} goes before the command: usher {given} {command} …"
            return click.UsageError(words, ctx=error.ctx)
    return None


@click.group(
    cls=LazyGroup,
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": MAX_HELP_COLUMNS},
)
@click.option(
    "--config", type=click.Path(path_type=Path), help="Settings file to use instead of usher.toml."
)
@click.option("--data", type=click.Path(path_type=Path), help="Data directory (also USHER_DATA).")
@click.option(
    "--log-file", metavar="FILE", help="File for the log of a service, instead of stderr."
)
@click.option("-v", "--verbose", is_flag=True, help="Log at level debug.")
@click.version_option(__version__, message="usher %(version)s", help="Show the version.")
@click.option("-q", "--quiet", is_flag=True, help="Print only data and errors.")
@click.pass_context
def root(
    ctx: click.Context,
    config: Path | None,
    data: Path | None,
    log_file: str | None,
    *,
    verbose: bool,
    quiet: bool,
) -> None:
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    overrides = {
        "data": data,
        "log_file": log_file,
        "log_level": "debug" if verbose else "warning" if quiet else None,
    }
    ctx.obj = App(config, {name: value for name, value in overrides.items() if value}, quiet)


def main() -> NoReturn:
    """Run the command line and exit with the code that docs/cli.md lists."""
    try:
        code = root.main(prog_name="usher", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        exit_with("interrupted", code=INTERRUPTED)
    except click.ClickException as error:
        text = io.StringIO()
        error.show(text)
        echo(text.getvalue(), err=True, nl=False)
        sys.exit(error.exit_code)
    except UsherError as error:
        exit_with(error.message, error.hint, code=error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output is gone
        sys.exit(1)
    except OSError as error:
        exit_with(f"{error.filename or 'the system'}: {error.strerror}.")
    except Exception as error:
        translated = database_error(error)
        if translated is None:
            raise
        exit_with(translated.message, translated.hint, code=translated.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def name_full_disk(app: App, error: UsherError) -> None:
    """If a full disk stops the embedded database, let the error say so, as `usher status` does."""
    from usher.errors import ServerNotStarted

    if isinstance(error, ServerNotStarted):
        from usher.observe.causes import database_cause

        cause = database_cause(error, app.settings)
        error.message, error.hint = cause.words, cause.next_step


def full_disk_error(app: App, error: OSError) -> UsherError:
    from usher.observe.causes import disk_cause, disk_step

    data = app.settings.data
    cause = disk_cause(data)
    message = cause.words if cause else f"{error.filename or 'the disk'}: {error.strerror}."
    return UsherError(message, hint=disk_step(data))


def database_error(error: Exception) -> UsherError | None:
    """A database error as ours; None for a bug, which stays a traceback."""
    if "psycopg" not in sys.modules:
        return None
    from usher.db.pool import CONFLICT_ERRORS, translated_error
    from usher.errors import Unreachable

    if isinstance(error, CONFLICT_ERRORS):
        reason = f"Another transaction blocked this one: {error.diag.message_primary}."
        return Unreachable(reason, hint="Run the command again.")
    return translated_error("the database", error)


def exit_with(message: str, hint: str = "", *, code: int = 1) -> NoReturn:
    echo(f"usher: {message}", err=True)
    if hint:
        echo(f"  → {hint}", err=True)
    sys.exit(code)
