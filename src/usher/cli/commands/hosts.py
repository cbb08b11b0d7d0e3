"""`usher hosts`: the hosts we visit, looked at and changed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import click

from usher.cli.app import App, json_option, pass_app, run, show_json
from usher.cli.commands.db import Command

Policy = Literal["open", "paused", "blocked"]
POLICIES = get_args(Policy)
SCOPES = ("host", "domain", "listed", "any")
names_argument = click.argument("names", nargs=-1, required=True, metavar="HOST...")
DEFAULT = "default"  # the word for "as the house has it"
MAX_PAGES, MAX_DEPTH = 2_000_000_000, 32_000
cadence_option = click.option(
    "--cadence", metavar="CADENCE", help="weekly, monthly …, or an interval such as 36h or 10d."
)


def or_default(number: click.IntRange | click.FloatRange) -> Callable[[Any], float | str]:
    """A number, or the word for the house's."""
    return lambda text: DEFAULT if text == DEFAULT else number.convert(text, None, None)


def limit_options(*, unset: bool) -> Callable[[Command], Command]:
    """How many pages a host may have, and how deep."""
    pages, depth = click.IntRange(1, MAX_PAGES), click.IntRange(0, MAX_DEPTH)

    def add_to(command: Command) -> Command:
        for option in (
            click.option(
                "--max-depth",
                type=or_default(depth) if unset else depth,
                metavar="N",
                help="Clicks from where a crawl comes in.",
            ),
            click.option(
                "--max-pages",
                type=or_default(pages) if unset else pages,
                metavar="N",
                help="How many pages a host may have.",
            ),
        ):
            command = option(command)
        return command

    return add_to


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
      usher hosts group shared one.example two.example --delay 2s
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
    from usher.cli.actions.hosts import find_hosts, listed_json, show_hosts

    found = run(find_hosts(app, **wanted))
    if as_json:
        show_json([listed_json(host) for host in found])
    else:
        show_hosts(app, found, limit=wanted["limit"])


@hosts.command()
@click.argument("host")
@json_option
@pass_app
def show(app: App, host: str, *, as_json: bool) -> None:
    """Show one host: number, clock, cadence, scope, limits, filters, and how many pages are in which state.

    And as crawlers know it: when it may be asked next and what keeps it from being asked sooner, its
    robots.txt and sitemaps, and pages held back from disappearing (`usher hosts release`).
    States are counted up to 10,000 pages each; more are shown as ≥ 10000.
    """
    from usher.cli.actions.hosts_details import read_host_details, show_host_details

    found, site = run(read_host_details(app, host))
    show_host_details(found, site, as_json=as_json)


@hosts.command()
@names_argument
@pass_app
@click.pass_context
def release(ctx: click.Context, app: App, names: tuple[str, ...]) -> None:
    """Let pages that are gone disappear from the index, although they are a large part of their host.

    More than a fifth of a host's pages that are gone within a day are held back until somebody has
    looked: it may be the host that is ill. Exit code 3 if nothing was held back.

    \b
    Examples:
      usher status
      usher hosts release www.nasa.gov
    """
    from usher.cli.actions.hosts_details import release_held_pages as let_go
    from usher.cli.actions.hosts_details import show_released

    ctx.exit(0 if show_released(app, run(let_go(app, names))) else 3)


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
    from usher.cli.actions.hosts import add_hosts, numbers_json, show_numbers

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
    type=or_default(click.FloatRange(0, 86_400)),
    metavar="SECONDS",
    help="Rest between requests.",
)
@click.option("--adaptive/--no-adaptive", default=None, help="Let pages find their own pace.")
@click.option(
    "--allow-private/--no-allow-private",
    "private",
    default=None,
    help="Connect to a host that is not public, at the addresses its name has now.",
)
@limit_options(unset=True)
@filter_options
@pass_app
def set_(app: App, /, names: tuple[str, ...], **wanted: Any) -> None:  # noqa: ANN401 - as click read them
    """Change what is given for these hosts and keep the rest; all of them, or none if one is unknown.

    `default` as a cadence, delay or limit is the house's again (`usher hosts rules`).
    Filters given replace the host's whole list. They add to the house's (`usher hosts rules`), and
    replace those of the same name; {"name": "media", "off": true} turns one of the house's off.

    \b
    Examples:
      usher hosts set www.nasa.gov --cadence 36h --crawl-delay 2
      usher hosts set www.nasa.gov --max-pages 50000 --max-depth default
      usher hosts set www.nasa.gov --reach .gov --reach esa.int
      usher hosts set http://wiki.internal:8080/ --allow-private
      usher hosts set www.nasa.gov --filter '{"name": "calendar", "rule": "path", "matches": "^/cal/"}'
    """
    from usher.cli.actions.hosts import change_hosts

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
    from usher.cli.actions.hosts import set_policy

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
    from usher.cli.actions.hosts import recrawl_due, recrawl_hosts, show_recrawls

    if bool(names) == due or (due and hall_pass):
        raise click.UsageError("Give hosts, with or without --pass, or --due alone.")
    answers = run(recrawl_due(app) if due else recrawl_hosts(app, names, hall_pass=hall_pass))
    refused = show_recrawls(app, answers, as_json=as_json)
    ctx.exit(3 if refused else 0)


@hosts.command()
@click.argument("name", metavar="GROUP")
@click.argument("names", nargs=-1, metavar="[HOST]...")
@click.option("--delay", metavar="SPAN", help="Rest after a request to any of them, such as 2s.")
@pass_app
def group(app: App, name: str, names: tuple[str, ...], delay: str | None) -> None:
    """Have hosts that share a server share a pace: one of them is asked at a time, then all rest.

    The group is made if it is new; without hosts, its delay is changed. A host is in one group at most.

    \b
    Examples:
      usher hosts group wordpress one.example two.example --delay 2s
      usher hosts group wordpress --delay 5s
    """
    from usher.cli.actions.hosts_groups import join_group

    if not names and delay is None:
        raise click.UsageError("Give hosts, a --delay, or both.")
    app.say(f"{name}: {', '.join(run(join_group(app, name, names, delay))) or 'delay set'}")


@hosts.command()
@names_argument
@pass_app
def ungroup(app: App, names: tuple[str, ...]) -> None:
    """Give hosts a pace of their own again."""
    from usher.cli.actions.hosts_groups import leave_group

    app.say(f"on their own: {', '.join(run(leave_group(app, names)))}")


@hosts.command()
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 100_000))
@click.option("--after", default="", metavar="GROUP", help="Begin after this name.")
@json_option
@pass_app
def groups(app: App, limit: int, after: str, *, as_json: bool) -> None:
    """List the groups of hosts that share a pace, with their first few hosts.

    Hosts are counted up to 10,000; more are shown as ≥ 10000.
    """
    from usher.cli.actions.hosts_groups import find_groups, show_groups

    show_groups(app, run(find_groups(app, limit=limit, after=after)), limit=limit, as_json=as_json)


@hosts.command()
@cadence_option
@limit_options(unset=False)
@filter_options
@json_option
@pass_app
def rules(app: App, /, *, as_json: bool, **wanted: Any) -> None:  # noqa: ANN401 - as click read them
    """Show or set what holds for every host that does not say otherwise.

    \b
    Examples:
      usher hosts rules
      usher hosts rules --cadence weekly --max-pages 100000
      usher hosts rules --filters filters.json
    """
    from usher.cli.actions.hosts import default_rules, rules_json, show_rules

    found = run(default_rules(app, **wanted))
    if as_json:
        show_json(rules_json(found))
    else:
        show_rules(found)
