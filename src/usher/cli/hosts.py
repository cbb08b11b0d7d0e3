"""`usher hosts`: the hosts we visit, looked at and changed."""

from pathlib import Path
from typing import Any, Literal, get_args

import click

from usher.cli.app import App, json_option, pass_app, run, show_json
from usher.cli.db import Command

Policy = Literal["open", "paused", "blocked"]
POLICIES = get_args(Policy)
SCOPES = ("host", "domain", "listed", "any")
names_argument = click.argument("names", nargs=-1, required=True, metavar="HOST...")
cadence_option = click.option(
    "--cadence", metavar="CADENCE", help="weekly, monthly …, or an interval such as 36h or 10d."
)


def filter_options(command: Command) -> Command:
    """The ways to give a list of filters."""
    file = click.Path(path_type=Path, exists=True, dir_okay=False)
    for option in (
        click.option("--no-filters", is_flag=True, help="Remove its filters."),
        click.option(
            "--filter", "single", multiple=True, metavar="JSON", help="A filter; may be repeated."
        ),
        click.option("--filters", "file", type=file, help="A JSON file with a list of filters."),
    ):
        command = option(command)
    return command


@click.group()
def hosts() -> None:
    """Look at the hosts we visit and change how they are treated.

    \b
    Examples:
      usher hosts list --due
      usher hosts show www.nasa.gov
      usher hosts set www.nasa.gov --cadence weekly --scope domain
      usher hosts block spam.example --reason "only spam"
      usher hosts recrawl www.nasa.gov --pass
    """


@hosts.command(name="list")
@click.option("--policy", type=click.Choice(POLICIES), help="Only hosts with this policy.")
@click.option("--due", is_flag=True, help="Only hosts that are due or being crawled.")
@click.option("--contains", metavar="TEXT", help="Only names with this text in them.")
@click.option("--under", metavar="NAME", help="Only hosts of this TLD (.gov) or domain (nasa.gov).")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--after", default="", metavar="NAME", help="Begin after this name.")
@json_option
@pass_app
def list_(app: App, /, *, as_json: bool, **wanted: Any) -> None:  # noqa: ANN401 - as click read them
    """List hosts by name, with their clock.

    \b
    Examples:
      usher hosts list --policy blocked
      usher hosts list --under .gov --due --limit 20
      usher hosts list --after www.nasa.gov
    """
    from usher.cli.keeping import find_hosts, listed_json, show_listed

    found = run(find_hosts(app, **wanted))
    if as_json:
        show_json([listed_json(host) for host in found])
    else:
        show_listed(app, found, limit=wanted["limit"])


@hosts.command()
@click.argument("host")
@json_option
@pass_app
def show(app: App, host: str, *, as_json: bool) -> None:
    """Show one host: number, clock, cadence, scope, filters, and how many pages are in which state.

    States are counted up to 10,000 pages each; more are shown as ≥ 10000.
    """
    from usher.cli.keeping import read_host
    from usher.cli.story import portrait_json, show_portrait

    found = run(read_host(app, host))
    if as_json:
        show_json(portrait_json(found))
    else:
        show_portrait(found)


@hosts.command()
@names_argument
@cadence_option
@json_option
@pass_app
def add(app: App, names: tuple[str, ...], cadence: str | None, *, as_json: bool) -> None:
    """Register hosts, due now; those that are there stay as they are but for the cadence.

    \b
    Examples:
      usher hosts add www.nasa.gov science.nasa.gov --cadence weekly
    """
    from usher.cli.keeping import add_hosts, numbers_json, show_numbers

    found = run(add_hosts(app, names, cadence))
    if as_json:
        show_json(numbers_json(found))
    else:
        show_numbers(found)


