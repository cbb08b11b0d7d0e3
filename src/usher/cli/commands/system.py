"""`usher version`, `settings`, `doctor` and `completion`: show the state of this installation."""

import dataclasses
import platform

import click
from click.shell_completion import get_completion_class

from usher import __version__
from usher.cli.app import App, json_option, pass_app, run, show_json, show_list
from usher.cli.output import echo, style

MARKS = {"good": ("ok", "green"), "warning": ("!!", "yellow"), "bad": ("NO", "red")}


@click.command()
@json_option
def version(*, as_json: bool) -> None:
    """Print Usher's version."""
    if as_json:
        show_json({"usher": __version__, "python": platform.python_version()})
    else:
        echo(f"usher {__version__}")


@click.command()
@json_option
@click.option("--check", is_flag=True, help="Only check whether the settings are valid.")
@pass_app
def settings(app: App, *, as_json: bool, check: bool) -> None:
    """Show every setting, its value and its origin.

    USHER_* variables override usher.toml, which overrides the defaults. Usher reads usher.toml from
    the working directory, the user's configuration directory or /etc/usher, or from --config.

    \b
    Examples:
      usher settings
      USHER_POOL_SIZE=20 usher settings --json
      usher --config prod.toml settings --check
    """
    loaded = app.loaded
    if check:
        app.say(f"The settings are valid ({loaded.file or 'no file'}).")
        return
    listed = list(loaded.rows())
    rows = [(row.name, row.value or "-", row.origin, row.help) for row in listed]
    headings = ("SETTING", "VALUE", "ORIGIN", "MEANING")
    show_list(app, listed, headings, rows, as_json=as_json, to_json=dataclasses.asdict)


@click.command()
@json_option
@pass_app
def doctor(app: App, *, as_json: bool) -> int:
    """Check this installation, and show what to do about each problem.

    Exit code 0 if there are no problems or only warnings, 3 otherwise.

    \b
    Examples:
      usher doctor
      usher --data /srv/usher doctor
    """
    from usher.observe.doctor import run_checks

    checks = run(run_checks(app.loaded))
    if as_json:
        show_json([dataclasses.asdict(check) for check in checks])
    else:
        for check in checks:
            mark, colour = MARKS[check.level]
            echo(f"{style(mark, fg=colour)}  {check.name:<12} {check.detail}")
            if check.hint:
                echo(app.hint(f"    → {check.hint}"))
    return 3 if any(check.level == "bad" for check in checks) else 0


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for your shell.

    \b
    Examples:
      usher completion bash >> ~/.bashrc
      usher completion fish > ~/.config/fish/completions/usher.fish
    """
    script = get_completion_class(shell)
    assert script is not None  # noqa: S101 - click knows all shells of the choice above
    echo(script(ctx.find_root().command, {}, "usher", "_USHER_COMPLETE").source())
