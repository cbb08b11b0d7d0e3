"""The root command: global options, where each command lives, and how errors leave."""

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

# Name → where; loaded when called, in the order of the help page.
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
    "part": "usher.cli.commands.local:part",
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
  usher add https://example.com/   ask that a page come in
  usher add --full --pass nasa.gov crawl a whole host, now
  usher explain example.com        what became of a URL, and is it findable?
  usher status                     every stage, and what holds things up
  usher hosts list --due           hosts whose time has come
  usher feeds add https://example.com/
                                   subscribe to what a site publishes
  usher jobs list --summary        what waits and runs, and what ended in the last day
  usher tasks add --hour 2 -- usher hosts recrawl --due
                                   have it done every night
  usher components list            who is there, how they are, what they hold
  usher doctor                     is everything here as it should be?
  usher settings                   every setting, its value and where it came from
  usher db status                  how far each schema is
  usher db dump backup             write everything to the directory 'backup'
  DATABASE_URL=postgresql://… usher db migrate
                                   use a PostgreSQL of your own

Without DATABASE_URL Usher starts a PostgreSQL of its own in the data directory.
"""


class LazyGroup(click.Group):
    """A group whose commands are imported only when they are called or listed."""

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
    "--config", type=click.Path(path_type=Path), help="Settings file instead of usher.toml."
)
@click.option("--data", type=click.Path(path_type=Path), help="Data directory (also USHER_DATA).")
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
@click.option("-q", "--quiet", is_flag=True, help="Only data and errors.")
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
    """Run the command line and leave with the exit code that says how it went."""
    try:
        code = root.main(prog_name="usher", standalone_mode=False)
    except click.exceptions.Abort:
        exit_with("interrupted", code=INTERRUPTED)
    except KeyboardInterrupt:
        exit_with("interrupted", code=INTERRUPTED)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        echo(shown.getvalue(), err=True, nl=False)
        sys.exit(error.exit_code)
    except UsherError as error:
        exit_with(error.message, error.hint, code=error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone; nothing to say to them
        sys.exit(1)
    except OSError as error:
        exit_with(f"{error.filename or 'the system'}: {error.strerror}.")
    except Exception as error:
        ours = database_error(error)
        if ours is None:
            raise
        exit_with(ours.message, ours.hint, code=ours.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def database_error(error: Exception) -> UsherError | None:
    """A database error nobody put into words yet; a bug of ours stays a traceback."""
    if "psycopg" not in sys.modules:
        return None
    from usher.db.pool import IN_THE_WAY, translated
    from usher.errors import Unreachable

    if isinstance(error, IN_THE_WAY):
        reason = f"Another transaction was in the way: {error.diag.message_primary}."
        return Unreachable(reason, hint="Run the command again.")
    return translated("the database", error)


def exit_with(message: str, hint: str = "", *, code: int = 1) -> NoReturn:
    echo(f"usher: {message}", err=True)
    if hint:
        echo(f"  → {hint}", err=True)
    sys.exit(code)