@hosts.command(name="set")
@names_argument
@cadence_option
@click.option(
    "--scope", type=click.Choice(SCOPES), help="Which new hosts links found here bring in."
)
@click.option(
    "--reach",
    multiple=True,
    metavar="NAME",
    help="For scope listed: a TLD (.gov), a domain (nasa.gov) or a host; may be repeated.",
)
@click.option(
    "--crawl-delay",
    type=click.FloatRange(0, 86_400),
    metavar="SECONDS",
    help="Rest between requests.",
)
@click.option("--adaptive/--no-adaptive", default=None, help="Let pages find their own pace.")
@filter_options
@pass_app
def set_(app: App, /, names: tuple[str, ...], **wanted: Any) -> None:  # noqa: ANN401 - as click read them
    """Change what is given for these hosts and keep the rest; all of them, or none if one is unknown.

    Filters given replace the host's whole list. They add to the house's (`usher hosts rules`), and
    replace those of the same name; {"name": "media", "off": true} turns one of the house's off.

    \b
    Examples:
      usher hosts set www.nasa.gov --cadence 36h --crawl-delay 2
      usher hosts set www.nasa.gov --reach .gov --reach esa.int
      usher hosts set www.nasa.gov --filter '{"name": "calendar", "rule": "path", "matches": "^/cal/"}'
    """
    from usher.cli.keeping import change_hosts

    nothing = [value in (None, ()) or name == "no_filters" for name, value in wanted.items()]
    if all(nothing) and not wanted["no_filters"]:
        raise click.UsageError("Say what to set; see usher hosts set --help.")
    if wanted["reach"] and wanted["scope"] not in (None, "listed"):
        raise click.UsageError("--reach is for --scope listed.")
    app.say(f"set for {', '.join(run(change_hosts(app, names, **wanted)))}")


@hosts.command()
@names_argument
@click.option("--reason", default="", help="Shown wherever a URL is refused for it.")
@pass_app
def block(app: App, names: tuple[str, ...], reason: str) -> None:
    """Refuse every URL of these hosts, for good; pages that wait already are left alone."""
    change_policy(app, names, "blocked", reason)


@hosts.command()
@names_argument
@click.option("--reason", default="", help="Shown wherever a URL is refused for it.")
@pass_app
def pause(app: App, names: tuple[str, ...], reason: str) -> None:
    """Refuse every URL of these hosts for a while, until `usher hosts open`."""
    change_policy(app, names, "paused", reason)


@hosts.command(name="open")
@names_argument
@pass_app
def open_(app: App, names: tuple[str, ...]) -> None:
    """Open blocked or paused hosts again."""
    change_policy(app, names, "open", "")


def change_policy(app: App, names: tuple[str, ...], policy: Policy, reason: str) -> None:
    from usher.cli.keeping import set_policy

    app.say(f"{policy}: {', '.join(run(set_policy(app, names, policy, reason)))}")


@hosts.command()
@click.argument("names", nargs=-1, metavar="[HOST]...")
@click.option("--pass", "hall_pass", is_flag=True, help="With a hall pass: due or not, all pages.")
@click.option("--due", is_flag=True, help="Every host that is due: the nightly round.")
@json_option
@pass_app
@click.pass_context
def recrawl(
    ctx: click.Context,
    app: App,
    names: tuple[str, ...],
    *,
    hall_pass: bool,
    due: bool,
    as_json: bool,
) -> None:
    """Knock for whole hosts: their root, and with it every due page (with --pass every known page).

    Exit code 3 if all were refused.

    \b
    Examples:
      usher hosts recrawl www.nasa.gov --pass
      usher hosts recrawl --due
    """
    from usher.cli.keeping import crawl_due, crawl_hosts, show_crawls

    if bool(names) == due or (due and hall_pass):
        raise click.UsageError("Give hosts, with or without --pass, or --due alone.")
    answers = run(crawl_due(app) if due else crawl_hosts(app, names, hall_pass=hall_pass))
    refused = show_crawls(app, answers, as_json=as_json)
    ctx.exit(3 if refused else 0)


@hosts.command()
@cadence_option
@filter_options
@json_option
@pass_app
def rules(app: App, /, *, as_json: bool, **wanted: Any) -> None:  # noqa: ANN401 - as click read them
    """Show or set what holds for every host that does not say otherwise.

    \b
    Examples:
      usher hosts rules
      usher hosts rules --cadence weekly
      usher hosts rules --filters filters.json
    """
    from usher.cli.keeping import house_json, house_rules, show_house

    found = run(house_rules(app, **wanted))
    if as_json:
        show_json(house_json(found))
    else:
        show_house(found)
