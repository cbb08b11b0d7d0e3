"""The root command: global options, the module of each command, and exit codes for errors."""

import importlib
import io
import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from usher.cli.app import App
from usher.cli.output import echo
from usher.errors import UsherError

# Command name → module and attribute, in the order of the help page; imported when called.
COMMANDS = {
    "add": "usher.cli.commands.add:add",
    "explain": "usher.cli.commands.explain:explain",
    "status": "usher.cli.commands.status:status",
    "search": "usher.cli.commands.search:search",
    "feeds": "usher.cli.commands.feeds:feeds",
    "items": "usher.cli.commands.items:items",
    "hosts": "usher.cli.commands.hosts:hosts",
    "domain64": "usher.cli.commands.domain64:domain64",
    "jobs": "usher.cli.commands.jobs:jobs",
    "tasks": "usher.cli.commands.tasks:tasks",
    "resources": "usher.cli.commands.resources:resources",
    "components": "usher.cli.commands.components:components",
    "chunks": "usher.cli.commands.chunks:chunks",
    "tokens": "usher.cli.commands.tokens:tokens",
    "stats": "usher.cli.commands.stats:stats",
    "doctor": "usher.cli.commands.system:doctor",
    "settings": "usher.cli.commands.system:settings",
    "version": "usher.cli.commands.system:version",
    "crawl": "usher.cli.commands.local:crawl",
    "up": "usher.cli.commands.local:up",
    "demo": "usher.cli.commands.local:demo",
    "role-process": "usher.cli.commands.local:role_process",
    "fetch": "usher.cli.commands.crawler:fetch",
    "crawler": "usher.cli.commands.crawler:crawler",
    "builder": "usher.cli.commands.index:builder",
    "index-server": "usher.cli.commands.index:index_server",
    "front": "usher.cli.commands.search:front",
    "mgmt": "usher.cli.commands.services:mgmt",
    "watchdog": "usher.cli.commands.watchdog:watchdog",
    "manager": "usher.cli.commands.services:manager",
    "scheduler": "usher.cli.commands.services:scheduler",
    "db": "usher.cli.commands.db:db",
    "bench": "usher.cli.commands.bench:bench",
    "completion": "usher.cli.commands.system:completion",
}
INTERRUPTED = 130

HELP = """Usher runs a crawl from the front door to the search page.

\b
Examples:
  usher crawl https://example.com/ crawl a site and serve its search page
  usher add https://example.com/   ask the door to admit a page
  usher add --full --pass nasa.gov crawl a whole host now
  usher explain example.com        what happened to a URL, and is it searchable?
  usher status                     every stage, and what blocks it
  usher hosts list --due           hosts that are due for a crawl
  usher feeds add https://example.com/
                                   subscribe to the feed of a site
  usher jobs list --summary        jobs by state, now and in the last day
  usher tasks add --hour 2 -- usher hosts recrawl --due
                                   recrawl due hosts every night
  usher components list            components, their health and their chunks
  usher doctor                     check this installation
  usher settings                   every setting, its value and its origin
  usher db status                  the version of each schema
  usher db dump backup             back up all schemas to the directory 'backup'
  DATABASE_URL=postgresql://… usher db migrate
                                   use your own PostgreSQL

Without DATABASE_URL Usher starts an embedded PostgreSQL in the data directory.
"""


class LazyGroup(click.Group):
    """A group that imports a command only when it is called or listed."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute = COMMANDS[name].split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.group(cls=LazyGroup, help=HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config", type=click.Path(path_type=Path), help="Settings file to use instead of usher.toml."
)
@click.option("--data", type=click.Path(path_type=Path), help="Data directory (also USHER_DATA).")
@click.option("-v", "--verbose", is_flag=True, help="Log at level debug.")
@click.option("-q", "--quiet", is_flag=True, help="Print only data and errors.")
@click.pass_context
def root(
    ctx: click.Context, config: Path | None, data: Path | None, *, verbose: bool, quiet: bool
) -> None:
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    overrides = {
        "data": data,
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
